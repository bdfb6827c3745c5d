"""The frozen records that cross this room's border. They know nothing of SQLAlchemy or of any database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

TableKind = Literal["feed", "log", "view"]
TransactionState = Literal["prepared", "committed", "aborting", "aborted"]
ViewState = Literal["active", "broken"]
OperationState = Literal["running", "succeeded", "nothing", "failed"]
Columns = tuple[tuple[str, str], ...]


def utc_now() -> datetime:
    """The present moment in UTC. Every stored time comes from here or from Delta, never from a database's clock."""
    return datetime.now(UTC)


def in_utc(moment: datetime) -> datetime:
    """The same moment in UTC; a datetime without a time zone is refused, because guessing one would move a cut.

    >>> from datetime import timedelta, timezone
    >>> in_utc(datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))).isoformat()
    '2026-01-01T00:00:00+00:00'
    """
    if moment.tzinfo is None:
        raise ValueError(f"a time zone is missing: {moment.isoformat()}")
    return moment.astimezone(UTC)


@dataclass(frozen=True)
class Cut:
    """One version per base table, at one timestamp: a consistent database state.

    >>> cut = Cut(datetime(2026, 1, 1, tzinfo=UTC), {2: 7, 1: 4})
    >>> cut.to_json()
    '{"timestamp": "2026-01-01T00:00:00+00:00", "versions": {"1": 4, "2": 7}}'
    >>> Cut.from_json(cut.to_json()) == cut
    True
    """

    timestamp: datetime
    versions: Mapping[int, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "timestamp", in_utc(self.timestamp))
        object.__setattr__(self, "versions", dict(sorted(self.versions.items())))

    def to_json(self) -> str:
        """The cut as JSON text; equal cuts give equal text."""
        versions = {str(table): version for table, version in self.versions.items()}
        return json.dumps({"timestamp": self.timestamp.isoformat(), "versions": versions})

    @classmethod
    def from_json(cls, text: str) -> Cut:
        """The cut that `to_json` wrote."""
        value = json.loads(text)
        versions = {int(table): int(version) for table, version in value["versions"].items()}
        return cls(datetime.fromisoformat(value["timestamp"]), versions)


@dataclass(frozen=True)
class TableRecord:
    """A tracked Delta table: its log is the change feed, a log table of its own, or it is a view's MV."""

    id: int
    name: str
    location: str
    kind: TableKind
    delta_id: str | None
    log_location: str | None
    key: tuple[str, ...]
    references: dict[str, str]
    columns: Columns
    first_version: int
    created_at: datetime


@dataclass(frozen=True)
class LedgerEntry:
    """One Delta commit of a tracked table and its place in time."""

    table_id: int
    version: int
    timestamp: datetime
    transaction_id: str | None = None
    operation: str | None = None
    batch: int | None = None


@dataclass(frozen=True)
class TransactionRecord:
    """A transaction over several tables, with the statements that redo or undo it."""

    id: str
    state: TransactionState
    owner: str
    statements: list[dict[str, Any]]
    created_at: datetime = field(default_factory=utc_now)
    timestamp: datetime | None = None
    error: str | None = None


@dataclass(frozen=True)
class ViewRecord:
    """A view: its definition, the cut its MV shows (s_p) and the one its differential tables lead to (s_i)."""

    id: int
    name: str
    sql: str
    scenario: str
    refresh_policy: str
    policy: int
    propagate_every: str | None
    refresh_every: str | None
    target_lag: str | None
    columns: Columns
    definition: dict[str, Any]
    location: str
    table_id: int
    state: ViewState
    problem: str | None
    shown: Cut | None
    propagated: Cut | None
    applied_batch: int
    propagated_batch: int
    depends_on: tuple[int, ...]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class OperationRecord:
    """One propagate, refresh or other piece of work: from which cut to which, how many rows, how long, how it ended."""

    id: str
    view_id: int | None
    view: str | None
    kind: str
    state: OperationState
    from_cut: Cut | None
    to_cut: Cut | None
    rows_read: int
    rows_deleted: int
    rows_inserted: int
    seconds: dict[str, float]
    strategy: str | None
    error: str | None
    started_at: datetime
    finished_at: datetime | None
    requested_by: str | None
    details: dict[str, Any]


@dataclass(frozen=True)
class Lease:
    """The right of one owner to work on one thing until it expires."""

    name: str
    owner: str
    acquired_at: datetime
    expires_at: datetime
