"""The warehouse: what a user of the Python API meets, and nothing more than the way to the rooms behind it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlglot import exp

from deferred.algebra.plan import COUNT
from deferred.config import Settings, parse_duration, parse_timestamp
from deferred.errors import InvalidInputError, LogLostError
from deferred.log import changes, ledger, tracking, transactions
from deferred.log.context import Context
from deferred.maintenance import explain as explaining
from deferred.maintenance import operation, propagate, refresh, replay, status, verify, views
from deferred.maintenance.operation import Operation
from deferred.metadata import LedgerEntry, Metadata, TableRecord, ViewRecord
from deferred.spark import bags, functions, server
from deferred.spark.engine import Engine, table
from deferred.sql.dialect import parse_statement, quoted
from deferred.sql.pin import pinned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Warehouse:
    """Tracked tables and views over them. Opened by a configuration file or a folder; starts Spark when it must."""

    def __init__(self, settings: Settings, metadata: Metadata, engine: Engine, requested_by: str | None = None,
                 patience: float = 120.0) -> None:
        self.settings = settings
        self._context = Context(metadata, engine, str(settings.path),
                                requested_by or os.environ.get("DEFERRED_REQUESTED_BY"), patience)

    @classmethod
    def open(cls, config: str | Path | None = None, *, path: str | Path | None = None, metadata_url: str | None = None,
             spark: SparkSession | None = None, requested_by: str | None = None, patience: float = 120.0) -> Self:
        """Open a warehouse; a new one is made ready to use.

        `requested_by` is kept with every operation; `patience` is how many seconds to wait for another process that
        is at work on the same view.
        """
        settings = Settings.resolve(config, str(path) if path is not None else None, metadata_url)
        if "://" not in str(settings.path):
            Path(settings.path).mkdir(parents=True, exist_ok=True)
        metadata = Metadata.open(settings.metadata_url, create=True)
        prepare = partial(functions.register, functions=settings.functions, folder=settings.base_folder)
        running = server.find(settings.local_folder) if spark is None and not settings.spark_remote else None
        if running is not None:  # the one that `deferred engine start` keeps warm
            return cls(settings, metadata, Engine(None, None, running.remote, prepare=prepare), requested_by, patience)
        engine = Engine(spark, settings.spark_master, settings.spark_remote, settings.spark_conf, prepare)
        return cls(settings, metadata, engine, requested_by, patience)

    def close(self) -> None:
        """Close the metadata and let go of Spark, which ends with the process."""
        self._context.engine.release()
        self._context.metadata.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def spark(self) -> SparkSession:
        return self._context.engine.spark

    # ---- tables

    def track(self, name: str, path_or_name: str | os.PathLike[str], key: Sequence[str] | None = None,
              references: Mapping[str, str] | None = None, log: str = "feed") -> TableRecord:
        """Register a Delta table by its path or its name in Spark's catalog."""
        return tracking.track(self._context, name, os.fspath(path_or_name), key, references, log)

    def untrack(self, name: str) -> None:
        """Forget a table that no view reads; the table itself stays."""
        tracking.untrack(self._context, name)

    def tables(self) -> list[TableRecord]:
        return self._context.metadata.tables.all()

    def transaction(self) -> transactions.Transaction:
        """Several changes of several tables: one timestamp, all or nothing for every view."""
        return transactions.Transaction(self._context, self._made_safe)

    def append_changes(self, table_name: str, deletions: Any = None, insertions: Any = None) -> LedgerEntry:
        """Hand over what was deleted from and inserted into a table that is tracked with log='table'."""
        entry = transactions.append_changes(self._context, table_name, deletions, insertions)
        self._made_safe([self._context.metadata.tables.get(table_name)])
        return entry

    def sync(self) -> int:
        """Find new commits of all tracked tables; views that are kept up with every transaction follow at once."""
        transactions.recover_all(self._context)
        tables = self._context.metadata.tables.all()
        found = ledger.sync(self._context, tables, lambda t: transactions.recover(self._context, t))
        self._caught_up()
        return found

    def positions(self) -> dict[str, int]:
        """The newest version that the ledger knows of every tracked table and view."""
        known = ((t.name, self._context.metadata.ledger.last(t.id)) for t in self.tables())
        return {name: entry.version for name, entry in known if entry is not None}

    def log(self, table_name: str, since: Any = None, until: Any = None) -> DataFrame:
        """The net base log of a table: what was deleted (▼) and inserted (▲) since a time, or since it was tracked."""
        context = self._context
        record = context.metadata.tables.get(table_name)
        ledger.sync(context, [record], lambda t: transactions.recover(context, t))
        after, upto = self._range(record, since, until)
        columns = tuple(c for c in record.columns if not c[1].startswith("variant"))
        names = ", ".join(quoted(n) for n, _ in columns)
        count = quoted(COUNT)
        if upto <= after:
            net = f"SELECT {names}, 0L AS {count} FROM {table(record.location)} WHERE FALSE"
        else:
            net = changes.net(context, record, after, upto, columns)
        with changes.guarded(record, after, upto):
            return context.engine.sql(_signed(net, columns))

    def commits(self, table_name: str, since: Any = None, until: Any = None) -> list[LedgerEntry]:
        """The commits of a table that the log is made of, oldest first. Starts no Spark."""
        context = self._context
        record = context.metadata.tables.get(table_name)
        ledger.sync(context, [record], lambda t: transactions.recover(context, t))
        after, upto = self._range(record, since, until)
        return context.metadata.ledger.between(record.id, after, upto)

    # ---- views

    def create_view(self, name: str, sql: str, scenario: str = "combined", refresh_policy: str = "auto",
                    propagate_every: str | None = None, refresh_every: str | None = None, policy: int = 1,
                    target_lag: str | None = None) -> ViewRecord:
        """Make a materialized view of a query, filled with its rows at the current cut."""
        record = views.create(self._context, name, sql, scenario=scenario, refresh_policy=refresh_policy,
                              propagate_every=propagate_every, refresh_every=refresh_every, policy=policy,
                              target_lag=target_lag)
        self._caught_up()
        return record

    def drop_view(self, name: str) -> None:
        """Remove a view and its tables."""
        views.drop(self._context, self._context.metadata.views.get(name))

    def views(self) -> list[ViewRecord]:
        return self._context.metadata.views.all()

    def propagate(self, view: str, until: Any = None, full: bool = False) -> Operation:
        """Compute what has changed into the differential tables; readers notice nothing.

        With `full`, by recomputing the view and taking the difference: the same change, another way.
        """
        record = self._context.metadata.views.get(view)
        if record.scenario == "base_log":
            return self._nothing("propagate", record, "The scenario base_log keeps no differential tables: refresh "
                                                      "reads the base log.")
        if record.scenario == "immediate":
            return self.refresh(view, until, full=full)
        done = propagate.propagate(self._context, view, _moment(until), full=full)
        self._caught_up()
        return done

    def partial_refresh(self, view: str) -> Operation:
        """Apply the differential tables to the view: one small commit."""
        record = self._context.metadata.views.get(view)
        if record.scenario == "base_log":
            return self._nothing("partial_refresh", record, "The scenario base_log keeps no differential tables: "
                                                            "refresh reads the base log.")
        done = refresh.partial_refresh(self._context, view)
        self._caught_up(record)
        return done

    def refresh(self, view: str, until: Any = None, order: str = refresh.PROPAGATE_FIRST,
                full: bool = False) -> Operation:
        """propagate and partial_refresh, in either order: the view then shows the current state."""
        if order not in (refresh.PROPAGATE_FIRST, refresh.PARTIAL_FIRST):
            raise InvalidInputError(f"order={order!r}: it is {refresh.PROPAGATE_FIRST} or {refresh.PARTIAL_FIRST}.")
        done = refresh.refresh(self._context, view, _moment(until), order, full)
        self._caught_up(self._context.metadata.views.get(view))
        return done

    def rebuild(self, view: str) -> Operation:
        """Recompute a view from its tables as they are, in one atomic commit."""
        done = refresh.rebuild(self._context, view)
        self._caught_up(self._context.metadata.views.get(view))
        return done

    def backfill(self, view: str, start: Any, end: Any, step: Any) -> list[Operation]:
        """Step a view through time: at each step exactly the state at that time; a step behind it changes nothing."""
        begin, finish = parse_timestamp(start), parse_timestamp(end)
        width = step if isinstance(step, timedelta) else parse_duration(str(step))
        if finish < begin or width <= timedelta(0):
            raise InvalidInputError(f"backfill({view!r}): the range {begin} to {finish} in steps of {width} is empty.")
        results, moment = [], begin + width
        while True:
            results.append(refresh.refresh(self._context, view, min(moment, finish)))
            if moment >= finish:
                break
            moment += width
        self._caught_up(self._context.metadata.views.get(view))
        return results

    def replay(self, view: str, start: Any, end: Any, step: Any, of: str = "rows") -> list[Operation]:
        """Fill the view's history table: its rows as of each step, or its changes in each. MV stays as it is."""
        width = step if isinstance(step, timedelta) else parse_duration(str(step))
        return [replay.replay(self._context, view, a, b, of)
                for a, b in replay.steps(parse_timestamp(start), parse_timestamp(end), width)]

    def read_history(self, view: str, of: str = "rows") -> DataFrame:
        """The history table of a view that `replay` has filled; `_as_of` says at which step."""
        record = self._context.metadata.views.get(view)
        return self._context.engine.sql(f"SELECT * FROM {table(replay.history_path(self._context, record, of))}")

    def read(self, view: str) -> DataFrame:
        """The rows of a view, as MV shows them."""
        record = self._context.metadata.views.get(view)
        names = ", ".join(quoted(n) for n, _ in record.columns)
        return self._context.engine.sql(f"SELECT {names} FROM {table(views.mv_path(record))}")

    def diff(self, view: str) -> DataFrame:
        """The differential tables ∇MV and ΔMV, netted: changes computed and not yet applied."""
        record = self._context.metadata.views.get(view)
        net = bags.net(propagate.pending(record, record.applied_batch, record.propagated_batch), record.columns)
        return self._context.engine.sql(_signed(net, record.columns))

    def verify(self, view: str) -> verify.Verification:
        """Check the scenario's invariant and the minimality conditions; an error shows the first rows that differ."""
        self._caught_up()  # a process may have died between a transaction and the views that follow it
        record = self._context.metadata.views.get(view)
        with operation.recorded(self._context, "verify", record) as work, work.phase("verify"):
            return verify.verify(self._context, record.name)

    def explain(self, view: str) -> explaining.Explanation:
        """How a view is maintained: plan, equations, SQL, strategy and why."""
        return explaining.explain(self._context, self._context.metadata.views.get(view))

    def status(self) -> list[dict[str, Any]]:
        """Every view with its cuts, lag and what is pending. Starts no Spark."""
        return status.status(self._context)

    def is_fresh(self, view: str, moment: Any) -> bool:
        """Whether a view shows at least the state of a time, and so do the views that it reads. Starts no Spark."""
        return status.is_fresh(self._context, self._context.metadata.views.get(view), parse_timestamp(moment))

    def operation(self, operation_id: str) -> Operation:
        """One operation by its id."""
        return operation.from_record(self._context, self._context.metadata.operations.get(operation_id))

    def history(self, view: str | None = None, limit: int = 50) -> list[Operation]:
        """The last operations, newest first."""
        if view is not None:
            view = self._context.metadata.views.get(view).name
        return [operation.from_record(self._context, record)
                for record in self._context.metadata.operations.recent(view, limit=limit)]

    def sql(self, statement: str) -> DataFrame | None:
        """Run SQL on tracked tables and views by name: a query answers a DataFrame, a change is a transaction."""
        parsed = parse_statement(statement)
        if isinstance(parsed, (exp.Insert, exp.Update, exp.Delete, exp.Merge)):
            with self.transaction() as tx:
                tx.sql(statement)
            return None
        if not isinstance(parsed, exp.Query):
            raise InvalidInputError(f"sql() takes a query or INSERT, UPDATE, DELETE, MERGE, not {parsed.key.upper()}.")
        return self._context.engine.sql(pinned(statement, lambda p: table(tracking.find(self._context, p).location)))

    def gc(self, retain_hours: float = 168.0) -> dict[str, int]:
        """Remove what nothing needs any more: applied batches, old records, staged rows, folders of no view."""
        return status.gc(self._context, timedelta(hours=retain_hours))

    # ---- within

    def _range(self, record: TableRecord, since: Any, until: Any) -> tuple[int, int]:
        """The versions of a table between two moments: after the first one, up to the second."""
        known = self._context.metadata.ledger
        first = known.at(record.id, parse_timestamp(since)) if since is not None else None
        last = known.at(record.id, parse_timestamp(until)) if until is not None else known.last(record.id)
        return first.version if first else record.first_version, last.version if last else record.first_version

    def _made_safe(self, tables: Sequence[TableRecord]) -> None:
        """makesafe_IM and makesafe_DT: views that follow every transaction are brought along with it."""
        changed = {t.id for t in tables}
        for record in self._following():
            if not changed & set(record.depends_on):
                continue
            with suppress(LogLostError):  # the view is marked then, and what was asked for is done
                if record.scenario == "immediate":
                    refresh.refresh(self._context, record.name)
                    changed.add(record.table_id)
                else:
                    propagate.propagate(self._context, record.name, kind="makesafe")

    def _following(self) -> list[ViewRecord]:
        """The views that follow every transaction, each after those that it reads."""
        return [v for v in sorted(self._context.metadata.views.all(), key=lambda v: v.id)
                if v.scenario in ("immediate", "differential") and v.state == "active"]

    def _caught_up(self, refreshed: ViewRecord | None = None) -> None:
        """Bring those views along with what the ledger has learned meanwhile, and with a view that they read."""
        metadata = self._context.metadata
        ahead = {t for v in self._following() for t in v.depends_on
                 if (last := metadata.ledger.last(t)) and v.propagated and last.version > v.propagated.versions[t]}
        if refreshed is not None:
            ahead.add(refreshed.table_id)
        self._made_safe([metadata.tables.by_id(t) for t in ahead])

    def _nothing(self, kind: str, view: ViewRecord, why: str) -> Operation:
        with operation.recorded(self._context, kind, view) as work:
            work.nothing(why)
        return operation.result(self._context, work)


def _moment(until: Any) -> datetime | None:
    return None if until is None else parse_timestamp(until)


def _signed(net: str, columns: Sequence[tuple[str, str]]) -> str:
    """A netted signed query for people: each row with what happened to it (_change) and how often (_count).

    A table's own column of such a name keeps it; ours gets one underscore more.
    """
    names, count = ", ".join(quoted(n) for n, _ in columns), quoted(COUNT)
    taken = {n.casefold() for n, _ in columns}
    change, times = (next(n for i in range(1, len(taken) + 2) if (n := "_" * i + word) not in taken)
                     for word in ("change", "count"))
    return (f"SELECT {names}, CASE WHEN {count} > 0 THEN 'insert' ELSE 'delete' END AS {quoted(change)}, "
            f"ABS({count}) AS {quoted(times)} FROM ({net}) AS n")
