"""Reading Delta's own log without Spark, in milliseconds, through delta-rs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from deferred.errors import InvalidInputError, LogLostError
from deferred.spark.engine import read_mark
from deferred.sql.dialect import quoted


@dataclass(frozen=True)
class Commit:
    """One commit of a Delta table."""

    version: int
    timestamp: datetime
    operation: str
    mark: dict[str, Any] | None


class DeltaLog:
    """The log of the Delta table at a location, as it is now."""

    def __init__(self, location: str) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        self.location = location
        try:
            self._table = DeltaTable(location)
        except (DeltaError, OSError, ValueError) as error:
            raise InvalidInputError(f"{location} is not a Delta table that can be read: "
                                    f"{str(error).splitlines()[0]}") from None

    @property
    def version(self) -> int:
        return int(self._table.version())

    @cached_property
    def id(self) -> str:
        return str(self._table.metadata().id)

    @cached_property
    def properties(self) -> dict[str, str]:
        return dict(self._table.metadata().configuration)

    @property
    def has_feed(self) -> bool:
        return self.properties.get("delta.enableChangeDataFeed", "false").lower() == "true"

    @cached_property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """(name, type as DDL) of every column."""
        fields = json.loads(self._table.schema().to_json())["fields"]
        return tuple((f["name"], _ddl(f["type"], f.get("metadata") or {})) for f in fields)

    def commits(self, after: int) -> list[Commit]:
        """The commits later than a version, oldest first. Those that Delta has cleaned up are simply not there."""
        wanted = self.version - after
        if wanted <= 0:
            return []
        found = [_commit(entry) for entry in self._table.history(wanted)]
        return sorted((c for c in found if c.version > after), key=lambda c: c.version)

    def newest_first(self) -> Iterator[Commit]:
        """All commits, newest first, read in growing pieces."""
        limit, seen = 8, 0
        while True:
            entries = self._table.history(limit)
            for entry in entries[seen:]:
                yield _commit(entry)
            if len(entries) < limit:
                return
            seen, limit = len(entries), limit * 4

    def rows(self) -> int | None:
        """How many rows the table holds, by its file statistics; None where they do not tell."""
        from deltalake import DeltaTable

        try:
            return int(DeltaTable(self.location).count())
        except Exception:
            return None


def is_delta(location: str) -> bool:
    """Whether there is a Delta table at a path."""
    from deltalake import DeltaTable

    try:
        return bool(DeltaTable.is_deltatable(location))
    except Exception:
        return False


def last_mark(location: str, kind: str) -> dict[str, Any] | None:
    """The newest mark of a kind in a table's history: Delta's word on what an operation has done."""
    for commit in DeltaLog(location).newest_first():
        if commit.mark is not None and commit.mark.get("kind") == kind:
            return commit.mark
    return None


def _commit(entry: dict[str, Any]) -> Commit:
    moment = datetime.fromtimestamp(int(entry.get("timestamp") or 0) / 1000, UTC)
    mark = read_mark(entry.get("userMetadata"))
    return Commit(int(entry["version"]), moment, str(entry.get("operation") or ""), mark)


_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def _ddl(type_: Any, metadata: dict[str, Any]) -> str:
    """A type of Delta's schema JSON as DDL."""
    if isinstance(type_, dict):
        if type_["type"] == "array":
            return f"array<{_ddl(type_['elementType'], {})}>"
        if type_["type"] == "map":
            return f"map<{_ddl(type_['keyType'], {})}, {_ddl(type_['valueType'], {})}>"
        fields = ", ".join(f"{quoted(f['name'])}: {_ddl(f['type'], f.get('metadata') or {})}" for f in type_["fields"])
        return f"struct<{fields}>"
    if "__CHAR_VARCHAR_TYPE_STRING" in metadata:
        return str(metadata["__CHAR_VARCHAR_TYPE_STRING"])
    collation = (metadata.get("__COLLATIONS") or {})
    if type_ == "string" and collation:
        return f"string collate {next(iter(collation.values())).split('.')[-1]}"
    return _NAMES.get(type_, str(type_))


def lost(table: str, first: int, last: int, reason: str) -> LogLostError:
    return LogLostError(f"The log of {table} from version {first} to {last} is lost: {reason}. The view cannot be "
                        f"brought up to date from it; `rebuild` recomputes it from the tables as they are.")
