"""Tree joins with good-counters beside the same views without, and beside a recomputation by Spark.

Of the items 95 % dangle in the view *rare*: their parts are of another brand. In the view *all* nothing dangles, every
change reaches the view, and what is kept is as large as the join: there the counters cannot win.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.measure import Bench, difference
from bench.options import Options
from bench.results import Measurement

SUITE = "trees"
CUSTOMERS, ORDERS, ITEMS, PARTS, BRANDS = 150_000, 1_500_000, 6_000_000, 200_000, 20
"""At scale 1. One brand is asked for."""
CHANGED = 100

JOINED = """FROM customer c JOIN orders o ON o.customer = c.id
JOIN item i ON i.ord = o.id JOIN part p ON p.id = i.part"""
VIEWS = {
    "rare": f"SELECT DISTINCT c.id, c.name {JOINED} WHERE p.brand = 7",
    "all": f"SELECT DISTINCT c.name, o.id AS ord, i.id AS item, p.brand {JOINED}",
}
CHANGES = {
    "insert items": "INSERT INTO {item} SELECT {new} + id, {order} + id, {any} + id, NULL FROM RANGE({n})",
    "delete items": "DELETE FROM {item} WHERE id >= {old} AND id < {old} + {n}",
    "insert orders": "INSERT INTO {orders} SELECT {new} + id, {order} % {customers} + id, NULL FROM RANGE({n})",
    "another brand": "UPDATE {part} SET brand = (brand + 1) % 20 WHERE id >= {one} AND id < {one} + 5",
}
WAYS = ("tree", "auto")


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    from deferred import Warehouse

    with bench.scratch(SUITE) as folder:
        rows = _make_tables(bench.spark, folder, options.scale)
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            for name in rows:
                wh.track(name, folder / name)
            for name, sql in VIEWS.items():
                yield _created(bench, options, wh, folder, name, sql)
            for number, change in enumerate(CHANGES):
                yield from _measured(bench, options, wh, folder, change, rows, number)


def _make_tables(spark: Any, folder: Path, scale: float) -> dict[str, int]:
    """The tables by name, with their numbers of rows."""
    rows = {
        name: max(1_000, round(n * scale))
        for name, n in (("customer", CUSTOMERS), ("orders", ORDERS), ("item", ITEMS), ("part", PARTS))
    }
    queries = {
        "customer": "SELECT id, CONCAT('customer ', id) AS name, REPEAT('x', 100) AS note",
        "orders": f"SELECT id, PMOD(XXHASH64(id), {rows['customer']}) AS customer, REPEAT('x', 50) AS note",
        "item": f"SELECT id, id DIV 4 AS ord, PMOD(XXHASH64(id, 1), {rows['part']}) AS part, REPEAT('x', 50) AS note",
        "part": f"SELECT id, PMOD(XXHASH64(id, 2), {BRANDS}) AS brand, REPEAT('x', 50) AS note",
    }
    for name, query in queries.items():
        spark.sql(f"{query} FROM RANGE({rows[name]})").write.format("delta").save(str(folder / name))
    return rows


def _created(bench: Bench, options: Options, wh: Any, folder: Path, name: str, sql: str) -> Measurement:
    measurement = Measurement(SUITE, name, "create", "all", options.scale)
    for way in WAYS:
        create = partial(wh.create_view, f"{name}_{way}", sql, refresh_policy="incremental", maintain=way)
        measurement.sides[way] = [bench.measure(create, [folder])]
    bench.settle()
    return measurement


def _measured(
    bench: Bench, options: Options, wh: Any, folder: Path, change: str, rows: dict[str, int], place: int
) -> Iterator[Measurement]:
    """Both views after one change, in both ways; all three answers must be the same."""
    found = {name: Measurement(SUITE, name, change, f"{CHANGED}rows", options.scale, correct=True) for name in VIEWS}
    for number in range(options.warm_up + options.repetitions):
        step = number + place * 100
        values = {
            "new": 100 * ITEMS + step * CHANGED,
            "old": rows["item"] // 2 + step * CHANGED,
            "order": rows["orders"] // 3 + step * CHANGED,
            "one": rows["part"] // 2 + step * 5,
            "any": step * 7919 % (rows["part"] - CHANGED),
            "customers": rows["customer"] // 2,
            "n": CHANGED,
        }
        paths = {name: f"delta.`{folder / name}`" for name in rows}
        bench.spark.sql(CHANGES[change].format(**paths, **values))
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
    for name in ("customer", "orders", "item", "part"):
        spark.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM delta.`{folder / name}`")
    spark.sql(sql).write.format("delta").mode("overwrite").save(str(into))
