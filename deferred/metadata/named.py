"""What the stores of tables and of views have in common: records with a name and an id."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import select

from deferred.errors import UnknownObjectError, nearest
from deferred.metadata.database import Database
from deferred.metadata.journal import Journal
from deferred.metadata.models import name_key
from deferred.metadata.records import TableRecord, ViewRecord

Record = TypeVar("Record", TableRecord, ViewRecord)


class NamedStore(Generic[Record]):
    """Records that have a name, compared without case."""

    row: ClassVar[Any]
    """The model: it has a name_key, and makes a record of itself."""
    noun: ClassVar[str]
    """What a record is called in messages."""

    def __init__(self, database: Database, journal: Journal) -> None:
        self._database = database
        self._journal = journal

    def get(self, name: str) -> Record:
        """Returns the record of that name; UnknownObjectError names the nearest ones."""
        found = self.find(name)
        if found is None:
            known = [record.name for record in self.all()]
            raise UnknownObjectError(f"There is no {self.noun} {name}{nearest(name, known)}")
        return found

    def find(self, name: str) -> Record | None:
        """Returns the record of that name, if there is one."""
        with self._database.read() as session:
            row = session.scalar(select(self.row).where(self.row.name_key == name_key(name)))
            return row.record() if row else None

    def by_id(self, id_: int) -> Record:
        """Returns the record with that id."""
        with self._database.read() as session:
            row = session.get(self.row, id_)
            if row is None:
                raise self._no_id(id_)
            return row.record()

    def all(self) -> list[Record]:
        """Returns all records, by name."""
        with self._database.read() as session:
            rows = session.scalars(select(self.row).order_by(self.row.name_key))
            return [row.record() for row in rows]

    def _no_id(self, id_: int) -> UnknownObjectError:
        return UnknownObjectError(
            f"There is no {self.noun} with the id {id_}; it may have been dropped in the meantime."
        )
