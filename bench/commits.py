"""What Delta commits have added and removed, from the tables' own logs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Written:
    """What some commits wrote: files, their bytes, and how many files they removed or gave a deletion vector."""

    commits: int = 0
    files_written: int = 0
    bytes_written: int = 0
    files_removed: int = 0
    deletion_vectors: int = 0
    change_files: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def logs_under(roots: Iterable[Path]) -> list[Path]:
    """The logs of all Delta tables in some folders."""
    found: list[Path] = []
    for root in roots:
        for folder, children, _ in os.walk(root):
            if "_delta_log" in children:
                found.append(Path(folder) / "_delta_log")
                children.clear()
    return found


def versions(roots: Iterable[Path]) -> dict[Path, int]:
    """The newest version of every Delta table in some folders."""
    return {log: newest(log) for log in logs_under(roots)}


def newest(log: Path) -> int:
    """The newest version in a log, -1 when it has none."""
    return max((int(file.stem) for file in log.glob("*.json") if file.stem.isdigit()), default=-1)


def written(before: Mapping[Path, int], after: Mapping[Path, int]) -> Written:
    """What was committed between two looks at the versions; a table that is new counts from its first version."""
    files = [
        log / f"{version:020}.json"
        for log, last in after.items()
        for version in range(before.get(log, -1) + 1, last + 1)
    ]
    actions = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines() if line]
    return sum_of(actions, len(files))


def sum_of(actions: Sequence[Mapping[str, Any]], commits: int) -> Written:
    """What the actions of some commits wrote.

    >>> sum_of([{"add": {"size": 7}}, {"add": {"size": 9, "deletionVector": {}}}, {"remove": {}}], 1)
    Written(commits=1, files_written=1, bytes_written=7, files_removed=0, deletion_vectors=1, change_files=0)
    """
    added = [action["add"] for action in actions if "add" in action]
    # A file that gets a deletion vector is removed and added again; it is not written.
    marked = [add for add in added if add.get("deletionVector") is not None]
    new = [add for add in added if add.get("deletionVector") is None]
    feed = [action["cdc"] for action in actions if "cdc" in action]
    removed = sum("remove" in action for action in actions)
    return Written(
        commits=commits,
        files_written=len(new),
        bytes_written=sum(file.get("size", 0) for file in [*new, *feed]),
        files_removed=max(removed - len(marked), 0),
        deletion_vectors=len(marked),
        change_files=len(feed),
    )
