"""The engine of a warehouse: which Spark it is, by the configuration, and what it needs to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deferred.config import Settings
from deferred.log import object_store
from deferred.spark import functions, server, session
from deferred.spark.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def engine_of(settings: Settings, spark: SparkSession | None) -> Engine:
    """The given session, the server that `deferred engine start` keeps warm, or what the configuration names.

    What Spark's settings say of object stores is told to delta-rs: those that are known now, and those of the session.
    """
    object_store.learn({**session.defaults(), **settings.spark_conf})

    def prepare(spark: SparkSession) -> None:
        object_store.learn(session.settings_of(spark))
        functions.register(spark, settings.functions, settings.base_folder)

    def own_function(name: str) -> str | None:
        return functions.described(settings.functions, settings.base_folder, name)

    if spark is not None:
        object_store.learn(session.settings_of(spark))
    running = server.find(settings.local_folder) if spark is None and not settings.spark_remote else None
    if running is not None:
        return Engine(None, None, running.remote, prepare=prepare, own_function=own_function)
    catalog = str(server.catalog_in(settings.local_folder))
    master, remote = settings.spark_master, settings.spark_remote
    return Engine(spark, master, remote, settings.spark_conf, prepare, catalog, own_function)
