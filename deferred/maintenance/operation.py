"""Operations: every piece of work on a view, with its cuts, rows, seconds and outcome, kept in the metadata DB."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from deferred.errors import DeferredError
from deferred.log.context import Context
from deferred.metadata import Cut, OperationRecord, OperationState, ViewRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Operation:
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def shown(context: Context, cut: Cut | None) -> dict[str, Any] | None:
    """A cut for people: versions by table name."""
    if cut is None:
        return None
    names = {t.id: t.name for t in context.metadata.tables.all()}
    return {"timestamp": cut.timestamp.isoformat(),
            "versions": {names.get(table, str(table)): version for table, version in cut.versions.items()}}


def from_record(context: Context, record: OperationRecord) -> Operation:
    return Operation(
        record.id, record.view, record.kind, record.state, shown(context, record.from_cut),
        shown(context, record.to_cut), record.rows_read, record.rows_deleted, record.rows_inserted,
        round(sum(record.seconds.values()), 3), record.seconds, record.strategy,
        record.error or record.details.get("message"), record.started_at.isoformat(), record.requested_by)


@dataclass
class Work:
    """An operation under way: what it finds out is written down here, and kept when it ends."""

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

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - begun
            self.phases[name] = round(self.phases.get(name, 0.0) + seconds, 3)
            log.info("%s: %.2f s", name, seconds)

    def nothing(self, message: str) -> None:
        self.state, self.message = "nothing", message


@contextmanager
def recorded(context: Context, kind: str, view: ViewRecord, **details: Any) -> Iterator[Work]:
    """Keep a record of an operation from its first moment, so that one that never ended is seen too."""
    work = Work()
    operations = context.metadata.operations
    operations.start(kind=kind, view_id=view.id, view=view.name, operation_id=work.id,
                     requested_by=context.requested_by, details=details)
    log.info("%s of %s begins, operation %s", kind, view.name, work.id)
    try:
        yield work
    except BaseException as error:
        message = str(error) if isinstance(error, DeferredError) else f"{type(error).__name__}: {error}"
        operations.finish(work.id, "failed", error=message[:4000], **_fields(work, details))
        raise
    operations.finish(work.id, work.state, **_fields(work, details))
    log.info("%s of %s: %s; %d rows read, %d deleted, %d inserted in %.2f s", kind, view.name,
             work.message or work.state, work.rows_read, work.rows_deleted, work.rows_inserted,
             sum(work.phases.values()))


def _fields(work: Work, details: Mapping[str, Any]) -> dict[str, Any]:
    return {"from_cut": work.from_cut, "to_cut": work.to_cut, "rows_read": work.rows_read,
            "rows_deleted": work.rows_deleted, "rows_inserted": work.rows_inserted, "seconds": work.phases,
            "strategy": work.strategy, "details": {**details, **work.details, "message": work.message}}


def result(context: Context, work: Work) -> Operation:
    return from_record(context, context.metadata.operations.get(work.id))
