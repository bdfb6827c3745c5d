"""View files: what the one statement may say, what is refused and where, and the order among views."""

from __future__ import annotations

from pathlib import Path

import pytest

from deferred.errors import ConfigurationError, DeferredError, InvalidSQLError
from deferred.options import OPTION_NAMES, ViewOptions
from deferred.sql.viewfile import load_views, parse_view, read_view, tables_read

WHOLE = """-- sales to good customers
CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS `high value` (custId, `the name` COMMENT 'as written')
COMMENT 'what''s sold; AS it is'
WITH (scenario = 'combined', refresh_policy = 'incremental_strict', propagate_every = '1h', refresh_every = '24h',
      policy = 2, target_lag = '30m', refresh_on_read = true, maintain = 'tree')
AS /* not this */ WITH good AS (SELECT * FROM customer WHERE score = 'High;') -- but this
SELECT c.custId, c.`name` FROM good c
;
"""


def test_all_clauses_together() -> None:
    view = parse_view(WHOLE, Path("high value.sql"))
    assert view.name == "high value"
    assert view.columns == ("custId", "the name")
    assert view.comment == "what's sold; AS it is"
    assert view.options == ViewOptions(
        scenario="combined",
        refresh_policy="incremental_strict",
        propagate_every="1h",
        refresh_every="24h",
        policy=2,
        target_lag="30m",
        refresh_on_read=True,
        maintain="tree",
    )
    assert view.stated == frozenset(OPTION_NAMES)
    assert view.sql == (
        "WITH good AS (SELECT * FROM customer WHERE score = 'High;') -- but this\nSELECT c.custId, c.`name` FROM good c"
    )
    assert view.query == f"SELECT * FROM (\n{view.sql}\n) AS `high value`(`custId`, `the name`)"
    assert (view.or_replace, view.if_not_exists) == (True, True)


def test_the_shortest_statement() -> None:
    view = parse_view("create materialized view v as select 1 as a")
    assert (view.name, view.sql, view.query) == ("v", "select 1 as a", "select 1 as a")
    assert (view.options, view.stated) == (ViewOptions(), frozenset())
    assert (view.columns, view.comment) == ((), None)


def test_options_before_comment_and_names_without_case() -> None:
    view = parse_view("CREATE MATERIALIZED VIEW v WITH (Policy = 1) COMMENT 'c' AS (SELECT 1 AS a)")
    assert (view.options.policy, view.stated) == (1, {"policy"})
    assert (view.comment, view.sql) == ("c", "(SELECT 1 AS a)")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["v.sql: There is no statement", "CREATE MATERIALIZED VIEW"]),
        ("-- nothing\n", ["no statement"]),
        ("SELECT 1", ["line 1", "CREATE is expected, not 'SELECT'"]),
        ("CREATE VIEW v AS SELECT 1", ["MATERIALIZED is expected, not 'VIEW'"]),
        ("CREATE MATERIALIZED VIEW AS SELECT 1 AS a", ["AS is expected, not 'SELECT'"]),
        ("CREATE MATERIALIZED VIEW 'v' AS SELECT 1", ["The name of the view is expected"]),
        ("CREATE MATERIALIZED VIEW a.v AS SELECT 1", ["no dots"]),
        ("CREATE MATERIALIZED VIEW v", ["AS is expected, and the text ends here"]),
        ("CREATE MATERIALIZED VIEW v AS ;", ["The query after AS is missing"]),
        ("CREATE MATERIALIZED VIEW v (a, A) AS SELECT 1", ["The column A is named twice."]),
        ("CREATE MATERIALIZED VIEW v (a b) AS SELECT 1", [") is expected, not 'b'"]),
        ("CREATE MATERIALIZED VIEW v\nWITH (scenari = 'combined') AS SELECT 1", ["line 2", "did you mean scenario"]),
        (
            "CREATE MATERIALIZED VIEW v WITH (scenario = 'cobined') AS SELECT 1",
            ["scenario must be one of immediate, base_log, differential, combined, not 'cobined'."],
        ),
        ("CREATE MATERIALIZED VIEW v WITH (scenario = 2) AS SELECT 1", ["one of immediate", "not 2."]),
        ("CREATE MATERIALIZED VIEW v WITH (policy = 3) AS SELECT 1", ["policy must be 1 or 2, not 3."]),
        ("CREATE MATERIALIZED VIEW v WITH (scenario = combined) AS SELECT 1", ["in single quotes, not 'combined'"]),
        ("CREATE MATERIALIZED VIEW v WITH (policy = 1, policy = 2) AS SELECT 1", ["given twice"]),
        ("CREATE MATERIALIZED VIEW v WITH (refresh_every = '1 fortnight') AS SELECT 1", ["refresh_every", "24h"]),
        (
            "CREATE MATERIALIZED VIEW v WITH (refresh_every = 5) AS SELECT 1",
            ["refresh_every must be a text such as '1h', not 5."],
        ),
        ("CREATE MATERIALIZED VIEW v WITH (policy = 1 AS SELECT 1", [", is expected, not 'AS'"]),
        ("CREATE MATERIALIZED VIEW v\nAS\nSELECT a\nFROM (t", ["line 4"]),
        ("CREATE MATERIALIZED VIEW v AS DELETE FROM t", ["defined by a query"]),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1; SELECT 2", ["one SQL statement"]),
        ("CREATE MATERIALIZED VIEW v AS SELECT 'a", ["quote left open"]),
    ],
)
def test_mistakes_are_named(text: str, parts: list[str]) -> None:
    with pytest.raises(DeferredError) as caught:
        parse_view(text, Path("v.sql"))
    assert isinstance(caught.value, (InvalidSQLError, ConfigurationError))
    assert "v.sql" in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_an_error_in_the_query_keeps_the_line_of_the_file() -> None:
    with pytest.raises(InvalidSQLError, match=r"v\.sql: .*line 3"):
        parse_view("-- a\nCREATE MATERIALIZED VIEW v AS\n  SELECT (1 AS a", Path("v.sql"))


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM a, B b2 JOIN `c` ON true", ["a", "b", "c"]),
        ("SELECT * FROM cat.db.a", []),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ["a"]),
        ("WITH a AS (SELECT 1 AS x), b AS (SELECT * FROM a) SELECT * FROM b", []),
        ("WITH b AS (SELECT * FROM a), a AS (SELECT 1 AS x) SELECT * FROM b", ["a"]),
        ("WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT x FROM a) SELECT * FROM a", []),
        (
            "SELECT 1 AS x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x) UNION ALL SELECT x FROM c",
            ["a", "b", "c"],
        ),
        ("SELECT x FROM (WITH a AS (SELECT 1 AS x) SELECT * FROM a) UNION ALL SELECT x FROM a", ["a"]),
    ],
)
def test_tables_read(sql: str, names: list[str]) -> None:
    assert sorted(tables_read(sql)) == names


def put(folder: Path, **views: str) -> Path:
    for name, query in views.items():
        (folder / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    return folder


def test_views_come_after_those_they_read(tmp_path: Path) -> None:
    put(tmp_path, a="SELECT * FROM C JOIN b USING (x)", b="SELECT * FROM base", c="SELECT * FROM b")
    (tmp_path / "README.md").write_text("not a view")
    assert [view.name for view in load_views(tmp_path)] == ["b", "c", "a"]


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    put(tmp_path, a="SELECT * FROM b", b="SELECT * FROM c", c="SELECT * FROM a", d="SELECT 1 AS x")
    with pytest.raises(ConfigurationError, match=r"circle: (a reads b reads c reads a|b reads c|c reads a)"):
        load_views(tmp_path)


def test_a_view_that_reads_itself_is_refused(tmp_path: Path) -> None:
    put(tmp_path, a="SELECT * FROM a")
    with pytest.raises(ConfigurationError, match="a reads a"):
        load_views(tmp_path)


def test_the_file_must_be_named_after_the_view(tmp_path: Path) -> None:
    put(tmp_path, a="SELECT 1 AS x").joinpath("a.sql").rename(tmp_path / "b.sql")
    with pytest.raises(ConfigurationError, match=r"b\.sql: .*must be called a\.sql"):
        read_view(tmp_path / "b.sql")


def test_two_files_for_one_view(tmp_path: Path) -> None:
    put(tmp_path, a="SELECT 1 AS x", A="SELECT 1 AS x")
    with pytest.raises(ConfigurationError, match="Two files define"):
        load_views(tmp_path)


def test_files_and_folders_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no folder of views"):
        load_views(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="no view file"):
        read_view(tmp_path / "a.sql")
    (tmp_path / "a.sql").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        read_view(tmp_path / "a.sql")
    assert load_views(put(tmp_path, b="SELECT 1 AS x", a="SELECT 2 AS x"))
