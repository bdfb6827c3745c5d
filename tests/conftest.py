"""One Spark session for the whole suite, and fresh warehouses in temporary folders."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SMALL = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM makes that many tasks
}
"""For tiny data: what costs there is compiling, so Spark interprets and the JVM compiles little."""


def pytest_configure(config: pytest.Config) -> None:
    """Every Spark that a test starts, in whatever process, has these settings unless it is given others."""
    folder = Path(tempfile.mkdtemp(prefix="deferred-spark-conf-"))
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in SMALL.items()))
    os.environ["SPARK_CONF_DIR"] = str(folder)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that two workers end at about the same time."""
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, item.get_closest_marker("spark") is None))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session with Delta, small enough for two cores."""
    from deferred.spark.session import start

    session = start("local[2]", None, SMALL)
    yield session
    session.stop()


@pytest.fixture
def warehouse(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """A new warehouse of its own, on the shared session."""
    from deferred import Warehouse

    with Warehouse.open(path=tmp_path / "warehouse", spark=spark) as opened:
        yield opened
