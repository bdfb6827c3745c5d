"""The shape of a Delta table, by its metadata in Delta's log: its columns as DDL, and how its files store them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deferred.algebra.nested import extends
from deferred.sql.dialect import quoted

PHYSICAL = "delta.columnMapping.physicalName"
"""What a field's metadata call its name in the files, where that is another one."""

_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


@dataclass(frozen=True)
class Shape:
    """How a Delta table stores its rows: its columns with their names in the files, and how they are partitioned."""

    columns: Mapping[str, str]
    """The types by name; names, also those of fields, together with the names that they have in the files."""
    partitions: tuple[str, ...]
    mapping: str

    def keeps(self, other: Shape, names: Iterable[str]) -> bool:
        """Whether some columns hold in this shape what they held in another one, also for a reader of both."""
        return self.partitions == other.partitions and all(
            name in self.columns and name in other.columns and extends(self.columns[name], other.columns[name])
            for name in names
        )


@dataclass(frozen=True)
class Reshaping:
    """A commit that gave a table another shape, and whether it changed rows too."""

    version: int
    before: Shape
    after: Shape
    changed_rows: bool

    @property
    def breaks_feed(self) -> bool:
        """Whether the changes of this commit, and those before and after it, cannot be read together from the feed."""
        return self.before.mapping != self.after.mapping or not self.after.keeps(self.before, self.before.columns)


def shape_of(metadata: Mapping[str, Any]) -> Shape:
    """The shape of a table by its metadata, as Delta's log has them."""
    root = {"type": "struct", "fields": [_stored(f) for f in json.loads(metadata["schemaString"])["fields"]]}
    return Shape(
        {f["name"].split("\n")[0]: ddl({**root, "fields": [f]}, {}) for f in root["fields"]},
        tuple(metadata.get("partitionColumns") or ()),
        str((metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")),
    )


def _stored(type_: Any) -> Any:
    """A field or type in which the name of every field is followed by its name in the files."""
    if isinstance(type_, list):
        return [_stored(part) for part in type_]
    if not isinstance(type_, dict):
        return type_
    inner = {key: value if key == "metadata" else _stored(value) for key, value in type_.items()}
    if "name" in inner:
        stored = (inner.get("metadata") or {}).get(PHYSICAL, inner["name"])
        inner["name"] = f"{inner['name']}\n{stored}"
    return inner


def ddl(type_: Any, metadata: dict[str, Any]) -> str:
    """A type of Delta's schema JSON as DDL."""
    if isinstance(type_, dict):
        if type_["type"] == "array":
            return f"array<{ddl(type_['elementType'], {})}>"
        if type_["type"] == "map":
            return f"map<{ddl(type_['keyType'], {})}, {ddl(type_['valueType'], {})}>"
        fields = ", ".join(f"{quoted(f['name'])}: {ddl(f['type'], f.get('metadata') or {})}" for f in type_["fields"])
        return f"struct<{fields}>"
    if "__CHAR_VARCHAR_TYPE_STRING" in metadata:
        return str(metadata["__CHAR_VARCHAR_TYPE_STRING"])
    collation = metadata.get("__COLLATIONS") or {}
    if type_ == "string" and collation:
        return f"string collate {next(iter(collation.values())).split('.')[-1]}"
    return _NAMES.get(type_, str(type_))
