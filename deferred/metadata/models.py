"""The declarative models: one class per table, and how a row becomes a record. Queries live in the stores."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, ForeignKey, Index, Integer, MetaData, String, Text, false
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.types import TypeDecorator

from deferred.algebra.types import Columns
from deferred.metadata.records import (
    Cut,
    Lease,
    LedgerEntry,
    OperationRecord,
    OperationState,
    RememberedDefinition,
    TableRecord,
    TransactionRecord,
    TransactionState,
    ViewRecord,
    ViewState,
    in_utc,
)
from deferred.options import OPTION_NAMES, ViewOptions

REVISION = "0005"  # the revision of migrations/ that these models describe


class UTCDateTime(TypeDecorator[datetime]):
    """A moment with microseconds, in UTC both ways: SQLite forgets the zone, PostgreSQL returns its session's."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else in_utc(value)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class CutText(TypeDecorator[Cut]):
    """A cut as JSON text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Cut | None, dialect: Dialect) -> str | None:
        return None if value is None else value.to_json()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Cut | None:
        return None if value is None else Cut.from_json(value)


class DefinitionJSON(TypeDecorator[RememberedDefinition]):
    """The remembered definition of a view as JSON."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: RememberedDefinition | None, dialect: Dialect) -> dict[str, Any] | None:
        return None if value is None else value.to_json()

    def process_result_value(self, value: dict[str, Any] | None, dialect: Dialect) -> RememberedDefinition | None:
        return None if value is None else RememberedDefinition.from_json(value)


# SQLite numbers rows by itself only in a column declared INTEGER, which holds 64 bits there anyway.
Identity = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    """Constraints have names by rule, so that a later migration can drop them on both databases."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {
        datetime: UTCDateTime,
        Cut: CutText,
        RememberedDefinition: DefinitionJSON,
        int: BigInteger,
        str: Text,
        dict[str, Any]: JSON,
        list[Any]: JSON,
    }


def name_key(name: str) -> str:
    """Returns a name in the form in which names are compared: without case, and the same on both databases."""
    return name.casefold()


def changes(row: type[Base], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the column values for an update; a field that does not exist is a mistake of the caller."""
    unknown = fields.keys() - row.__table__.columns.keys()
    if unknown:
        raise TypeError(f"The table {row.__tablename__} has no column {', '.join(sorted(unknown))}.")
    values = dict(fields)
    if "name" in values:
        values["name_key"] = name_key(values["name"])
    return values


def _columns(value: list[Any]) -> Columns:
    return tuple((name, data_type) for name, data_type in value)


class TableRow(Base):
    """A tracked table. Its id is never used again after a removal, because cuts speak of tables by id."""

    __tablename__ = "tables"
    __table_args__ = {"sqlite_autoincrement": True}

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    name: Mapped[str]
    name_key: Mapped[str] = mapped_column(unique=True)
    location: Mapped[str]
    kind: Mapped[str] = mapped_column(String(16))
    delta_id: Mapped[str | None]
    log_location: Mapped[str | None]
    key: Mapped[list[Any]]
    references: Mapped[dict[str, Any]]
    columns: Mapped[list[Any]]
    first_version: Mapped[int]
    created_at: Mapped[datetime]

    def record(self) -> TableRecord:
        return TableRecord(
            id=self.id,
            name=self.name,
            location=self.location,
            kind=self.kind,
            delta_id=self.delta_id,
            log_location=self.log_location,
            key=tuple(self.key),
            references=dict(self.references),
            columns=_columns(self.columns),
            first_version=self.first_version,
            created_at=self.created_at,
        )


class LedgerRow(Base):
    """A commit of a tracked table."""

    __tablename__ = "ledger"
    __table_args__ = (Index(None, "table_id", "timestamp"),)

    table_id: Mapped[int] = mapped_column(ForeignKey("tables.id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    timestamp: Mapped[datetime]
    transaction_id: Mapped[str | None]
    operation: Mapped[str | None]
    batch: Mapped[int | None]

    def record(self) -> LedgerEntry:
        return LedgerEntry(
            table_id=self.table_id,
            version=self.version,
            timestamp=self.timestamp,
            transaction_id=self.transaction_id,
            operation=self.operation,
            batch=self.batch,
        )


class TransactionRow(Base):
    """A transaction over several tables."""

    __tablename__ = "transactions"

    id: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[TransactionState] = mapped_column(String(16), index=True)
    owner: Mapped[str]
    statements: Mapped[list[Any]]
    created_at: Mapped[datetime]
    timestamp: Mapped[datetime | None]
    error: Mapped[str | None]

    def record(self) -> TransactionRecord:
        return TransactionRecord(
            id=self.id,
            state=self.state,
            owner=self.owner,
            statements=list(self.statements),
            created_at=self.created_at,
            timestamp=self.timestamp,
            error=self.error,
        )


class DependencyRow(Base):
    """That a view reads a table."""

    __tablename__ = "view_dependencies"

    view_id: Mapped[int] = mapped_column(ForeignKey("views.id", ondelete="CASCADE"), primary_key=True)
    table_id: Mapped[int] = mapped_column(ForeignKey("tables.id"), primary_key=True, index=True)


class ViewRow(Base):
    """A view and its two cuts."""

    __tablename__ = "views"
    __table_args__ = {"sqlite_autoincrement": True}

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    name: Mapped[str]
    name_key: Mapped[str] = mapped_column(unique=True)
    sql: Mapped[str]
    scenario: Mapped[str]
    refresh_policy: Mapped[str]
    policy: Mapped[int] = mapped_column(Integer)
    propagate_every: Mapped[str | None]
    refresh_every: Mapped[str | None]
    target_lag: Mapped[str | None]
    refresh_on_read: Mapped[bool] = mapped_column(default=False, server_default=false())
    maintain: Mapped[str] = mapped_column(default="auto", server_default="auto")
    columns: Mapped[list[Any]]
    definition: Mapped[RememberedDefinition]
    location: Mapped[str]
    table_id: Mapped[int] = mapped_column(ForeignKey("tables.id"), index=True)
    state: Mapped[ViewState] = mapped_column(String(16))
    problem: Mapped[str | None]
    shown: Mapped[Cut | None]
    propagated: Mapped[Cut | None]
    applied_batch: Mapped[int]
    propagated_batch: Mapped[int]
    replacement_batch: Mapped[int] = mapped_column(default=0, server_default="0")
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]

    dependencies: Mapped[list[DependencyRow]] = relationship(
        lazy="selectin", order_by=DependencyRow.table_id, viewonly=True
    )

    def record(self) -> ViewRecord:
        return ViewRecord(
            id=self.id,
            name=self.name,
            sql=self.sql,
            options=ViewOptions(**{name: getattr(self, name) for name in OPTION_NAMES}),
            columns=_columns(self.columns),
            definition=self.definition,
            location=self.location,
            table_id=self.table_id,
            state=self.state,
            problem=self.problem,
            shown=self.shown,
            propagated=self.propagated,
            applied_batch=self.applied_batch,
            propagated_batch=self.propagated_batch,
            replacement_batch=self.replacement_batch,
            depends_on=tuple(dependency.table_id for dependency in self.dependencies),
            created_at=self.created_at,
            updated_at=self.updated_at,
        )


class OperationRow(Base):
    """A piece of work. It outlives its view: the id goes, the name stays."""

    __tablename__ = "operations"
    __table_args__ = (Index(None, "view_key", "started_at"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    view_id: Mapped[int | None] = mapped_column(ForeignKey("views.id", ondelete="SET NULL"), index=True)
    view: Mapped[str | None]
    view_key: Mapped[str | None]
    kind: Mapped[str]
    state: Mapped[OperationState] = mapped_column(String(16))
    from_cut: Mapped[Cut | None]
    to_cut: Mapped[Cut | None]
    rows_read: Mapped[int]
    rows_deleted: Mapped[int]
    rows_inserted: Mapped[int]
    seconds: Mapped[dict[str, Any]]
    strategy: Mapped[str | None]
    error: Mapped[str | None]
    started_at: Mapped[datetime] = mapped_column(index=True)
    finished_at: Mapped[datetime | None]
    requested_by: Mapped[str | None]
    details: Mapped[dict[str, Any]]

    def record(self) -> OperationRecord:
        return OperationRecord(
            id=self.id,
            view_id=self.view_id,
            view=self.view,
            kind=self.kind,
            state=self.state,
            from_cut=self.from_cut,
            to_cut=self.to_cut,
            rows_read=self.rows_read,
            rows_deleted=self.rows_deleted,
            rows_inserted=self.rows_inserted,
            seconds=dict(self.seconds),
            strategy=self.strategy,
            error=self.error,
            started_at=self.started_at,
            finished_at=self.finished_at,
            requested_by=self.requested_by,
            details=dict(self.details),
        )


class LeaseRow(Base):
    """Who is working on what, and until when; nobody where the owner is empty."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    token: Mapped[int]
    acquired_at: Mapped[datetime]
    expires_at: Mapped[datetime]

    def record(self, left_by: str = "") -> Lease:
        return Lease(
            name=self.name,
            owner=self.owner,
            token=self.token,
            acquired_at=self.acquired_at,
            expires_at=self.expires_at,
            left_by=left_by,
        )
