"""The operations that are killed, the warehouse they work on, how its history goes on, and what is compared then."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from deferred import DeferredError, Warehouse
from deferred.errors import TransactionError
from deferred.log.delta_log import DeltaLog
from tests.engine.support import bag
from tests.reliability.between import before_statement

GROUPS = "SELECT r.a, COUNT(*) AS n, SUM(t.d) AS total FROM r JOIN t ON r.a = t.a GROUP BY r.a"
WAY = "WITH RECURSIVE way AS (SELECT a, b FROM r UNION SELECT w.a, r.b FROM way w JOIN r ON w.b = r.a)"
TABLES = {
    "r": ("feed", "a INT, b INT, s STRING", "(1, 1, 'x'), (1, 1, 'x'), (2, NULL, 'y')"),
    "t": ("feed", "a INT, d DECIMAL(8,2)", "(1, 1.50), (2, 2.25), (3, 4.00)"),
    "h": ("table", "a INT, s STRING", "(1, 'one'), (2, 'two')"),
    "spare": ("feed", "a INT", "(1)"),
    "plain": ("files", "a INT, s STRING", "(1, 'p'), (2, 'q'), (2, 'q')"),
    "original": (None, "a INT, at TIMESTAMP, s STRING", "(1, TIMESTAMP'2026-01-01', 'k'), (2, NULL, 'l')"),
    "fed": (None, "a INT", "(1), (2)"),
    "handed": (None, "a INT", "(1), (2)"),
}
"""Each table with its log, or None where it is not tracked; its columns and rows."""
VIEWS: dict[str, tuple[str, dict[str, str]]] = {
    "v": (GROUPS, {}),
    "bag": ("SELECT a, s FROM r WHERE b IS NOT NULL", {"scenario": "immediate"}),
    "named": ("SELECT s, COUNT(*) AS n FROM h GROUP BY s", {}),
    "gone": ("SELECT a, s FROM r", {"scenario": "base_log"}),
    "sources": (
        "SELECT p.a, p.s, k.s AS stamped, e.state FROM plain p JOIN stamped k ON p.a = k.a LEFT JOIN events e ON e.a = p.a",
        {},
    ),
    "over": ("SELECT n, COUNT(*) AS keys FROM v GROUP BY n", {}),
    "alone": ("SELECT r.s, MAX(t.d) AS most FROM r JOIN t ON r.a = t.a GROUP BY r.s", {"maintain": "self"}),
    "good": ("SELECT DISTINCT h.s FROM h JOIN r ON h.a = r.a JOIN t ON t.a = r.a", {"maintain": "tree"}),
    "reached": (f"{WAY} SELECT * FROM way", {}),
}
"""Each view with its query and options."""


def prepare(folder: Path, remote: str) -> None:
    """A warehouse in the middle of its work: a batch that waits, a commit that nobody has seen, rows handed over."""
    with opened(folder, None, remote) as wh:
        for name, (log, columns, values) in TABLES.items():
            path = f"{folder}/tables/{name}"
            wh.spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta")
            wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES {values}")
            if log is not None:
                wh.track(name, path, log=log)
        wh.track("stamped", f"{folder}/tables/original", key=["a"], log="timestamps", updated_at="at")
        events = folder / "tables" / "events"
        events.mkdir()
        (events / "0.json").write_text(_event("r", 1, "new", 100), encoding="utf-8")
        wh.track("events", events, key=["a"], log="debezium", columns="a INT, state STRING")
        for name, (sql, options) in VIEWS.items():
            wh.create_view(name, sql, **options)
        with wh.transaction() as tx:
            tx.insert("t", [(1, 9), (2, 1)])
            tx.delete("r", "a = 2")
        wh.propagate("v")
        write(wh, "t", "INSERT INTO {} VALUES (1, 3), (3, 3)")
        write(wh, "h", "INSERT INTO {} VALUES (3, 'two')")


def opened(folder: Path, metadata_url: str | None, remote: str) -> Warehouse:
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(remote).create() if remote else None
    return Warehouse.open(path=folder / "warehouse", metadata_url=metadata_url, spark=session)


def write(wh: Warehouse, table: str, statement: str) -> None:
    """Another job writes a table."""
    folder = Path(wh.settings.path).parent / "tables" / table
    wh.spark.sql(statement.format(f"delta.`{folder}`"))


@dataclass(frozen=True)
class Operation:
    """What is killed. `again` is what a user does after the crash: by default the same; it may find that all is done.

    `given` comes before, and is never killed.
    """

    run: Callable[[Warehouse], Any]
    again: Callable[[Warehouse], Any] | None = None
    given: Callable[[Warehouse], Any] | None = None
    views: tuple[str, ...] = ("v",)
    """The views that are refreshed and verified afterwards."""

    def repeat(self, wh: Warehouse) -> str:
        """Run it again. An error is no failure by itself: what was done already may be refused."""
        try:
            (self.again or self.run)(wh)
        except DeferredError as error:
            return f"{type(error).__name__}: {error}"
        return "done"


def _transaction(wh: Warehouse) -> None:
    with wh.transaction() as tx:
        tx.insert("r", [(3, 30, "killed"), (3, 30, "killed")])
        tx.update("t", {"d": "d + 100"}, "a = 3")
        tx.delete("r", "a = 1 AND s = 'x'")


def _transaction_again(wh: Warehouse) -> None:
    """A transaction that has its redo record is finished by whoever comes next; only one that has none is repeated."""
    wh.sync()
    if not bag(wh.sql("SELECT a FROM r WHERE s = 'killed'")):
        _transaction(wh)


def _failing(wh: Warehouse) -> None:
    with wh.transaction() as tx:
        tx.insert("t", [(1, 77)])
        tx.update("r", {"b": "CAST(s AS INT)"})


def _hand_over(wh: Warehouse) -> None:
    wh.append_changes("h", insertions=[(3, "two")])


def _replace(wh: Warehouse) -> None:
    wh.replace_view("gone", "SELECT DISTINCT a FROM r", scenario="combined")


def _stuck(wh: Warehouse) -> None:
    """A transaction that fails and cannot be undone: another job has changed the row that it has inserted."""

    def meddle() -> None:
        write(wh, "r", "UPDATE {} SET s = 'meddled' WHERE s = 'stuck'")

    with suppress(TransactionError), before_statement("MERGE INTO", meddle), wh.transaction() as tx:
        tx.insert("r", [(1, 9, "stuck")])
        tx.insert("t", [(1, 9)])
        tx.update("r", {"b": "CAST(s AS INT)"})
    assert len(wh.transactions()) == 1


def _resolve(how: str) -> Callable[[Warehouse], Any]:
    return lambda wh: [wh.resolve_transaction(transaction.id, how) for transaction in wh.transactions()]


def _two_commits(wh: Warehouse) -> None:
    for number in (5, 6):
        write(wh, "t", f"INSERT INTO {{}} VALUES ({number - 4}, {number})")
        wh.sync()


def _two_steps(wh: Warehouse) -> tuple[datetime, datetime, timedelta]:
    """Two steps that end with the last commit: at the end of the first one the one before has been made."""
    first, last = (commit.timestamp for commit in wh.commits("t")[-2:])
    return first, last, (last - first) / 2


def _many(wh: Warehouse) -> None:
    """As `deferred refresh --all`: several views at the same time, each in a thread of its own."""
    _, failed = wh.side_by_side(["v", "named", "over", "good"], wh.refresh)
    for error in failed.values():
        raise error


def _alter(wh: Warehouse) -> None:
    wh.alter_view("v", GROUPS.replace("SUM(t.d) AS total", "SUM(t.d) AS total, MAX(t.d) AS most"))


def _alter_by_difference(wh: Warehouse) -> None:
    wh.alter_view("v", GROUPS.replace(" GROUP BY", " WHERE r.s <> 'y' GROUP BY"))


def _event(op: str, key: int, state: str, position: int) -> str:
    return json.dumps({"op": op, "before": None, "after": {"a": key, "state": state}, "source": {"lsn": position}})


def _sources_changed(wh: Warehouse) -> None:
    """Other jobs write the tables that tell their changes in other ways than the change feed."""
    write(wh, "plain", "UPDATE {} SET s = 'r' WHERE a = 2")
    write(wh, "original", "INSERT INTO {} VALUES (2, TIMESTAMP'2026-01-02', 'm')")
    write(wh, "original", "DELETE FROM {} WHERE s = 'l'")
    (_path(wh, "events") / "1.json").write_text(_event("u", 2, "paid", 200), encoding="utf-8")
    wh.refresh("sources")


def _ingest(wh: Warehouse) -> None:
    wh.ingest("events", [_event("u", 1, "paid", 300), _event("c", 2, "open", 301)])


def _recover(wh: Warehouse) -> None:
    """The metadata database is lost, then recovered."""
    from sqlalchemy import delete

    from deferred.metadata.models import Base

    with wh._context.metadata._database.write() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(delete(table))
    wh.recover()


def _path(wh: Warehouse, table: str) -> Path:
    return Path(wh.settings.path).parent / "tables" / table


OPERATIONS: dict[str, Operation] = {
    "track": Operation(lambda wh: wh.track("fed", _path(wh, "fed")), views=()),
    "track, log handed over": Operation(lambda wh: wh.track("handed", _path(wh, "handed"), log="table"), views=()),
    "track_all": Operation(lambda wh: wh.track_all(_path(wh, "")), views=()),
    "untrack": Operation(lambda wh: wh.untrack("spare"), views=()),
    "transaction": Operation(_transaction, _transaction_again, views=("v", "bag")),
    "transaction that is undone": Operation(_failing, views=("v", "bag")),
    "transaction, one statement": Operation(lambda wh: wh.sql("UPDATE t SET d = 7 WHERE a = 2"), views=("v", "bag")),
    "resolve, undo": Operation(_resolve("undo"), given=_stuck, views=("v", "bag")),
    "resolve, keep": Operation(_resolve("keep"), given=_stuck, views=("v", "bag")),
    "append_changes": Operation(_hand_over, views=("named",)),
    "sync": Operation(lambda wh: wh.sync()),
    "propagate": Operation(lambda wh: wh.propagate("v")),
    "partial_refresh": Operation(lambda wh: wh.partial_refresh("v")),
    "refresh": Operation(lambda wh: wh.refresh("v")),
    "refresh, partial first": Operation(lambda wh: wh.refresh("v", order="partial_first")),
    "refresh, recomputed": Operation(lambda wh: wh.refresh("v", full=True)),
    "refresh, over a view": Operation(
        lambda wh: wh.refresh("over"), given=lambda wh: wh.refresh("v"), views=("v", "over")
    ),
    "refresh, self-maintained": Operation(lambda wh: wh.refresh("alone"), views=("alone",)),
    "refresh, tree join": Operation(lambda wh: wh.refresh("good"), views=("good",)),
    "refresh, recursive": Operation(lambda wh: wh.refresh("reached"), views=("reached",)),
    "refresh, many": Operation(_many, views=("v", "named", "over", "good")),
    "backfill": Operation(lambda wh: wh.backfill("v", *_two_steps(wh)), given=_two_commits),
    "rebuild": Operation(lambda wh: wh.rebuild("v")),
    "create": Operation(lambda wh: wh.create_view("made", GROUPS, scenario="differential"), views=("made",)),
    "replace": Operation(_replace, views=("gone",)),
    "alter, from the view": Operation(lambda wh: wh.alter_view("v", f"{GROUPS} HAVING COUNT(*) > 1")),
    "alter, from kept rows": Operation(
        lambda wh: wh.alter_view("v", GROUPS.replace("AS total", "AS total, MAX(r.b) AS most"))
    ),
    "alter, difference": Operation(lambda wh: wh.alter_view("bag", "SELECT a, s FROM r WHERE a > 0"), views=("bag",)),
    "alter, recomputed": Operation(lambda wh: wh.alter_view("v", "SELECT s, COUNT(*) AS n FROM r GROUP BY s")),
    "alter, another recursion": Operation(
        lambda wh: wh.alter_view("reached", f"{WAY.replace('= r.a)', '= r.a AND r.b > 1)')} SELECT * FROM way"),
        views=("reached",),
    ),
    "alter, above a recursion": Operation(
        lambda wh: wh.alter_view("reached", f"{WAY} SELECT b, COUNT(*) AS n FROM way GROUP BY b"), views=("reached",)
    ),
    "drop": Operation(lambda wh: wh.drop_view("gone"), views=()),
    "alter": Operation(_alter),
    "alter, by the difference below groups": Operation(_alter_by_difference),
    "track, by timestamps": Operation(
        lambda wh: wh.track("again", _path(wh, "original"), key=["a"], log="timestamps", updated_at="at"), views=()
    ),
    "track, by events": Operation(
        lambda wh: wh.track("told", key=["a"], log="debezium", columns="a INT, state STRING"), views=()
    ),
    "refresh, other sources": Operation(_sources_changed, lambda wh: wh.refresh("sources"), views=("sources",)),
    "ingest": Operation(_ingest, views=("sources",)),
    "recover": Operation(_recover, lambda wh: wh.recover()),
    "replay": Operation(lambda wh: wh.replay("v", *_two_steps(wh)), given=_two_commits),
    "gc": Operation(lambda wh: wh.gc(retain_hours=0)),
}


# ---- afterwards


def settled(wh: Warehouse) -> dict[str, Any]:
    """What is there as soon as everything has been noted and cleaned up."""
    wh.sync()
    wh.gc(retain_hours=0)
    return state(wh)


def carry_on(wh: Warehouse, operation: Operation) -> dict[str, Any]:
    """The history goes on: a transaction, a foreign commit, refreshes. Returns what must equal a run without a crash."""
    wh.sync()
    with wh.transaction() as tx:
        tx.insert("r", [(3, 5, "on"), (1, None, "on")])
        tx.delete("t", "d = 1.50")
    for name in operation.views:
        wh.refresh(name)
        wh.verify(name)
    wh.gc(retain_hours=0)
    return state(wh)


def state(wh: Warehouse) -> dict[str, Any]:
    """All that a user can see, without what differs from run to run: times, ids, numbers of versions."""
    root = Path(str(wh.settings.path))
    metadata = wh._context.metadata
    fresh = {view["name"]: view for view in wh.status()}
    return {
        "tables": {t.name: (t.kind, rows(wh, t.location)) for t in wh.tables()},
        "views": {
            v.name: {
                "sql": v.sql,
                "state": v.state,
                "problem": v.problem,
                "fresh": fresh[v.name]["fresh"],
                "pending": fresh[v.name]["pending_batches"],
                "batches twice": twice(v.location, v.workings),
                "histories": sorted(p.name for p in Path(v.location, "history").glob("*")),
            }
            for v in wh.views()
        },
        "unfinished transactions": len(metadata.transactions.pending()),
        "unfinished operations": sorted(o.kind for o in wh.history(limit=1000) if o.state == "running"),
        "leases": leases(wh),
        "folders": {
            kind: sorted(re.sub("-[0-9a-f]{8}$", "", p.name) for p in (root / kind).glob("*"))
            for kind in ("views", "logs", "copies", "transactions", "history")
        },
    }


def rows(wh: Warehouse, location: str) -> list[str]:
    """The rows of a table as text, in an order of their own; by delta-rs where it can, because that takes no Spark."""
    try:
        return sorted(map(str, DeltaTable(location).to_pyarrow_table().to_pylist()))
    except DeltaError:
        return sorted(str(row.asDict()) for row in wh.spark.sql(f"SELECT * FROM delta.`{location}`").collect())


def twice(location: str, workings: str) -> list[str]:
    """Batches that were committed more than once."""
    found = []
    for table, kind in ((f"{location}/mv", "refresh"), (f"{workings}/differential", "propagate")):
        marks = [c.mark["batch"] for c in DeltaLog(table).newest_first() if (c.mark or {}).get("kind") == kind]
        found += [f"{kind} {batch}" for batch in set(marks) if marks.count(batch) > 1]
    return found


def leases(wh: Warehouse) -> list[str]:
    """The leases that somebody alive still holds."""
    from sqlalchemy import select

    from deferred.log.context import is_dead
    from deferred.metadata.models import LeaseRow

    with wh._context.metadata._database.read() as session:
        names = list(session.scalars(select(LeaseRow.name)))
    held = filter(None, map(wh._context.metadata.leases.holder, names))
    return sorted(lease.name for lease in held if not is_dead(lease.owner))


def environment() -> dict[str, str]:
    """The environment without settings of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("DEFERRED_", "SPARK_CONNECT_"))}
