"""Tree joins over TPC-H with good-counters beside the same views without, and beside a recomputation by Spark.

Of the lines 95 % dangle in the view *rare*: their parts come in other containers. In the view *all* nothing dangles,
every change reaches the view, and what is kept is as large as the join: there the counters cannot win.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench import tables
from bench.changes import ORDERS, PARTS, Size, Step, order_key
from bench.measure import Bench, difference
from bench.options import Options
from bench.results import Measurement

SUITE = "trees"
NAMES = ("customer", "orders", "lineitem", "part")
CHANGED = Size("100rows")
CHANGED_PARTS = Size("5rows")

JOINED = """FROM customer JOIN orders ON o_custkey = c_custkey
JOIN lineitem ON l_orderkey = o_orderkey JOIN part ON p_partkey = l_partkey"""
VIEWS = {
    "rare": f"SELECT DISTINCT c_custkey, c_name {JOINED} WHERE p_container IN ('MED BOX', 'JUMBO PKG')",
    "all": f"SELECT DISTINCT c_name, o_orderkey, l_linenumber, p_brand {JOINED}",
}
CHANGES = {
    "insert lines": """INSERT INTO {lineitem} BY NAME SELECT * EXCEPT (l_linenumber), l_linenumber + 100 AS l_linenumber
FROM {lineitem} WHERE l_linenumber = 1 AND l_orderkey BETWEEN {low} AND {high}""",
    "delete lines": "DELETE FROM {lineitem} WHERE l_linenumber = 1 AND l_orderkey BETWEEN {low} AND {high}",
    "insert orders": """INSERT INTO {orders} BY NAME SELECT * EXCEPT (o_orderkey), o_orderkey + {beyond} AS o_orderkey
FROM {orders} WHERE o_orderkey BETWEEN {low} AND {high}""",
    "other containers": """UPDATE {part} SET p_container = IF(p_container = 'MED BOX', 'SM BOX', 'MED BOX'),
  p_brand = 'Brand#55' WHERE p_partkey BETWEEN {first} AND {last}""",
}
WAYS = ("tree", "auto")


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    from deferred import Warehouse

    source = tables.cached(bench.spark, options.scale)
    with bench.scratch(SUITE) as folder:
        for name in NAMES:
            tables.linked(source / name, folder / name)
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            for name in NAMES:
                wh.track(name, folder / name)
            for name, sql in VIEWS.items():
                yield _created(bench, options, wh, folder, name, sql)
            for number, change in enumerate(CHANGES):
                yield from _measured(bench, options, wh, folder, change, number)


def _place(scale: float, number: int) -> dict[str, object]:
    """What a statement names: orders and parts, others in each repetition, and a number beyond all keys of orders."""
    low, high = Step(number, scale, CHANGED).orders()
    first, last = Step(number, scale, CHANGED_PARTS).range(PARTS)
    beyond = order_key(round(ORDERS * scale) + 8) // 32 * 32
    return {"low": low, "high": high, "first": first + 1, "last": last + 1, "beyond": beyond}


def _created(bench: Bench, options: Options, wh: Any, folder: Path, name: str, sql: str) -> Measurement:
    measurement = Measurement(SUITE, name, "create", "all", options.scale)
    for way in WAYS:
        create = partial(wh.create_view, f"{name}_{way}", sql, refresh_policy="incremental", maintain=way)
        measurement.sides[way] = [bench.measure(create, [folder])]
    bench.settle()
    return measurement


def _measured(bench: Bench, options: Options, wh: Any, folder: Path, change: str, place: int) -> Iterator[Measurement]:
    """Both views after one change, in both ways; all three answers must be the same."""
    size = (CHANGED_PARTS if "{part}" in CHANGES[change] else CHANGED).text
    found = {name: Measurement(SUITE, name, change, size, options.scale, correct=True) for name in VIEWS}
    paths = {name: f"delta.`{folder / name}`" for name in NAMES}
    for number in range(options.warm_up + options.repetitions):
        at = _place(options.scale, number + place * (options.warm_up + options.repetitions))
        bench.spark.sql(CHANGES[change].format(**paths, **at))
        for name, measurement in found.items():
            samples = {}
            ways = WAYS if number % 2 else WAYS[::-1]
            for way in ways:
                samples[way] = bench.measure(partial(wh.propagate, f"{name}_{way}"), [folder])
                wh.partial_refresh(f"{name}_{way}")
            again = folder / f"{name}_again"
            samples["recompute"] = bench.measure(partial(_recompute, bench.spark, folder, VIEWS[name], again), [folder])
            if number >= options.warm_up:
                for side, sample in samples.items():
                    measurement.sides.setdefault(side, []).append(sample)
            for way in WAYS:
                shown = f"SELECT * FROM delta.`{wh.find_view(f'{name}_{way}').location}/mv`"
                measurement.correct &= difference(bench.spark, shown, f"SELECT * FROM delta.`{again}`") == 0
    bench.settle()
    yield from found.values()


def _recompute(spark: Any, folder: Path, sql: str, into: Path) -> None:
    for name in NAMES:
        spark.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM delta.`{folder / name}`")
    spark.sql(sql).write.format("delta").mode("overwrite").save(str(into))
