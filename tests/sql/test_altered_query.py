"""Changed queries that must not be taken for a part of the old rows, each with the reason."""

from __future__ import annotations

import re

import pytest

from deferred.sql.altered_query import OfView, compared, marked
from deferred.sql.dialect import parse_query, text

RECOMPUTED = {
    "the row of no groups stays": ("SELECT COUNT(*) AS n FROM t", "SELECT COUNT(*) AS n FROM t WHERE FALSE"),
    "the row of all groups stays": (
        "SELECT a, COUNT(*) AS n FROM t GROUP BY ROLLUP (a)",
        "SELECT a, COUNT(*) AS n FROM t WHERE a > 1 GROUP BY ROLLUP (a)",
    ),
    "the condition is not on whole groups": (
        "SELECT a, MAX(b) AS n FROM t GROUP BY a",
        "SELECT a, MAX(b) AS n FROM t WHERE b > 1 GROUP BY a",
    ),
    "an ordinal means another column": (
        "SELECT a, b, COUNT(*) AS n FROM t GROUP BY 1, 2",
        "SELECT b, a, COUNT(*) AS n FROM t GROUP BY 1, 2",
    ),
    "fewer columns have more duplicates": ("SELECT DISTINCT a, b FROM t", "SELECT DISTINCT a FROM t"),
    "a limit chooses among other rows": (
        "SELECT a, b FROM t ORDER BY a LIMIT 1",
        "SELECT a, b FROM t WHERE b = 1 ORDER BY a LIMIT 1",
    ),
    "a window sees other rows": (
        "SELECT a, RANK() OVER (ORDER BY a) AS n FROM t",
        "SELECT a, RANK() OVER (ORDER BY a) AS n FROM t WHERE a > 1",
    ),
    "a column that the old rows lack": ("SELECT a, b FROM t", "SELECT a, c FROM t"),
    "a subquery is no value of the old rows": (
        "SELECT a, b FROM t",
        "SELECT a, (SELECT MAX(c) FROM u) AS m FROM t",
    ),
    "another table": ("SELECT a FROM t", "SELECT a FROM t, u"),
    "another common table expression": (
        "WITH x AS (SELECT a FROM t) SELECT a FROM x",
        "WITH x AS (SELECT b AS a FROM u) SELECT a FROM x UNION ALL SELECT b FROM u",
    ),
    "the first rows of a union are chosen among all": (
        "SELECT a FROM t UNION ALL SELECT b AS a FROM u ORDER BY a LIMIT 1",
        "SELECT a FROM t",
    ),
    "names differ in case inside a text": ("SELECT a FROM t WHERE a = 'X'", "SELECT b FROM t WHERE a = 'x'"),
}


@pytest.mark.parametrize("reason", RECOMPUTED)
def test_it_is_recomputed(reason: str) -> None:
    old, new = RECOMPUTED[reason]
    assert compared(old, new, [item.alias_or_name for item in parse_query(old).expressions]) is None


def test_what_follows_from_the_old_rows() -> None:
    grouped = "SELECT a, COUNT(*) AS n FROM t GROUP BY a"
    found = compared(grouped, f"{grouped} HAVING COUNT(*) > 1", ["a", "n"])
    assert isinstance(found, OfView)
    assert found.condition is not None
    assert found.condition.sql() == '"n" > 1'


# the old and the new query: the new columns made of old ones, and the condition on old rows
OF_VIEW: dict[tuple[str, str], tuple[list[str] | None, str | None]] = {
    ("SELECT a, b FROM t", "SELECT b, a + 1 AS c FROM t"): (["`b`", "`a` + 1"], None),
    ("SELECT a, b FROM t", "SELECT a, b FROM t WHERE a > 1"): (None, "`a` > 1"),
    ("SELECT a, b FROM t WHERE a > 1", "SELECT a, b FROM t WHERE a > 1 AND b = 2"): (None, "`b` = 2"),
    (
        "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
        "SELECT a, COUNT(*) AS n FROM t WHERE a > 1 GROUP BY a",
    ): (None, "`a` > 1"),
}


@pytest.mark.parametrize(("old", "new"), OF_VIEW)
def test_new_rows_that_are_made_of_old_ones(old: str, new: str) -> None:
    found = compared(old, new, [item.alias_or_name for item in parse_query(old).expressions])
    assert isinstance(found, OfView)
    outputs = None if found.outputs is None else [text(output) for output in found.outputs]
    assert (outputs, None if found.condition is None else text(found.condition)) == OF_VIEW[old, new]


MARKED: dict[tuple[str, str], str | None] = {
    ("SELECT a FROM t WHERE b > 1", "SELECT a FROM t"): "SELECT a FROM t WHERE [TRUE for b > 1]",
    ("SELECT a FROM t WHERE a > 1 AND b", "SELECT a FROM t WHERE b AND c"): "SELECT a FROM t WHERE b AND [c for a > 1]",
    (
        "SELECT s, COUNT(*) FROM (SELECT * FROM t WHERE a > 1) AS x GROUP BY s",
        "SELECT s, COUNT(*) FROM (SELECT * FROM t WHERE a > 2) AS x GROUP BY s",
    ): "SELECT s, COUNT(*) FROM (SELECT * FROM t WHERE [a > 2 for a > 1]) AS x GROUP BY s",
    (
        "SELECT a FROM t WHERE a IN (SELECT b FROM u WHERE c = 1)",
        "SELECT a FROM t WHERE a IN (SELECT b FROM u WHERE c = 2)",
    ): "SELECT a FROM t WHERE a IN (SELECT b FROM u WHERE [c = 2 for c = 1])",
    (
        "WITH x AS (SELECT a FROM t) SELECT a FROM x",
        "WITH x AS (SELECT a FROM t) SELECT a FROM x UNION ALL SELECT b FROM u",
    ): "WITH x AS (SELECT a FROM t) SELECT a FROM x UNION ALL SELECT b FROM u WHERE [TRUE for FALSE]",
    (
        "SELECT a FROM t UNION SELECT b FROM u UNION SELECT c FROM v",
        "SELECT b FROM u UNION SELECT c FROM v",
    ): "SELECT a AS `b` FROM t WHERE [FALSE for TRUE] UNION SELECT b FROM u UNION SELECT c FROM v",
    (
        "SELECT a FROM t",
        "SELECT a FROM t UNION ALL SELECT MAX(b) AS m FROM u",
    ): "SELECT a FROM t UNION ALL SELECT * FROM (SELECT MAX(b) AS m FROM u) AS _deferred_branch WHERE [TRUE for FALSE]",
    ("SELECT a FROM t", "SELECT a FROM t"): None,
    ("SELECT a FROM t WHERE b > 1", "SELECT c FROM t WHERE b > 2"): None,
    ("SELECT a FROM t ORDER BY a LIMIT 1", "SELECT a FROM t UNION ALL SELECT b FROM u ORDER BY a LIMIT 1"): None,
    ("SELECT t.a FROM t, u WHERE t.a = u.a", "SELECT t.a FROM t, u WHERE t.a = u.b"): None,
}


@pytest.mark.parametrize(("old", "new"), MARKED)
def test_conditions_and_branches_that_only_one_query_has(old: str, new: str) -> None:
    found = marked(old, new)
    mark = r"CASE WHEN (.*?) THEN TRUE WHEN (.*?) THEN FALSE ELSE '_deferred_edit' END"
    assert (None if found is None else re.sub(mark, r"[\1 for \2]", found)) == MARKED[old, new]
