"""Spark's event log, read while Spark writes it: which jobs ran in a span of time, what their tasks read and wrote.

The event log is Spark's public record of what it did. It sees the jobs of every thread, which job groups do not.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.statistics import covered

_JOB = '{"Event":"SparkListenerJobStart"'
_STAGE = '{"Event":"SparkListenerStageCompleted"'
_TASK = '{"Event":"SparkListenerTaskEnd"'
_QUERY = re.compile(r'\{"Event":"org\.apache\.spark\.sql\.execution\.ui\.SparkListenerSQL(Execution|Adaptive)')
_VALUES = '{"Event":"org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates"'
_FILES_READ = re.compile(r'"name":"number of files read","accumulatorId":(\d+)')
_BYTES_READ = re.compile(r'"name":"size of files read","accumulatorId":(\d+)')


@dataclass(frozen=True)
class Task:
    """A task that has ended. Times in milliseconds."""

    begin: int
    end: int
    rows_read: int
    bytes_read: int
    shuffled: int


@dataclass(frozen=True)
class Work:
    """What Spark did in a span of time."""

    jobs: int
    stages: int
    tasks: int
    executor_seconds: float
    """The time in which at least one task was running."""
    rows_read: int
    files_read: int
    bytes_read: int
    """The size of the files that were read; of each, perhaps only some columns."""
    column_bytes_read: int
    """What tasks really read of the files: only some columns and row groups."""
    bytes_shuffled: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class EventLog:
    """The event log of one application in a folder; `read` takes in what was written since the last time."""

    folder: Path
    jobs: list[int] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    files: list[tuple[int, int, int]] = field(default_factory=list)
    """When files were read, how many, and how large they are."""
    _position: int = 0
    _rest: str = ""
    _file_counters: set[int] = field(default_factory=set)
    _byte_counters: set[int] = field(default_factory=set)
    _latest: int = 0

    def read(self) -> None:
        """Take in the events that were written since the last call."""
        for file in sorted(path for path in self.folder.iterdir() if not path.name.startswith(".")):
            with file.open("rb") as stream:
                stream.seek(self._position)
                data = stream.read()
            self._position += len(data)
            lines = (self._rest + data.decode("utf-8", errors="replace")).split("\n")
            self._rest = lines.pop()
            for line in lines:
                self.take(line)

    def forget(self) -> None:
        """Drop what was taken in so far: it is of work that has been looked at."""
        for events in (self.jobs, self.stages, self.tasks, self.files):
            events.clear()

    def take(self, line: str) -> None:
        """Take in one event."""
        if line.startswith(_TASK):
            self._task(json.loads(line))
        elif line.startswith(_JOB):
            self._latest = int(json.loads(line)["Submission Time"])
            self.jobs.append(self._latest)
        elif line.startswith(_STAGE):
            info = json.loads(line)["Stage Info"]
            if "Submission Time" in info:
                self.stages.append(int(info["Submission Time"]))
        elif line.startswith(_VALUES):
            for number, value in json.loads(line)["accumUpdates"]:
                if number in self._file_counters:
                    self.files.append((self._latest, int(value), 0))
                elif number in self._byte_counters:
                    self.files.append((self._latest, 0, int(value)))
        elif _QUERY.match(line):
            self._file_counters.update(int(number) for number in _FILES_READ.findall(line))
            self._byte_counters.update(int(number) for number in _BYTES_READ.findall(line))
            begun = re.search(r'"time":(\d+)', line)
            if begun:
                self._latest = max(self._latest, int(begun.group(1)))

    def _task(self, event: dict[str, Any]) -> None:
        info, metrics = event["Task Info"], event.get("Task Metrics") or {}
        read, shuffled = metrics.get("Input Metrics") or {}, metrics.get("Shuffle Write Metrics") or {}
        self.tasks.append(
            Task(
                int(info["Launch Time"]),
                int(info["Finish Time"]),
                int(read.get("Records Read", 0)),
                int(read.get("Bytes Read", 0)),
                int(shuffled.get("Shuffle Bytes Written", 0)),
            )
        )

    def between(self, begin: int, end: int) -> Work:
        """What was done between two times, in milliseconds since 1970."""
        tasks = [task for task in self.tasks if begin <= task.begin <= end]
        return Work(
            jobs=sum(begin <= job <= end for job in self.jobs),
            stages=sum(begin <= stage <= end for stage in self.stages),
            tasks=len(tasks),
            executor_seconds=covered([(task.begin, task.end) for task in tasks], begin, end) / 1000,
            rows_read=sum(task.rows_read for task in tasks),
            files_read=sum(count for moment, count, _ in self.files if begin <= moment <= end),
            bytes_read=sum(size for moment, _, size in self.files if begin <= moment <= end),
            column_bytes_read=sum(task.bytes_read for task in tasks),
            bytes_shuffled=sum(task.shuffled for task in tasks),
        )
