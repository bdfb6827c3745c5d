"""The lines of docs/SQL.md that only Spark can run: the same comparison as on DuckDB, on Spark itself."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from deferred.algebra.delta import differentiate
from deferred.algebra.plan import COUNT, Plan
from deferred.sql.bind import Bound, bind
from deferred.sql.render import Renderer
from deferred.sql.supporting import contents
from deferred.sql.types import Types
from tests.fuzz.duck import added
from tests.sql.test_families import LINES, NOT_ON_DUCKDB, Line, document_schemas, named, words

pytestmark = pytest.mark.spark

Bag = Counter[tuple[Any, ...]]

SUMMING = frozenset({"SUM and AVG of floating point", "STDDEV, VARIANCE", "CORR, COVAR"})

VALUES: dict[str, list[Any]] = {
    "int": [None, 1, 2, 3], "string": [None, "x", "y", "xy"], "boolean": [None, True, False],
    "date": [None, datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)],
    "decimal(10, 2)": [None, Decimal("1.50"), Decimal("2.25")], "double": [None, 0.1, 0.2, 0.7, 1e3],
    "array<string>": [None, ["a", "b"], ["ab", None]], "array<struct<sku: string, n: int>>": [None, [("s", 1)]],
    "struct<a: int, b: string>": [None, (1, "b")],
}


class Tables:
    """The document's tables as temporary views of a Spark session, in one state at a time."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.schemas = document_schemas()
        self.state: dict[str, list[tuple[Any, ...]]] = {}
        self.renderer = Renderer(self, broadcast=False)
        self.known = Types(lambda sql: [(f.name, f.dataType.simpleString()) for f in spark.sql(sql).schema.fields])

    def scan(self, table: str) -> str:
        return table

    def change(self, table: str) -> str:
        return f"changes_of_{table}"

    def ref(self, name: str) -> str:
        return name

    def stored(self, name: str) -> str:
        return name

    def bind(self, sql: str) -> Bound:
        return bind(sql, lambda path: (path[-1], self.schemas[path[-1]]), self.known)

    def rows(self, random: Random, table: str, count: int) -> list[tuple[Any, ...]]:
        types = [type_ for _, type_ in self.schemas[table]]
        drawn = [tuple(random.choice(VALUES[type_]) for type_ in types[:-1]) for _ in range(count)]
        last = VALUES[types[-1]] if types[-1] != "string" or table != "sales" else [None, '{"a": 1}', "no JSON"]
        return [(*row, random.choice(last)) for row in drawn]

    def replace(self, table: str, rows: Iterable[tuple[Any, ...]], name: str | None = None, extra: str = "") -> None:
        schema = ", ".join(f"`{c}` {t.replace(': ', ':')}" for c, t in self.schemas[table]) + extra
        self.spark.createDataFrame(list(rows), schema).createOrReplaceTempView(name or table)

    def bag(self, sql: str) -> Bag:
        return Counter(tuple(map(_plain, row)) for row in self.spark.sql(sql).collect())

    def evaluate(self, plan: Plan) -> Bag:
        return self.bag(self.renderer.render(plan))

    def keep(self, bound: Bound) -> None:
        """The support tables, as they are now."""
        for name, plan in contents(bound.plan).items():
            found = self.spark.sql(self.renderer.render(plan))
            self.spark.createDataFrame(found.collect(), found.schema).createOrReplaceTempView(name)

    def delta(self, bound: Bound, changed: Iterable[str]) -> Bag:
        program = differentiate(bound.plan, changed, bound.types)
        for step in program.steps:
            self.spark.sql(self.renderer.render(step.plan)).createOrReplaceTempView(step.name)
        if program.result is None:
            return Counter()
        result: Bag = Counter()
        for row in self.spark.sql(self.renderer.render(program.result)).collect():
            result[tuple(map(_plain, row[:-1]))] += row[-1]
        return result


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return repr(value) if isinstance(value, float) else value


def _net(old: list[tuple[Any, ...]], new: list[tuple[Any, ...]]) -> Mapping[str, tuple[tuple[Any, ...], int]]:
    """The signed rows between two states; rows hold lists, so they are told apart by their text."""
    counts: dict[str, tuple[tuple[Any, ...], int]] = {}
    for rows, sign in ((old, -1), (new, 1)):
        for row in rows:
            counts[repr(row)] = (row, counts.get(repr(row), (row, 0))[1] + sign)
    return {key: found for key, found in counts.items() if found[1]}


@pytest.fixture(scope="module")
def tables(spark: Any) -> Tables:
    return Tables(spark)


@pytest.mark.parametrize("line", [line for line in LINES if line.construct in NOT_ON_DUCKDB], ids=named)
def test_an_example_is_right_after_changes_on_spark(line: Line, tables: Tables) -> None:
    random = Random(line.example)
    bound = tables.bind(line.example)
    assert words(bound) == set(line.said.split(" · "))
    old = {name: tables.rows(random, name, 5) for name in tables.schemas}
    for name, rows in old.items():
        tables.replace(name, rows)
    recomputed = _recomputed(line, bound, tables)
    shown = recomputed()
    tables.keep(bound)
    for name, rows in old.items():
        new = [row for row in rows if random.random() < 0.6] + tables.rows(random, name, 2)
        tables.replace(name, new)
        signed = [(*row, n) for row, n in _net(rows, new).values()]
        tables.replace(name, signed, tables.change(name), f", `{COUNT}` bigint")
    assert added(shown, tables.delta(bound, tables.schemas)) == recomputed()


def _recomputed(line: Line, bound: Bound, tables: Tables) -> Callable[[], Bag]:
    """The query as it is written. Where it adds up floating-point numbers, Spark's order of summation may be any:

    there the plan, which has one order, stands for it, and must show the same numbers up to their last digits.
    """

    def exactly() -> Bag:
        found = tables.bag(line.example)
        assert tables.evaluate(bound.plan) == found
        return found

    def up_to_order() -> Bag:
        found = tables.evaluate(bound.plan)
        assert Counter(map(_rounded, found.elements())) == Counter(map(_rounded, tables.bag(line.example).elements()))
        return found

    return up_to_order if line.construct in SUMMING else exactly


def _rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(f"{float(v):.9g}" if isinstance(v, str) and "." in v else v for v in row)
