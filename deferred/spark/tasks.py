"""How far Spark has come: its tasks that are done and those there are, of whatever runs now, locally or on a server."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Tasks:
    """A server tells each of its clients how far it has come; a Spark in this process is asked."""

    _told: dict[str, tuple[int, int]] = field(default_factory=dict)

    def follow(self, spark: SparkSession) -> None:
        """Lets a server tell about the statements of a session. A session in this process needs none of this."""
        with suppress(Exception):  # it is refused by a session in this process
            spark.registerProgressHandler(self._note)  # type: ignore[arg-type]

    def _note(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        if done or not stages:
            self._told.pop(str(operation_id), None)
            return
        completed = sum(stage.num_completed_tasks for stage in stages)
        self._told[str(operation_id)] = completed, sum(stage.num_tasks for stage in stages)

    def now(self, spark: SparkSession | None) -> tuple[int, int] | None:
        """Returns the tasks that are done and those there are, None where nothing runs or nothing is known."""
        known = list(self._told.values())
        if not known and spark is not None and not hasattr(spark, "cloneSession"):
            with suppress(Exception):  # what cannot be asked now is not known
                tracker = spark.sparkContext.statusTracker()
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                known = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
        if not known:
            return None
        return sum(done for done, _ in known), sum(total for _, total in known)
