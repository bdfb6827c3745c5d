"""Measuring: one Spark session with an event log, and what one piece of work costs."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import commits
from bench.events import EventLog
from bench.tables import CACHE

Sample = dict[str, Any]
"""What one piece of work cost: seconds, jobs, bytes and so on, ready for JSON."""

SETTINGS = (
    "spark.master",
    "spark.driver.memory",
    "spark.sql.shuffle.partitions",
    "spark.databricks.delta.snapshotPartitions",
)


@dataclass
class Bench:
    """A session, its event log, and a folder for what is measured. Work is measured one piece at a time."""

    spark: Any
    folder: Path
    events: EventLog | None
    _open: list[tuple[Sample, int, int]] = field(default_factory=list)

    def measure(self, work: Callable[[], Any], roots: Sequence[Path] = ()) -> Sample:
        """Run some work and note what it cost; `roots` are the folders whose Delta tables it may write.

        What Spark did is filled in by `settle`: Spark writes its events a little later.
        """
        before = commits.versions(roots)
        gc.collect()
        begin, begun = time.time(), time.perf_counter()
        result = work()
        seconds, end = time.perf_counter() - begun, time.time()
        sample: Sample = {"seconds": round(seconds, 4)}
        if roots:
            sample.update(commits.written(before, commits.versions(roots)).to_dict())
        if hasattr(result, "phases"):  # an Operation of ours
            sample.update(
                phases=dict(result.phases),
                strategy=result.strategy,
                state=result.state,
                rows_changed=result.rows_deleted + result.rows_inserted,
                log_rows=result.rows_read,
            )
        self._open.append((sample, int(begin * 1000), int(end * 1000)))
        return sample

    def settle(self) -> None:
        """Fill in what Spark did, for everything that was measured since the last time."""
        if self.events is not None and self._open:
            time.sleep(0.3)  # the events of the last job are on their way
            self.events.read()
            for sample, begin, end in self._open:
                work = self.events.between(begin, end)
                sample.update(work.to_dict())
                sample["driver_seconds"] = round(max(0.0, sample["seconds"] - work.executor_seconds), 4)
            self.events.forget()
        self._open.clear()

    def settings(self) -> dict[str, str]:
        """The settings of the session that matter for its speed."""
        return {name: self.spark.conf.get(name, "") for name in SETTINGS}

    @contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """A folder of its own for one case, removed afterwards."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def session(master: str | None = None, conf: Mapping[str, str] | None = None) -> Iterator[Bench]:
    """A session as a user of the package gets one: local, on a cluster, or of the server in DEFERRED_SPARK_REMOTE.

    Its event log is kept while it runs; a Connect server writes its own, where `conf` says. The server's address is
    taken from the environment because it holds a token, which neither a list of processes nor the results may show.
    """
    from deferred import Warehouse

    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=CACHE))
    log = folder / "events"
    settings = {**event_log(log), "spark.sql.warehouse.dir": str(folder / "catalog"), **(conf or {})}
    remote = os.environ.get("DEFERRED_SPARK_REMOTE")
    place = {"master": master} if master and not remote else {}
    config = folder / "deferred.toml"
    config.write_text(configuration(folder / "first", place, {} if remote else settings), encoding="utf-8")
    try:
        with Warehouse.open(config) as warehouse, _silenced(folder / "spark.log"):
            spark = warehouse.spark
        try:
            yield Bench(spark, folder, EventLog(Path(settings["spark.eventLog.dir"].removeprefix("file:"))))
        finally:
            with suppress(Exception):  # a run that was ended in the middle of a call cannot talk to Spark any more
                spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _silenced(file: Path) -> Iterator[None]:
    """While Spark starts, what it says goes into a file, now and later; it is shown when the start fails."""
    kept = os.dup(2)
    with file.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    except BaseException:
        os.write(kept, file.read_bytes())
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def event_log(folder: Path) -> dict[str, str]:
    """The settings with which Spark writes its events into a folder, as text in one file."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{folder}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def configuration(warehouse: Path, place: Mapping[str, str], conf: Mapping[str, str]) -> str:
    """A configuration file of ours.

    >>> print(configuration(Path("/w"), {"master": "local[2]"}, {"spark.ui.enabled": "false"}))
    [warehouse]
    path = "/w"
    [spark]
    master = "local[2]"
    [spark.conf]
    "spark.ui.enabled" = "false"
    <BLANKLINE>
    """
    lines = ["[warehouse]", f'path = "{warehouse}"', "[spark]", *(f'{k} = "{v}"' for k, v in place.items())]
    lines += ["[spark.conf]", *(f'"{name}" = "{value}"' for name, value in conf.items())]
    return "\n".join(lines) + "\n"


def difference(spark: Any, left: str, right: str) -> int:
    """The number of distinct rows that two queries do not give equally often: 0 when they are the same bag."""
    columns = spark.sql(left).columns
    listed = ", ".join(f"`{name}`" for name in columns)
    other = ", ".join(f"`{name}`" for name in spark.sql(right).columns)
    (row,) = spark.sql(
        f"""SELECT COUNT(*) FROM (SELECT {listed} FROM (
  SELECT {listed}, 1 AS _n FROM ({left}) UNION ALL SELECT {other}, -1 FROM ({right}))
GROUP BY {listed} HAVING SUM(_n) <> 0)"""
    ).collect()
    return int(row[0])
