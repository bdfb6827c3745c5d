"""The frozen records that leave and enter this room. They know nothing of SQLAlchemy or of any database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from deferred.algebra.types import Columns
from deferred.options import ViewOptions

TransactionState = Literal["prepared", "committed", "aborting", "aborted"]
ViewState = Literal["active", "broken"]
OperationState = Literal["running", "succeeded", "nothing", "failed"]


def utc_now() -> datetime:
    """Returns the present in UTC. Every stored time comes from here or from Delta, never from a database's clock."""
    return datetime.now(UTC)


def in_utc(moment: datetime) -> datetime:
    """Returns the same moment in UTC; refuses a datetime without a time zone, because guessing one would move a cut.

    >>> from datetime import timedelta, timezone
    >>> in_utc(datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))).isoformat()
    '2026-01-01T00:00:00+00:00'
    """
    if moment.tzinfo is None:
        raise ValueError(f"The time zone is missing: {moment.isoformat()}.")
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
        """Returns the cut as JSON text; equal cuts give equal text."""
        versions = {str(table): version for table, version in self.versions.items()}
        return json.dumps({"timestamp": self.timestamp.isoformat(), "versions": versions})

    @classmethod
    def from_json(cls, text: str) -> Cut:
        """Returns the cut that `to_json` wrote."""
        value = json.loads(text)
        versions = {int(table): int(version) for table, version in value["versions"].items()}
        return cls(datetime.fromisoformat(value["timestamp"]), versions)


@dataclass(frozen=True)
class TableRecord:
    """A tracked Delta table or a view's own; `kind` says where its changes come from, see deferred.log.sources."""

    id: int
    name: str
    location: str
    kind: str
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
class Declared:
    """The keys and references of a view's tables, as `track` was given them when the view was created."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    references: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "keys": {name: list(key) for name, key in self.keys.items()},
            "references": {name: dict(columns) for name, columns in self.references.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Declared:
        return cls({name: tuple(key) for name, key in value["keys"].items()}, value["references"])


@dataclass(frozen=True)
class Filling:
    """How many seconds filling a view has taken, and how many the model of its cost had said."""

    seconds: float
    model: float

    def to_json(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "model": self.model}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Filling:
        return cls(value["seconds"], value["model"])


@dataclass(frozen=True)
class SharedTable:
    """A shared auxiliary table: its folder, the base table that it is of, its columns and conditions.

    >>> table = SharedTable("sales-1f", "sales", ("shop",), ("of_price > 5",))
    >>> SharedTable.from_json(table.to_json()) == table
    True
    """

    folder: str
    table: str
    names: tuple[str, ...]
    conditions: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "table": self.table,
            "names": list(self.names),
            "conditions": list(self.conditions),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SharedTable:
        return cls(value["folder"], value["table"], tuple(value["names"]), tuple(value["conditions"]))


@dataclass(frozen=True)
class RememberedDefinition:
    """What is kept of a view's query so that binding it again asks neither its tables nor Spark.

    >>> remembered = RememberedDefinition({"t": (("a", "int"),)}, {"s.t": "t"}, key=("a",), settings={"zone": "UTC"})
    >>> RememberedDefinition.from_json(remembered.to_json()) == remembered
    True
    """

    tables: Mapping[str, Columns] = field(default_factory=dict)
    """The columns of each base table when the view was created."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The base table that each dotted name in the text means."""
    types: Mapping[str, Columns] = field(default_factory=dict)
    """Spark's answers about types, by the query that asked for them."""
    whole: str | None = None
    """Why the view has no plan and is recomputed as a whole."""
    notes: tuple[str, ...] = ()
    """What a user should know of how the query was understood."""
    key: tuple[str, ...] = ()
    """The view's columns that no two of its rows share; empty where it is a bag."""
    tidied: int = 0
    """The last differential batch that was removed after MV showed it."""
    settings: Mapping[str, str] | None = None
    """The settings of the session that created the view, on which the meaning of its text depends; None if an earlier
    version created it, which did not keep them."""
    generation: str = ""
    """The folder inside the view's own in which its differential and support tables are; empty until it is altered."""
    promises: Declared | None = None
    """What a view that reads no base table relies on; None for all others."""
    alteration: Alteration | None = None
    """A new definition that is being made: the view has it from the commit to MV on that names its id."""
    filled: Filling | None = None
    """What filling the view has taken; None where the model of its cost had nothing to say."""
    shared: Mapping[str, SharedTable] = field(default_factory=dict)
    """The shared tables of which auxiliary tables are parts, by the names of these."""
    functions: Mapping[str, str] | None = None
    """What each function was that a user has defined and the query calls, when the view's rows were computed; None if
    an earlier version created it, which did not keep that."""

    def to_json(self) -> dict[str, Any]:
        """The definition as JSON values."""
        return {
            "tables": {name: [list(c) for c in columns] for name, columns in self.tables.items()},
            "names": dict(self.names),
            "types": {sql: [list(c) for c in columns] for sql, columns in self.types.items()},
            "whole": self.whole,
            "notes": list(self.notes),
            "key": list(self.key),
            "tidied": self.tidied,
            "settings": None if self.settings is None else dict(self.settings),
            "generation": self.generation,
            "promises": None if self.promises is None else self.promises.to_json(),
            "alteration": None if self.alteration is None else self.alteration.to_json(),
            "filled": None if self.filled is None else self.filled.to_json(),
            "shared": {name: table.to_json() for name, table in self.shared.items()},
            "functions": None if self.functions is None else dict(self.functions),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RememberedDefinition:
        """The definition that `to_json` wrote; what an older version did not write has its default."""

        def columns(listed: Mapping[str, Any]) -> dict[str, Columns]:
            return {name: tuple((n, t) for n, t in given) for name, given in listed.items()}

        return cls(
            columns(value.get("tables") or {}),
            dict(value.get("names") or {}),
            columns(value.get("types") or {}),
            value.get("whole"),
            tuple(value.get("notes") or ()),
            tuple(value.get("key") or ()),
            int(value.get("tidied") or 0),
            value.get("settings"),
            str(value.get("generation") or ""),
            None if value.get("promises") is None else Declared.from_json(value["promises"]),
            None if value.get("alteration") is None else Alteration.from_json(value["alteration"]),
            None if value.get("filled") is None else Filling.from_json(value["filled"]),
            {name: SharedTable.from_json(table) for name, table in (value.get("shared") or {}).items()},
            value.get("functions"),
        )


@dataclass(frozen=True)
class Alteration:
    """A view's definition that takes the place of the one it has, and the operation that makes it.

    >>> new = Alteration("7", "SELECT a FROM t", ViewOptions(), (("a", "int"),), (1,), RememberedDefinition())
    >>> Alteration.from_json(new.to_json()) == new
    True
    """

    id: str
    sql: str
    options: ViewOptions
    columns: Columns
    depends_on: tuple[int, ...]
    definition: RememberedDefinition

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "sql": self.sql,
            "options": self.options.to_dict(),
            "columns": [list(c) for c in self.columns],
            "depends_on": list(self.depends_on),
            "definition": self.definition.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Alteration:
        return cls(
            str(value["id"]),
            value["sql"],
            ViewOptions.of(value["options"]),
            tuple((name, type_) for name, type_ in value["columns"]),
            tuple(value["depends_on"]),
            RememberedDefinition.from_json(value["definition"]),
        )


@dataclass(frozen=True)
class ViewRecord:
    """A view: its definition, the cut its MV shows (s_p) and the one its differential tables lead to (s_i)."""

    id: int
    name: str
    sql: str
    options: ViewOptions
    columns: Columns
    definition: RememberedDefinition
    location: str
    table_id: int
    state: ViewState
    problem: str | None
    shown: Cut | None
    propagated: Cut | None
    applied_batch: int
    propagated_batch: int
    replacement_batch: int
    """The last differential batch that holds the whole view, in place of a change of it; 0 where none does."""
    depends_on: tuple[int, ...]
    created_at: datetime
    updated_at: datetime

    @property
    def workings(self) -> str:
        """The folder of its differential and support tables, which belong to its present definition."""
        return f"{self.location}/{self.definition.generation}" if self.definition.generation else self.location


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
class OperationTotal:
    """All operations of one kind on one view that ended in one way, added up."""

    view: str
    kind: str
    state: OperationState
    number: int
    rows_read: int
    rows_deleted: int
    rows_inserted: int
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Lease:
    """The right of one owner to work on one thing until it expires."""

    name: str
    owner: str
    token: int
    """Greater than that of every earlier holder."""
    acquired_at: datetime
    expires_at: datetime
    left_by: str = ""
    """The holder from which it was taken over, which may still be at work; empty where that one had released it."""

    @property
    def barring(self) -> int:
        """The number of the commits with which this holder shuts out those before it."""
        return 2 * self.token

    @property
    def committing(self) -> int:
        """The number of this holder's own commits."""
        return 2 * self.token + 1
