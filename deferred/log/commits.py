"""What a commit in Delta's log says of itself: its operation and rows, and the files that its changes are in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote


def changed_files(actions: Iterable[dict[str, Any]]) -> list[str]:
    """The files of a commit that its changes are in: those of the change feed, or else the ones added and removed.

    >>> changed_files([{"add": {"path": "a%20b"}}, {"remove": {"path": "old", "dataChange": False}}])
    ['a b']
    """
    files: dict[str, list[str]] = {"add": [], "remove": [], "cdc": []}
    for action in actions:
        for kind, found in files.items():
            if kind in action and (kind == "cdc" or action[kind].get("dataChange", True)):
                found.append(unquote(action[kind]["path"]))
    relative = files["cdc"] or [*files["add"], *files["remove"]]
    return [path for path in relative if "://" not in path and not path.startswith("/")]


def more_rows(commits: Iterable[Iterable[dict[str, Any]]]) -> int | None:
    """How many rows commits have added, less those that they have removed, by the statistics of their files.

    >>> more_rows([[{"add": {"stats": '{"numRecords": 3}'}}, {"remove": {"stats": '{"numRecords": 1}'}}]])
    2
    >>> more_rows([[{"remove": {"path": "f"}}]]) is None
    True
    """
    rows = 0
    for action in (action for actions in commits for action in actions):
        for kind, sign in (("add", 1), ("remove", -1)):
            file = action.get(kind)
            if file is None or not file.get("dataChange", True):
                continue
            count = json.loads(file.get("stats") or "{}").get("numRecords")
            if count is None or file.get("deletionVector"):
                return None
            rows += sign * int(count)
    return rows


def commit_info(actions: Iterable[str]) -> dict[str, Any]:
    """What a commit says of itself; empty for a writer that leaves it out. Delta writes it first, others may not.

    >>> commit_info(['{"add": {"path": "commitInfo"}}', '{"commitInfo": {"operation": "WRITE"}}'])
    {'operation': 'WRITE'}
    """
    for line in actions:
        if '"commitInfo"' in line:
            action = json.loads(line)
            if "commitInfo" in action:
                return dict(action["commitInfo"] or {})
    return {}


_NO_ROWS = (
    "OPTIMIZE",
    "VACUUM START",
    "VACUUM END",
    "CREATE TABLE",
    "SET TBLPROPERTIES",
    "ADD COLUMNS",
    "CHANGE COLUMN",
)
_ROWS = {
    "WRITE": {"numOutputRows": 1},
    "STREAMING UPDATE": {"numOutputRows": 1},
    "DELETE": {"numDeletedRows": 1},
    "UPDATE": {"numUpdatedRows": 2},
    "MERGE": {"numTargetRowsInserted": 1, "numTargetRowsDeleted": 1, "numTargetRowsUpdated": 2},
}
"""For each operation, the metrics that say how many rows its change feed has; an updated row is in it twice."""
_APPENDED = "num_added_rows"
"""The same of an append by delta-rs."""


def changed_rows(info: Mapping[str, Any]) -> int | None:
    """About how many rows the change feed of a commit has.

    >>> changed_rows({"operation": "UPDATE", "operationMetrics": {"numUpdatedRows": "3"}})
    6
    >>> changed_rows({"operation": "WRITE", "operationMetrics": {"num_added_rows": 2, "num_removed_files": 0}})
    2
    """
    operation, metrics = str(info.get("operation") or ""), info.get("operationMetrics") or {}
    if operation in _NO_ROWS:
        return 0
    wanted = _ROWS.get(operation, {})
    overwrites = (info.get("operationParameters") or {}).get("mode") == "Overwrite"
    if operation == "WRITE" and _APPENDED in metrics and not metrics.get("num_removed_files"):
        return int(metrics[_APPENDED])
    if not wanted or overwrites or not set(wanted) <= set(metrics):
        return None
    return sum(times * int(metrics[name]) for name, times in wanted.items())
