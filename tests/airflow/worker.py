"""The tests' own client of the Spark Connect server, in a process of its own.

A process of pytest has one kind of Spark session, and the other tests want a local one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

from deferred.maintenance.warehouse import Warehouse
from deferred.spark import server
from deferred.sql.viewfile import load_views

CONF = {
    # Tiny data: what costs here is compiling, so Spark interprets and the JVM compiles little.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1500m",
}
TABLES = {"orders": "id INT, region STRING, amount INT", "regions": "region STRING, country STRING"}
ROWS = {"orders": "(1, 'north', 10), (2, 'south', 20), (3, 'east', 30)",
        "regions": "('north', 'NO'), ('south', 'SE'), ('east', 'NO')"}

_opened: list[Warehouse] = []
Rows = list[tuple[Any, ...]]


class Worker:
    """Calls the functions below in the other process."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def prepare(self, config: Path, folder: Path, left_out: tuple[str, ...]) -> None:
        self._pool.apply(_prepare, (config, folder, left_out))

    def statement(self, sql: str) -> Rows:
        """Run SQL past the warehouse, as any job does."""
        return self._pool.apply(_statement, (sql,))

    def query(self, sql: str) -> Rows:
        """Run a query on tracked tables and views."""
        return self._pool.apply(_query, (sql,))

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the warehouse; a DataFrame comes back as rows."""
        return self._pool.apply(_call, (method, arguments))


@contextmanager
def worker() -> Iterator[Worker]:
    with get_context("spawn").Pool(1) as pool:
        yield Worker(pool)


def _prepare(config: Path, folder: Path, left_out: tuple[str, ...]) -> None:
    server.start(folder / "warehouse", "local[2]", CONF)
    warehouse = Warehouse.open(config)
    _opened.append(warehouse)
    for name, columns in TABLES.items():
        location = f"{folder}/tables/{name}"
        warehouse.spark.sql(f"CREATE TABLE delta.`{location}` ({columns}) USING delta "
                            f"TBLPROPERTIES (delta.enableChangeDataFeed = true)")
        warehouse.track(name, location)
        warehouse.spark.sql(f"INSERT INTO delta.`{location}` VALUES {ROWS[name]}")
    for view in load_views(warehouse.settings.views_folder):
        if view.name not in left_out:
            warehouse.create_view(view.name, view.query, **view.options)


def _rows(frame: Any) -> Rows:
    return sorted(map(tuple, frame.collect()))


def _statement(sql: str) -> Rows:
    return _rows(_opened[0].spark.sql(sql))


def _query(sql: str) -> Rows:
    return _rows(_opened[0].sql(sql))


def _call(method: str, arguments: tuple[Any, ...]) -> Any:
    answer = getattr(_opened[0], method)(*arguments)
    options: Mapping[str, Any] = {"DataFrame": _rows}
    return options.get(type(answer).__name__, lambda same: same)(answer)
