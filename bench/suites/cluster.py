"""The smallest work on a standalone cluster: a master and two workers as processes on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.options import Options
from bench.results import Measurement
from bench.suites.apart import smallest

OUTSIDE = True
WORKERS = 2


def run(options: Options) -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as name, _cluster(Path(name)) as master:
        yield from smallest("cluster", options, Path(name), [f"--master={master}"])


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    """A master and its workers; gives the master's address, and ends the processes afterwards."""
    port = _free_port()
    address = f"spark://127.0.0.1:{port}"
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "-c", "1", "-m", "1g"]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.append(_start(folder / "master", master))
        _wait(port)
        for number in range(WORKERS):
            place = folder / f"worker-{number}"
            processes.append(_start(place, [*worker, "--webui-port", "0", "-d", str(place), address]))
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait()


def _start(folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    import pyspark

    home = Path(pyspark.__file__).parent
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int) -> None:
    """Wait until the master listens."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError("The master of the cluster did not start within a minute.")
