"""Starting or connecting to Spark: local, a cluster's master, or a Connect server, with Delta's settings."""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast

from deferred.errors import ConfigurationError, SparkFailure
from deferred.spark.jars import fetching, listed, packages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


MEANING = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
"""Settings whose defaults depend on the host or on the version of Spark: always part of what a query means."""

NOT_MEANING = (
    *(
        "spark.sql.optimizer.",
        "spark.sql.codegen.",
        "spark.sql.execution.",
        "spark.sql.shuffle.",
        "spark.sql.adaptive.",
    ),
    *("spark.sql.join.", "spark.sql.cbo.", "spark.sql.statistics.", "spark.sql.inMemoryColumnarStorage."),
    *("spark.sql.autoBroadcastJoinThreshold", "spark.sql.broadcast", "spark.sql.constraintPropagation."),
    *("spark.sql.files.", "spark.sql.sources.", "spark.sql.parquet.pushdown", "spark.sql.parquet.filterPushdown"),
    *("spark.sql.catalog.", "spark.sql.warehouse.", "spark.sql.hive.", "spark.sql.extensions", "spark.sql.artifact."),
    *("spark.sql.ui.", "spark.sql.debug.", "spark.sql.repl.", "spark.sql.streaming.", "spark.sql.thriftserver."),
    *("spark.sql.maxPlanStringLength", "spark.sql.view.maxNestedViewDepth", "spark.sql.queryExecutionListeners"),
)
"""Settings with these names decide how a query runs or where tables are, not what it means. All others may."""


CATALOG = "spark.sql.warehouse.dir"
"""Where Spark puts tables that are created by name: by default into the folder that a process happens to run in."""


def start(master: str | None, remote: str | None, conf: Mapping[str, str], catalog: str | None = None) -> SparkSession:
    """Returns a session: of the Connect server at `remote`, else on `master`, else a local one.

    A local one puts tables that are created by name into the folder `catalog`, unless the user has chosen another.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", _python())
    try:
        if remote:
            return _without_waiting(SparkSession.builder.remote(remote).getOrCreate())
        # pyspark sets this once a process has used a Connect server, and would then start only clients.
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
        builder = SparkSession.builder.master(master or "local[*]").appName("deferred")
        local = not master or master.startswith("local")
        settings = {
            **(LOCAL if local else {}),
            **({CATALOG: catalog} if local and catalog and CATALOG not in defaults() else {}),
            **DELTA,
            **conf,
            "spark.jars.packages": listed(packages(), conf.get("spark.jars.packages")),
        }
        for name, value in settings.items():
            builder = builder.config(name, str(value))
        with fetching(settings["spark.jars.packages"], {**defaults(), **settings}):
            return builder.getOrCreate()
    except PySparkException as error:
        raise SparkFailure(_no_spark(master, remote, str(error))) from error
    except (OSError, RuntimeError, ConnectionError) as error:
        raise SparkFailure(_no_spark(master, remote, str(error))) from error
    except Exception as error:  # grpc has its own exceptions for a server that does not respond
        if type(error).__module__.startswith("grpc") or (remote and isinstance(error, ValueError)):  # a bad address
            raise SparkFailure(_no_spark(master, remote, str(error))) from error
        raise


def defaults() -> dict[str, str]:
    """The settings of the user's spark-defaults.conf."""
    folders = [os.environ.get("SPARK_CONF_DIR"), *(f"{home}/conf" for home in [os.environ.get("SPARK_HOME")] if home)]
    for folder in filter(None, folders):
        with suppress(OSError), open(f"{folder}/spark-defaults.conf", encoding="utf-8") as file:
            lines = [re.split(r"[\s=]+", line.strip(), maxsplit=1) for line in file if not line.startswith("#")]
            return {line[0]: line[1] for line in lines if len(line) == 2}
    return {}


def settings_of(spark: SparkSession) -> dict[str, str]:
    """All settings of a session, those of its Spark among them."""
    return dict(spark.conf.getAll)


def another(spark: SparkSession, without: Collection[str]) -> SparkSession:
    """Returns another session of the same Spark, with the settings that this one has now, except some."""
    if _is_connect(spark):
        spark.conf.get("spark.sql.session.timeZone")  # a server knows a session only once it was asked something
        own = spark.cloneSession()  # type: ignore[attr-defined]
        for name in without:
            own.conf.unset(name)
        return _without_waiting(cast("SparkSession", own))
    own = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if name not in without and own.conf.get(name, None) != value and own.conf.isModifiable(name):
            own.conf.set(name, value)
    return own


def meaning(spark: SparkSession) -> dict[str, str]:
    """Returns the settings on which the meaning of SQL in a session depends, as Spark keeps them with its own views.

    These are all settings of SQL that someone has set, but for those that are known to decide only how a query runs,
    and those whose defaults are not the same everywhere.
    """
    own = {
        name: value
        for name, value in spark.conf.getAll.items()
        if name.startswith("spark.sql.") and not name.startswith(NOT_MEANING) and spark.conf.isModifiable(name)
    }
    return {**{name: value for name in MEANING if (value := spark.conf.get(name, None)) is not None}, **own}


def give_meaning(own: SparkSession, values: Mapping[str, str]) -> None:
    """Make SQL in a session mean what it means under these settings; what is not among them gets its default."""
    for name in meaning(own).keys() - values.keys():
        own.conf.unset(name)
    for name, value in values.items():
        own.conf.set(name, value)


@contextmanager
def settings(own: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Gives a session other settings while the block runs."""
    before: dict[str, str | None] = {name: own.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            own.conf.set(name, value)
        yield
    finally:
        with suppress(Exception):  # the session may have been stopped in the meantime
            for name, old in before.items():
                if old is None:
                    own.conf.unset(name)
                else:
                    own.conf.set(name, old)


def close(own: SparkSession) -> None:
    """Give up a session that `another` made. A local one is only forgotten: stopping it would stop its Spark."""
    if _is_connect(own):
        own.client.set_retry_policies([])  # a server that is gone is not waited for
        own.release_session_on_close = True  # type: ignore[attr-defined]  # a cloned session does not set it
        own.stop()


def checkpointed(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Returns the rows of a DataFrame of a session, computed and held by Spark."""
    held = frame.localCheckpoint(True)
    if _is_connect(spark):
        # pyspark gives it to the active session of the process, and the rows are in the session that computed them.
        held._session = held._plan._spark_session = spark  # type: ignore[attr-defined]
    return held


def adopted(spark: SparkSession, name: str) -> DataFrame:
    """Returns the rows of a global temporary view as a DataFrame of a session, valid when the view is dropped.

    A local session has resolved the name by then. A server resolves it again whenever the rows are read, so there the
    session gets a copy of the rows.
    """
    frame = spark.table(name)
    return checkpointed(spark, frame) if _is_connect(spark) else frame


def _without_waiting(spark: SparkSession) -> SparkSession:
    """Returns a session of a Connect server without the call that pyspark would make when the process ends.

    It clears a cache that we do not use, and if the server is gone by then, it is tried again for many minutes.
    """
    if _is_connect(spark):
        atexit.unregister(spark.client._on_exit)
    return spark


def _is_connect(spark: SparkSession) -> bool:
    return hasattr(spark, "cloneSession")


def _python() -> str:
    import sys

    return sys.executable


def _no_spark(master: str | None, remote: str | None, reason: str) -> str:
    where = f"the Spark Connect server {remote.split('/;')[0]}" if remote else f"Spark on {master or 'this machine'}"
    first = reason.strip().splitlines()[0] if reason.strip() else "no reason given"
    return (
        f"{where[0].upper()}{where[1:]} cannot be used: {first}. Check spark.remote and spark.master in the "
        f"configuration; a local Spark needs a JDK 17 or 21 (JAVA_HOME)."
    )


def check(master: str | None, remote: str | None) -> None:
    if master and remote:
        raise ConfigurationError("The configuration names both spark.master and spark.remote; keep one of them.")
