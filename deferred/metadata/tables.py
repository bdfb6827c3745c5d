"""The store of tracked tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from deferred.errors import InvalidInputError, NameTakenError
from deferred.metadata.models import DependencyRow, TableRow, ViewRow, changes, name_key
from deferred.metadata.named import NamedStore
from deferred.metadata.records import TableRecord, utc_now


class TableStore(NamedStore[TableRecord]):
    """Which tables are tracked, where they are, and what is known of their keys. Names are compared without case."""

    row = TableRow
    noun = "table"

    def add(
        self,
        *,
        name: str,
        location: str,
        kind: str,
        delta_id: str | None = None,
        log_location: str | None = None,
        key: Iterable[str] = (),
        references: Mapping[str, str] | None = None,
        columns: Iterable[tuple[str, str]] = (),
        first_version: int = 0,
    ) -> TableRecord:
        """Track a table; NameTakenError when the name is in use."""
        statement = (
            self._database.insert(TableRow)
            .values(
                name=name,
                name_key=name_key(name),
                location=location,
                kind=kind,
                delta_id=delta_id,
                log_location=log_location,
                key=list(key),
                references=dict(references or {}),
                columns=[list(column) for column in columns],
                first_version=first_version,
                created_at=utc_now(),
            )
            .on_conflict_do_nothing(index_elements=["name_key"])
            .returning(TableRow.id)
        )
        with self._database.write() as session:
            table_id = session.scalar(statement)
            if table_id is None:
                raise NameTakenError(f"The name {name} is taken; choose another one, or drop what has it.")
            record = session.get_one(TableRow, table_id).record()
        self._journal.keep(record)
        return record

    def restore(self, record: TableRecord) -> None:
        """Record a table again under the id that it had: cuts speak of it by that."""
        values = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
        values |= {"key": list(record.key), "columns": [list(column) for column in record.columns]}
        with self._database.write() as session:
            session.add(TableRow(**values, name_key=name_key(record.name)))
            session.flush()
            self._database.number_after(session, TableRow)

    def update(self, table_id: int, **fields: Any) -> TableRecord:
        """Change some fields of a table, named as in TableRecord."""
        values = changes(TableRow, fields)
        with self._database.write() as session:
            if values:
                session.execute(update(TableRow).where(TableRow.id == table_id).values(values))
            row = session.get(TableRow, table_id)
            if row is None:
                raise self._no_id(table_id)
            record = row.record()
        self._journal.keep(record)
        return record

    def remove(self, table_id: int) -> None:
        """Remove a table and its ledger; refused while a view reads it or is stored in it."""
        with self._database.read() as session:
            self._refuse_if_read(session, table_id)
            row = session.get(TableRow, table_id)
            if row is not None:
                self._journal.forget(row.record())
        with self._database.write() as session:
            self._refuse_if_read(session, table_id)
            session.execute(delete(TableRow).where(TableRow.id == table_id))

    def _refuse_if_read(self, session: Session, table_id: int) -> None:
        readers = session.scalars(
            select(ViewRow.name)
            .outerjoin(DependencyRow, DependencyRow.view_id == ViewRow.id)
            .where((DependencyRow.table_id == table_id) | (ViewRow.table_id == table_id))
            .distinct()
            .order_by(ViewRow.name)
        ).all()
        if readers:
            row = session.get_one(TableRow, table_id)
            raise InvalidInputError(f"The table {row.name} is used by {', '.join(readers)}; drop that first.")
