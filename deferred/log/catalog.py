"""The catalog: what the metadata database says of tables and views, once more, as files beside the tables.

With Delta's logs, which say which state every view shows, the database can be made again from it: see
deferred.maintenance.recovery. A file is written just after the database, and removed just before it; what a crash
leaves out in between is completed by `gc`.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from deferred.errors import StorageError
from deferred.log.storage import Storage
from deferred.metadata import RememberedDefinition, TableRecord, ViewRecord
from deferred.options import ViewOptions

log = logging.getLogger(__name__)

FOLDER = "catalog"

_BATCHES = ("applied_batch", "propagated_batch", "replacement_batch")
_PROGRESS = {"state": "active", "problem": None, "shown": None, "propagated": None}
"""What a view is not, but how far it has come: Delta's logs have that."""


@dataclass(frozen=True)
class Catalog:
    """The catalog of a warehouse: a journal of its metadata database."""

    root: str

    @property
    def _files(self) -> Storage:
        return Storage(f"{self.root.rstrip('/')}/{FOLDER}")

    def keep(self, record: TableRecord | ViewRecord) -> None:
        """Write what a table or view is. That the database has it is what counts: a failure is only logged."""
        try:
            self._files.write(_file(record), _written(record))
        except (OSError, StorageError) as error:
            log.warning("%s was not written to the catalog, `gc` completes it: %s", record.name, error)

    def forget(self, record: TableRecord | ViewRecord) -> None:
        """Remove the file of a table or view, if there is one."""
        self._files.remove_file(_file(record))

    def complete(self, records: list[TableRecord | ViewRecord]) -> None:
        """Write what is missing, or older than what the database says; what is newer shows that the database is old."""
        for record in records:
            kept = self._files.read(_file(record))
            if kept is None or _is_older(json.loads(kept), json.loads(_written(record))):
                self.keep(record)

    def tables(self) -> list[TableRecord]:
        """The tables of the catalog, by id."""
        found = [TableRecord(**_table(value)) for value in self._values("table")]
        return sorted(found, key=lambda table: table.id)

    def views(self) -> list[ViewRecord]:
        """The views of the catalog, by id: what they are, without how far they have come."""
        return sorted((_view(value) for value in self._values("view")), key=lambda view: view.id)

    def _values(self, kind: str) -> Iterator[dict[str, Any]]:
        try:
            names = self._files.files()
        except StorageError:
            return
        for name in names:
            if name.startswith(f"{kind}-") and name.endswith(".json"):
                yield json.loads(self._files.read(name) or "null")


def _file(record: TableRecord | ViewRecord) -> str:
    """The name of a record's file. Ids are not enough: a database that starts empty gives them again."""
    return f"{'table' if isinstance(record, TableRecord) else 'view'}-{record.id}-{record.name}.json"


def _written(record: TableRecord | ViewRecord) -> str:
    """A record as JSON text; of a view without how far it has come."""
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    if isinstance(record, ViewRecord):
        for name in (*_PROGRESS, *_BATCHES):
            del values[name]
        values |= {"options": record.options.to_dict(), "definition": record.definition.to_json()}
    return json.dumps(values, default=_plain, indent=1, sort_keys=True)


def _is_older(kept: dict[str, Any], record: dict[str, Any]) -> bool:
    """Whether a file says of a view what was true before; tables have no such time, and change only with a file."""
    if kept.get("updated_at", "") >= record.get("updated_at", ""):
        return False
    return {**kept, "updated_at": ""} != {**record, "updated_at": ""}


def _plain(value: object) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()


def _table(value: dict[str, Any]) -> dict[str, Any]:
    return {
        **value,
        "key": tuple(value["key"]),
        "columns": tuple((name, type_) for name, type_ in value["columns"]),
        "created_at": datetime.fromisoformat(value["created_at"]),
    }


def _view(value: dict[str, Any]) -> ViewRecord:
    return ViewRecord(
        **{
            **value,
            **_PROGRESS,
            "options": ViewOptions(**value["options"]),
            "columns": tuple((name, type_) for name, type_ in value["columns"]),
            "definition": RememberedDefinition.from_json(value["definition"]),
            "depends_on": tuple(value["depends_on"]),
            **dict.fromkeys(_BATCHES, 0),
            "created_at": datetime.fromisoformat(value["created_at"]),
            "updated_at": datetime.fromisoformat(value["updated_at"]),
        }
    )
