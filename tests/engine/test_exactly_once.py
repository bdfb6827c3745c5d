"""A process dies at any instant and the command is run again: the result is the same as without the interruption."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from deferred import Warehouse
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog
from deferred.metadata.tables import TableStore
from deferred.metadata.views import ViewStore
from tests.engine.support import Death, assert_fresh, bag, commits, dying, dying_after, make, mv

SQL = "SELECT r.a, r.s, COUNT(*) AS n FROM r JOIN t ON r.a = t.a GROUP BY r.a, r.s"
BAG = "SELECT r.a, r.s, t.d FROM r JOIN t ON r.a = t.a"


def die_on_update(patch: pytest.MonkeyPatch, field: str) -> None:
    """Die after the Delta commit, before the metadata is updated."""
    original = ViewStore.update

    def update(self: ViewStore, view_id: int, *under: Any, **fields: Any) -> Any:
        if field in fields:
            raise Death
        return original(self, view_id, *under, **fields)

    patch.setattr(ViewStore, "update", update)


def changed(wh: Any) -> None:
    with wh.transaction() as tx:
        tx.insert("r", [(1, 1, "x"), (2, 2, "new")])
        tx.delete("t", "a = 2")
        tx.insert("t", [(1, 3), (2, 4)])


def marks(path: str, kind: str) -> list[int]:
    """The batches of a kind in a table's history."""
    found = (c.mark for c in DeltaLog(path).newest_first())
    return sorted(m["batch"] for m in found if m is not None and m.get("kind") == kind)


def test_death_after_the_commit(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In propagate, then in partial_refresh, then in rebuild: each commit is found again and not repeated."""
    wh = tables
    wh.create_view("v", SQL)
    view = wh.views()[0]
    changed(wh)
    with monkeypatch.context() as patch:
        die_on_update(patch, "propagated_batch")
        with dying():
            wh.propagate("v")
    wh.verify("v")
    assert wh.propagate("v").state == "nothing"
    assert marks(f"{view.location}/differential", "propagate") == [1]

    with monkeypatch.context() as patch:
        die_on_update(patch, "applied_batch")
        with dying():
            wh.partial_refresh("v")
    assert_fresh(wh, "v")  # readers have it already
    wh.verify("v")
    assert wh.partial_refresh("v").state == "nothing"
    assert marks(mv(wh, "v"), "refresh") == [0, 1]
    assert_fresh(wh, "v")

    changed(wh)
    with monkeypatch.context() as patch:
        die_on_update(patch, "applied_batch")
        with dying():
            wh.rebuild("v")
    wh.verify("v")
    assert wh.refresh("v").state == "nothing"
    changed(wh)
    wh.refresh("v")
    assert_fresh(wh, "v")


@pytest.mark.parametrize(("sql", "commits"), [(BAG, 0), (SQL, 1)], ids=["no commit", "support moved"])
def test_death_before_the_commit(tables: Any, monkeypatch: pytest.MonkeyPatch, sql: str, commits: int) -> None:
    """In propagate and in rebuild: before the first Delta commit and, where there are two, between them."""
    wh = tables
    wh.create_view("v", sql, refresh_policy="incremental")
    for work in (wh.propagate, wh.rebuild):
        changed(wh)
        with monkeypatch.context() as patch, dying():
            dying_after(patch, commits)
            work("v")
        wh.verify("v")
        work("v")
        wh.verify("v")
    assert_fresh(wh, "v")


@pytest.mark.parametrize("where", ["folder", "table", "view"])
def test_death_in_create(tables: Any, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Wherever create dies, the view can be created again, and only one folder is used."""
    wh = tables
    store, method = {"folder": (TableStore, "add"), "table": (ViewStore, "add"), "view": (ViewStore, "add")}[where]
    original = getattr(store, method)

    def add(self: Any, **fields: Any) -> Any:
        if where == "view":
            original(self, **fields)
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(store, method, add)
        patch.setattr("deferred.maintenance.views.remove_folder", lambda location: None)
        with dying():
            wh.create_view("v", BAG)
    if where != "view":
        wh.create_view("v", BAG)
    assert_fresh(wh, "v")
    assert len([t for t in wh.tables() if t.kind == "view"]) == 1


def test_death_in_drop(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wh = tables
    wh.create_view("v", BAG)

    def die(location: str) -> None:
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr("deferred.maintenance.views.remove_folder", die)
        with dying():
            wh.drop_view("v")
    wh.create_view("v", SQL)
    assert_fresh(wh, "v")


def test_the_lease_of_a_dead_process_is_taken_over(tables: Any) -> None:
    wh = tables
    wh.create_view("v", BAG)
    changed(wh)
    context: Context = wh._context
    host, _, _, tail = context.owner.rsplit(":", 3)
    dead = f"{host}:{2**22 + 7}:1:{tail}"  # a process number that Linux never gives
    for kind in ("propagate", "refresh"):
        assert context.metadata.leases.acquire(f"{kind}:{wh.views()[0].id}", dead, 600) is not None
    wh.refresh("v")
    assert_fresh(wh, "v")


def test_a_living_holder_is_named(tables: Any) -> None:
    from deferred.errors import LeaseHeldError

    wh = tables
    wh.create_view("v", BAG)
    assert wh._context.metadata.leases.acquire(f"propagate:{wh.views()[0].id}", "elsewhere:1:1:a", 600) is not None
    with (
        Warehouse.open(path=wh.settings.path, spark=wh.spark, patience=0.2) as hasty,
        pytest.raises(LeaseHeldError, match="elsewhere"),
    ):
        hasty.propagate("v")


def test_propagate_and_partial_refresh_at_once(tables: Any) -> None:
    """Two threads, each with its own warehouse on one session, while a third writes."""
    wh = tables
    wh.create_view("v", BAG)
    wh.create_view("g", SQL)
    failures: list[BaseException] = []
    rounds = 2

    def work(*kinds: str) -> None:
        try:
            with Warehouse.open(path=wh.settings.path, spark=wh.spark) as mine:
                for _ in range(rounds):
                    for kind in kinds:
                        getattr(mine, kind)("v")
        except BaseException as error:
            failures.append(error)

    def write() -> None:
        try:
            with Warehouse.open(path=wh.settings.path, spark=wh.spark) as mine:
                for number in range(rounds):
                    with mine.transaction() as tx:
                        tx.insert("r", [(1, number, "w")])
                        tx.delete("t", f"d = {number}")
                        tx.insert("t", [(1, number + 1)])
                    mine.refresh("g")
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=("propagate",)),
        threading.Thread(target=write),
        threading.Thread(target=work, args=("partial_refresh", "propagate")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for name in ("v", "g"):
        wh.verify(name)
        wh.refresh(name)
    assert_fresh(wh, "v", "g")
    batches = marks(f"{wh.views()[1].location}/differential", "propagate")
    assert len(batches) == len(set(batches))


def test_nothing_to_do_makes_no_commit(tables: Any) -> None:
    wh = tables
    wh.create_view("v", BAG)
    before = len(commits(wh.spark, mv(wh, "v")))
    for _ in range(2):
        assert wh.propagate("v").state == "nothing"
        assert wh.partial_refresh("v").state == "nothing"
        assert wh.refresh("v").state == "nothing"
    assert len(commits(wh.spark, mv(wh, "v"))) == before


def test_batches_that_cancel_out(tables: Any) -> None:
    """A change and its reversal, propagated one by one, are nothing when they are applied."""
    wh = tables
    wh.create_view("v", BAG)
    before = bag(wh.read("v"))
    with wh.transaction() as tx:
        tx.insert("t", [(1, 77)])
    wh.propagate("v")
    with wh.transaction() as tx:
        tx.delete("t", "d = 77")
    wh.propagate("v")
    wh.verify("v")
    assert bag(wh.diff("v")) == {}
    wh.partial_refresh("v")
    assert bag(wh.read("v")) == before
    changed(wh)
    wh.refresh("v")  # tidies the batches before it away
    wh.verify("v")


def test_a_view_that_reads_nothing(warehouse: Any, tmp_path: Path) -> None:
    make(warehouse.spark, tmp_path / "x", "a INT")
    warehouse.create_view("one", "SELECT 1 AS a, 'x' AS b")
    assert warehouse.refresh("one").state == "nothing"
    warehouse.verify("one")
    assert bag(warehouse.read("one")) == {(1, "x"): 1}
