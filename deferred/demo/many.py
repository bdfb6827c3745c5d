"""The second act: many sales, and the paper's four scenarios side by side with recomputation. All of it is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deferred.demo.plot import draw
from deferred.demo.step import Step
from deferred.maintenance.scenarios import BY_NAME
from deferred.sql.dialect import delta_table, text
from deferred.sql.pin import pinned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from deferred.maintenance.warehouse import Warehouse

VIEW = "large_purchases"
QUERY = """SELECT p.shopper, p.city, p.item, p.quantity, i.price
FROM purchases p JOIN items i ON p.item = i.item
WHERE p.quantity >= 4 AND i.price > 40.00"""
ITEMS = 1000
ARRIVALS = 3
"""Transactions that arrive before a refresh."""
ARRIVING = 100
"""Rows of each."""
PLOT = "scenarios.png"


@dataclass(frozen=True)
class Measured:
    """One way to have the query's rows: seconds of a writer, of the work in between, and of the refresh."""

    way: str
    write: float
    propagate: float | None
    refresh: float
    rows: int
    """The rows of the view that readers see afterwards."""


class Many:
    """The scenes of the second act. Each scenario has the view for itself, so that a writer pays for one only."""

    def __init__(self, warehouse: Warehouse, folder: Path, sales: int, arrivals: int = ARRIVALS) -> None:
        self.warehouse, self.folder, self.sales, self.arrivals = warehouse, folder, sales, arrivals
        self.arrived = 0

    def scenes(self) -> Iterator[Step]:
        yield self.tables()
        measured = [self.recomputed()]
        measured += [self.scenario(name) for name in BY_NAME]
        yield self.compared(measured)
        yield self.verified()

    def tables(self) -> Step:
        spark = self.warehouse.spark
        items = spark.range(ITEMS).selectExpr(
            "CAST(id AS INT) AS item", "CAST(0.5 + id / 20 AS DECIMAL(8, 2)) AS price"
        )
        for name, rows in (("items", items), ("purchases", self.purchases(0, self.sales))):
            location = self._location(name)
            rows.write.format("delta").option("delta.enableChangeDataFeed", "true").save(location)
            self.warehouse.track(name, location)
        return Step(
            f"The same with {self.sales:,} purchases, and a view of the large ones. For each scenario "
            f"{self.arrivals} transactions of {ARRIVING} rows arrive, then the view is refreshed.",
            ("table", "rows"),
            (("items", ITEMS), ("purchases", self.sales)),
        )

    def purchases(self, begin: int, end: int) -> DataFrame:
        """Some of the endless row of purchases: scattered over shoppers and items, and always the same."""
        return self.warehouse.spark.range(begin, end).selectExpr(
            f"CAST(pmod(id * 48271, {max(1, self.sales // 20)}) AS INT) AS shopper",
            "CONCAT('city ', pmod(id, 20)) AS city",
            f"CAST(pmod(id * 16807, {ITEMS}) AS INT) AS item",
            "CAST(1 + pmod(id, 5) AS INT) AS quantity",
        )

    def recomputed(self) -> Measured:
        """Without the program: jobs write, and the whole table is written again."""
        location = self._location("recomputed")
        create = f"CREATE OR REPLACE TABLE delta.`{location}` USING delta AS {self._query()}"
        spark = self.warehouse.spark
        spark.sql(create)
        write = self._mean(self.arrive)
        refresh = _seconds(lambda: spark.sql(create))
        return Measured("recompute it all", write, None, refresh, spark.read.format("delta").load(location).count())

    def scenario(self, name: str) -> Measured:
        """A view of one scenario: its invariant says what is done on writing, in between, and on refreshing."""
        wh, scenario = self.warehouse, BY_NAME[name]
        if wh.find_view(VIEW) is not None:
            wh.drop_view(VIEW)
        wh.create_view(VIEW, QUERY, scenario=name, refresh_policy="incremental_strict")

        def write() -> None:
            self.arrive()
            if scenario.follows_transactions:  # a writer is done when the view, or its differential tables, follow
                wh.sync()

        waits = self._mean(write)
        propagate, refresh = None, 0.0
        if scenario.invariant.of_past and scenario.invariant.with_differential:
            propagate = _seconds(lambda: wh.propagate(VIEW))
        if scenario.invariant.with_differential:
            refresh = _seconds(lambda: wh.partial_refresh(VIEW))
        elif scenario.invariant.of_past:
            refresh = _seconds(lambda: wh.refresh(VIEW))
        return Measured(name, waits, propagate, refresh, wh.read(VIEW).count())

    def arrive(self) -> None:
        """A job that knows nothing of views appends rows to the Delta table."""
        start = self.sales + self.arrived * ARRIVING
        self.arrived += 1
        self.purchases(start, start + ARRIVING).write.format("delta").mode("append").save(self._location("purchases"))

    def compared(self, measured: list[Measured]) -> Step:
        names = ("a writer waits", "propagate, meanwhile", "readers wait for a refresh")
        bars = tuple(
            (f"{m.way}: {name}", seconds)
            for m in measured
            for name, seconds in zip(names, (m.write, m.propagate, m.refresh), strict=True)
            if seconds is not None
        )
        draw(
            self.folder / PLOT,
            f"Seconds, over {self.sales:,} purchases",
            names,
            [(m.way, (m.write, m.propagate or 0.0, m.refresh)) for m in measured],
        )
        return Step(
            f"Seconds, measured just now (the plot is {self.folder / PLOT}).",
            ("", *names, "rows in the view"),
            tuple((m.way, _shown(m.write), _shown(m.propagate), _shown(m.refresh), m.rows) for m in measured),
            bars,
        )

    def verified(self) -> Step:
        found = self.warehouse.verify(VIEW)
        return Step(
            "verify recomputes the view of the last scenario by Spark itself and compares every row.",
            ("condition", ""),
            tuple((check.condition, "holds" if check.holds else "DOES NOT HOLD") for check in found.checks),
        )

    def _query(self) -> str:
        """The view's query as a job without a warehouse would write it."""
        return pinned(QUERY, lambda path: text(delta_table(self._location(path[-1]))))

    def _mean(self, work: Callable[[], object]) -> float:
        return sum(_seconds(work) for _ in range(self.arrivals)) / self.arrivals

    def _location(self, name: str) -> str:
        return str(self.folder / "tables" / name)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _shown(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"
