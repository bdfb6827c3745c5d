"""The store of tracked tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from deferred.errors import InvalidInputError, NameTakenError, UnknownObjectError, nearest
from deferred.metadata.database import Database
from deferred.metadata.journal import Journal
from deferred.metadata.models import DependencyRow, TableRow, ViewRow, changes, name_key
from deferred.metadata.records import TableRecord, utc_now


class TableStore:
    """Which tables are tracked, where they are, and what is known of their keys. Names are compared without case."""

    def __init__(self, database: Database, journal: Journal) -> None:
        self._database = database
        self._journal = journal

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

    def get(self, name: str) -> TableRecord:
        """Returns the table of that name; UnknownObjectError names the nearest ones."""
        found = self.find(name)
        if found is None:
            raise UnknownObjectError(f"There is no table {name}{nearest(name, [table.name for table in self.all()])}")
        return found

    def find(self, name: str) -> TableRecord | None:
        """Returns the table of that name, if there is one."""
        with self._database.read() as session:
            row = session.scalar(select(TableRow).where(TableRow.name_key == name_key(name)))
            return row.record() if row else None

    def by_id(self, table_id: int) -> TableRecord:
        """Returns the table with that id."""
        with self._database.read() as session:
            row = session.get(TableRow, table_id)
            if row is None:
                raise _no_id(table_id)
            return row.record()

    def all(self) -> list[TableRecord]:
        """Returns all tables, by name."""
        with self._database.read() as session:
            return [row.record() for row in session.scalars(select(TableRow).order_by(TableRow.name_key))]

    def update(self, table_id: int, **fields: Any) -> TableRecord:
        """Change some fields of a table, named as in TableRecord."""
        values = changes(TableRow, fields)
        with self._database.write() as session:
            if values:
                session.execute(update(TableRow).where(TableRow.id == table_id).values(values))
            row = session.get(TableRow, table_id)
            if row is None:
                raise _no_id(table_id)
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


def _no_id(table_id: int) -> UnknownObjectError:
    return UnknownObjectError(f"There is no table with the id {table_id}; it may have been dropped in the meantime.")
