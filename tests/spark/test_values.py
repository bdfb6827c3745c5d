"""Expressions at the driver have the values that Spark computes, in Spark's types, or are left to Spark."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from deferred.algebra.scalar import Scalar
from deferred.spark.driver import exact_type
from deferred.spark.values import LeftToSpark, holding, is_known, totals, values
from deferred.sql.dialect import parse_scalar

COLUMNS = {
    "i": "int",
    "n": "bigint",
    "t": "tinyint",
    "d": "decimal(10,2)",
    "e": "decimal(38,4)",
    "s": "string",
    "b": "boolean",
    "at": "date",
}
VALUES: dict[str, list[Any]] = {
    "i": [0, 1, None, -7, 2_147_483_647],
    "n": [5, None, -3, 0, 9_000_000_000],
    "t": [1, 2, None, 127, -128],
    "d": [Decimal("1.50"), None, Decimal("-0.25"), Decimal("99999999.99"), Decimal("0.00")],
    "e": [Decimal("123456789.1234"), Decimal("0.0000"), None, Decimal("-1.5000"), Decimal("2.0000")],
    "s": ["a", "", None, "ß", "B"],
    "b": [True, False, None, True, False],
    "at": [date(2024, 1, 31), None, date(1999, 12, 31), date(2024, 2, 1), date(2024, 1, 31)],
}
ROWS = pa.table({name: pa.array(VALUES[name], exact_type(type_)) for name, type_ in COLUMNS.items()})


def parsed(text: str) -> Scalar:
    return parse_scalar(text)


def listed(text: str) -> list[Any]:
    return list(values(ROWS, parsed(text)).to_pylist())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n + 1", [6, None, -2, 1, 9_000_000_001]),
        ("COALESCE(d, 0)", [Decimal("1.50"), 0, Decimal("-0.25"), Decimal("99999999.99"), 0]),
        ("CASE WHEN b THEN s END", ["a", None, None, "ß", None]),
        ("s > 'a'", [False, False, None, True, False]),
        ("at >= DATE '2024-01-31'", [True, None, False, True, True]),
        ("b OR n > 4", [True, None, None, True, True]),
        ("NOT (i IN (0, 1)) AND b IS NULL", [False, False, None, False, False]),
        ("GREATEST(i, n, 2)", [5, 2, 2, 2, 9_000_000_000]),
    ],
)
def test_values(text: str, expected: list[Any]) -> None:
    assert listed(text) == expected


@pytest.mark.parametrize(
    "text",
    ["i + 1", "t * t", "CAST(n AS INT)", "d / 2", "UPPER(s)", "s = at", "CAST(d AS INT)", "e * e", "CAST(s AS INT)"],
)
def test_what_may_overflow_round_or_fail_is_left_to_spark(text: str) -> None:
    with pytest.raises(LeftToSpark):
        listed(text)


def test_conditions_and_groups() -> None:
    assert holding(ROWS, parsed("n > 0")).column("n").to_pylist() == [5, 9_000_000_000]
    found = totals(ROWS, ["b"], [("rows", parsed("COUNT(*)")), ("most", parsed("MAX(s)")), ("all", parsed("SUM(d)"))])
    assert found.to_pylist() == [
        {"b": True, "rows": 2, "most": "ß", "all": Decimal("100000001.49")},
        {"b": False, "rows": 2, "most": "B", "all": Decimal("0.00")},
        {"b": None, "rows": 1, "most": None, "all": Decimal("-0.25")},
    ]
    assert totals(ROWS.slice(0, 0), [], [("n", parsed("COALESCE(SUM(n), 0)"))]).to_pylist() == [{"n": 0}]


def test_what_is_known_is_told_without_rows() -> None:
    assert is_known(parsed("CAST(COALESCE(d, 0) + 1 AS DECIMAL(38, 4)) > 1.5 AND s IN ('a')"))
    assert not is_known(parsed("a + SUBSTRING(s, 1)"))


class Expressions:
    """Random expressions by the kind of their values."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, depth: int) -> str:
        if depth == 0:
            return self.random.choice(["i", "n", "t", "d", "e", "0", "2", "1.5", "3000000000", "0.05"])
        one, other = self.number(depth - 1), self.number(depth - 1)
        form = self.random.choice(
            [
                "({0} + {1})",
                "({0} - {1})",
                "{0} * {1}",
                "(- {0})",
                "COALESCE({0}, {1})",
                "GREATEST({0}, {1})",
                "LEAST({0}, {1})",
                "CAST({0} AS DECIMAL(38, 6))",
                "CAST({0} AS DECIMAL(20, 4))",
                "CAST({0} AS BIGINT)",
                "CASE WHEN {2} THEN {0} ELSE {1} END",
                "CASE WHEN {2} THEN {0} END",
                "IF({2}, {0}, {1})",
            ]
        )
        return form.format(one, other, self.condition(depth - 1))

    def condition(self, depth: int) -> str:
        if depth <= 0:
            return self.random.choice(
                ["b", "i > 0", "s = 'a'", "s < 'b'", "d IS NULL", "at = DATE '2024-01-31'", "CAST(NULL AS BOOLEAN)"]
            )
        form = self.random.choice(
            ["{0} AND {1}", "({0} OR {1})", "NOT ({0})", "{2} <=> {3}", "{2} <= {3}", "{2} BETWEEN {3} AND {2}"]
        )
        return form.format(
            self.condition(depth - 1), self.condition(depth - 1), self.number(depth - 1), self.number(depth - 1)
        )


@pytest.mark.spark
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_random_expressions_have_the_values_of_spark(spark: Any, ansi: str) -> None:
    found: dict[str, pa.Array] = {}
    for seed in range(600):
        chosen = Expressions(seed)
        text = chosen.number(seed % 4) if seed % 3 else chosen.condition(1 + seed % 3)
        try:
            found[text] = pa.chunked_array(values(ROWS, parsed(text)))
        except LeftToSpark:
            continue
    grouped: dict[str, pa.Table] = {}
    for seed in range(100):
        inner = Expressions(seed).number(seed % 3)
        for text in (f"SUM({inner})", f"MAX({inner})", f"COUNT({inner})", f"COALESCE(SUM({inner}), 0)"):
            try:
                grouped[text] = totals(ROWS, ["s"], [("v", parsed(text))])
            except LeftToSpark:
                continue
    assert len(found) > 150
    assert len(grouped) > 100
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        frame = spark.createDataFrame(ROWS, ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items()))
        frame = frame.coalesce(1)
        told = frame.selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(found))).toArrow()
        sums = frame.groupBy("s").agg(*(_expression(text).alias(f"c{i}") for i, text in enumerate(grouped))).toArrow()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    for i, (text, mine) in enumerate(found.items()):
        assert mine.to_pylist() == told.column(f"c{i}").to_pylist(), text
    of_spark = sums.to_pylist()
    for i, (text, rows) in enumerate(grouped.items()):
        assert {row["s"]: row["v"] for row in rows.to_pylist()} == {row["s"]: row[f"c{i}"] for row in of_spark}, text


def _expression(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)
