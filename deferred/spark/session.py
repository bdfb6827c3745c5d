"""Starting or reaching Spark: local, a cluster's master, or a Connect server, with what Delta needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from deferred.errors import ConfigurationError, SparkFailure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
}


def packages() -> str:
    """The Maven coordinates of the Delta jar that goes with the installed Spark."""
    from importlib.metadata import version

    spark = ".".join(version("pyspark").split(".")[:2])
    return f"io.delta:delta-spark_{spark}_2.13:{version('delta-spark')}"


def _listed(*names: str | None) -> str:
    return ",".join(name for name in names if name)


def start(master: str | None, remote: str | None, conf: Mapping[str, str]) -> SparkSession:
    """A session: the Connect server's when an address is given, else one on a master, else a local one."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", _python())
    try:
        if remote:
            return SparkSession.builder.remote(remote).getOrCreate()
        # pyspark leaves a note here once a process has used a server, and would then start nothing but clients.
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
        builder = SparkSession.builder.master(master or "local[*]").appName("deferred")
        settings = {**(LOCAL if not master or master.startswith("local") else {}), **DELTA,
                    **conf, "spark.jars.packages": _listed(packages(), conf.get("spark.jars.packages"))}
        for name, value in settings.items():
            builder = builder.config(name, str(value))
        return builder.getOrCreate()
    except PySparkException as error:
        raise SparkFailure(_no_spark(master, remote, str(error))) from error
    except (OSError, RuntimeError, ConnectionError) as error:
        raise SparkFailure(_no_spark(master, remote, str(error))) from error
    except Exception as error:  # grpc raises its own class when nobody answers
        if type(error).__module__.startswith("grpc"):
            raise SparkFailure(_no_spark(master, remote, str(error))) from error
        raise


def _python() -> str:
    import sys

    return sys.executable


def _no_spark(master: str | None, remote: str | None, reason: str) -> str:
    where = f"the Spark Connect server {remote.split('/;')[0]}" if remote else f"Spark on {master or 'this machine'}"
    first = reason.strip().splitlines()[0] if reason.strip() else "no reason given"
    return (f"{where[0].upper()}{where[1:]} cannot be used: {first}. Check spark.remote and spark.master in the "
            f"configuration; a local Spark needs a JDK 17 or 21 (JAVA_HOME).")


def check(master: str | None, remote: str | None) -> None:
    if master and remote:
        raise ConfigurationError("The configuration names both spark.master and spark.remote; keep one of them.")
