"""Recovery without Spark: Delta tables with the marks that operations leave, and a database that is gone or too old."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from deferred.errors import MetadataError, TransactionError
from deferred.log import ledger, transactions, undo
from deferred.log.catalog import Catalog
from deferred.log.context import Context
from deferred.log.tracking import check_free
from deferred.maintenance.recovery import recover
from deferred.maintenance.settle import settled
from deferred.metadata import Cut, Metadata, TransactionRecord, ViewRecord
from deferred.options import ViewOptions
from deferred.spark.engine import Engine

CUTS = [Cut(datetime(2026, 1, day, tzinfo=UTC), {1: day - 1}) for day in (1, 2, 3, 4)]


def commit(path: Path | str, **mark: Any) -> None:
    """A commit with a mark, as an operation makes one."""
    details = CommitProperties(custom_metadata={"userMetadata": json.dumps({"deferred": mark})} if mark else None)
    write_deltalake(str(path), pa.table({"a": [1]}), mode="append", commit_properties=details)


@contextmanager
def opened(root: Path, name: str) -> Iterator[Context]:
    journal = Catalog(str(root))
    with Metadata.open(f"sqlite:///{root}/{name}.db", create=True, journal=journal) as metadata:
        yield Context(metadata, Engine(), str(root))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A view that shows batch 1 and has batch 2 waiting; a transaction with two commits in its table."""
    root = tmp_path / "warehouse"
    root.mkdir()
    commit(tmp_path / "r")
    with opened(root, "first") as context:
        base = context.metadata.tables.add(
            name="r", location=str(tmp_path / "r"), kind="feed", columns=[("a", "bigint")]
        )
        location = str(root / "views" / "v-1")
        own = context.metadata.tables.add(name="v", location=f"{location}/mv", kind="view")
        commit(f"{location}/mv", kind="refresh", batch=0, cut=CUTS[0].to_json())
        commit(f"{location}/mv", kind="refresh", batch=1, cut=CUTS[1].to_json(), operation="one")
        commit(f"{location}/differential", kind="propagate", batch=1, cut=CUTS[1].to_json(), operation="led one")
        commit(f"{location}/differential", kind="propagate", batch=2, cut=CUTS[2].to_json(), operation="led two")
        context.metadata.views.add(
            name="v",
            sql="SELECT a FROM r",
            options=ViewOptions(),
            columns=[("a", "bigint")],
            location=location,
            table_id=own.id,
            depends_on=[base.id],
            shown=CUTS[0],
            propagated=CUTS[0],
        )
    return root


def state(view: ViewRecord) -> tuple[Any, ...]:
    return view.state, view.shown, view.applied_batch, view.propagated, view.propagated_batch


REACHED = ("active", CUTS[1], 1, CUTS[2], 2)


def test_the_marks_say_how_far_a_view_has_come(root: Path) -> None:
    with opened(root, "second") as context:
        done = recover(context)
        assert (done.tables, done.views) == (["r", "v"], ["v"])
        assert state(context.metadata.views.get("v")) == REACHED
        assert recover(context).views == []
        assert state(context.metadata.views.get("v")) == REACHED


def test_a_database_that_is_too_old_is_noticed(root: Path) -> None:
    with opened(root, "first") as context:
        with pytest.raises(MetadataError, match="deferred recover"):
            settled(context, context.metadata.views.get("v"))
        assert recover(context).views == []
        assert state(context.metadata.views.get("v")) == REACHED
        assert settled(context, context.metadata.views.get("v")) == context.metadata.views.get("v")


def test_an_interrupted_operation_is_no_sign_of_age(root: Path) -> None:
    with opened(root, "first") as context:
        for operation in ("one", "led two"):
            context.metadata.operations.start(kind="refresh", operation_id=operation)
        assert state(settled(context, context.metadata.views.get("v"))) == REACHED


def test_the_commits_of_a_transaction_have_one_time(root: Path, tmp_path: Path) -> None:
    def made(number: int, **more: Any) -> None:
        mark = {"kind": "transaction", "transaction": "t", "version": number, "of": 3, "warehouse": str(root), **more}
        commit(tmp_path / "r", **mark)

    made(1)
    made(2)
    with opened(root, "first") as context:
        with pytest.raises(MetadataError, match="transactions of this warehouse"):
            ledger.sync(context, context.metadata.tables.all(), lambda t: transactions.recover(context, t))
        done = recover(context)
        assert done.transactions == 1
        assert "of its 3 statements the last" in done.notes[0]
        first, *more = context.metadata.ledger.between(1, -1, 99)
        assert [entry.transaction_id for entry in (first, *more)] == [None, "t", "t"]
        assert len({entry.timestamp for entry in more}) == 1
        made(9, warehouse="/another")  # a warehouse of somebody else
        assert ledger.sync(context, context.metadata.tables.all(), lambda t: transactions.recover(context, t)) == 1


def test_something_else_in_the_place_of_a_table(root: Path) -> None:
    """A database that starts empty gives ids again: no view is recovered over another table."""
    with opened(root, "other") as context:
        with pytest.raises(MetadataError, match="deferred recover"):
            check_free(context, "another")
        context.metadata.tables.add(name="another", location="/another", kind="feed")
        done = recover(context)
        assert (done.tables, done.views) == (["v"], [])
        assert "the database has another in its place" in done.notes[0]
        assert "tables that it reads are missing" in done.notes[1]


def test_a_view_whose_tables_are_gone(root: Path) -> None:
    for file in (root / "views" / "v-1" / "mv" / "_delta_log").iterdir():
        file.unlink()
    with opened(root, "second") as context:
        assert any("tables of view v are gone" in note for note in recover(context).notes)
        assert context.metadata.views.get("v").state == "broken"


def interrupted(root: Path, tmp_path: Path, context: Context) -> None:
    """A process died in a transaction over two tables; then one of them was lost."""
    commit(tmp_path / "lost")
    context.metadata.tables.add(name="lost", location=str(tmp_path / "lost"), kind="feed", columns=[("a", "bigint")])
    commit(tmp_path / "r", kind="transaction", transaction="t", version=undo.BARS, warehouse=str(root))
    statements = [{"table": name, "sql": f"DELETE FROM delta.`{tmp_path / name}`"} for name in ("r", "lost")]
    context.metadata.transactions.add(TransactionRecord("t", "prepared", "another:0:1:dead", statements))
    shutil.rmtree(tmp_path / "lost")


def test_an_interrupted_transaction_whose_table_is_gone_concerns_no_other_table(root: Path, tmp_path: Path) -> None:
    with opened(root, "first") as context:
        interrupted(root, tmp_path, context)
        commit(tmp_path / "other")
        context.metadata.tables.add(
            name="other", location=str(tmp_path / "other"), kind="feed", columns=[("a", "bigint")]
        )
        transactions.recover_all(context)
        found, failures = ledger.sync_reachable(
            context, context.metadata.tables.all(), lambda t: transactions.recover(context, t)
        )
        assert found >= 2, "other's commit, and r's before the transaction"
        assert list(failures) == ["lost"]
        assert context.metadata.transactions.get("t").state == "prepared", "it is not known to be lost for ever"


def test_there_is_a_way_out_of_an_interrupted_transaction(root: Path, tmp_path: Path) -> None:
    with opened(root, "first") as context:
        interrupted(root, tmp_path, context)
        tables = [context.metadata.tables.get("r")]
        assert undo.stuck(context, tables) == [], "nobody has tried to finish it"
        transactions.recover_all(context)
        (stuck,) = undo.stuck(context, tables)
        said = undo.explained(stuck)
        assert "was interrupted and could not be finished" in said
        assert "… keep" in said
        with pytest.raises(TransactionError, match="keep"):
            undo.resolve(context, "t", "undo")
        kept = {t.table: t.problem for t in undo.resolve(context, "t", "keep").tables}
        assert kept["r"] is None
        assert kept["lost"] is not None
        assert undo.stuck(context, tables) == []
        ledger.sync(context, tables, lambda t: transactions.recover(context, t))
        assert context.metadata.ledger.last(tables[0].id).version == 1


@pytest.mark.parametrize("part", ["mv", "differential"])
def test_a_view_whose_tables_cannot_be_reached_keeps_its_state(root: Path, part: str) -> None:
    """A link to itself, as a broken mount looks: the storage has not said that nothing is there."""
    with opened(root, "first") as context:
        recover(context)
        before = state(context.metadata.views.get("v"))
        log = root / "views" / "v-1" / part / "_delta_log"
        log.rename(log.with_name("elsewhere"))
        log.symlink_to(log)
        done = recover(context)
        assert any("cannot be read now" in note for note in done.notes)
        assert state(context.metadata.views.get("v")) == before
        log.unlink()
        log.with_name("elsewhere").rename(log)
        recover(context)
        assert state(context.metadata.views.get("v")) == REACHED
