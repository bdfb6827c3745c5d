"""Definitions that change: what `alter` reads of what a rebuild of the same view reads, on TPC-H."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench import tables
from bench.cases import TABLES
from bench.measure import Bench, difference
from bench.options import Options
from bench.results import Measurement

SUITE = "altering"
ORDERS = 6_000_000
"""The highest key of an order at scale 1."""


@dataclass(frozen=True)
class Edit:
    """A view and its next definition; {half} and {more} are order keys: half of all, and 1 % more."""

    name: str
    old: str
    new: str


_LINES = "SELECT l_orderkey, l_linenumber, l_quantity, l_shipmode, l_comment FROM lineitem WHERE l_orderkey <= {half}"
_TOTALS = "SELECT l_suppkey, COUNT(*) AS lines, SUM(l_quantity) AS quantity, SUM(l_extendedprice) AS price"
EDITS = (
    Edit("narrowing", _LINES, _LINES + " AND l_shipmode = 'AIR'"),
    Edit("widening by 1%", _LINES, _LINES.replace("{half}", "{more}")),
    Edit(
        "another branch",
        "SELECT l_partkey AS part, l_extendedprice AS price FROM lineitem",
        "SELECT l_partkey AS part, l_extendedprice AS price FROM lineitem"
        " UNION ALL SELECT p_partkey, p_retailprice FROM part",
    ),
    Edit(
        "widening groups by 1%",
        f"{_TOTALS} FROM lineitem WHERE l_orderkey <= {{half}} GROUP BY l_suppkey",
        f"{_TOTALS} FROM lineitem WHERE l_orderkey <= {{more}} GROUP BY l_suppkey",
    ),
    Edit(
        "another aggregate",
        f"{_TOTALS} FROM lineitem GROUP BY l_suppkey",
        f"{_TOTALS}, MAX(l_shipdate) AS last FROM lineitem GROUP BY l_suppkey",
    ),
    Edit(
        "another HAVING",
        f"{_TOTALS} FROM lineitem GROUP BY l_suppkey HAVING COUNT(*) > 620",
        f"{_TOTALS} FROM lineitem GROUP BY l_suppkey HAVING COUNT(*) > 600",
    ),
)


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    """Each edit there and back again; after each, a rebuild, whose rows must be the same."""
    from deferred import Warehouse

    half = round(ORDERS * options.scale) // 2
    keys = {"half": half, "more": half + half // 100}
    source = tables.cached(bench.spark, options.scale)
    with bench.scratch(SUITE) as folder:
        tables.linked(source, folder / "tables")
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            tables.track(wh, folder / "tables", frozenset(TABLES))
            for number, edit in enumerate(EDITS):
                old, new = edit.old.format(**keys), edit.new.format(**keys)
                name = f"altered{number}"
                wh.create_view(name, old)
                measurement = Measurement(SUITE, edit.name, "alter", "view", options.scale, correct=True)
                for repetition in range(options.warm_up + options.repetitions):
                    if repetition:
                        wh.alter_view(name, old)
                    _measured(bench, wh, name, new, measurement, repetition >= options.warm_up)
                bench.settle()
                measurement.note = _fraction(measurement)
                yield measurement
                wh.drop_view(name)


def _measured(bench: Bench, wh: Any, name: str, new: str, measurement: Measurement, counts: bool) -> None:
    """alter, then rebuild; MV before and after the rebuild must be the same."""
    mv = f"delta.`{wh.find_view(name).location}/mv`"
    samples = {"alter": bench.measure(lambda: wh.alter_view(name, new))}
    version = bench.spark.sql(f"DESCRIBE HISTORY {mv} LIMIT 1").first()["version"]
    samples["rebuild"] = bench.measure(lambda: wh.rebuild(name))
    shown = f"SELECT * FROM {mv} VERSION AS OF {version}"
    measurement.correct &= difference(bench.spark, shown, f"SELECT * FROM {mv}") == 0
    for side, sample in samples.items():
        if counts:
            measurement.sides.setdefault(side, []).append(sample)


def _fraction(measurement: Measurement) -> str:
    """What the alteration has read of what the rebuild has read: bytes of columns, and rows."""
    told = []
    for metric, word in (("column_bytes_read", "bytes"), ("rows_read", "rows")):
        mine, theirs = (sum(measurement.values(side, metric)) for side in ("alter", "rebuild"))
        if theirs:
            told.append(f"{mine / theirs:.3f} of the {word}")
    return f"reads {' and '.join(told)} that a rebuild reads"
