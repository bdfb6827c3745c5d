"""Nothing to do: a propagate without changes, or after an irrelevant commit, and `status` of many views.

All from the shell, where no JVM can be found.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench import tables
from bench.changes import ORDERS, Size, Step
from bench.measure import Bench
from bench.options import Options
from bench.results import Measurement
from bench.suites.shell import command
from bench.suites.smallest import make_tables

SUITE = "nothing"
VIEWS = 100
RECENT = """SELECT o_orderkey, c_name, o_totalprice FROM orders JOIN customer ON o_custkey = c_custkey
WHERE o_orderdate >= DATE '1998-01-01'"""
IRRELEVANT = {
    "insert": """INSERT INTO {orders} BY NAME SELECT * EXCEPT (o_orderkey, o_orderdate),
  o_orderkey + {shift} AS o_orderkey, DATE '1995-01-01' AS o_orderdate
FROM {orders} WHERE o_orderkey BETWEEN {low} AND {high}""",
    "delete": """DELETE FROM {orders}
WHERE o_orderkey BETWEEN {low} AND {high} AND o_orderdate < DATE '1998-01-01'""",
}
"""Commits of old orders, which the view of recent ones need not look at."""


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    yield from _nothing(bench, options)
    yield from _irrelevant(bench, options)


def _nothing(bench: Bench, options: Options) -> Iterator[Measurement]:
    from deferred import Warehouse

    views = VIEWS if options.views is None else options.views
    with bench.scratch(SUITE) as folder:
        make_tables(bench.spark, folder)
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            wh.track("t", folder / "t", key=["id"])
            for number in range(views):
                wh.create_view(f"v{number}", f"SELECT id, g, v FROM t WHERE id % {views} = {number}")
        for name, arguments in (("propagate", ["propagate", "v0"]), ("status", ["status"]), ("help", ["--help"])):
            measurement = Measurement(SUITE, name, "none", f"{views} views", 0)
            yield _measured(bench, options, folder, arguments, measurement, None)


def _irrelevant(bench: Bench, options: Options) -> Iterator[Measurement]:
    """propagate of a view of recent orders after commits of old ones."""
    from deferred import Warehouse

    source = tables.cached(bench.spark, options.scale)
    names = frozenset({"orders", "customer"})
    with bench.scratch(SUITE) as folder:
        for name in names:
            tables.linked(source / name, folder / "tables" / name)
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            tables.track(wh, folder / "tables", names)
            wh.create_view("recent", RECENT)
        for change, statement in IRRELEVANT.items():
            measurement = Measurement(SUITE, "irrelevant", change, "100rows", options.scale)
            written = statement.replace("{orders}", f"delta.`{folder / 'tables' / 'orders'}`")
            yield _measured(bench, options, folder, ["propagate", "recent"], measurement, written)


def _measured(
    bench: Bench, options: Options, folder: Path, arguments: list[str], measurement: Measurement, before: str | None
) -> Measurement:
    """A command, again and again; before each, a statement on other orders."""
    without_java = {"DEFERRED_PATH": str(folder / "warehouse"), "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    for number in range(options.warm_up + options.repetitions):
        if before is not None:
            low, high = Step(number, options.scale, Size(measurement.size)).orders()
            shift = 32 * ORDERS * round(max(1, options.scale)) * (number + 1)  # beyond all keys
            bench.spark.sql(before.format(low=low, high=high, shift=shift))
        sample = bench.measure(lambda: command(folder, *arguments, environment=without_java))
        if number >= options.warm_up:
            measurement.sides.setdefault("command", []).append(sample)
    bench.settle()
    measurement.note = "without a JVM"
    return measurement
