"""Reading less: a deletion that the view answers itself, and a star join that needs no base table.

Both stand beside the plain incremental way, in a warehouse that knows of no keys and references, and beside the
recomputation. All three work at the same state of the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import tables
from bench.changes import ORDERS, Size, order_key
from bench.measure import Bench, difference
from bench.options import Options
from bench.results import Measurement

SUITE = "less"
NAMES = ("lineitem", "orders", "customer")


@dataclass(frozen=True)
class Reading:
    """A view that reads less with keys and references, how it is maintained then, and the statements of a change.

    `{low}` and `{high}` are the keys of the first and the last changed order, `{every}` and `{which}` choose scattered
    orders.
    """

    sql: str
    maintain: str
    side: str
    """The strategy that must have been taken, under whose name its cost is noted."""
    changes: tuple[str, ...]


READINGS = {
    "deletion": Reading(
        """SELECT l_orderkey, l_linenumber, o_orderdate, o_orderpriority, l_quantity, l_extendedprice
FROM orders JOIN lineitem ON l_orderkey = o_orderkey WHERE l_quantity > 36""",
        "auto",
        "from the view",
        (
            "DELETE FROM {lineitem} WHERE l_orderkey BETWEEN {low} AND {high}",
            "DELETE FROM {orders} WHERE o_orderkey BETWEEN {low} AND {high}",
        ),
    ),
    "star": Reading(
        """SELECT l_orderkey, l_linenumber, o_orderkey, o_orderdate, c_custkey, c_mktsegment, l_extendedprice
FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
WHERE c_mktsegment = 'BUILDING'""",
        "self",
        "self",
        (
            """INSERT INTO {lineitem} BY NAME SELECT * EXCEPT (l_linenumber),
  CAST(l_linenumber + 100 + {number} AS INT) AS l_linenumber
FROM {lineitem} WHERE l_linenumber = 1 AND l_orderkey % {every} = {which}""",
        ),
    ),
}


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    from deferred import Warehouse

    source = tables.cached(bench.spark, options.scale)
    for name, reading in READINGS.items():
        for size in options.sizes:
            with bench.scratch(f"{SUITE}-{name}") as folder:
                tables.linked(source, folder / "tables")
                with (
                    Warehouse.open(path=folder / "with-keys", spark=bench.spark) as knowing,
                    Warehouse.open(path=folder / "without", spark=bench.spark) as plain,
                ):
                    tables.track(knowing, folder / "tables", frozenset(NAMES))
                    for table in NAMES:
                        plain.track(table, folder / "tables" / table)
                    knowing.create_view("v", reading.sql, maintain=reading.maintain, refresh_policy="incremental")
                    plain.create_view("v", reading.sql, refresh_policy="incremental")
                    yield _measured(bench, options, folder, name, size, knowing, plain)


def _measured(
    bench: Bench, options: Options, folder: Path, name: str, size: Size, knowing: Any, plain: Any
) -> Measurement:
    """The change again and again; each time all sides, and their rows compared."""
    reading = READINGS[name]
    measurement = Measurement(SUITE, name, "delete" if name == "deletion" else "insert", size.text, options.scale)
    measurement.correct = True
    tables.name_in_session(bench.spark, folder / "tables", frozenset(NAMES))
    target = f"delta.`{folder / 'recomputed'}`"
    for number in range(options.warm_up + options.repetitions):
        for statement in reading.changes:
            bench.spark.sql(statement.format(**_place(folder, options.scale, size, number)))
        sides: dict[str, Callable[[], Any]] = {
            reading.side: lambda: knowing.propagate("v"),
            "propagate": lambda: plain.propagate("v"),
            "recompute": lambda: bench.spark.sql(f"CREATE OR REPLACE TABLE {target} USING delta AS {reading.sql}"),
        }
        for side, work in sides.items() if number % 2 else reversed(sides.items()):
            sample = bench.measure(work, [folder])
            if number >= options.warm_up:
                measurement.sides.setdefault(side, []).append(sample)
        for warehouse in (knowing, plain):
            warehouse.partial_refresh("v")
            shown = f"SELECT * FROM delta.`{warehouse.find_view('v').location}/mv`"
            measurement.correct &= difference(bench.spark, shown, f"SELECT * FROM {target}") == 0
    bench.settle()
    taken = {str(sample["strategy"]) for sample in measurement.sides[reading.side]}
    if taken != {reading.side}:
        measurement.correct = False
        measurement.note = f"WRONG: the strategy was {', '.join(sorted(taken))}"
    return measurement


def _place(folder: Path, scale: float, size: Size, number: int) -> dict[str, Any]:
    """What a statement names: tables, and orders, others in each repetition."""
    orders = max(1, round(ORDERS * scale))
    rows = size.rows(orders)
    first = (orders // 3 + number * rows) % max(1, orders - rows + 1)
    every = 32 * max(1, orders // (8 * max(1, rows)))  # of 32 keys in a row 8 are used
    named = {table: f"delta.`{folder / 'tables' / table}`" for table in NAMES}
    keys = {"low": order_key(first), "high": order_key(first + rows - 1)}
    return {**named, **keys, "every": every, "which": order_key(number) % every, "number": number}
