"""Literal conditions that cover the values of small results."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferred.algebra.bags import column
from deferred.spark.data_skipping import KEYS, RANGES, VALUES, among_values, near_values, one_of, ranges, within_ranges
from deferred.sql.dialect import text


def _condition(values: list[object], type_: pa.DataType) -> str | None:
    found = within_ranges(pa.chunked_array([values], type=type_), column("k"))
    return None if found is None else text(found)


def test_conditions() -> None:
    assert _condition([5], pa.int32()) == "(`k` = CAST(5 AS INT))"
    assert _condition([2, 1, None], pa.int64()) == (
        "(`k` = CAST(1 AS BIGINT)) OR (`k` = CAST(2 AS BIGINT)) OR `k` IS NULL"
    )
    assert _condition(list(range(1000)), pa.int64()) == "(`k` BETWEEN CAST(0 AS BIGINT) AND CAST(999 AS BIGINT))"
    assert _condition([-1], pa.int8()) == "(`k` = CAST(-1 AS TINYINT))"
    assert _condition(["b", "it's"], pa.string()) == r"(`k` BETWEEN 'b' AND 'it\'s')"
    assert _condition([date(2024, 2, 29)], pa.date32()) == "(`k` = CAST('2024-02-29' AS DATE))"
    assert _condition([Decimal("1.50")], pa.decimal128(10, 2)) == "(`k` = CAST('1.50' AS DECIMAL(10, 2)))"
    assert _condition([], pa.int32()) == "`k` IS NULL"
    assert _condition([0.5], pa.float64()) is None


def test_columns_with_few_values_are_listed() -> None:
    rows = pa.table({"a": [1, 2], "b": ["x", None], "c": [0.5, 1.5]})
    condition = among_values(rows, ["a", "b", "c"])
    assert condition is not None
    assert "`c`" not in text(condition)
    assert "IN" in text(condition)
    assert "`b` IS NULL" in text(condition)
    assert among_values(rows, ["c"]) is None


@given(st.sets(st.integers(-(2**62), 2**62), min_size=1, max_size=60))
def test_ranges_cover_every_value_in_order(values: set[int]) -> None:
    ordered = sorted(values)
    found = ranges(ordered)
    assert len(found) <= RANGES
    assert all(any(low <= value <= high for low, high in found) for value in ordered)
    assert all(low in values and high in values for low, high in found)
    assert all(a[1] < b[0] for a, b in pairwise(found))


@pytest.mark.parametrize(("values", "wanted"), [([1, 2, 3, 900, 901], [(1, 3), (900, 901)]), ([7], [(7, 7)]), ([], [])])
def test_ranges(values: list[int], wanted: list[tuple[int, int]]) -> None:
    assert ranges(values) == wanted


def test_few_keys_are_a_condition() -> None:
    rows = pa.table({"a": [1, None, 1], "s": ["it's", None, "it's"], "x": [[1], [2], None]})
    a, s = ("a", column("k")), ("s", column("l"))

    def written(*pairs: object, of: pa.Table = rows) -> str | None:
        found = one_of(of, pairs)  # type: ignore[arg-type]
        return None if found is None else text(found)

    assert written(a) == "`k` IN (CAST(1 AS BIGINT)) OR `k` IS NULL"
    assert written(a, s) == r"(`k` = CAST(1 AS BIGINT) AND `l` = 'it\'s') OR (`k` IS NULL AND `l` IS NULL)"
    assert written(a, of=rows.slice(0, 0)) == "FALSE"
    assert written(a, s, of=rows.slice(0, 0)) == "FALSE"
    assert written(a, ("x", column("m"))) is None
    assert written(a, of=pa.table({"a": list(range(VALUES + 1))})) is None
    many = pa.table({"a": list(range(KEYS + 1)), "s": ["x"] * (KEYS + 1)})
    assert written(a, s, of=many) is None


def test_scattered_values_are_listed_beside_their_ranges() -> None:
    scattered = pa.chunked_array([[n * n for n in range(RANGES + 1)]])
    condition = near_values(scattered, column("k"))
    assert condition is not None
    assert "BETWEEN" in text(condition)
    assert "IN (" in text(condition)
    assert "IN (" not in text(near_values(pa.chunked_array([[1, 9]]), column("k")))
    assert near_values(pa.chunked_array([[0.5]]), column("k")) is None
