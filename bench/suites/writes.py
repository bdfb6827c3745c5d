"""Writes to a tracked table against an untracked one, without views and with many deferred ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import tables
from bench.changes import CHANGES, Size, Step
from bench.measure import Bench
from bench.options import Options
from bench.results import Measurement

SUITE = "writes"
KINDS = {"insert": "new_orders", "update": "update_together", "delete": "delete"}
VIEWS = 50


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    from deferred import Warehouse

    views = VIEWS if options.views is None else options.views
    source = tables.cached(bench.spark, options.scale)
    with bench.scratch(SUITE) as folder:
        for copy in ("tracked", "untracked"):
            tables.linked(source / "orders", folder / copy)
        off = "SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')"
        bench.spark.sql(f"ALTER TABLE delta.`{folder / 'untracked'}` {off}")
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            wh.track("orders", folder / "tracked", key=["o_orderkey"])
            yield from _writes(bench, options, wh, folder, 0, 0)
            for number in range(views):
                wh.create_view(f"v{number}", f"SELECT o_orderkey, o_totalprice FROM orders WHERE o_custkey = {number}")
            yield from _writes(bench, options, wh, folder, views, 1)


def _writes(bench: Bench, options: Options, wh: Any, folder: Path, views: int, part: int) -> Iterator[Measurement]:
    """Inserts, updates and deletes of orders: bare, on the tracked table, and as a transaction."""
    for kind, change in KINDS.items():
        measurement = Measurement(SUITE, kind, f"{views} views", "0.1%", options.scale)
        for number in range(options.warm_up + options.repetitions):
            step = Step(number + 100 * part, options.scale, Size("0.1%"))
            statement = _statement(change, step)
            other = _statement(change, replace(step, number=step.number + 50))
            sides: list[tuple[str, Callable[[], Any]]] = [
                ("untracked", partial(bench.spark.sql, _onto(statement, folder / "untracked"))),
                ("tracked", partial(bench.spark.sql, _onto(statement, folder / "tracked"))),
                ("transaction", partial(_transaction, wh, other)),
            ]
            for side, work in sides if number % 2 else reversed(sides):
                sample = bench.measure(work, [folder / ("untracked" if side == "untracked" else "tracked")])
                if number >= options.warm_up:
                    measurement.sides.setdefault(side, []).append(sample)
        bench.settle()
        yield measurement


def _statement(change: str, step: Step) -> str:
    """The statement of a change that writes orders."""
    return next(s for s in CHANGES[change].statements(step) if "lineitem" not in s)


def _transaction(wh: Any, statement: str) -> None:
    """The statement as a transaction, on other rows of the tracked table than the write beside it."""
    with wh.transaction() as tx:
        tx.sql(statement)


def _onto(statement: str, path: Path) -> str:
    """The statement on the table at a path."""
    return " ".join(f"delta.`{path}`" if word == "orders" else word for word in statement.split())
