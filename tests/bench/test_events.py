"""What is read from Spark's event log, and from Delta's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench import commits
from bench.events import EventLog

QUERY = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
VALUES = "org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates"


def line(event: str, **fields: Any) -> str:
    """An event as Spark writes it: without spaces."""
    return json.dumps({"Event": event, **fields}, separators=(",", ":")) + "\n"


def task(begin: int, end: int, rows: int) -> str:
    metrics = {"Input Metrics": {"Records Read": rows}, "Shuffle Write Metrics": {"Shuffle Bytes Written": 5}}
    return line(
        "SparkListenerTaskEnd", **{"Task Info": {"Launch Time": begin, "Finish Time": end}, "Task Metrics": metrics}
    )


def counter(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "accumulatorId": number, "metricType": "sum"}


def test_work_is_counted_where_it_happened(tmp_path: Path) -> None:
    plan = {"metrics": [counter("number of files read", 7), counter("size of files read", 8), counter("other", 9)]}
    file = tmp_path / "application.inprogress"
    file.write_text(
        line("SparkListenerJobStart", **{"Submission Time": 500})
        + task(500, 900, 1)
        + line(QUERY, sparkPlanInfo=plan, time=1000)
        + line(VALUES, executionId=1, accumUpdates=[[7, 3], [8, 4000], [9, 100]])
        + line("SparkListenerJobStart", **{"Submission Time": 1100})
        + task(1100, 1500, 10)
        + task(1300, 1600, 20)
        + line("SparkListenerStageCompleted", **{"Stage Info": {"Submission Time": 1100}})
        + line("SparkListenerJobStart", **{"Submission Time": 1700})[:30]  # still being written
    )
    log = EventLog(tmp_path)
    log.read()
    work = log.between(1000, 2000)
    assert (work.jobs, work.stages, work.tasks, work.rows_read) == (1, 1, 2, 30)
    assert (work.files_read, work.bytes_read, work.bytes_shuffled) == (3, 4000, 10)
    assert work.executor_seconds == 0.5
    with file.open("a") as stream:
        stream.write(line("SparkListenerJobStart", **{"Submission Time": 1700})[30:])
    log.read()
    assert log.between(1000, 2000).jobs == 2


def test_commits_after_a_look_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "t" / "_delta_log"
    log.mkdir(parents=True)
    actions: list[list[dict[str, Any]]] = [
        [{"commitInfo": {}}, {"add": {"path": "a", "size": 100}}],
        [
            {"remove": {"path": "a"}},
            {"add": {"path": "a", "size": 100, "deletionVector": {"sizeInBytes": 4}}},
            {"cdc": {"size": 7}},
        ],
        [{"remove": {"path": "a"}}, {"add": {"path": "b", "size": 50}}],
    ]
    seen = {}
    for version, content in enumerate(actions):
        (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, content)) + "\n")
        seen[version] = commits.versions([tmp_path])
    assert seen[2] == {log: 2}
    assert commits.written(seen[0], seen[0]) == commits.Written()
    assert commits.written(seen[0], seen[1]) == commits.Written(1, 0, 7, 0, 1, 1)
    assert commits.written({}, seen[2]) == commits.Written(3, 2, 157, 1, 1, 1)
