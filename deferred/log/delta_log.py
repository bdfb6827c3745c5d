"""Reading Delta's own log without Spark, in milliseconds, through delta-rs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from deferred.errors import StorageError
from deferred.log import object_store
from deferred.log.commits import changed_files, changed_rows, commit_info, more_rows
from deferred.log.heads import About, Heads, commit_file, last_checkpoint
from deferred.log.recent import Recent
from deferred.log.shapes import Reshaping, Shape, ddl, shape_of
from deferred.log.storage import files_of
from deferred.spark.engine import read_mark

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem

FEED = "delta.enableChangeDataFeed"
"""The property of a Delta table with which every commit records the rows that it changes."""

READERS = 8
"""The number of commits that are read at once: in an object store each of them is a round trip."""

T = TypeVar("T")

TICK = timedelta(microseconds=1)
"""The smallest difference between two times in the ledger."""


@dataclass(frozen=True)
class Commit:
    """One commit of a Delta table."""

    version: int
    timestamp: datetime
    operation: str
    mark: dict[str, Any] | None
    changed_rows: int | None = None
    """About how many rows its change feed has, by what the commit says of itself; None where it does not say."""


class _Opened:
    """Tables on a local disk as they were last opened: to open one reads the list of all its files.

    A table is the same as long as the file of its newest commit is the same, and no later one is there.
    """

    def __init__(self, most: int = 64) -> None:
        self._tables: Recent[tuple[tuple[int, ...], DeltaTable]] = Recent(most)

    def table(self, location: str) -> DeltaTable:
        known = self._tables.get(location)
        if known is not None and self._newest(location, known[0][0]) == known[0]:
            return known[1]
        begun = time.time_ns()
        table = _opened(location)
        newest = self._newest(location, table.version())
        if newest is not None and newest[1] < begun:  # else another one may have been put in its place meanwhile
            self._tables.put(location, (newest, table))
        else:
            self._tables.forget(location)
        return table

    @staticmethod
    def _newest(location: str, version: int) -> tuple[int, ...] | None:
        """What tells the newest commit of a table from any other; None if it is not that version."""
        if "://" in location or os.path.exists(f"{location}/{commit_file(version + 1)}"):
            return None
        try:
            found = os.stat(f"{location}/{commit_file(version)}")
        except OSError:
            return None
        return version, found.st_mtime_ns, found.st_ino, found.st_size


_OPENED = _Opened()
_HEADS = Heads()
_COUNTED: Recent[tuple[str, int, int]] = Recent(1024)
"""For each table its id, and how many rows it had at a version."""
COUNTED_COMMITS = 256
"""After more commits than this, the files of a table are listed again to count its rows."""


class DeltaLog:
    """The log of the Delta table at a location, up to the version that was the newest when it was opened."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._newest = _HEADS.newest(location)
        self.version = int(self._at(None).version()) if self._newest is None else self._newest.version
        """The newest version when the table was first looked at."""

    @cached_property
    def _table(self) -> DeltaTable:
        return self._at(self.version)

    def _at(self, version: int | None) -> DeltaTable:
        """The table at a version, the newest one by default, with the list of its files."""
        from deltalake.exceptions import DeltaError

        try:
            table = _OPENED.table(self.location)
            return table if version in (None, table.version()) else _opened(self.location, version)
        except (DeltaError, OSError, ValueError) as error:
            raise StorageError(
                f"{self.location} is not a Delta table that can be read: {str(error).splitlines()[0]}. Try again if "
                f"its storage was out of reach; restore the table if it is gone."
            ) from None

    @cached_property
    def _about(self) -> About:
        if self._newest is None:
            return _told(self._table)
        return _HEADS.about(self.location, self._newest, lambda: _told(self._table))

    @property
    def id(self) -> str:
        return str(self._about.metadata["id"])

    @property
    def partitions(self) -> tuple[str, ...]:
        """The columns by which the table is partitioned."""
        return tuple(self._about.metadata.get("partitionColumns") or ())

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._about.metadata.get("configuration") or {})

    @property
    def metadata(self) -> dict[str, Any]:
        """The columns with what belongs to them, the partitioning and the properties, named as in Delta's log."""
        return {
            "schemaString": self._about.metadata["schemaString"],
            "partitionColumns": list(self.partitions),
            "configuration": self.properties,
        }

    @cached_property
    def features(self) -> frozenset[str]:
        """The features of Delta that the table uses."""
        protocol = self._about.protocol
        mapped = ["columnMapping"] if protocol.get("minReaderVersion") == 2 else []  # before features had names
        return frozenset([*mapped, *(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())])

    @property
    def has_feed(self) -> bool:
        return self.properties.get(FEED, "false").lower() == "true"

    @cached_property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """(name, type as DDL) of every column."""
        fields = json.loads(self._about.metadata["schemaString"])["fields"]
        return tuple((f["name"], ddl(f["type"], f.get("metadata") or {})) for f in fields)

    @cached_property
    def filled(self) -> frozenset[str]:
        """The columns that Delta fills itself where a row does not give them: DEFAULT, generated, identity."""
        fields = json.loads(self._about.metadata["schemaString"])["fields"]
        signs = ("CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.start")
        return frozenset(f["name"] for f in fields if any(sign in (f.get("metadata") or {}) for sign in signs))

    def commits(self, after: int) -> list[Commit]:
        """The commits later than a version, oldest first, without those that Delta has cleaned up."""
        return list(self.newest_first(after))[::-1]

    def newest_first(self, after: int = -1) -> Iterator[Commit]:
        """The commits later than a version, newest first, read by number in growing pieces as they are needed.

        Delta cleans up its log from the old end, so the commits end where the first file is missing.
        """
        newest, size = self.version, 4
        while newest > after:
            oldest = max(after + 1, newest - size + 1)
            for commit in self._each(self._read, range(newest, oldest - 1, -1)):
                if commit is None:
                    return
                yield commit
            newest, size = oldest - 1, min(4 * size, 256)

    def _read(self, version: int) -> Commit | None:
        """One commit, from the file of its version; None where the file is gone."""
        path = commit_file(version)
        try:
            with self._text(path) as lines:
                info = commit_info(lines)
        except FileNotFoundError:
            return None
        milliseconds = info.get("inCommitTimestamp") or info.get("timestamp")
        if milliseconds:
            moment: datetime | None = datetime.fromtimestamp(int(milliseconds) / 1000, UTC)
        else:
            moment = self._files.get_file_info(path).mtime
        if moment is None:  # cleaned up since it was read
            return None
        operation, mark = str(info.get("operation") or ""), read_mark(info.get("userMetadata"))
        return Commit(version, moment, operation, mark, changed_rows(info))

    def missing(self, version: int) -> str | None:
        """A file that the changes of a version are in and that no longer exists, None if all are there."""
        path = commit_file(version)
        try:
            with self._text(path) as lines:
                actions = [json.loads(line) for line in lines if line.strip()]
        except FileNotFoundError:
            return path
        return self.absent(changed_files(actions))

    def missing_now(self) -> str | None:
        """A file that rows of the table are in and that no longer exists, None if all are there."""
        return self.absent(self._paths(self._table))

    def missing_at(self, version: int) -> str | None:
        """A file that the table's rows at a version are in and that no longer exists, None if all are there."""
        from deltalake.exceptions import DeltaError

        try:
            table = _opened(self.location, version)
        except (DeltaError, ValueError):  # the log does not reach back so far, if something of it is gone
            return self.absent([commit_file(number) for number in range(version, -1, -1)])
        return self.absent(self._paths(table))

    def _paths(self, table: DeltaTable) -> list[str]:
        """The files of the table's rows, relative to it. In a URI only the part before them has escapes."""
        depth = self.location.count("/") + 1
        return ["/".join(uri.split("/")[depth:]) for uri in table.file_uris()]

    def absent(self, paths: Sequence[str]) -> str | None:
        """The first of some files of the table, relative to it, that does not exist."""
        from pyarrow.fs import FileType

        found = self._files.get_file_info(list(paths)) if paths else []
        return next((info.path for info in found if info.type == FileType.NotFound), None)

    @cached_property
    def _files(self) -> FileSystem:
        return files_of(self.location)

    def _text(self, path: str) -> TextIO:
        """A file of the log. On a local disk it is opened as any file: pyarrow takes longer to load than to read it."""
        if self._is_local:
            return open(f"{self.location}/{path}", encoding="utf-8")
        return TextIOWrapper(self._files.open_input_stream(path), encoding="utf-8")

    @property
    def _is_local(self) -> bool:
        return "://" not in self.location

    def _each(self, work: Callable[[int], T], versions: Iterable[int]) -> list[T]:
        """Some work for each of some versions: side by side where files are far away."""
        if self._is_local:
            return list(map(work, versions))
        with ThreadPoolExecutor(READERS) as readers:
            return list(readers.map(work, versions))

    def opened(self, path: str) -> NativeFile:
        """A file of the table, relative to it, for reading."""
        return self._files.open_input_file(path)

    def rows(self, partition: str, values: Sequence[str], most: int) -> pa.Table | None:
        """The rows of some partitions, None where there are more than `most` or delta-rs cannot read the table."""
        if self.properties.get("delta.columnMapping.mode", "none") != "none":
            return None
        import pyarrow as pa

        condition = [(partition, "in", list(values))]
        try:
            files = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
            wanted = [file for file in files if str(file[f"partition.{partition}"]) in values]
            if any(file.get("num_records") is None for file in wanted):
                return None
            if sum(file["num_records"] for file in wanted) > most:
                return None
            return self._table.to_pyarrow_table(filters=condition)
        except Exception:  # whatever delta-rs does not know: Spark reads it
            return None

    def listed(self, *names: str) -> list[tuple[Any, ...]]:
        """What the log says of each of the table's files, such as its path."""
        import pyarrow as pa

        files = pa.table(self._table.get_add_actions(flatten=True)).select(list(names))
        return list(zip(*(column.to_pylist() for column in files.columns), strict=True))

    def reshapings(self, after: int, upto: int) -> list[Reshaping]:
        """The commits later than a version and up to another that gave the table another shape, oldest first."""
        found = [v for v, is_one in self._each(self._alters, range(after + 1, upto + 1)) if is_one]
        result = []
        for version in found:
            actions = self._actions(version)
            metadata = next(action["metaData"] for action in actions if "metaData" in action)
            before, now = self._shape_at(version - 1), shape_of(metadata)
            if before != now:
                files = any("add" in action or "remove" in action for action in actions)
                result.append(Reshaping(version, before, now, files))
        return result

    def _alters(self, version: int) -> tuple[int, bool]:
        return version, any("metaData" in action for action in self._actions(version, "metaData"))

    def _actions(self, version: int, kind: str = "") -> list[dict[str, Any]]:
        """The actions of a commit, only those whose line has a word in it; none where its file is gone."""
        try:
            with self._text(commit_file(version)) as lines:
                return [json.loads(line) for line in lines if line.strip() and kind in line]
        except FileNotFoundError:
            return []

    def all_actions(self, after: int, upto: int) -> list[list[dict[str, Any]]] | None:
        """The actions of the commits later than a version and up to another; None where one was cleaned up."""
        found = self._each(self._actions, range(after + 1, upto + 1))
        return found if all(found) else None

    def actions(self, version: int, largest: int) -> list[dict[str, Any]] | None:
        """The actions of a commit, None where its file is gone, or has more bytes than `largest`."""
        size = self._files.get_file_info(commit_file(version)).size
        return self._actions(version) if size is not None and size <= largest else None

    def files_at(self, version: int) -> list[dict[str, Any]]:
        """The files of the table at a version with their statistics; none where delta-rs cannot tell."""
        import pyarrow as pa

        try:
            table = _opened(self.location, version)
            return list(pa.table(table.get_add_actions(flatten=True)).to_pylist())
        except Exception:  # a version that was cleaned up, or a feature that delta-rs does not know
            return []

    def _shape_at(self, version: int) -> Shape:
        return shape_of(_told(_opened(self.location, version)).metadata)

    def files(self, most: int) -> list[dict[str, Any]]:
        """The files of the table with their statistics; none where there are more than `most`."""
        few = self.about_files <= most and len(self._table.file_uris()) <= most
        return self.files_at(self.version) if few else []

    @property
    def about_files(self) -> int:
        """About how many files the table had at its last checkpoint, by what that says; 0 where there is none."""
        checkpoint = {} if "://" in self.location else last_checkpoint(self.location) or {}
        return int(checkpoint.get("numOfAddFiles") or checkpoint.get("size") or 0)

    def row_count(self) -> int | None:
        """The number of rows by the statistics of the files, None where they are missing.

        The files are listed once; then the files that were added and removed since are counted.
        """
        known = _COUNTED.get(self.location)
        rows = None
        if known is not None and known[0] == self.id and 0 <= self.version - known[1] <= COUNTED_COMMITS:
            commits = self.all_actions(known[1], self.version)
            change = None if commits is None else more_rows(commits)
            rows = None if change is None else known[2] + change
        if rows is None:
            try:
                rows = int(self._table.count())
            except Exception:
                return None
        _COUNTED.put(self.location, (self.id, self.version, rows))
        return rows


def _opened(location: str, version: int | None = None) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(location, version=version, storage_options=object_store.options(location))


def _told(table: DeltaTable) -> About:
    """What delta-rs says of a table, named as in Delta's log."""
    metadata, protocol = table.metadata(), table.protocol()
    return About(
        {
            "id": metadata.id,
            "schemaString": table.schema().to_json(),
            "partitionColumns": list(metadata.partition_columns),
            "configuration": dict(metadata.configuration),
        },
        {
            "minReaderVersion": protocol.min_reader_version,
            "readerFeatures": protocol.reader_features,
            "writerFeatures": protocol.writer_features,
        },
    )


def readable(location: str) -> bool:
    """Whether the log of a Delta table at a path can be read."""
    try:
        next(DeltaLog(location).newest_first(), None)
    except Exception:
        return False
    return True


def is_delta(location: str) -> bool:
    """Whether there is a Delta table at a path."""
    from deltalake import DeltaTable

    try:
        return bool(DeltaTable.is_deltatable(location, object_store.options(location)))
    except Exception:
        return False


def last_mark(location: str, kind: str) -> dict[str, Any] | None:
    """The newest mark of a kind in a table's log: the record of what the last such operation has done."""
    for commit in DeltaLog(location).newest_first():
        if commit.mark is not None and commit.mark.get("kind") == kind:
            return commit.mark
    return None
