"""The store of operations: the history of all work on views."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, update

from deferred.errors import UnknownObjectError
from deferred.metadata.database import Database
from deferred.metadata.models import OperationRow, changes, name_key
from deferred.metadata.records import OperationRecord, OperationState, OperationTotal, utc_now


class OperationStore:
    """Every propagate, refresh and the like: between which cuts, how many rows, how long, how it ended."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(
        self,
        *,
        kind: str,
        operation_id: str,
        view_id: int | None = None,
        view: str | None = None,
        requested_by: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> OperationRecord:
        """Record that an operation begins."""
        row = OperationRow(
            id=operation_id,
            view_id=view_id,
            view=view,
            view_key=None if view is None else name_key(view),
            kind=kind,
            state="running",
            rows_read=0,
            rows_deleted=0,
            rows_inserted=0,
            seconds={},
            started_at=utc_now(),
            requested_by=requested_by,
            details=dict(details or {}),
        )
        with self._database.write() as session:
            session.add(row)
            session.flush()
            return row.record()

    def finish(self, operation_id: str, state: OperationState, **fields: Any) -> OperationRecord:
        """Record how an operation ended, with any fields of OperationRecord that are known by then."""
        values = changes(OperationRow, {"finished_at": utc_now(), **fields, "state": state})
        with self._database.write() as session:
            session.execute(update(OperationRow).where(OperationRow.id == operation_id).values(values))
            row = session.get(OperationRow, operation_id)
            if row is None:
                raise _no_id(operation_id)
            return row.record()

    def get(self, operation_id: str) -> OperationRecord:
        """Returns the operation with that id."""
        with self._database.read() as session:
            row = session.get(OperationRow, operation_id)
            if row is None:
                raise _no_id(operation_id)
            return row.record()

    def has(self, operation_id: str) -> bool:
        """Whether the operation is known."""
        with self._database.read() as session:
            return session.get(OperationRow, operation_id) is not None

    def recent(self, view_name: str | None = None, limit: int = 50) -> list[OperationRecord]:
        """Returns the newest operations first, of all views or of one."""
        statement = select(OperationRow).order_by(OperationRow.started_at.desc(), OperationRow.id.desc()).limit(limit)
        if view_name is not None:
            statement = statement.where(OperationRow.view_key == name_key(view_name))
        with self._database.read() as session:
            return [row.record() for row in session.scalars(statement)]

    def latest(self, each: int = 10) -> dict[str, list[OperationRecord]]:
        """Returns the newest operations of every view, newest first, by the view's name: one query for all views."""
        newest = (OperationRow.started_at.desc(), OperationRow.id.desc())
        place = func.row_number().over(partition_by=OperationRow.view_key, order_by=newest)
        ranked = select(OperationRow.id, place.label("place")).where(OperationRow.view_key.is_not(None)).subquery()
        statement = (
            select(OperationRow).join(ranked, ranked.c.id == OperationRow.id).where(ranked.c.place <= each)
        ).order_by(*newest)
        found: dict[str, list[OperationRecord]] = {}
        with self._database.read() as session:
            for row in session.scalars(statement):
                found.setdefault(str(row.view), []).append(row.record())
        return found

    def totals(self) -> list[OperationTotal]:
        """Returns the sums over all operations on views that are recorded, by view, kind and outcome."""
        o = OperationRow
        statement = select(o.view, o.kind, o.state, o.rows_read, o.rows_deleted, o.rows_inserted, o.seconds)
        found: dict[tuple[str, str, str], list[Any]] = {}
        with self._database.read() as session:
            for view, kind, state, *rows, seconds in session.execute(statement.where(o.view_key.is_not(None))):
                total = found.setdefault((view, kind, state), [0, 0, 0, 0, {}])
                for place, number in enumerate((1, *rows)):
                    total[place] += number
                for phase, taken in (seconds or {}).items():
                    total[4][phase] = total[4].get(phase, 0.0) + taken
        return [OperationTotal(*key, *total) for key, total in sorted(found.items())]  # type: ignore[arg-type]

    def prune(self, before: datetime) -> int:
        """Remove the finished operations that began before a moment; returns how many there were."""
        statement = delete(OperationRow).where(OperationRow.state != "running", OperationRow.started_at < before)
        with self._database.write() as session:
            return session.connection().execute(statement).rowcount


def _no_id(operation_id: str) -> UnknownObjectError:
    return UnknownObjectError(f"There is no operation {operation_id}; `deferred history` lists the known ones.")
