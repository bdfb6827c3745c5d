"""Recursive views: the ancestors in a tree, and what is reached in a sparse graph; 100 edges inserted, deleted, moved.

Beside the maintenance stands the recomputation of the same view, in the rounds that fill it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.measure import Bench, difference
from bench.options import Options
from bench.results import Measurement

SUITE = "recursion"
NODES, EDGES, STARTS = 1_000_000, 300_000, 100
"""At scale 1."""
CHANGED = 100


@dataclass(frozen=True)
class Recursive:
    """A view, the table of edges below it, and the statements that change it.

    {new} is the first of {n} new ids; {chosen} a condition for {n} edges all over the table.
    """

    table: str
    sql: str
    changes: dict[str, str]


def _tree() -> Recursive:
    """Nodes with three children each: depth 12 at scale 1."""
    return Recursive(
        "tree",
        """WITH RECURSIVE up AS (
  SELECT id, parent FROM tree UNION SELECT u.id, t.parent FROM up u JOIN tree t ON u.parent = t.id)
SELECT id, parent FROM up""",
        {
            "insert": "INSERT INTO {t} SELECT id, id % 1000 FROM RANGE({new}, {new} + {n})",
            "delete": "DELETE FROM {t} WHERE {chosen}",
            "move": "UPDATE {t} SET parent = id % 100 WHERE {chosen}",
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
            "insert": "INSERT INTO {t} SELECT {new} + id, id, (id * 7919) % 1000 FROM RANGE({n})",
            "delete": "DELETE FROM {t} WHERE {chosen}",
            "move": "UPDATE {t} SET dst = (dst * 31) % 1000 WHERE {chosen}",
        },
    )


VIEWS = {"ancestors": _tree(), "reached": _graph()}


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    from deferred import Warehouse

    with bench.scratch(SUITE) as folder:
        rows = _make_tables(bench.spark, folder, options.scale)
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            for name in rows:
                wh.track(name, folder / name)
            for name, view in VIEWS.items():
                wh.create_view(name, view.sql, refresh_policy="incremental_strict")
                changed = [_changed(bench, options, wh, folder, name, change, rows) for change in view.changes]
                yield from _recomputed(bench, wh, folder, name, changed)


def _make_tables(spark: Any, folder: Path, scale: float) -> dict[str, int]:
    """The tables by name, with their numbers of rows."""
    nodes, edges = max(1_000, round(NODES * scale)), max(1_000, round(EDGES * scale))
    ends = [f"PMOD(XXHASH64(id, {end}), {edges * 11 // 10})" for end in (1, 2)]
    queries = {
        "tree": (nodes, f"SELECT id, IF(id = 0, NULL, (id - 1) DIV 3) AS parent FROM RANGE({nodes})"),
        "edge": (edges, f"SELECT id, {ends[0]} AS src, {ends[1]} AS dst FROM RANGE({edges})"),
        "starts": (STARTS, f"SELECT id * 7 AS start FROM RANGE({STARTS})"),
    }
    for name, (_, query) in queries.items():
        spark.sql(query).write.format("delta").save(str(folder / name))
    return {name: rows for name, (rows, _) in queries.items()}


def _place(rows: int, number: int, change: str) -> dict[str, object]:
    """Where a repetition of a change happens: below the first tenth, the top of the tree, on which everything rests."""
    first, step = rows // 10, (rows - rows // 10) // CHANGED
    shift = number + 20 * ("insert", "delete", "move").index(change)
    chosen = f"id >= {first} AND PMOD(id - {first}, {step}) = {shift}"
    return {"new": 10 * NODES + (rows + shift) * CHANGED, "chosen": chosen, "n": CHANGED}


def _changed(
    bench: Bench, options: Options, wh: Any, folder: Path, name: str, change: str, rows: dict[str, int]
) -> Measurement:
    """propagate and partial_refresh after a change, again and again."""
    view = VIEWS[name]
    measurement = Measurement(SUITE, name, change, f"{CHANGED}rows", options.scale)
    for number in range(options.warm_up + options.repetitions):
        place = _place(rows[view.table], number, change)
        bench.spark.sql(view.changes[change].format(t=f"delta.`{folder / view.table}`", **place))
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
