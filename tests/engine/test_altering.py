"""Views whose definition changes: every way gives the view that would be created from scratch, and the views above follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deferred import failpoints
from deferred.errors import InvalidInputError
from deferred.maintenance import files
from deferred.sql.viewfile import ViewFile
from tests.engine.support import (
    Death,
    assert_fresh,
    bag,
    dying,
    killed_at_each_effect,
    make,
    mv,
    recomputed,
    refused,
    state_of,
)

pytestmark = pytest.mark.slow

START = "SELECT a, b, s FROM r WHERE a > 0"
STEPS = [
    ("select a, b, s -- the same\nfrom r where a > 0", "nothing", ""),
    ("SELECT a, b, s FROM r WHERE a > 0 AND s = 'x'", "from the view", ""),
    ("SELECT a, b, s FROM r WHERE a >= 0 AND s = 'x'", "difference", "r"),
    ("SELECT a, b, s FROM r WHERE a >= 0 AND s = 'x' UNION ALL SELECT a, a, 't' FROM t", "difference", "t"),
    ("SELECT a, b, s FROM r WHERE a >= 0 AND s = 'x'", "difference", "t"),
    ("SELECT q.a, q.b, q.s, t.d FROM r q JOIN t ON q.a = t.a WHERE q.a >= 0 AND q.s = 'x'", "from kept rows", "t"),
    ("SELECT a, b, s FROM r WHERE a >= 0 AND s = 'x'", "recomputed", "r"),
    ("SELECT s, a * 2 AS `two a` FROM r WHERE a >= 0 AND s = 'x'", "from the view", ""),
    ("SELECT s, COUNT(*) AS n, MAX(b) AS top FROM r GROUP BY s", "recomputed", "r"),
    ("SELECT s, COUNT(*) AS n, MAX(b) AS top, SUM(a) AS total FROM r GROUP BY s", "from kept rows", "r"),
    ("SELECT s, COUNT(*) AS n, MAX(b) AS top, SUM(a) AS total FROM r WHERE a > 0 GROUP BY s", "difference", "r"),
    ("SELECT s, COUNT(*) AS n, MAX(b) AS top, SUM(a) AS total FROM r WHERE b < 9 GROUP BY s", "difference", "r"),
    ("SELECT s, COUNT(*) AS n, MAX(b) AS top, SUM(a) AS total FROM r GROUP BY s", "difference", "r"),
    ("SELECT s, COUNT(*) AS n, MAX(b) AS top FROM r GROUP BY s HAVING MAX(b) > 1", "from the view", ""),
    ("SELECT s, COUNT(*) AS n, MAX(b) AS top FROM r GROUP BY s HAVING MAX(b) > 0", "from kept rows", ""),
    ("SELECT s, COUNT(*) + 1 AS n FROM r GROUP BY s HAVING MAX(b) > 1", "from kept rows", ""),
    ("SELECT a FROM r UNION SELECT a FROM t WHERE d > 1", "recomputed", "r t"),
    ("SELECT a FROM r UNION SELECT b FROM r UNION SELECT a FROM t WHERE d > 1", "difference", "r t"),
    ("SELECT a FROM r UNION SELECT a FROM t WHERE d > 1", "difference", "r t"),
    ("SELECT a, b FROM r ORDER BY b DESC, a LIMIT 3", "recomputed", "r"),
    ("SELECT a, b FROM r ORDER BY b DESC, a LIMIT 9", "from kept rows", "r"),
]
"""Queries one after the other, the way from each to the next, and the base tables that are read for it."""


def as_of_s_i(wh: Any, sql: str) -> Any:
    """A recomputation at the cut that the view shows."""
    (view,) = wh.views()
    return recomputed(wh, sql, {t.name: view.shown.versions[t.id] for t in wh.base_tables() if t.id in view.depends_on})


def test_every_way_gives_the_view_created_from_scratch(tables: Any) -> None:
    wh = tables
    wh.create_view("v", START, refresh_policy="incremental")
    place = mv(wh, "v")
    renamed = "WITH c AS (SELECT x.a, x.b, x.s FROM r AS x) SELECT y.a, b, s FROM c y WHERE y.a > 0"
    assert wh.plan_alteration("v", renamed.replace(" c ", " d ")).name == wh.plan_alteration("v", renamed).name
    for number, (sql, way, bases) in enumerate(STEPS):
        wh.sql(f"INSERT INTO r VALUES ({number % 3}, {number}, 'x'), (0, {number}, 'x'), (NULL, 1, 'y')")
        if number % 2:
            wh.sql(f"DELETE FROM r WHERE b = {number - 2}")
            wh.propagate("v")
            wh.sql(f"INSERT INTO t VALUES ({number}, 1.00)")
        foreseen = wh.plan_alteration("v", sql)
        assert foreseen.name == way
        assert {part.table for part in foreseen.reads} & {"r", "t"} == set(bases.split()), sql
        assert bool(foreseen.writes) == (way != "nothing")
        done = wh.alter_view("v", sql)
        assert (done.strategy, done.kind) == (way, "alter"), sql
        assert wh.views()[0].sql == sql
        if way != "nothing":
            shown, wanted = wh.read("v"), as_of_s_i(wh, sql)
            assert shown.columns == wanted.columns
            assert bag(shown) == bag(wanted), sql
        if way in ("difference", "from kept rows"):
            wh.verify("v")  # what it keeps is right, too
    assert mv(wh, "v") == place
    wh.refresh("v")
    assert_fresh(wh, "v")
    assert {entry.kind for entry in wh.history("v")} >= {"alter", "propagate", "refresh"}


def test_views_above_stay_and_follow(tables: Any) -> None:
    wh = tables
    wh.create_view("v", "SELECT a, b, s FROM r")
    wh.create_view("w", "SELECT s, COUNT(a) AS n FROM v GROUP BY s", scenario="immediate")
    wh.create_view("other", "SELECT a FROM r")
    before = state_of(wh)
    with refused(InvalidInputError, "w", "column a"):
        wh.alter_view("v", "SELECT b, s FROM r")
    with refused(InvalidInputError, "w", "column s", "int"):
        wh.alter_view("v", "SELECT a, b AS s FROM r")
    with refused(InvalidInputError, "w", "reads it"):
        wh.alter_view("v", "SELECT 1 AS a, s FROM w")
    assert state_of(wh) == before
    wh.alter_view("v", "SELECT s, a + 1 AS a FROM r WHERE a > 1")
    assert bag(wh.read("w")) == {("y", 1): 1}
    wh.sql("INSERT INTO r VALUES (5, 5, 'new')")
    wh.refresh("v")
    assert bag(wh.read("w")) == {("y", 1): 1, ("new", 1): 1}
    wh.verify("w")
    wh.create_view("late", "SELECT COUNT(*) AS n FROM r")
    wh.alter_view("other", "SELECT n FROM late", scenario="immediate")  # a view of an earlier one over a later one
    wh.sql("INSERT INTO r VALUES (6, 6, 'new')")
    wh.refresh("late")
    assert bag(wh.read("other")) == bag(wh.read("late"))


FILES = {
    "a column less, which the view above no longer reads": (
        ("SELECT s, a FROM r", "SELECT s, COUNT(a) AS n FROM v GROUP BY s"),
        None,
    ),
    "a column more, which the view above reads": (
        ("SELECT a, b, s, a + b AS both FROM r", "SELECT s, COUNT(b) AS n, MAX(both) AS most FROM v GROUP BY s"),
        None,
    ),
    "another name": (("SELECT a, b AS c, s FROM r", "SELECT s, COUNT(c) AS n FROM v GROUP BY s"), None),
    "a column less, which the view above goes on to read": (
        ("SELECT a, s FROM r", "SELECT s, COUNT(b) AS m FROM v GROUP BY s"),
        "b",
    ),
}
"""New definitions of a view and of one above it, and the column for which they are refused."""


@pytest.mark.parametrize("what", FILES)
def test_files_of_views_over_each_other_are_compared_with_what_they_will_be(tables: Any, what: str) -> None:
    wh, (queries, lacking) = tables, FILES[what]
    wh.create_view("v", "SELECT a, b, s FROM r", refresh_policy="incremental")
    wh.create_view("w", "SELECT s, COUNT(b) AS n FROM v GROUP BY s", refresh_policy="incremental")
    wh.sql("INSERT INTO r VALUES (7, 7, 'x')")
    wh.refresh("v")
    listed = [ViewFile(name, sql) for name, sql in zip("vw", queries, strict=True)]
    late = ViewFile("late", "SELECT * FROM v")
    before = state_of(wh)
    planned, refused_ = files.plan(wh, [*listed, late])
    assert state_of(wh) == before
    if lacking is not None:
        assert "w" in str(refused_["v"])
        assert lacking in str(refused_["v"])
        with refused(InvalidInputError, "w", "would not fit", lacking):
            files.apply(wh, listed[0], together=listed)
        assert state_of(wh) == before
        return
    assert refused_ == {}
    assert [p.outcome for p in planned] == [*["to be changed"] * 2, "to be created"]
    for file in (*listed, late):
        files.apply(wh, file, together=[*listed, late])
    wh.sql("INSERT INTO r VALUES (8, 8, 'new')")
    for name in ("v", "w", "late"):
        wh.refresh(name)
        assert_fresh(wh, name)
        assert wh.verify(name).holds


SALES = "SELECT s.id, s.day, c.name FROM sale s JOIN customer c ON s.customer = c.id"


def test_a_join_along_a_reference_is_left_out(warehouse: Any, tmp_path: Path) -> None:
    """The view's own rows are the new ones, and those that refer to nothing; if the reference holds."""
    wh = warehouse
    customers = make(wh.spark, tmp_path / "customer", "id INT, name STRING", "(1, 'a'), (2, NULL)")
    sales = make(wh.spark, tmp_path / "sale", "id INT, customer INT, day INT", "(1, 1, 1), (1, 1, 1), (2, NULL, 2)")
    wh.track("customer", customers, key=["id"])
    wh.track("sale", sales, references={"customer": "customer.id"})
    wh.create_view("v", SALES)
    wh.sql("INSERT INTO sale VALUES (3, 2, 3), (4, NULL, 4)")
    wh.propagate("v")
    without = "SELECT s.day, s.id FROM sale s WHERE id <> 4"
    assert wh.alter_view("v", without).strategy == "from kept rows"
    assert bag(wh.read("v")) == bag(as_of_s_i(wh, without)) == {(1, 1): 2, (2, 2): 1, (3, 3): 1}
    wh.sql("DELETE FROM sale WHERE id = 2")
    wh.refresh("v")
    wh.verify("v")
    wh.alter_view("v", SALES)
    wh.sql("INSERT INTO sale VALUES (5, 9, 5)")
    wh.refresh("v")
    done = wh.alter_view("v", without)
    assert (done.strategy, "sale(customer) refers to customer" in str(done.message)) == ("recomputed", True)
    assert bag(wh.read("v")) == {(1, 1): 2, (3, 3): 1, (5, 5): 1}


@pytest.fixture
def alteration(tables: Any) -> Any:
    wh = tables
    wh.create_view("v", START, refresh_policy="incremental")
    wh.sql("INSERT INTO r VALUES (7, 7, 'x')")
    wh.propagate("v")
    return wh


NEW = "SELECT s, COUNT(*) AS n FROM r GROUP BY s"


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A warehouse that is opened after this announces the commits of its metadata database, too."""
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path / "effects"))


@pytest.fixture
def grouped(announced: None, tables: Any) -> Any:
    wh = tables
    wh.create_view("v", NEW, refresh_policy="incremental")
    wh.sql("INSERT INTO r VALUES (7, 7, 'x')")
    wh.propagate("v")
    return wh


def test_a_crash_at_any_effect_leaves_the_old_definition_or_the_new_one(
    grouped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh, new, found = grouped, NEW.replace("FROM r", "FROM r WHERE a > 1"), []

    def alter() -> None:
        assert wh.alter_view("v", new).strategy == "difference"

    for effect in killed_at_each_effect(monkeypatch, alter):
        assert wh.verify("v").holds, effect
        found.append(wh.views()[0].sql)
        if found[-1] == new:
            wh.alter_view("v", NEW)
    assert set(found) == {NEW, new}
    assert found == sorted(found, key=[NEW, new].index)
    wh.refresh("v")
    assert_fresh(wh, "v")
    wh.verify("v")


@pytest.mark.parametrize(("where", "is_new"), [("Delta: replacement", False), ("the switch", True)])
def test_a_crash_leaves_the_old_definition_or_the_new_one(
    alteration: Any, monkeypatch: pytest.MonkeyPatch, where: str, is_new: bool
) -> None:
    from deferred.maintenance import altering

    wh = alteration

    def reached(place: str) -> None:
        if place.startswith(where):
            raise Death

    def killed(*_: Any) -> None:
        raise Death

    monkeypatch.setattr(failpoints, "reached", reached)
    if is_new:
        monkeypatch.setattr(altering, "altered", killed)
    with dying():
        wh.alter_view("v", NEW)
    monkeypatch.undo()
    assert wh.read("v").columns == (["s", "n"] if is_new else ["a", "b", "s"])
    wh.verify("v")
    assert wh.views()[0].sql == (NEW if is_new else START)
    wh.refresh("v")
    assert_fresh(wh, "v")
    if not is_new:
        wh.alter_view("v", NEW)
        assert_fresh(wh, "v")
    folder = Path(wh.views()[0].location)
    wh.gc(retain_hours=0)
    assert sorted(p.name for p in folder.iterdir()) == sorted([wh.views()[0].definition.generation, "mv"])
