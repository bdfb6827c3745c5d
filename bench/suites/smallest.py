"""The smallest work: tables of 1,000 rows, one row changed, in a warm session; and a transaction of one insert."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.changes import CREATE
from bench.measure import Bench, difference
from bench.options import Options
from bench.results import Measurement

SUITE = "smallest"
ROWS = 1000
VIEWS = {
    "select": "SELECT id, g, v FROM t WHERE v > 10",
    "join": "SELECT t.id, t.v, u.name FROM t JOIN u ON t.g = u.g",
    "left_join": "SELECT t.id, t.v, u.name FROM t LEFT JOIN u ON t.g = u.g AND u.g > 10",
    "top_3": """SELECT g, id, v, place FROM (
  SELECT g, id, v, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v DESC, id) AS place FROM t) WHERE place <= 3""",
    "count_sum": "SELECT g, COUNT(*) AS n, SUM(v) AS total FROM t GROUP BY g",
}
CHANGES = {
    "insert": "INSERT INTO {t} VALUES ({new}, {new} % 100, {new} + 0.5)",
    "update": "UPDATE {t} SET v = v + 1000 WHERE id = {old}",
}


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    from deferred import Warehouse

    with bench.scratch(SUITE) as folder:
        make_tables(bench.spark, folder)
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            wh.track("t", folder / "t", key=["id"])
            wh.track("u", folder / "u", key=["g"])
            yield _transactions(bench, options, wh, folder)
            if CREATE in options.changes:
                yield from _creations(bench, options, wh, folder)
            else:
                for name, sql in VIEWS.items():
                    wh.create_view(name, sql)
            yield from _maintenance(bench, options, wh, folder)


def make_tables(spark: Any, folder: Path, rows: int = ROWS) -> None:
    """t with 100 groups, u with a row for each, and a table like t that is not tracked."""
    t = f"SELECT id, CAST(id % 100 AS INT) AS g, CAST(id AS DECIMAL(12, 2)) AS v FROM RANGE({rows})"
    for name, query in (
        ("t", t),
        ("untracked", t),
        ("u", "SELECT CAST(id AS INT) AS g, CONCAT('name ', id) AS name FROM RANGE(100)"),
    ):
        spark.sql(query).coalesce(1).write.format("delta").save(str(folder / name))
        spark.sql(f"CREATE OR REPLACE TEMP VIEW `{name}` AS SELECT * FROM delta.`{folder / name}`")


def _transactions(bench: Bench, options: Options, wh: Any, folder: Path) -> Measurement:
    """An insert of one row as a transaction, and the bare write of the same row."""
    measurement = Measurement(SUITE, "transaction", "insert", "row", 0)

    def transaction(row: str) -> None:
        with wh.transaction() as tx:
            tx.sql(f"INSERT INTO t VALUES ({row})")

    def bare(row: str) -> None:
        bench.spark.sql(f"INSERT INTO delta.`{folder / 'untracked'}` VALUES ({row})")

    for number in range(options.warm_up + options.repetitions):
        row = f"{2000 + number}, 7, 1.5"
        sides = [("transaction", transaction), ("bare", bare)]
        for side, work in sides if number % 2 else reversed(sides):
            sample = bench.measure(lambda w=work, r=row: w(r), [folder])
            if number >= options.warm_up:
                measurement.sides.setdefault(side, []).append(sample)
    bench.settle()
    return measurement


def _creations(bench: Bench, options: Options, wh: Any, folder: Path) -> Iterator[Measurement]:
    """Each view is created, and a table made of the same query; at the end all views are there."""
    for name, sql in VIEWS.items():
        measurement = Measurement(SUITE, name, "create", "all", 0)
        for number in range(options.warm_up + options.repetitions):
            if number:
                wh.drop_view(name)
            target = folder / f"{name}-{number}"
            statement = f"CREATE TABLE delta.`{target}` USING delta AS {sql}"
            sides = [
                ("create table", lambda s=statement: bench.spark.sql(s)),
                ("create", lambda n=name, s=sql: wh.create_view(n, s)),
            ]
            for side, work in sides if number % 2 else reversed(sides):
                sample = bench.measure(work, [folder])
                if number >= options.warm_up:
                    measurement.sides.setdefault(side, []).append(sample)
        bench.settle()
        yield measurement


def _maintenance(bench: Bench, options: Options, wh: Any, folder: Path) -> Iterator[Measurement]:
    """One row is inserted or updated; then every view is propagated and refreshed, each time in another order."""
    for change, statement in CHANGES.items():
        found = {name: Measurement(SUITE, name, change, "row", 0, correct=True) for name in VIEWS}
        for number in range(options.warm_up + options.repetitions):
            bench.spark.sql(statement.format(t=f"delta.`{folder / 't'}`", new=3000 + number, old=500 + number))
            names = list(VIEWS)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                for side, work in (("propagate", wh.propagate), ("partial_refresh", wh.partial_refresh)):
                    sample = bench.measure(lambda w=work, n=name: w(n), [folder])
                    if number >= options.warm_up:
                        found[name].sides.setdefault(side, []).append(sample)
                if number == options.warm_up + options.repetitions - 1:
                    shown = f"SELECT * FROM delta.`{wh.find_view(name).location}/mv`"
                    found[name].correct = difference(bench.spark, shown, VIEWS[name]) == 0
        bench.settle()
        yield from found.values()
