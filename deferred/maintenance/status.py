"""The views and how fresh they are, from the metadata and Delta's logs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from deferred.config import parse_duration
from deferred.errors import DeferredError, LogLostError, StorageError
from deferred.log import ledger
from deferred.log.context import Context
from deferred.log.sources import Source, source_of
from deferred.log.undo import explained, stuck
from deferred.maintenance.base_logs import synced_tables
from deferred.maintenance.settle import settled
from deferred.maintenance.view_tables import mv_path
from deferred.metadata import Cut, OperationRecord, TableRecord, TransactionRecord, ViewRecord, utc_now
from deferred.schedule import last_tick, next_tick

Health = Literal["fresh", "stale", "late", "failing", "broken"]
"""stale: not up to date, as is to be expected between refreshes; late: more so than its options allow."""


def status(context: Context) -> list[dict[str, Any]]:
    """One entry per view. Reads Delta's logs through delta-rs, so it takes milliseconds and starts no JVM."""
    return _Observation(context).views()


class _Observation:
    """The warehouse at one moment: each table's log is opened once, each kind of record read once, for all views."""

    def __init__(self, context: Context) -> None:
        self.now = utc_now()
        self._views = context.metadata.views.all()
        self._tables = {table.id: table for table in context.metadata.tables.all()}
        self._sources = {table.id: source_of(context, table) for table in self._tables.values()}
        self._operations = context.metadata.operations.latest()
        self._stuck = stuck(context, list(self._tables.values()))
        self._unseen: dict[tuple[int, int], Unseen] = {}

    def views(self) -> list[dict[str, Any]]:
        """Returns what there is to say of every view, by name."""
        return [self._view(view) for view in self._views]

    def _view(self, view: ViewRecord) -> dict[str, Any]:
        operations = self._operations.get(view.name, [])
        reads = [self._tables[t] for t in view.depends_on]
        pending, unseen = self._since(view, view.propagated), self._since(view, view.shown)
        unreadable = {**pending.unreadable, **unseen.unreadable}
        fresh = not unreadable and unseen.commits == 0 and view.propagated_batch == view.applied_batch
        problems = [*map(str, unreadable.values()), *(explained(t) for t in self._stuck if _concerns(t, reads))]
        problem = view.problem or " ".join(problems) or None
        failure = _failure(operations)
        lag = None if view.shown is None else round((self.now - view.shown.timestamp).total_seconds(), 3)
        behind = lag if unseen.since is None else _seconds(self.now - unseen.since)
        stale = 0.0 if fresh else None if unreadable else behind
        return {
            "name": view.name,
            "scenario": view.options.scenario,
            "refresh_policy": view.options.refresh_policy,
            "state": view.state,
            "health": _health(view, failure, list(unreadable.values()), fresh, stale, self.now),
            "problem": problem,
            "failure": failure,
            "reads": [table.name for table in reads],
            "unreadable": sorted(unreadable),
            "shown": view.shown.timestamp.isoformat() if view.shown else None,
            "propagated": view.propagated.timestamp.isoformat() if view.propagated else None,
            "stale_seconds": stale,
            "unseen_commits": unseen.commits,
            "unseen_rows": unseen.rows,
            "pending_commits": pending.commits,
            "pending_batches": view.propagated_batch - view.applied_batch,
            **_irrelevant(operations),
            "fresh": fresh,
            "lag_seconds": lag,
            "next_due": _next_due(view, self.now),
            "downtime_seconds": _downtime(operations),
            "propagate_every": view.options.propagate_every,
            "refresh_every": view.options.refresh_every,
            "target_lag": view.options.target_lag,
            "policy": view.options.policy,
            "location": mv_path(view.location),
        }

    def _since(self, view: ViewRecord, cut: Cut | None) -> Unseen:
        """What was committed to the tables of a view after a cut."""
        versions = cut.versions if cut else {}
        return sum((self._table_since(table, versions.get(table, 0)) for table in view.depends_on), start=NOTHING)

    def _table_since(self, table: int, after: int) -> Unseen:
        known = self._unseen.get((table, after))
        if known is None:
            known = self._unseen[table, after] = _unseen(self._sources[table], after)
        return known


@dataclass(frozen=True)
class Unseen:
    """Commits that a view does not show: their number, about how many rows they changed, the time of the first."""

    commits: int | None
    """None where a table cannot be read."""
    rows: int | None
    """None where it is not known without reading them."""
    since: datetime | None
    unreadable: Mapping[str, DeferredError] = field(default_factory=dict)
    """Why, by the name of the table."""

    def __add__(self, other: Unseen) -> Unseen:
        times = [time for time in (self.since, other.since) if time is not None]
        return Unseen(
            _sum(self.commits, other.commits),
            _sum(self.rows, other.rows),
            min(times, default=None),
            {**self.unreadable, **other.unreadable},
        )


NOTHING = Unseen(0, 0, None)


def _unseen(source: Source, after: int) -> Unseen:
    """The commits of a table after a version, or why they are not known."""
    try:
        source.check_covers(after)
        upto = source.version
        if upto <= after:
            return NOTHING
        commits = [commit for commit in source.log.commits(after) if commit.version <= upto]
        since = commits[0].timestamp if commits and commits[0].version == after + 1 else None
        return Unseen(upto - after, source.changed_rows(after, upto), since)
    except DeferredError as error:
        return Unseen(None, None, None, {source.record.name: error})
    except OSError as error:
        reason = StorageError(f"The log of {source.record.name} cannot be read at present: {error}. Try again.")
        return Unseen(None, None, None, {source.record.name: reason})


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _concerns(transaction: TransactionRecord, tables: Sequence[TableRecord]) -> bool:
    return bool({table.name for table in tables} & {statement["table"] for statement in transaction.statements})


def _irrelevant(operations: Sequence[OperationRecord]) -> dict[str, int | None]:
    """What did not matter to a view of the commits that were last propagated."""
    details = next((op.details for op in operations if "relevance" in op.seconds), {})
    return {f"irrelevant_{of}": details.get(f"{of}_irrelevant", 0) for of in ("commits", "rows")}


def _failure(operations: Sequence[OperationRecord]) -> str | None:
    """How the last operation on a view failed, None if it did not."""
    last = next(iter(operations), None)
    if last is None or last.state != "failed":
        return None
    return f"{last.kind} failed at {last.started_at:%Y-%m-%d %H:%M:%S} UTC: {last.error}"


def _downtime(operations: Sequence[OperationRecord]) -> float | None:
    """The seconds of the last commit to MV: in the paper's words, for how long readers would have had to wait."""
    applied = (op.seconds["apply"] for op in operations if op.state == "succeeded" and "apply" in op.seconds)
    return next(applied, None)


def _next_due(view: ViewRecord, now: datetime) -> str | None:
    """When the view is next to be propagated or refreshed, by its options."""
    every = [view.options.propagate_every, view.options.refresh_every]
    ticks = [tick for cadence in every if cadence and (tick := next_tick(cadence, now)) is not None]
    return min(ticks).isoformat() if ticks else None


def _health(
    view: ViewRecord,
    failure: str | None,
    unreadable: Sequence[DeferredError],
    fresh: bool,
    stale: float | None,
    now: datetime,
) -> Health:
    """In one word: what is worst about a view."""
    if view.state != "active" or any(isinstance(error, LogLostError) for error in unreadable):
        return "broken"
    if failure is not None or unreadable:
        return "failing"
    if fresh:
        return "fresh"
    return "late" if _is_late(view, stale, now) else "stale"


def _is_late(view: ViewRecord, stale: float | None, now: datetime) -> bool:
    """Whether a stale view is older than its target_lag, or has missed a whole period of refresh_every."""
    options = view.options
    if options.target_lag and stale is not None:
        return stale > parse_duration(options.target_lag).total_seconds()
    if not options.refresh_every or view.shown is None:
        return False
    last = last_tick(options.refresh_every, now)
    missed = None if last is None else last_tick(options.refresh_every, last - timedelta(microseconds=1))
    return missed is not None and view.shown.timestamp < missed


def _seconds(span: timedelta) -> float:
    return round(max(0.0, span.total_seconds()), 3)


def is_fresh(context: Context, view: ViewRecord, moment: datetime) -> bool:
    """Whether MV shows what its tables held at a time; so must the views among them, for what they read."""
    by_table = {v.table_id: v for v in context.metadata.views.all()}
    read = [by_table[table] for table in view.depends_on if table in by_table]
    if not all(is_fresh(context, upstream, moment) for upstream in read):
        return False
    view = settled(context, view)
    if view.shown is None or view.state != "active":
        return False
    tables = synced_tables(context, view)
    if stuck(context, tables):  # the ledger ends before it
        return False
    held = ledger.cut(context, tables, moment, None).versions
    return moment <= utc_now() and all(view.shown.versions.get(t, -1) >= version for t, version in held.items())
