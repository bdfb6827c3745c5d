"""A recomputation of a large view is written as a whole, and takes the place of MV without a row being compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deferred import Warehouse, failpoints
from deferred.errors import LogLostError
from deferred.log.delta_log import DeltaLog
from deferred.maintenance import costs
from tests.engine.support import assert_fresh, bag, killed_at_each_effect, make, mv, recomputed

SQL = "SELECT a, s, d FROM r WHERE a <> 3"


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A warehouse that is opened after this announces the commits of its metadata database, too."""
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path / "effects"))


@pytest.fixture
def wh(announced: None, warehouse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """A view whose recomputations are written as a whole, however few rows it has."""
    monkeypatch.setattr(costs, "COMPARED_ROWS", 0)
    columns, values = "a INT, s STRING, d DOUBLE", "(1, 'x', 0.5), (1, 'x', 0.5), (2, NULL, -0.0), (3, '', 1)"
    warehouse.track("r", make(warehouse.spark, tmp_path / "r", columns, values))
    warehouse.create_view("v", SQL)
    return warehouse


def insert(wh: Warehouse, *rows: tuple[Any, ...]) -> None:
    with wh.transaction() as tx:
        tx.insert("r", list(rows))


def refreshes(wh: Warehouse) -> int:
    return sum((c.mark or {}).get("kind") == "refresh" for c in DeltaLog(mv(wh, "v")).newest_first())


def test_files_of_the_batch_become_those_of_mv(wh: Any) -> None:
    insert(wh, (4, "new", float("nan")))
    propagated = wh.propagate("v", full=True)
    assert (propagated.strategy, propagated.rows_deleted, propagated.rows_inserted) == ("full", 3, 4)
    assert [tuple(row)[:2] for row in wh.diff("v").collect()] == [(4, "new")]
    wh.verify("v")
    assert bag(wh.read("v", fresh=True)) == bag(recomputed(wh, SQL))
    applied = wh.partial_refresh("v")
    assert (applied.rows_deleted, applied.rows_inserted) == (3, 4)
    assert_fresh(wh, "v")
    wh.verify("v")
    assert DeltaLog(mv(wh, "v")).row_count() == 4
    assert all("_deferred" not in column for file in DeltaLog(mv(wh, "v")).files(9) for column in file)


def test_changes_before_and_after_it(wh: Any) -> None:
    """What is pending before is part of it; what comes after is applied with it, in one commit."""
    insert(wh, (5, "before", 1.0))
    wh.propagate("v")
    insert(wh, (6, "with", 1.0))
    wh.propagate("v", full=True)
    with wh.transaction() as tx:
        tx.delete("r", "a = 1")
        tx.insert("r", [(7, "after", None)])
    assert wh.propagate("v").strategy != "full"
    wh.verify("v")
    insert(wh, (8, "in the log", 2.0))
    assert bag(wh.read("v", fresh=True)) == bag(recomputed(wh, SQL))
    assert bag(wh.read("v", fresh=True, where="a > 6")) == bag(recomputed(wh, f"{SQL} AND a > 6"))
    before = refreshes(wh)
    wh.refresh("v", order="partial_first")
    assert refreshes(wh) == before + 2
    assert_fresh(wh, "v")
    insert(wh, (9, "later", 2.0))
    wh.refresh("v")
    wh.verify("v")
    assert_fresh(wh, "v")


def test_a_view_that_becomes_empty(wh: Any) -> None:
    with wh.transaction() as tx:
        tx.delete("r", "TRUE")
    wh.refresh("v", full=True)
    assert_fresh(wh, "v")
    insert(wh, (1, "again", 1.0))
    wh.refresh("v", full=True)
    assert_fresh(wh, "v")


def test_a_crash_at_any_effect(wh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers see the rows before or after, never others; the next operation goes on from there."""
    insert(wh, (4, "new", 1.0))
    states = [bag(wh.read("v")), bag(recomputed(wh, SQL))]
    effects = []
    for effect in killed_at_each_effect(monkeypatch, lambda: wh.refresh("v", full=True)):
        effects.append(effect)
        assert bag(wh.read("v")) in states, effect
        assert wh.verify("v").holds, effect
        assert bag(wh.read("v", fresh=True)) == states[1], effect
    assert {"Delta: INSERT INTO differential", "Delta: INSERT INTO mv"} <= set(effects)
    insert(wh, (5, "after", 1.0))
    wh.refresh("v")
    assert_fresh(wh, "v")


def test_the_database_is_lost(wh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta's log says of a batch that it is the whole view."""
    insert(wh, (4, "new", 1.0))
    wh.propagate("v", full=True)
    view = wh._context.metadata.views.get("v")
    wh._context.metadata.views.update(view.id, propagated=view.shown, replacement_batch=0)
    with wh._context.metadata._database.write() as session:
        from sqlalchemy import text

        session.execute(text("UPDATE views SET propagated_batch = 0"))
    wh.recover()
    wh.verify("v")
    wh.partial_refresh("v")
    assert_fresh(wh, "v")


def test_an_altered_view_keeps_it(wh: Any) -> None:
    insert(wh, (4, "new", 1.0), (1, "y", 2.0))
    wh.propagate("v", full=True)
    wh.alter_view("v", f"{SQL} AND a < 4")
    assert_fresh(wh, "v")
    wh.verify("v")


def test_who_reads_the_changes_of_a_view_gets_the_difference(wh: Any) -> None:
    wh.create_view("above", "SELECT s, COUNT(*) AS n FROM v GROUP BY s")
    insert(wh, (4, "new", 1.0))
    done = wh.refresh("v", full=True)
    assert (done.rows_deleted, done.rows_inserted) == (0, 1)
    wh.refresh("above")
    assert_fresh(wh, "v", "above")


def test_a_large_view(warehouse: Any, tmp_path: Path) -> None:
    """The same at the size from which it is so."""
    path = make(warehouse.spark, tmp_path / "r", "k BIGINT, s STRING")
    rows = f"SELECT id AS k, CONCAT('s', id % 1000) AS s FROM RANGE({costs.COMPARED_ROWS + 20_000})"
    warehouse.spark.sql(f"INSERT INTO delta.`{path}` {rows}")
    warehouse.track("r", path)
    warehouse.create_view("v", "SELECT k % 50000 AS k, s FROM r", refresh_policy="full")
    warehouse.spark.sql(f"UPDATE delta.`{path}` SET s = 'changed' WHERE k % 3 = 0")
    done = warehouse.refresh("v")
    assert (done.rows_deleted, done.rows_inserted) == (costs.COMPARED_ROWS + 20_000,) * 2
    assert_fresh(warehouse, "v")


def test_days_that_python_does_not_know(wh: Any) -> None:
    wh.create_view("days", "SELECT a, DATE_ADD(DATE '9999-12-30', a) AS d FROM r", refresh_policy="full")
    insert(wh, (4, "new", 1.0))
    wh.refresh("days")
    days = wh.read("days").selectExpr("a", "CAST(d AS STRING) AS d")
    assert bag(days) == bag(recomputed(wh, "SELECT a, CAST(DATE_ADD(DATE '9999-12-30', a) AS STRING) AS d FROM r"))


def test_other_files_in_place_of_those_of_the_batch(wh: Any) -> None:
    """Somebody compacts the differential table: the batch is read from it as it is."""
    insert(wh, (4, "new", 1.0), (5, "newer", 1.0))
    wh.propagate("v", full=True)
    table = f"delta.`{wh.find_view('v').location}/differential`"
    wh.spark.sql(f"UPDATE {table} SET s = s")
    wh.partial_refresh("v")
    assert_fresh(wh, "v")


def test_a_lost_replacement_is_not_an_empty_view(wh: Any) -> None:
    insert(wh, (4, "new", 1.0))
    wh.propagate("v", full=True)
    before = bag(wh.read("v"))
    wh.spark.sql(f"DELETE FROM delta.`{wh.find_view('v').location}/differential`")
    with pytest.raises(LogLostError, match=r"Batch 1 of view v, which holds the whole view, is gone.*rebuild\('v'\)"):
        wh.partial_refresh("v")
    assert bag(wh.read("v")) == before
    wh.rebuild("v")
    assert_fresh(wh, "v")


def test_nothing_comes_after_it(wh: Any) -> None:
    """A batch without rows does not keep the files from being those of MV."""
    insert(wh, (4, "new", 1.0))
    wh.propagate("v", full=True)
    insert(wh, (3, "not in the view", 1.0))
    wh.propagate("v")
    wh.partial_refresh("v")
    (newest, *_) = DeltaLog(mv(wh, "v")).files(9)
    differential = Path(wh.find_view("v").location) / "differential"
    linked = (Path(mv(wh, "v")) / newest["path"]).stat().st_ino
    assert linked in {path.stat().st_ino for path in differential.rglob("*.parquet")}
    assert_fresh(wh, "v")
