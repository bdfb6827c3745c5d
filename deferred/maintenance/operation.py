"""Operations: every piece of work on a view, with its cuts, rows, seconds and outcome, kept in the metadata DB."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from deferred.errors import DeferredError, LogLostError, redacted
from deferred.log.context import Context, is_dead
from deferred.maintenance.notices import Event, announce
from deferred.maintenance.showing import Result
from deferred.maintenance.view_tables import mv_path
from deferred.metadata import Cut, OperationRecord, OperationState, ViewRecord, utc_now

if TYPE_CHECKING:
    from deferred.maintenance.costs import Cost

log = logging.getLogger(__name__)

TOLD_SECONDS = 1.0
"""The least time between two lines about how far an operation has come."""


@dataclass(frozen=True)
class Operation(Result):
    """What an operation did: from which cut to which, how many rows it read and wrote, how long each phase took."""

    id: str
    view: str | None
    kind: str
    state: str
    from_cut: dict[str, Any] | None
    to_cut: dict[str, Any] | None
    rows_read: int
    rows_deleted: int
    rows_inserted: int
    seconds: float
    phases: dict[str, float]
    strategy: str | None
    message: str | None
    started_at: str
    requested_by: str | None = None
    warnings: tuple[str, ...] = ()
    """What a user should know although the operation has succeeded."""
    commits_irrelevant: int = 0
    """The number of commits that do not matter to the view, by Delta's log alone."""
    rows_irrelevant: int | None = 0
    """About how many changed rows do not matter to the view, or were netted away; None where it is not known."""
    cost: dict[str, Any] | None = None
    """What each strategy was expected to cost, where they were compared, and the seconds that it took."""
    recursions: dict[str, Any] = field(default_factory=dict)
    """Of each recursion that changed: its rounds, the rows that might have been gone, and those that were put back."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def cut_by_name(names: Mapping[int, str], cut: Cut | None) -> dict[str, Any] | None:
    """A cut for people: versions by table name."""
    if cut is None:
        return None
    return {
        "timestamp": cut.timestamp.isoformat(),
        "versions": {names.get(table, str(table)): version for table, version in cut.versions.items()},
    }


def from_record(names: Mapping[int, str], record: OperationRecord) -> Operation:
    """The operation that a record is about; `names` are those of the tables."""
    return Operation(
        record.id,
        record.view,
        record.kind,
        _state(record),
        cut_by_name(names, record.from_cut),
        cut_by_name(names, record.to_cut),
        record.rows_read,
        record.rows_deleted,
        record.rows_inserted,
        round(sum(record.seconds.values()), 3),
        record.seconds,
        record.strategy,
        record.error or record.details.get("message"),
        record.started_at.isoformat(),
        record.requested_by,
        tuple(record.details.get("warnings") or ()),
        record.details.get("commits_irrelevant", 0),
        record.details.get("rows_irrelevant", 0),
        record.details.get("cost"),
        record.details.get("recursions") or {},
    )


def by_id(context: Context, operation_id: str) -> Operation:
    """The operation with an id."""
    return from_record(_names(context), context.metadata.operations.get(operation_id))


def recent(context: Context, view: str | None, limit: int) -> list[Operation]:
    """The last operations, of one view or of all, newest first; an unknown view is an error."""
    name = None if view is None else context.metadata.views.get(view).name
    names = _names(context)
    return [from_record(names, record) for record in context.metadata.operations.recent(name, limit)]


def latest(context: Context, each: int) -> dict[str, list[Operation]]:
    """The last operations of every view, newest first, by the view's name."""
    names = _names(context)
    found = context.metadata.operations.latest(each)
    return {view: [from_record(names, record) for record in records] for view, records in found.items()}


def _names(context: Context) -> dict[int, str]:
    return {table.id: table.name for table in context.metadata.tables.all()}


def _state(record: OperationRecord) -> str:
    """How an operation ended. One whose process died could not say so itself."""
    died = record.state == "running" and is_dead(str(record.details.get("owner", "")))
    return "interrupted" if died else record.state


@dataclass
class Work:
    """An operation in progress: what it finds out is noted here, and recorded when it ends."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: OperationState = "succeeded"
    from_cut: Cut | None = None
    to_cut: Cut | None = None
    rows_read: int = 0
    rows_deleted: int = 0
    rows_inserted: int = 0
    strategy: str | None = None
    message: str | None = None
    phases: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    commits_irrelevant: int = 0
    rows_irrelevant: int | None = 0
    told: Callable[[str], None] = lambda phase: None
    """Called when a phase begins, and with how far it has come."""
    costs: Mapping[str, Cost] = field(default_factory=dict)
    """What the strategies that were compared were expected to cost."""
    _told_at: float = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the seconds of a part of the operation."""
        self.told(name)
        begun = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - begun
            self.phases[name] = round(self.phases.get(name, 0.0) + seconds, 3)
            log.info("%s: %.2f s", name, seconds)

    def tell(self, line: str) -> None:
        """Say how far the work has come, not more often than somebody would read it."""
        log.info("%s", line)
        if time.monotonic() - self._told_at >= TOLD_SECONDS:
            self._told_at = time.monotonic()
            self.told(line)

    def nothing(self, message: str) -> None:
        """Note that there was nothing to do, and why."""
        self.state, self.message = "nothing", message


@contextmanager
def recorded(context: Context, kind: str, view: ViewRecord, **details: Any) -> Iterator[Work]:
    """Record an operation from its start, so that one that never ended can be seen too.

    Its statements mean what they meant in the session that created the view, whoever runs them.
    """
    work = Work()
    operations = context.metadata.operations
    operations.start(
        kind=kind,
        view_id=view.id,
        view=view.name,
        operation_id=work.id,
        requested_by=context.requested_by,
        details={**details, "owner": context.owner},
    )
    log.info("%s of %s begins, operation %s", kind, view.name, work.id)
    with _told(context, _event(context, kind, view, work), work):
        try:
            with context.engine.meaning(view.definition.settings):
                yield work
        except BaseException as error:
            operations.finish(work.id, "failed", error=_why(error)[:4000], **_fields(work, details))
            raise
        operations.finish(work.id, work.state, **_fields(work, details))
    log.info(
        "%s of %s: %s; %d rows read, %d deleted, %d inserted in %.2f s",
        kind,
        view.name,
        work.message or work.state,
        work.rows_read,
        work.rows_deleted,
        work.rows_inserted,
        sum(work.phases.values()),
    )


@contextmanager
def announced(context: Context, kind: str, view: str, location: str) -> Iterator[Work]:
    """Tell how far some work has come that is no operation of a view's history: making a view, reading one."""
    work = Work()
    with _told(context, Event("START", work.id, kind, view, location, step=context.step, is_recorded=False), work):
        yield work


def announce_broken(context: Context, work: Work, views: Sequence[ViewRecord]) -> None:
    """Tell that views were broken by work on another one, which found that a table is not the one that they know."""
    for view in views:
        error = LogLostError(f"View {view.name} cannot be maintained: {view.problem} Run rebuild({view.name!r}).")
        announce(context.listeners, Event("BROKEN", work.id, "broken", view.name, mv_path(view.location), error=error))


@contextmanager
def _told(context: Context, start: Event, work: Work) -> Iterator[None]:
    """Tell the listeners when work starts, enters a phase, and ends."""
    work.told = lambda phase: announce(
        context.listeners, replace(start, moment="PHASE", phase=phase, rows=_rows(work), at=utc_now())
    )
    announce(context.listeners, start)
    try:
        yield
    except BaseException as error:
        announce(context.listeners, _ended(start, work, error))
        raise
    announce(context.listeners, _ended(start, work))


def _why(error: BaseException) -> str:
    if isinstance(error, DeferredError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "It was stopped by Ctrl-C; run it again to go on."
    return redacted(f"{type(error).__name__}: {error}")


def _event(context: Context, kind: str, view: ViewRecord, work: Work) -> Event:
    """The start of an operation; nothing is looked up where nobody listens."""
    if not context.listeners:
        return Event("START", work.id, kind, view.name, mv_path(view.location))
    tables = {table.id: table for table in context.metadata.tables.all()}
    reads = {tables[t].name: tables[t].location for t in view.depends_on if t in tables}
    before = [op for op in context.metadata.operations.recent(view.name, 10) if op.id != work.id]
    failed = bool(before) and before[0].state == "failed"
    alike = [sum(op.seconds.values()) for op in before if (op.kind, op.state) == (kind, "succeeded")]
    expected = sum(alike) / len(alike) if alike else None
    start = Event("START", work.id, kind, view.name, mv_path(view.location), reads, step=context.step)
    return replace(start, failed_before=failed, expected_seconds=expected)


def _ended(start: Event, work: Work, error: BaseException | None = None) -> Event:
    moment: Literal["COMPLETE", "FAIL"] = "COMPLETE" if error is None else "FAIL"
    phase = None if error is None else next(reversed(work.phases), None)
    return replace(
        start, moment=moment, phase=phase, rows=_rows(work), seconds=dict(work.phases), error=error, at=utc_now()
    )


def _rows(work: Work) -> dict[str, int]:
    return {"read": work.rows_read, "deleted": work.rows_deleted, "inserted": work.rows_inserted}


def _fields(work: Work, details: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "from_cut": work.from_cut,
        "to_cut": work.to_cut,
        "rows_read": work.rows_read,
        "rows_deleted": work.rows_deleted,
        "rows_inserted": work.rows_inserted,
        "seconds": work.phases,
        "strategy": work.strategy,
        "details": {
            **details,
            **work.details,
            "message": work.message,
            "warnings": work.warnings,
            "commits_irrelevant": work.commits_irrelevant,
            "rows_irrelevant": work.rows_irrelevant,
            **({"cost": _cost(work)} if work.costs else {}),
        },
    }


def _cost(work: Work) -> dict[str, Any]:
    """What the strategies were expected to cost, and how many seconds the chosen one has taken."""
    expected = {name: cost.to_dict() for name, cost in work.costs.items()}
    return {**expected, "actual": round(sum(work.phases.values()), 3)}


def result(context: Context, work: Work) -> Operation:
    """The operation as it was recorded."""
    return by_id(context, work.id)


def combined(early: Sequence[Operation], propagated: Operation, applied: Operation) -> Operation:
    """The parts of a refresh as one operation: the result of the last part that did something, the work of all."""
    parts = [*early, propagated, applied]
    done = [part for part in parts if part.state != "nothing"]
    last = done[-1] if done else applied
    phases: dict[str, float] = {}
    for part in parts:
        for phase, seconds in part.phases.items():
            phases[phase] = round(phases.get(phase, 0.0) + seconds, 3)
    changes_of_mv = [*early, applied]
    return replace(
        last,
        kind="refresh",
        state="succeeded" if done else "nothing",
        from_cut=parts[0].from_cut,
        to_cut=applied.to_cut,
        rows_read=propagated.rows_read,
        commits_irrelevant=propagated.commits_irrelevant,
        rows_irrelevant=propagated.rows_irrelevant,
        rows_deleted=sum(part.rows_deleted for part in changes_of_mv),
        rows_inserted=sum(part.rows_inserted for part in changes_of_mv),
        seconds=round(sum(part.seconds for part in parts), 3),
        phases=phases,
        strategy=propagated.strategy,
        cost=propagated.cost,
        recursions=propagated.recursions,
        started_at=parts[0].started_at,
        warnings=tuple(dict.fromkeys(warning for part in parts for warning in part.warnings)),
    )
