"""What a history can run on, started here as real processes: a standalone cluster, Spark Connect, an S3 server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from deferred.spark import server
from tests.conftest import SMALL

MOTO = "moto[server]==5.2.5"
"""An S3 server in Python; it has an environment of its own, so that nothing else depends on it."""

BUCKET = "bucket"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on port {port}")


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with those that it starts; all end with the block."""
    environment = {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster: its address, and its two workers."""

    master: str
    workers: tuple[subprocess.Popen[bytes], ...]

    def lose_a_worker(self) -> None:
        """Kill a worker and its executor, as when a machine goes down."""
        os.killpg(self.workers[0].pid, signal.SIGKILL)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A master and two workers, as processes of the installed Spark."""
    run = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port, web, other = free_port(), free_port(), [free_port(), free_port()]
    master = f"spark://127.0.0.1:{port}"
    at = ["--host", "127.0.0.1"]
    worker = [run, "org.apache.spark.deploy.worker.Worker", *at, "--cores", "1", "--memory", "1g", "--webui-port"]
    with started(run, "org.apache.spark.deploy.master.Master", *at, "--port", str(port), "--webui-port", str(web)):
        wait_for(port)
        with (
            started(*worker, str(other[0]), "--work-dir", f"{folder}/one", master) as one,
            started(*worker, str(other[1]), "--work-dir", f"{folder}/two", master) as two,
        ):
            for listening in other:
                wait_for(listening)
            yield Cluster(master, (one, two))


@contextmanager
def connect(folder: Path, conf: dict[str, str], master: str | None = None) -> Iterator[str]:
    """The address of a Spark Connect server."""
    running = server.start(folder, master, {**SMALL, **conf})
    try:
        yield running.remote
    finally:
        server.stop(folder)


@contextmanager
def s3(build: Path) -> Iterator[dict[str, str]]:
    """An S3 server with a bucket; Spark's settings for it."""
    environment = build / "moto"
    if not (environment / "bin" / "moto_server").exists():
        venv.create(environment, with_pip=True)
        install = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", MOTO]
        subprocess.run(install, check=True, stdout=sys.stderr)
    port = free_port()
    with started(str(environment / "bin" / "moto_server"), "-H", "127.0.0.1", "-p", str(port)):
        wait_for(port)
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT"))
        yield {
            "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}",
            "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{port}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "someone",
            "spark.hadoop.fs.s3a.secret.key": "something",
        }


def hadoop_version() -> str:
    """The version of Hadoop that the installed Spark has."""
    jars = Path(pyspark.__file__).parent / "jars"
    (found,) = jars.glob("hadoop-client-api-*.jar")
    return found.stem.removeprefix("hadoop-client-api-")
