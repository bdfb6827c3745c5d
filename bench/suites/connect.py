"""The smallest work through Spark Connect: on the server that `deferred engine start` keeps."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import configuration, event_log
from bench.options import Options
from bench.results import Measurement
from bench.suites.apart import smallest
from bench.suites.shell import command

OUTSIDE = True


def run(options: Options) -> Iterator[Measurement]:
    from deferred.spark.server import find

    with tempfile.TemporaryDirectory(prefix="bench-connect-") as name:
        folder = Path(name)
        (folder / "conf").mkdir()
        text = configuration(folder / "warehouse", {}, event_log(folder / "events"))
        (folder / "conf" / "deferred.toml").write_text(text, encoding="utf-8")
        command(folder, "init")
        command(folder, "engine", "start")
        try:
            running = find(folder / "warehouse")
            assert running is not None, "the server has just been started"
            place = {"DEFERRED_SPARK_REMOTE": running.remote}
            yield from smallest("connect", options, folder, [f"--events={folder / 'events'}"], place)
        finally:
            command(folder, "engine", "stop")
