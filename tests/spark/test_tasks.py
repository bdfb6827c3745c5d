"""How far Spark has come: the tasks that are done and those there are, while a statement runs."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from deferred.spark.engine import Engine

SLOW = "SELECT java_method('java.lang.Thread', 'sleep', {milliseconds}L) FROM range(0, {tasks}, 1, {tasks})"
"""A query of several tasks that take their time."""


def watched(engine: Engine, milliseconds: int, tasks: int) -> list[tuple[int, int]]:
    """What the engine says while the query runs, each state once."""

    def run() -> None:
        with engine.operation() as session:
            session.sql(SLOW.format(milliseconds=milliseconds, tasks=tasks)).collect()

    seen: dict[tuple[int, int], None] = {}
    with ThreadPoolExecutor(1) as threads:
        running: Future[None] = threads.submit(run)
        while not running.done():
            if (now := engine.tasks()) is not None:
                seen[now] = None
    running.result()
    return list(seen)


def test_of_a_spark_in_this_process(spark: Any) -> None:
    engine = Engine(spark)
    assert engine.tasks() is None
    seen = watched(engine, milliseconds=100, tasks=8)
    assert {total for _, total in seen} == {8}
    assert len({done for done, _ in seen}) > 1
    assert engine.tasks() is None
