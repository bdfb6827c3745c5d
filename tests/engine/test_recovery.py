"""The metadata database is lost, or restored from an old backup: `recover` brings back what the tables say."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from deferred import Warehouse
from deferred.errors import MetadataError, StorageError
from tests.engine.support import assert_fresh, refused
from tests.reliability.operations import twice

GROUPS = "SELECT r.a, COUNT(*) AS n, SUM(t.d) AS total FROM r JOIN t ON r.a = t.a GROUP BY r.a"
RUNS_ON = (
    "name",
    "state",
    "problem",
    "reads",
    "scenario",
    "shown",
    "propagated",
    "pending_batches",
    "fresh",
    "location",
)


def seen(wh: Any) -> Any:
    """What a user sees of tables and views, without the time that passes."""
    views = [{name: view[name] for name in RUNS_ON} for view in wh.status()]
    texts = [(v.name, v.sql, v.columns, v.definition.to_json() | {"tidied": 0}, v.id, v.depends_on) for v in wh.views()]
    tables = [(t.id, t.name, t.location, t.kind, t.key, t.columns, t.first_version) for t in wh.tables()]
    read = {table for view in wh.views() for table in view.depends_on}  # gc forgets the commits of other tables
    commits = {t.name: [(c.version, c.transaction_id) for c in wh.commits(t.name)] for t in wh.tables() if t.id in read}
    return views, texts, tables, commits


def reopened(wh: Any) -> Any:
    return Warehouse.open(path=wh.settings.path, spark=wh.spark)


def goes_on(wh: Any, *names: str) -> None:
    """The history goes on, and no batch was committed twice."""
    with wh.transaction() as tx:
        tx.insert("r", [(1, 5, "on"), (2, 6, "on")])
        tx.delete("t", "d = 2.25")
    for name in names:
        wh.refresh(name)
        wh.verify(name)
    assert_fresh(wh, *names)
    assert [twice(view.location, view.workings) for view in wh.views()] == [[] for _ in wh.views()]
    wh.gc(retain_hours=0)
    assert_fresh(wh, *names)


@pytest.fixture
def busy(tables: Any) -> Any:
    """A warehouse in the middle of its work: a batch that waits, views over views, a transaction."""
    tables.create_view("v", GROUPS, refresh_policy="incremental")
    tables.create_view("followed", "SELECT a, s FROM r WHERE b IS NOT NULL", scenario="immediate")
    tables.create_view("above", "SELECT n, COUNT(*) AS groups FROM v GROUP BY n")
    with tables.transaction() as tx:
        tx.insert("t", [(1, 9), (2, 1)])
        tx.update("r", {"b": "7"}, "a = 2")
    tables.refresh("v")
    with tables.transaction() as tx:
        tx.insert("r", [(2, 1, "w")])
    tables.propagate("v")
    return tables


def test_the_database_is_lost(busy: Any) -> None:
    before = seen(busy)
    busy.close()
    (Path(busy.settings.path) / "deferred.db").unlink()
    with reopened(busy) as wh:
        assert wh.views() == []
        wh.gc(retain_hours=0)  # what the catalog names is kept
        done = wh.recover()
        assert (sorted(done.tables), sorted(done.views)) == (
            ["above", "followed", "r", "t", "v"],
            ["above", "followed", "v"],
        )
        assert done.transactions == 2
        assert len(done.notes) == 1
        assert seen(wh) == before
        again = wh.recover()
        assert (again.tables, again.views, again.transactions) == ([], [], 0)
        goes_on(wh, "v", "above", "followed")


def test_an_old_backup_is_restored(busy: Any, tmp_path: Path) -> None:
    """Refreshes, an altered view, a new view, a dropped view and transactions since are found again."""
    file, backup = Path(busy.settings.path) / "deferred.db", tmp_path / "backup.db"
    busy.create_view("dropped", "SELECT a FROM t")
    busy.close()
    shutil.copy(file, backup)
    with reopened(busy) as wh:
        wh.refresh("v")
        wh.alter_view("followed", "SELECT a, s, b FROM r WHERE b IS NOT NULL")
        wh.create_view("late", "SELECT s, MAX(b) AS most FROM r GROUP BY s")
        wh.drop_view("dropped")
        with wh.transaction() as tx:
            tx.insert("r", [(1, 3, "x")])
            tx.insert("t", [(2, 2)])
        wh.refresh("v")
        before = seen(wh)
    shutil.copy(backup, file)
    with reopened(busy) as wh:
        for work in (wh.propagate, wh.partial_refresh, wh.refresh, wh.rebuild):
            with refused(MetadataError, "older than the tables", "deferred recover"):
                work("v")
        with refused(MetadataError, "transactions of this warehouse", "deferred recover"):
            wh.sync()
        wh.gc(retain_hours=0)
        done = wh.recover()
        assert sorted(done.views) == ["followed", "late"]
        assert "dropped" in done.notes[0]
        wh.drop_view("dropped")
        assert seen(wh) == before
        goes_on(wh, "v", "above", "followed", "late")


def test_a_table_that_is_out_of_reach_concerns_only_its_views(tables: Any, tmp_path: Path) -> None:
    wh = tables
    wh.create_view("near", "SELECT a, s FROM r", scenario="immediate")
    wh.create_view("far", "SELECT a, d FROM t", scenario="immediate")
    away = tmp_path / "away"
    there = Path(next(t.location for t in wh.tables() if t.name == "t"))
    wh.spark.sql(f"INSERT INTO delta.`{there}` VALUES (7, 7)")
    there.rename(away)
    wh.spark.sql(f"INSERT INTO delta.`{tmp_path}/tables/r` VALUES (7, 7, 'new')")
    with refused(StorageError, "t:", "cannot be read", "the others are up to date"):
        wh.sync()
    assert_fresh(wh, "near")
    away.rename(there)
    wh.sync()
    assert_fresh(wh, "near", "far")
