"""Work that another process has taken over, transactions that cannot be undone, views and tables that fail.

A late worker is made late for real: between the moment at which its statement is sent and the one at which it runs, its
lease is taken over, and the other worker does all of its work.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deferred import Warehouse
from deferred.errors import InvalidInputError, LeaseLostError, TransactionError
from deferred.log import undo as undoing
from deferred.spark import driver, engine
from deferred.spark.engine import Engine
from tests.engine.conftest import made, tables  # noqa: F401
from tests.engine.support import assert_fresh, bag, commits, dying, dying_after, refused

pytestmark = pytest.mark.skipif(
    "DEFERRED_TEST_TAKEN_OVER" not in os.environ, reason="takes minutes; run it with DEFERRED_TEST_TAKEN_OVER=1"
)

BAG = "SELECT r.a, r.s, t.d FROM r JOIN t ON r.a = t.a"
GROUPS = "SELECT r.a, COUNT(*) AS n, SUM(t.d) AS d FROM r JOIN t ON r.a = t.a GROUP BY r.a"


def location(wh: Any, name: str) -> str:
    return str(next(t.location for t in wh.tables() if t.name == name))


def status(wh: Any, name: str) -> dict[str, Any]:
    return dict(next(view for view in wh.status() if view["name"] == name))


@contextmanager
def before_statement(word: str, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once, when a commit to a place has passed all checks and is about to be made, by Spark or the driver.

    The driver has then opened the table already: what it knows of it is old when `act` has changed it.
    """
    run, write = engine._analyzed, driver._write
    todo = [act]

    def analyzed(spark: Any, statement: Any, *frames: Any) -> Any:
        if todo and word in engine.statement_text(statement):
            todo.pop()()
        return run(spark, statement, *frames)

    def written(table: Any, *more: Any, **how: Any) -> bool:
        if todo and word in table.table_uri:
            todo.pop()()
        return write(table, *more, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_analyzed", analyzed)
        patch.setattr(driver, "_write", written)
        yield
    assert not todo, f"nothing was about to be written to {word}"


@contextmanager
def before_commit(word: str, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once, before a commit to a place is checked, whoever makes it."""
    todo = [act]

    def acting(method: Callable[..., Any]) -> Callable[..., Any]:
        def committing(self: Engine, target: Any, *more: Any, **how: Any) -> Any:
            if todo and word in engine.statement_text(target):
                todo.pop()()
            return method(self, target, *more, **how)

        return committing

    with pytest.MonkeyPatch.context() as patch:
        for name in ("commit", "append_rows", "rewrite_rows", "replace"):
            patch.setattr(Engine, name, acting(getattr(Engine, name)))
        yield
    assert not todo, f"no commit to {word} was made"


def test_a_late_worker_commits_nothing(tables: Any) -> None:  # noqa: F811
    """In propagate at a support table and at the differential table, and in partial_refresh at MV.

    Spark has the statement already, and Delta refuses it; or it is about to be sent, and is not.
    """
    wh = tables
    wh.create_view("v", BAG, refresh_policy="incremental")
    wh.create_view("g", GROUPS, refresh_policy="incremental")
    number = iter(range(100))

    def change() -> None:
        with wh.transaction() as tx:
            tx.insert("r", [(1, next(number), "w")])

    def taken_over(name: str) -> None:
        """The lease has not been renewed; another worker takes it over, with one more change, and finishes."""
        for lease in list(wh._context.held.values()):
            wh._context.metadata.leases.abandon(lease)
        with Warehouse.open(path=wh.settings.path, spark=wh.spark) as other:
            with other.transaction() as tx:
                tx.insert("r", [(2, next(number), "w")])
            other.refresh(name)
            assert_fresh(other, name)
            other.verify(name)

    for name, work, place, late in (
        ("g", wh.propagate, "/support", before_statement),
        ("g", wh.propagate, "/differential", before_statement),
        ("v", wh.partial_refresh, "/mv", before_statement),
        ("v", wh.partial_refresh, "/mv", before_commit),
    ):
        change()
        if work == wh.partial_refresh:
            wh.propagate(name)
        with pytest.raises(LeaseLostError, match="again"), late(place, lambda name=name: taken_over(name)):
            work(name)
        assert_fresh(wh, name)
        wh.verify(name)
        change()
        assert wh.refresh(name).state == "succeeded"
        assert_fresh(wh, name)
        wh.verify(name)


def test_nothing_of_an_undone_transaction_can_come_later(tables: Any) -> None:  # noqa: F811
    """Neither in a table that a statement has changed nor in one that none has; and marks reach nobody else."""
    wh = tables
    wh.create_view("v", BAG)
    before = {name: bag(wh.spark.table(f"delta.`{location(wh, name)}`")) for name in ("r", "t")}
    with refused(TransactionError, "nothing is changed"), wh.transaction() as tx:
        tx.insert("r", [(1, 9, "new")])
        tx.update("r", {"b": "CAST(s AS INT)"})  # 'x' is no number
        tx.delete("t", "TRUE")
    record = wh._context.metadata.transactions.get(tx.id)
    for number, statement in enumerate(record.statements, start=1):
        wh._context.engine.commit(statement["sql"], undoing.mark(tx.id, number))
    assert {name: bag(wh.spark.table(f"delta.`{location(wh, name)}`")) for name in before} == before
    wh.refresh("v")
    assert_fresh(wh, "v")

    user = "spark.databricks.delta.commitInfo.userMetadata"
    wh.spark.conf.set(user, "the user's own")

    def write() -> None:
        statement = f"INSERT INTO delta.`{location(wh, 't')}` VALUES (1, 4)"
        thread = threading.Thread(target=wh.spark.sql, args=(statement,))
        thread.start()
        thread.join()

    try:
        with before_statement("INSERT INTO", write), wh.transaction() as tx:
            tx.insert("r", [(2, 2, "z")])
        assert commits(wh.spark, location(wh, "t"))[-1]["userMetadata"] == "the user's own"
        assert tx.id in commits(wh.spark, location(wh, "r"))[-1]["userMetadata"]
        assert wh.spark.conf.get(user) == "the user's own"
    finally:
        wh.spark.conf.unset(user)
    wh.refresh("v")
    assert_fresh(wh, "v")


def test_a_transaction_that_cannot_be_undone_has_a_way_out(tables: Any) -> None:  # noqa: F811
    wh = tables
    wh.create_view("v", BAG)
    ids = {}
    for how in ("undo", "keep"):

        def meddle() -> None:
            """Another job changes the row that the transaction has inserted."""
            wh.spark.sql(f"UPDATE delta.`{location(wh, 'r')}` SET s = 'meddled' WHERE s = 'new'")

        with (
            refused(TransactionError, "could not be undone", "deferred transaction retry", "keep"),
            before_statement("MERGE INTO", meddle),
            wh.transaction() as tx,
        ):
            tx.insert("r", [(1, 9, "new")])
            tx.insert("t", [(1, 9)])
            tx.update("r", {"b": "CAST(s AS INT)"})
        ids[how] = tx.id
        assert [record.id for record in wh.transactions()] == [tx.id]
        assert tx.id in status(wh, "v")["problem"]
        refreshed = wh.refresh("v")
        assert tx.id in refreshed.warnings[0]
        with refused(TransactionError, tx.id, "keep"):
            wh.rebuild("v")
        with refused(TransactionError, "could not be undone"):
            wh.resolve_transaction(tx.id, "retry")
        resolution = wh.resolve_transaction(tx.id, how)
        assert [record.id for record in wh.transactions()] == []
        assert status(wh, "v")["problem"] is None
        if how == "undo":
            done = {table.table: table for table in resolution.tables}
            assert done["r"].missing == ({"a": 1, "b": 9, "s": "new"},)
            assert (done["t"].rows_deleted, done["t"].missing) == (1, ())
        wh.refresh("v")
        assert_fresh(wh, "v")
        wh.verify("v")
        wh.rebuild("v")
        assert_fresh(wh, "v")
    assert bag(wh.spark.table(f"delta.`{location(wh, 'r')}`"))[(1, 9, "meddled")] == 2
    with refused(InvalidInputError, "has ended already"):
        wh.resolve_transaction(ids["keep"], "keep")


def test_rebuild_mends_everything(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    wh = tables
    folder = Path(wh.create_view("g", GROUPS, refresh_policy="incremental").location)
    wh.create_view("above", "SELECT a, n FROM g WHERE n > 0")
    number = iter(range(100))

    def change() -> None:
        wh.spark.sql(f"INSERT INTO delta.`{location(wh, 'r')}` VALUES (1, {next(number)}, 'w')")

    def mended() -> None:
        wh.rebuild("g")
        assert_fresh(wh, "g")
        wh.verify("g")
        change()
        assert wh.refresh("g").strategy == "incremental"
        assert_fresh(wh, "g")
        wh.verify("g")

    change()
    with monkeypatch.context() as patch, dying():
        dying_after(patch, 1)  # a support table has moved, its batch has not come
        wh.propagate("g")
    supports = sorted(path for path in folder.iterdir() if path.name.startswith("support"))
    for path in supports:
        wh.spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    mended()

    shutil.rmtree(supports[0])
    mended()
    for damaged in (supports[0], folder / "differential"):
        for commit in (damaged / "_delta_log").glob("*.*"):
            commit.write_text("damage")
        mended()
    shutil.rmtree(folder / "differential")
    for rows in supports[0].glob("*.parquet"):
        rows.unlink()
    mended()
    for path in (folder / "mv").glob("*.parquet"):
        path.unlink()
    mended()
    shutil.rmtree(folder / "mv")
    mended()
    wh.rebuild("above")
    assert_fresh(wh, "above")
    change()
    wh.refresh("g")
    assert wh.refresh("above").strategy == "incremental"
    assert_fresh(wh, "above")


def test_one_view_that_fails_stops_no_other(tables: Any) -> None:  # noqa: F811
    """Nor the transaction, which has succeeded: whoever saw an error would repeat it, and double its rows."""
    wh = tables
    wh.create_view("bad", "SELECT a, 10 DIV b AS q FROM r", scenario="immediate")
    wh.create_view("good", BAG, scenario="immediate")
    wh.create_view("later", "SELECT a FROM t")
    with wh.transaction() as tx:
        tx.insert("r", [(1, 0, "zero")])
        tx.insert("t", [(1, 7)])
    assert len(tx.warnings) == 1
    assert "bad" in tx.warnings[0]
    assert_fresh(wh, "good")
    assert "failed" in status(wh, "bad")["failure"]
    assert status(wh, "good")["failure"] is None
    wh.sync()
    assert "bad" in wh.refresh("later").warnings[0]
    wh.verify("good")
    wh.create_view("another", "SELECT d FROM t")
    assert_fresh(wh, "good", "later", "another")
    wh.sql("DELETE FROM r WHERE b = 0")
    assert_fresh(wh, "bad", "good")
    assert status(wh, "bad")["failure"] is None
