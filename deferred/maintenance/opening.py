"""Opening a warehouse: its folder, its metadata database, and the Spark that the configuration names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deferred import failpoints
from deferred.config import Settings
from deferred.log import object_store
from deferred.log.catalog import Catalog
from deferred.log.context import Context
from deferred.maintenance import notices
from deferred.metadata import Metadata
from deferred.spark import functions, server, session
from deferred.spark.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def opened(
    settings: Settings,
    spark: SparkSession | None,
    requested_by: str | None,
    patience: float,
    listeners: Sequence[notices.Listener],
) -> Context:
    """The warehouse that a configuration names; a new one is made ready to use."""
    if "://" not in settings.path:
        failpoints.reached("folder of the warehouse")
        Path(settings.path).mkdir(parents=True, exist_ok=True)
    return Context(
        Metadata.open(settings.metadata_url, create=True, journal=Catalog(str(settings.path))),
        engine_of(settings, spark),
        str(settings.path),
        requested_by or os.environ.get("DEFERRED_REQUESTED_BY"),
        patience,
        listeners=(*notices.configured(settings), *listeners),
    )


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
