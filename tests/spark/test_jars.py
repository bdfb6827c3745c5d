"""Processes that start Spark at once on a machine that has never fetched its jars."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from deferred.spark.jars import fetching

PROCESSES = 3

PROCESS = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from deferred.spark.jars import fetching

    cache, log = Path(sys.argv[1]), Path(sys.argv[2])
    with fetching("group:artifact:1.0", {"spark.jars.ivy": str(cache)}):
        with log.open("a") as file:
            file.write("begin\\n")
        if not (cache / "jar").exists():
            time.sleep(0.5)  # what is fetched takes a while
            (cache / "jar").write_text("jar")
            with log.open("a") as file:
                file.write("fetched\\n")
    """
)


def test_the_first_to_come_fetches_and_the_others_wait(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", PROCESS, str(tmp_path / "ivy"), str(log)]
    running = [subprocess.Popen(command) for _ in range(PROCESSES)]
    assert [process.wait(60) for process in running] == [0] * PROCESSES
    lines = log.read_text().splitlines()
    assert lines.count("fetched") == 1
    assert lines[:2] == ["begin", "fetched"], "nobody else may begin while the first one fetches"


def test_a_start_that_fails_has_not_fetched(tmp_path: Path) -> None:
    settings = {"spark.jars.ivy": str(tmp_path)}
    with pytest.raises(OSError, match="no network"), fetching("group:artifact:1.0", settings):
        raise OSError("no network")
    assert not list(tmp_path.glob("fetched-*"))
    with fetching("group:artifact:1.0", settings):
        assert not list(tmp_path.glob("fetched-*"))
    assert [path.name for path in tmp_path.glob("fetched-*")] == ["fetched-group_artifact_1.0"]
