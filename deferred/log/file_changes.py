"""Which files two versions of a Delta table do not share, and a Delta table that consists of such files.

A file is its path together with its deletion vector: a row that is marked as deleted leaves the path as it was.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from deferred.log.delta_log import DeltaLog

Action = Mapping[str, Any]
"""An add or a remove of Delta's log."""


@dataclass(frozen=True)
class FileChanges:
    """Files whose rows, added minus removed, are what changed: Σ rows(added) − Σ rows(removed)."""

    added: tuple[Action, ...] = ()
    removed: tuple[Action, ...] = ()

    @property
    def size(self) -> int:
        """The number of bytes to read."""
        return sum(int(file["size"]) for file in (*self.added, *self.removed))

    @property
    def files(self) -> list[str]:
        """The paths that are read, relative to the table, without those of other tables (of a shallow clone)."""
        paths = [unquote(file["path"]) for file in (*self.added, *self.removed)]
        vectors = [vector_path(file["deletionVector"]) for file in (*self.added, *self.removed) if _vector(file)]
        return [path for path in (*paths, *filter(None, vectors)) if not _is_absolute(path)]


def file_changes(commits: Iterable[Sequence[Action]]) -> FileChanges | None:
    """What the actions of consecutive commits changed, by the fewest bytes; None where they do not say enough.

    R at the end is R at the beginning − Σ rows(removed) + Σ rows(added), summed over the commits, and a file that is
    added and removed again cancels out. That holds for all actions together, and as well without those that only move
    rows (dataChange = false, as of OPTIMIZE), whose sum is zero in every commit. Neither is always the smaller one:
    OPTIMIZE alone changes nothing, and what was written, compacted and deleted since is nothing in the end.
    """
    listed = list(commits)
    ways = [_netted(listed, moved) for moved in (False, True)]
    return min((way for way in ways if way is not None), key=lambda way: way.size, default=None)


@dataclass(frozen=True)
class FileRange:
    """The least and greatest values of columns in a file, as JSON has them; of a column that is missing, unknown."""

    least: Mapping[str, Any]
    greatest: Mapping[str, Any]

    def of(self, column: str) -> tuple[Any, Any] | None:
        """The range of a column, None where it is not known."""
        found = self.least.get(column), self.greatest.get(column)
        return None if None in found else found


def file_ranges(log: DeltaLog, after: int, upto: int) -> list[FileRange] | None:
    """The ranges of the columns in the files that commits added or removed with a change of rows; None if unknown."""
    commits = None if "columnMapping" in log.features else log.all_actions(after, upto)
    return None if commits is None else ranges(commits)


def ranges(commits: Iterable[Sequence[Action]]) -> list[FileRange]:
    """The same by the actions of the commits.

    A commit that changes a few rows of a file replaces it, so these may be wider than those of the rows.

    >>> [found] = ranges([[{"add": {"stats": '{"minValues": {"a": 1}, "maxValues": {"a": 3}}'}}]])
    >>> found.of("a"), found.of("b")
    ((1, 3), None)
    """
    files = [action[kind] for actions in commits for action in actions for kind in ("add", "remove") if kind in action]
    said = [json.loads(file.get("stats") or "{}") for file in files if file.get("dataChange", True)]
    return [FileRange(stats.get("minValues") or {}, stats.get("maxValues") or {}) for stats in said]


def _netted(commits: Iterable[Sequence[Action]], moved: bool) -> FileChanges | None:
    """The files that remain; `moved` takes in those that commits only move. None where no table can hold them."""
    counts: Counter[tuple[str, str]] = Counter()
    found: dict[tuple[str, str], Action] = {}
    for actions in commits:
        for action in actions:
            for kind, sign in (("remove", -1), ("add", 1)):
                file: Action | None = action.get(kind)
                if file is not None and (moved or file.get("dataChange", True)):
                    key = (file["path"], _vector(file))
                    counts[key] += sign
                    found[key] = file if kind == "add" else found.get(key, file)
    sides = {sign: [found[key] for key, count in counts.items() if count == sign] for sign in (1, -1)}
    if any(abs(count) > 1 for count in counts.values()):
        return None
    for files in sides.values():
        if len({file["path"] for file in files}) < len(files):
            return None
        if any(file.get("size") is None or file.get("partitionValues") is None for file in files):
            return None  # a writer may leave them out of a remove
    return FileChanges(tuple(sides[1]), tuple(sides[-1]))


def _vector(file: Action) -> str:
    """What tells a deletion vector of a file from another one; empty for a file without one."""
    vector = file.get("deletionVector")
    return f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}" if vector else ""


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_ID = 20
"""The number of characters of a UUID in base 85."""


def vector_path(vector: Mapping[str, Any]) -> str | None:
    """The file that a deletion vector is in, None for one that is in the log itself.

    >>> vector_path({"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^"})
    'ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin'
    """
    given = str(vector["pathOrInlineDv"])
    if vector["storageType"] == "u":
        number = base64.b85decode(given[-_ID:].translate(str.maketrans(_Z85, _B85)))
        return "/".join(filter(None, (given[:-_ID], f"deletion_vector_{uuid.UUID(bytes=number)}.bin")))
    return unquote(given) if vector["storageType"] == "p" else None


def _is_absolute(path: str) -> bool:
    return path.startswith(("/", "file:/")) or "://" in path


def absolute(location: str, path: str) -> str:
    """The URI of a file of a table; `path` is as Delta's log writes it, with escapes.

    >>> absolute("/data/my table", "p=a%20b/part-0.parquet")
    'file:///data/my%20table/p=a%20b/part-0.parquet'
    """
    if _is_absolute(path):
        return path
    scheme, separator, rest = location.rpartition("://")
    return f"{scheme or 'file'}{separator or '://'}{quote(rest)}/{path}"


_READING = ("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "variantType", "variantShredding")
"""Features of a table without which its files cannot be read; `-preview` may follow."""

_FIELD = ("delta.columnMapping.", "parquet.field.", "delta.typeChanges", "__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS")
"""What the metadata of a field say about its values in the files; the rest is about writing."""


def log_of_files(location: str, files: Iterable[Action], metadata: Mapping[str, Any], features: Iterable[str]) -> str:
    """The first commit of a Delta table that consists of files of the table at `location`, left where they are.

    Delta itself then reads them as they are read there: deletion vectors, partition values, names of columns in the
    files. Delta's protocol allows absolute paths, and SHALLOW CLONE writes the same.
    """
    kept = sorted(name for name in features if name.removesuffix("-preview") in _READING or "collations" in name)
    readers = [name for name in kept if "collations" not in name]
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if kept:
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": kept}
    settings = {k: v for k, v in metadata["configuration"].items() if k.startswith("delta.columnMapping.")}
    schema = _as_read(json.loads(metadata["schemaString"]))
    described = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": list(metadata["partitionColumns"]),
        "configuration": settings,
    }
    actions: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": described}]
    actions += ({"add": _added(location, file)} for file in files)
    return "".join(f"{json.dumps(action)}\n" for action in actions)


def _added(location: str, file: Action) -> dict[str, Any]:
    added = {
        "path": absolute(location, file["path"]),
        "partitionValues": file["partitionValues"],
        "size": file["size"],
        "modificationTime": file.get("modificationTime") or 0,
        "dataChange": True,
    }
    if file.get("stats"):
        added["stats"] = file["stats"]
    vector = file.get("deletionVector")
    if vector and vector["storageType"] == "u":
        path = absolute(location, quote(str(vector_path(vector))))
        vector = {**vector, "storageType": "p", "pathOrInlineDv": path}
    return {**added, "deletionVector": vector} if vector else added


def _as_read(type_: Any) -> Any:
    """A type or field of Delta's schema JSON with the metadata that matter for reading."""
    if isinstance(type_, list):
        return [_as_read(part) for part in type_]
    if not isinstance(type_, dict):
        return type_
    return {
        key: {k: v for k, v in (value or {}).items() if k.startswith(_FIELD)} if key == "metadata" else _as_read(value)
        for key, value in type_.items()
    }
