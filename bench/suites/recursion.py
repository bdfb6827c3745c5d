"""Recursive views: the ancestors in a tree, what is reached in a sparse graph, and all paths of a dense one.

Edges are inserted, deleted and moved, 1 to 1,000 of them, and a whole subtree is moved near the root. Beside the
maintenance stands the recomputation of the same view, in the rounds that fill it: one sample for all changes of a view,
as it takes minutes and its tables hardly change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from bench.measure import Bench, difference
from bench.options import Options
from bench.results import Measurement

SUITE = "recursion"
NODES, EDGES, STARTS = 1_000_000, 300_000, 100
"""At scale 1."""
DENSE, DEGREE = 300, 30
"""Nodes of the dense graph at scale 1 and up, and the edges that leave each of them."""
CHANGED = 100
OTHERS = (1, 10, 1_000)
"""Other numbers of edges, for the shape of the curve: two repetitions each, and not more than 1 % of a table."""
NEAR_ROOT = "move near the root"


@dataclass(frozen=True)
class Recursive:
    """A view, the table of edges below it, and the statements that change it.

    {new} is the first of {n} new ids; {chosen} a condition for {n} edges all over the table; {number} is another one in
    each repetition.
    """

    table: str
    sql: str
    changes: dict[str, str]


def _tree() -> Recursive:
    """Nodes with three children each, the root with four: the deepest are 12 edges below it at scale 1."""
    return Recursive(
        "tree",
        """WITH RECURSIVE up AS (
  SELECT id, parent FROM tree UNION SELECT u.id, t.parent FROM up u JOIN tree t ON u.parent = t.id)
SELECT id, parent FROM up""",
        {
            "insert": "INSERT INTO {t} SELECT id, id % 1000 FROM RANGE({new}, {new} + {n})",
            "delete": "DELETE FROM {t} WHERE {chosen}",
            "move": "UPDATE {t} SET parent = id % 100 WHERE {chosen}",
            NEAR_ROOT: "UPDATE {t} SET parent = 0 WHERE id = 60 + {number}",
        },
    )


def _graph() -> Recursive:
    """Less than one edge for each node, so that paths end."""
    return Recursive(
        "edge",
        """WITH RECURSIVE reached AS (
  SELECT start, start AS node FROM starts UNION SELECT r.start, e.dst FROM reached r JOIN edge e ON r.node = e.src)
SELECT start, COUNT(*) AS nodes FROM reached GROUP BY start""",
        {
            "insert": "INSERT INTO {t} SELECT {new} + id, id, (id * 7919 + {number} * 31) % 1000 FROM RANGE({n})",
            "delete": "DELETE FROM {t} WHERE {chosen}",
            "move": "UPDATE {t} SET dst = (dst * 31) % 1000 WHERE {chosen}",
        },
    )


def _dense() -> Recursive:
    """Every node reaches every other one in many ways: a deletion may overestimate wildly."""
    return Recursive(
        "dense",
        """WITH RECURSIVE path AS (
  SELECT src, dst FROM dense UNION SELECT p.src, d.dst FROM path p JOIN dense d ON p.dst = d.src)
SELECT src, dst FROM path""",
        {
            "insert": "INSERT INTO {t} SELECT {new} + id, id % 50, (id * 11 + {number}) % 50 FROM RANGE({n})",
            "delete": "DELETE FROM {t} WHERE {chosen}",
            "move": "UPDATE {t} SET dst = (dst * 31) % 50 WHERE {chosen}",
        },
    )


VIEWS = {"ancestors": _tree(), "reached": _graph(), "paths": _dense()}


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    from deferred import Warehouse

    with bench.scratch(SUITE) as folder:
        rows = _make_tables(bench.spark, folder, options.scale)
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            for name in rows:
                wh.track(name, folder / name)
            for name, view in VIEWS.items():
                wh.create_view(name, view.sql, refresh_policy="incremental_strict")
                few = replace(options, warm_up=0, repetitions=min(2, options.repetitions))
                places = count()
                changed: list[Measurement] = []
                for change in view.changes:
                    sizes = {n: few for n in OTHERS if n <= rows[view.table] // 100}
                    sizes = {1: options} if change == NEAR_ROOT else {CHANGED: options, **sizes}
                    for n, asked in sizes.items():
                        place = partial(_place, rows[view.table], n)
                        changed.append(_changed(bench, asked, wh, folder, name, change, map(place, places), n))
                yield from _recomputed(bench, wh, folder, name, changed)


def _make_tables(spark: Any, folder: Path, scale: float) -> dict[str, int]:
    """The tables by name, with their numbers of rows."""
    nodes, edges = max(1_000, round(NODES * scale)), max(1_000, round(EDGES * scale))
    ends = [f"PMOD(XXHASH64(id, {end}), {edges * 11 // 10})" for end in (1, 2)]
    dense = max(50, min(DENSE, round(DENSE * scale)))
    queries = {
        "tree": (nodes, f"SELECT id, IF(id = 0, NULL, (id - 2) DIV 3) AS parent FROM RANGE({nodes})"),
        "edge": (edges, f"SELECT id, {ends[0]} AS src, {ends[1]} AS dst FROM RANGE({edges})"),
        "dense": (
            dense * DEGREE,
            f"SELECT id, id DIV {DEGREE} AS src, PMOD(XXHASH64(id), {dense}) AS dst FROM RANGE({dense * DEGREE})",
        ),
        "starts": (STARTS, f"SELECT id * 7 AS start FROM RANGE({STARTS})"),
    }
    for name, (_, query) in queries.items():
        spark.sql(query).write.format("delta").save(str(folder / name))
    return {name: rows for name, (rows, _) in queries.items()}


def _place(rows: int, n: int, number: int) -> dict[str, object]:
    """Where a repetition changes n edges: below the first tenth, the top of the tree, on which everything rests."""
    first, step = rows // 10, (rows - rows // 10) // n
    chosen = f"id >= {first} AND id < {first + n * step} AND PMOD(id - {first}, {step}) = {number % step}"
    return {"new": 10 * NODES + rows + number * max(OTHERS), "chosen": chosen, "n": n, "number": number}


def _changed(
    bench: Bench,
    options: Options,
    wh: Any,
    folder: Path,
    name: str,
    change: str,
    places: Iterator[dict[str, object]],
    n: int,
) -> Measurement:
    """propagate and partial_refresh after a change, again and again."""
    view = VIEWS[name]
    measurement = Measurement(SUITE, name, change, f"{n}rows", options.scale)
    for number in range(options.warm_up + options.repetitions):
        bench.spark.sql(view.changes[change].format(t=f"delta.`{folder / view.table}`", **next(places)))
        for side, work in {"propagate": wh.propagate, "partial_refresh": wh.partial_refresh}.items():
            sample = bench.measure(partial(work, name), [folder])
            if number >= options.warm_up:
                measurement.sides.setdefault(side, []).append(sample)
    bench.settle()
    return measurement


def _recomputed(bench: Bench, wh: Any, folder: Path, name: str, changed: list[Measurement]) -> Iterator[Measurement]:
    """One rebuild, which takes minutes at scale 1, beside all changes; its rows must be those that they have led to."""
    mv = f"delta.`{wh.find_view(name).location}/mv`"
    version = bench.spark.sql(f"DESCRIBE HISTORY {mv} LIMIT 1").first()["version"]
    sample = bench.measure(lambda: wh.rebuild(name), [folder])
    shown = f"SELECT * FROM {mv} VERSION AS OF {version}"
    correct = difference(bench.spark, shown, f"SELECT * FROM {mv}") == 0
    bench.settle()
    for measurement in changed:
        measurement.sides["recompute"] = [sample]
        measurement.correct = correct
        yield measurement
