"""Recursive views on Spark, through the public API: created, propagated, refreshed, verified, rebuilt."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlglot import exp

from deferred.errors import EndlessRecursionError, InvalidSQLError
from deferred.maintenance import operation, strategies
from deferred.sql.dialect import parse_query
from tests.engine.support import assert_fresh, bag, make, refused
from tests.fuzz.duck import Database
from tests.fuzz.recursive import SCHEMAS, RecursiveGenerator

REPORTS = """
WITH RECURSIVE chain AS (
  SELECT id, boss FROM staff
  UNION
  SELECT c.id, s.boss FROM chain c JOIN staff s ON c.boss = s.id)
SELECT boss, COUNT(*) AS people FROM chain GROUP BY boss"""

LEVELS = """
WITH RECURSIVE below(id, depth) MAX RECURSION LEVEL 9 AS (
  SELECT id, 0 FROM staff WHERE boss IS NULL
  UNION ALL
  SELECT s.id, depth + 1 FROM below JOIN staff s ON s.boss = below.id)
SELECT id, depth FROM below"""


@pytest.fixture
def staff(warehouse: Any, tmp_path: Path) -> str:
    path = make(warehouse.spark, tmp_path / "staff", "id INT, boss INT", "(1, NULL), (2, 1), (3, 1), (4, 2), (5, 4)")
    warehouse.track("staff", path)
    return path


def people(wh: Any) -> dict[Any, int]:
    return {row["boss"]: row["people"] for row in wh.read("reports").collect()}


def test_a_view_over_a_hierarchy(warehouse: Any, staff: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wh = warehouse
    wh.create_view("reports", REPORTS, refresh_policy="incremental_strict")
    assert people(wh) == {None: 5, 1: 4, 2: 2, 4: 1}
    told = str(wh.explain("reports"))
    assert "recursion · DRed: reads the changed rows, then in each round those of the round before" in told
    assert "fix[chain](" in told
    assert "the rows of the next round, until there are none" in told
    wh.spark.sql(f"UPDATE delta.`{staff}` SET boss = 3 WHERE id = 4")
    monkeypatch.setattr(operation, "TOLD_SECONDS", 0.0)
    told_rounds: list[str | None] = []
    listening = replace(wh._context, listeners=(lambda event: told_rounds.append(event.phase),))
    monkeypatch.setattr(wh, "_context", listening)
    done = wh.refresh("reports")
    assert (
        "round 1 of chain, derived rows: 2 found, 4 in all" in told_rounds
    )  # below 3 now: 4 and 5, then their ways to 1
    assert done.strategy == "incremental"
    assert people(wh) == {None: 5, 1: 4, 3: 2, 4: 1}
    rounds = done.recursions["chain"]
    assert rounds in [entry.recursions.get("chain") for entry in wh.history("reports")]
    assert rounds["rounds"] > 0
    assert rounds["overestimated"] - rounds["rederived"] == 2
    wh.rebuild("reports")
    wh.spark.sql(f"DELETE FROM delta.`{staff}` WHERE id = 3")
    assert wh.propagate("reports", full=True).strategy == "full"
    assert wh.verify("reports").holds


def test_a_recursion_is_read_fresh_and_altered(warehouse: Any, staff: str) -> None:
    wh = warehouse
    wh.create_view("reports", REPORTS, refresh_policy="incremental_strict")
    created = wh.find_view("reports").shown.timestamp
    wh.spark.sql(f"INSERT INTO delta.`{staff}` VALUES (6, 5)")
    assert bag(wh.read("reports", fresh=True)) == {(None, 6): 1, (1, 5): 1, (2, 3): 1, (4, 2): 1, (5, 1): 1}
    assert bag(wh.read("reports", as_of=created, where="boss = 1")) == {(1, 4): 1}
    wh.alter_view("reports", REPORTS.replace("FROM staff\n", "FROM staff WHERE boss > 1\n"))
    assert bag(wh.read("reports")) == {(None, 3): 1, (1, 3): 1, (2, 3): 1, (4, 2): 1, (5, 1): 1}
    wh.spark.sql(f"DELETE FROM delta.`{staff}` WHERE id = 6")
    assert wh.refresh("reports").strategy == "incremental"
    assert wh.verify("reports").holds
    assert people(wh) == {None: 2, 1: 2, 2: 2, 4: 1}
    fewer = wh.find_view("reports").sql + " HAVING COUNT(*) > 1"
    assert wh.alter_view("reports", fewer).strategy == "from the view"
    done = wh.alter_view("reports", fewer.replace("(*) > 1", "(*) > 0"))
    assert (done.strategy, done.message) == (
        "from kept rows",
        "The new rows follow from rows that are kept; read again: no base table.",
    )
    wh.spark.sql(f"INSERT INTO delta.`{staff}` VALUES (6, 5)")
    assert wh.refresh("reports").strategy == "incremental"
    assert wh.verify("reports").holds


def test_a_recursion_over_a_view(warehouse: Any, staff: str) -> None:
    wh = warehouse
    wh.create_view("lines", "SELECT id, boss FROM staff WHERE id <> 3")
    wh.create_view("reports", REPORTS.replace("staff", "lines"), refresh_policy="incremental_strict")
    assert people(wh) == {None: 4, 1: 3, 2: 2, 4: 1}
    wh.spark.sql(f"UPDATE delta.`{staff}` SET boss = 1 WHERE id = 5")
    wh.refresh("lines")
    wh.refresh("reports")
    assert people(wh) == {None: 4, 1: 3, 2: 1}


def test_zeros_of_either_sign_are_one_row(warehouse: Any, staff: str) -> None:
    wh = warehouse
    halves = """WITH RECURSIVE halves AS (
      SELECT id, CAST(boss AS DOUBLE) AS half FROM staff
      UNION SELECT id, IF(half < 0.5, -0.0D, half / 2) FROM halves) SELECT id, half FROM halves WHERE id < 4"""
    wh.create_view("v", halves, refresh_policy="incremental_strict")
    assert [str(row["half"]) for row in wh.read("v", where="id = 2 AND half = 0").collect()] == ["0.0"]
    wh.spark.sql(f"UPDATE delta.`{staff}` SET boss = 2 WHERE id < 4")
    wh.refresh("v")
    assert wh.verify("v").holds
    shown = {str(row["half"]) for row in wh.read("v").collect()}
    assert shown == {"2.0", "1.0", "0.5", "0.25", "0.0"}


PAIRS = """
WITH RECURSIVE way(start, stop, edges, cost, seen) AS (
  SELECT id, boss, 1, CAST(id AS DOUBLE) / 4, MAP(id, boss) FROM staff WHERE boss IS NOT NULL
  UNION ALL
  SELECT x.start, y.stop, x.edges + y.edges, -x.cost * y.cost, MAP_CONCAT(x.seen, y.seen)
  FROM way x JOIN way y ON x.stop = y.start WHERE x.edges + y.edges <= 3)
SELECT start, stop, edges, cost, seen FROM way"""


def test_derivations_from_two_rows_each(warehouse: Any, staff: str) -> None:
    """5 → 4 → 2 → 1: the way of three edges is derived twice, from one edge and two, and from two and one."""
    wh = warehouse
    wh.create_view("ways", PAIRS, refresh_policy="incremental_strict")

    def ways() -> Counter[Any]:
        return Counter((r["start"], r["stop"], r["edges"], len(r["seen"])) for r in wh.read("ways").collect())

    assert ways()[5, 1, 3, 3] == 2
    assert ways().total() == 8
    wh.spark.sql(f"UPDATE delta.`{staff}` SET boss = 3 WHERE id = 4")
    assert wh.refresh("ways").strategy == "incremental"
    assert ways() == {
        (2, 1, 1, 1): 1,
        (3, 1, 1, 1): 1,
        (4, 3, 1, 1): 1,
        (5, 4, 1, 1): 1,
        (4, 1, 2, 2): 1,
        (5, 3, 2, 2): 1,
        (5, 1, 3, 3): 2,
    }
    assert wh.verify("ways").holds
    wh.spark.sql(f"DELETE FROM delta.`{staff}` WHERE id = 3")
    done = wh.refresh("ways")
    assert done.recursions["way"]["rounds"] > 0
    assert ways() == {(2, 1, 1, 1): 1, (4, 3, 1, 1): 1, (5, 4, 1, 1): 1, (5, 3, 2, 2): 1}
    assert wh.verify("ways").holds


def test_a_recursion_of_which_most_may_be_gone_is_recomputed(
    warehouse: Any, staff: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh = warehouse
    monkeypatch.setattr(strategies, "SMALL", 5)
    wh.create_view("reports", REPORTS, refresh_policy="incremental_strict")
    wh.spark.sql(f"DELETE FROM delta.`{staff}` WHERE id IN (2, 3, 4)")
    done = wh.refresh("reports")
    assert done.strategy == "full"
    assert bag(wh.read("reports")) == {(None, 1): 1, (4, 1): 1}
    reasons = [o.details.get("reason", "") for o in wh._context.metadata.operations.recent("reports")]
    assert any("rows of a recursion may be gone" in reason for reason in reasons)


def test_an_endless_recursion_is_stopped(warehouse: Any, staff: str) -> None:
    wh = warehouse
    wh.create_view("levels", LEVELS, refresh_policy="incremental_strict")
    wh.spark.sql(f"INSERT INTO delta.`{staff}` VALUES (1, 5)")  # a cycle
    with refused(EndlessRecursionError, "below", "9 rounds", "They go round in a cycle", "(1,) → ", "→ (5,)"):
        wh.refresh("levels")
    wh.spark.sql(f"DELETE FROM delta.`{staff}` WHERE id = 1 AND boss = 5")
    wh.spark.sql(f"UPDATE delta.`{staff}` SET boss = 3 WHERE id = 5")
    wh.refresh("levels")
    assert_fresh(wh, "levels")  # Spark's own WITH RECURSIVE
    assert wh.verify("levels").holds


def test_a_recursion_through_an_aggregate_is_refused(warehouse: Any, staff: str) -> None:
    with refused(InvalidSQLError, "x → an aggregate → x"):
        warehouse.create_view(
            "v", "WITH RECURSIVE x AS (SELECT id FROM staff UNION SELECT MAX(x.id) AS id FROM x) SELECT * FROM x"
        )


UP = """
WITH RECURSIVE up(id, boss, steps) AS (
  SELECT id, boss, 0 FROM staff
  UNION ALL
  SELECT u.id, s.boss, steps + 1 FROM up u JOIN staff s ON u.boss = s.id WHERE steps < 2)
SELECT id, boss, steps FROM up"""


@pytest.mark.slow
def test_a_random_history(warehouse: Any, staff: str) -> None:
    """People move, come and go, also in circles: one view follows each transaction, the other one when it is asked to."""
    wh, random = warehouse, Random(3)
    wh.create_view("reports", REPORTS, scenario="immediate")
    wh.create_view("up", UP, refresh_policy="incremental_strict")
    statements = (
        "UPDATE {t} SET boss = {other} WHERE id = {one}",
        "DELETE FROM {t} WHERE id = {one} OR boss = {other}",
        "INSERT INTO {t} VALUES ({one}, {other}), ({other}, NULL)",
    )
    for step in range(6):
        one, other = random.sample(range(1, 7), 2)
        change = random.choice(statements)
        if step % 2:
            wh.spark.sql(change.format(t=f"delta.`{staff}`", one=one, other=other))
            wh.sync()
            wh.propagate("up")
        else:
            with wh.transaction() as tx:
                tx.sql(change.format(t="staff", one=one, other=other))
        assert people(wh) == _counted(bag(wh.spark.sql(f"SELECT * FROM delta.`{staff}`")))
        wh.verify(("up", "reports")[step % 2])
    wh.refresh("up")
    assert_fresh(wh, "up")  # Spark's own WITH RECURSIVE


def _counted(edges: Iterable[tuple[Any, Any]]) -> Counter[Any]:
    """What `reports` shows: the rows of the closure, by their second column."""
    chain = set(edges)
    while more := {(one, other) for one, boss in chain for id_, other in edges if boss == id_ is not None} - chain:
        chain |= more
    return Counter(boss for _, boss in chain)


FIRST = int(os.environ.get("DEFERRED_FUZZ_SEED", "9010"))
GROUPS = int(os.environ.get("DEFERRED_FUZZ_RECURSIVE", "1"))
TOGETHER = 5
"""So many views over the graphs of one seed."""


@pytest.mark.slow
def test_random_views_equal_their_fixpoint(warehouse: Any, tmp_path: Path) -> None:
    """Views over the graphs of one seed, through a change of these; expected is DuckDB's plain fixpoint.

    And Spark's own WITH RECURSIVE, where it has such a recursion.
    """
    wh, database, by_spark = warehouse, Database(SCHEMAS), 0
    for name, schema in SCHEMAS.items():
        wh.track(name, make(wh.spark, tmp_path / name, ", ".join(f"{c} {t}" for c, t in schema)))

    def fill(name: str, rows: Counter[Any]) -> None:
        wh.spark.sql(f"INSERT OVERWRITE delta.`{tmp_path / name}` {_rows(name, rows)}")
        database.replace(name, rows)

    for first in range(FIRST, FIRST + GROUPS * TOGETHER, TOGETHER):
        graphs = RecursiveGenerator(first).case()
        views = {f"v{seed}": RecursiveGenerator(seed).case().query for seed in range(first, first + TOGETHER)}
        for name in SCHEMAS:
            fill(name, Counter(graphs.initial[name]))
        for name, query in views.items():
            wh.create_view(name, query, refresh_policy="incremental_strict")
            assert bag(wh.read(name)) == database.query(query), query
        for name, change in graphs.steps[0].items():
            fill(name, database.state[name] - Counter(change.deleted) + Counter(change.inserted))
        for name, query in views.items():
            wh.refresh(name)
            assert bag(wh.read(name)) == database.query(query), query
            if _is_spark_s(query):
                assert_fresh(wh, name)
                by_spark += 1
            wh.drop_view(name)
    database.close()
    assert by_spark


def _is_spark_s(query: str) -> bool:
    """Whether Spark has such a recursion: the UNION ALL of one start and one branch that names it once."""
    for cte in parse_query(query).args["with_"].expressions:
        union = cte.this
        if not isinstance(union, exp.Union) or union.args.get("distinct") or isinstance(union.this, exp.Union):
            return False
        if [table.name for table in union.expression.find_all(exp.Table)].count(cte.alias) != 1:
            return False
    return True


def _values(rows: Iterable[tuple[int | None, ...]]) -> str:
    return ", ".join("(" + ", ".join("NULL" if v is None else str(v) for v in row) + ")" for row in rows)


def _rows(name: str, rows: Counter[Any]) -> str:
    nothing = ", ".join(f"CAST(NULL AS {type_}) AS {c}" for c, type_ in SCHEMAS[name])
    return f"VALUES {_values(rows.elements())}" if rows else f"SELECT {nothing} WHERE FALSE"
