"""The lines of docs/SQL.md that only Spark can run: the same comparison as on DuckDB, on Spark itself."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from deferred.sql.bind import Bound
from tests.fuzz.duck import Row, Schema, added
from tests.fuzz.on_spark import SparkDatabase
from tests.sql.test_families import LINES, NOT_ON_DUCKDB, Line, document_schemas, named, words

pytestmark = pytest.mark.spark

SUMMING = frozenset(
    {
        "SUM and AVG of floating point",
        "total of floating point",
        "STDDEV, VARIANCE",
        "CORR, COVAR",
        "SKEWNESS, KURTOSIS",
        "REGR_*",
        "correlated totals without rows",
    }
)

SEEDS = {"CORR, COVAR": " on Spark"}
"""Other rows where the first that are drawn make Spark itself fail: it divides by zero when all values are equal."""

VALUES: dict[str, list[Any]] = {
    "int": [None, 1, 2, 3],
    "string": [None, "x", "y", "xy"],
    "boolean": [None, True, False],
    "date": [None, datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)],
    "decimal(10, 2)": [None, Decimal("1.50"), Decimal("2.25")],
    "double": [None, 0.1, 0.2, 0.7, 1e3],
    "array<string>": [None, ("a", "b"), ("ab", None)],
    "array<struct<sku: string, n: int>>": [None, (("s", 1),)],
    "struct<a: int, b: string>": [None, (1, "b")],
}


def _rows(random: Random, table: str, schema: Schema, count: int) -> Counter[Row]:
    types = [type_ for _, type_ in schema]
    last = VALUES[types[-1]] if types[-1] != "string" or table != "sales" else [None, '{"a": 1}', "no JSON"]
    domains = [*(VALUES[type_] for type_ in types[:-1]), last]
    return Counter(tuple(random.choice(domain) for domain in domains) for _ in range(count))


@pytest.fixture(scope="module")
def tables(spark: Any) -> SparkDatabase:
    return SparkDatabase(spark, document_schemas())


@pytest.mark.parametrize("line", [line for line in LINES if line.construct in NOT_ON_DUCKDB], ids=named)
def test_an_example_is_right_after_changes_on_spark(line: Line, tables: SparkDatabase) -> None:
    random = Random(line.example + SEEDS.get(line.construct, ""))
    bound = tables.bind(line.example)
    assert words(bound) == set(line.said.split(" · "))
    for name, schema in tables.schemas.items():
        tables.replace(name, _rows(random, name, schema, 5))
    recomputed = _recomputed(line, bound, tables)
    shown = recomputed()
    tables.keep(bound)
    for name, schema in tables.schemas.items():
        old = tables.state[name]
        new = Counter({row: n for row, n in old.items() if random.random() < 0.6}) + _rows(random, name, schema, 2)
        tables.replace(name, new)
        tables.log(name, {row: new[row] - old[row] for row in {*old, *new}})
    assert added(shown, tables.delta(bound, tables.schemas)) == recomputed()
    assert tables.wrong_support_tables(bound) == {}


def _recomputed(line: Line, bound: Bound, tables: SparkDatabase) -> Callable[[], Counter[Row]]:
    """The query as it is written. Where it adds up floating-point numbers, Spark's order of summation may be any:

    there the plan, which has one order, stands for it, and must show the same numbers up to their last digits.
    """

    def exactly() -> Counter[Row]:
        found = tables.query(line.example)
        assert tables.evaluate(bound) == found
        return found

    def up_to_order() -> Counter[Row]:
        found = tables.evaluate(bound)
        assert Counter(map(_rounded, found.elements())) == Counter(map(_rounded, tables.query(line.example).elements()))
        return found

    return up_to_order if line.construct in SUMMING else exactly


def _rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(f"{float(v):.9g}" if isinstance(v, str) and "." in v else v for v in row)
