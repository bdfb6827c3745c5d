"""The newest version of a Delta table on a local disk, and its columns and properties, without the list of its files.

delta-rs reads that list when it opens a table, and again after every commit: seconds, where a table has a million
files. Its version is the last number for which there is a commit; what a commit leaves out about columns and
properties is as it was before. So only what is new is read: the commits since a table was last looked at, or since its
checkpoint. Whatever is unusual is left to delta-rs: None says so.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deferred.log.recent import Recent

COMMITS = 1000
"""Of a table that was not looked at yet, at most so many commits are read; delta-rs reads its checkpoint."""

LARGE = 20_000
"""Of larger checkpoints only the columns that are needed are read; smaller ones delta-rs reads faster."""


def commit_file(version: int) -> str:
    """The file of a commit, relative to its table."""
    return f"_delta_log/{version:020}.json"


@dataclass(frozen=True)
class About:
    """What Delta's log says of a table at a version: its actions metaData and protocol."""

    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]


@dataclass(frozen=True)
class Sign:
    """What tells the commit with a number from any other one of that number."""

    version: int
    modified: int
    file: int
    size: int


@dataclass(frozen=True)
class _Known:
    """The newest commit of a table that was seen, and what the log says of the table at a version up to that."""

    newest: Sign
    about: tuple[int, About] | None = None


class Heads:
    """What was found of tables so far. A table is the same as long as the newest commit that was seen is the same."""

    def __init__(self, most: int = 256) -> None:
        self._tables: Recent[_Known] = Recent(most)

    def newest(self, location: str) -> Sign | None:
        """The newest commit of a table; None where delta-rs must look."""
        if "://" in location:
            return None
        begun = time.time_ns()
        known = self._tables.get(location)
        if known is not None and _sign(location, known.newest.version) != known.newest:
            self._tables.forget(location)
            known = None
        version = known.newest.version if known is not None else _first(location)
        if version is None:
            return None
        while os.path.exists(f"{location}/{commit_file(version + 1)}"):
            version += 1
        if os.path.exists(f"{location}/{commit_file(version + 2)}"):  # a commit is missing, or has just come
            return None
        newest = _sign(location, version)
        if newest is None or (known is not None and known.newest == newest):
            return newest
        if newest.modified < begun:  # else another one may have been put in its place meanwhile
            self._tables.put(location, _Known(newest, None if known is None else known.about))
        return newest

    def about(self, location: str, newest: Sign, otherwise: Callable[[], About]) -> About:
        """What the log says of a table at its newest commit; `otherwise` asks delta-rs.

        It is remembered only while that commit is the newest one that was seen: another thread may have seen a later
        one, or one of another table in the place of this one.
        """
        known = self._tables.get(location)
        known = known if known is not None and known.newest == newest else None
        try:
            found = _read(location, newest.version, None if known is None else known.about)
        except (OSError, ValueError, KeyError, TypeError):
            found = None
        found = found or otherwise()
        if known is not None:
            self._tables.replace(location, known, _Known(newest, (newest.version, found)))
        return found


def _read(location: str, version: int, known: tuple[int, About] | None) -> About | None:
    """What the commits up to a version say, after what is known of an earlier one; None where delta-rs must look."""
    if known is None:
        known = _checkpointed(location, version)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None
    after = -1
    if known is not None:
        after, about = known
        metadata, protocol = about.metadata, about.protocol
    if version - after > COMMITS:
        return None
    for number in range(after + 1, version + 1):
        with open(f"{location}/{commit_file(number)}", encoding="utf-8") as lines:
            for line in lines:
                if '"metaData"' in line or '"protocol"' in line:
                    action = json.loads(line)
                    metadata = action.get("metaData") or metadata
                    protocol = action.get("protocol") or protocol
    return None if metadata is None or protocol is None else About(metadata, protocol)


def _sign(location: str, version: int) -> Sign | None:
    try:
        found = os.stat(f"{location}/{commit_file(version)}")
    except OSError:
        return None
    return Sign(version, found.st_mtime_ns, found.st_ino, found.st_size)


def _first(location: str) -> int | None:
    """A version of a table that is not later than its newest one, and after which no commit is missing."""
    checkpoint = last_checkpoint(location)
    if checkpoint is not None:
        version = int(checkpoint["version"])
        return version if os.path.exists(f"{location}/{_checkpoint_file(version)}") else None
    try:
        commits = [name for name in os.listdir(f"{location}/_delta_log") if name.endswith(".json")]
    except OSError:
        return None
    numbers = sorted(int(name.removesuffix(".json")) for name in commits if name[:-5].isdigit())
    return numbers[-1] if numbers and numbers == list(range(len(numbers))) else None


def last_checkpoint(location: str) -> Mapping[str, Any] | None:
    """What a table on a local disk says of its last checkpoint in one file; None where it has none of that kind."""
    try:
        with open(f"{location}/_delta_log/_last_checkpoint", encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "version" in found and not found.get("parts") else None


def _checkpoint_file(version: int) -> str:
    return f"_delta_log/{version:020}.checkpoint.parquet"


def _checkpointed(location: str, version: int) -> tuple[int, About] | None:
    """What a large checkpoint that is not later than a version says of the table: two rows, in columns of their own."""
    checkpoint = last_checkpoint(location)
    if checkpoint is None or int(checkpoint["version"]) > version or int(checkpoint.get("size") or 0) < LARGE:
        return None
    from pyarrow import parquet

    found: dict[str, Any] = {}
    file = parquet.ParquetFile(f"{location}/{_checkpoint_file(int(checkpoint['version']))}")
    for number in range(file.num_row_groups):
        group = file.read_row_group(number, columns=["metaData", "protocol"])
        for name in group.column_names:
            for row in group.column(name).drop_null().to_pylist():
                found[name] = row
        if len(found) == 2:
            metadata = {**found["metaData"], "configuration": dict(found["metaData"]["configuration"] or ())}
            return int(checkpoint["version"]), About(metadata, found["protocol"])
    return None
