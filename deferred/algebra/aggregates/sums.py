"""Counts, sums and averages: counted exactly over integers and decimals, folded in one order over floating point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from deferred.algebra.aggregates.registry import (
    NULL,
    ONE,
    ONE_OR_MORE,
    ONE_OR_TWO,
    ZERO,
    AggregateFunction,
    Call,
    Countable,
    Parts,
    RowOrder,
    Rows,
    WindowOrder,
    decimal,
    is_exact,
    of_values,
    register,
)
from deferred.algebra.types import FLOATING, INTEGRAL

WIDEST, SCALE_KEPT = 28, 6
"""Decimals up to this many digits can be multiplied by a count and summed without losing any; of wider ones Spark keeps
up to this many digits after the point, whatever it must give up before it."""

WIDEST_AVERAGED = 20
"""Decimals up to this many digits can be averaged and multiplied back without losing any."""


def sorted_values(distinct: bool) -> str:
    """The values of x as doubles in one order, so that every computation over them takes the same steps."""
    return f"ARRAY_SORT({'COLLECT_SET' if distinct else 'COLLECT_LIST'}(CAST(x AS DOUBLE)))"


def _folded(distinct: bool) -> tuple[str, str]:
    """The sum of the sorted values, one of the orders of summation that Spark may use, and how many there are."""
    total = f"AGGREGATE({sorted_values(distinct)}, CAST(0 AS DOUBLE), (total, value) -> total + value)"
    return total, "COUNT(DISTINCT x)" if distinct else "COUNT(x)"


def _order_free_sum(call: Call) -> str | None:
    type_ = call.type_of(0)
    if type_ not in FLOATING and type_ != "string":
        return None
    total, count = _folded(call.distinct)
    return f"CASE WHEN {count} > 0 THEN {total} END"


def average_form(call: Call) -> str | None:
    """Spark averages integers as doubles: here their exact sum is divided once."""
    type_ = call.type_of(0)
    if type_ in FLOATING or type_ == "string":
        total, count = _folded(call.distinct)
        return f"CASE WHEN {count} > 0 THEN {total} / {count} END"
    if type_ in INTEGRAL:
        wide = "CAST(x AS DECIMAL(20, 0))" if type_ == "bigint" else "x"
        prefix = "DISTINCT " if call.distinct else ""
        return f"CAST(SUM({prefix}{wide}) AS DOUBLE) / NULLIF(COUNT({prefix}x), 0)"
    return None


def _sum_of_parts(type_: str, result: Callable[[], str]) -> Parts | None:
    digits, scale = decimal(type_) or (0, 0)
    if not is_exact(type_) or (digits > WIDEST and scale > SCALE_KEPT):
        return None
    return Parts((("sum", f"decimal(38,{scale})"),), f"CASE WHEN count > 0 THEN CAST(sum AS {result()}) END")


def may_overflow(type_: str) -> bool:
    """Whether a sum of a type's values may have more digits than any decimal.

    >>> may_overflow("decimal(38,2)"), may_overflow("decimal(18,2)"), may_overflow("bigint")
    (True, False, False)
    """
    return (decimal(type_) or (0, 0))[0] > WIDEST


def _average_of_parts(type_: str, result: Callable[[], str]) -> Parts | None:
    """Only of decimals: other averages are doubles, whose order-free form is a sum and a count already."""
    digits, scale = decimal(type_) or (0, 0)
    if not digits or digits > WIDEST_AVERAGED:
        return None
    shown = result()
    size = decimal(shown)
    if size is None:
        return None
    return Parts((("sum", f"decimal(38,{scale})"),), f"CASE WHEN count > 0 THEN {_quotient(shown, size[1])} END")


def _quotient(type_: str, scale: int) -> str:
    """sum / count rounded half up to the scale of AVG's result, exactly: SQL's own division rounds once before.

    The quotient is tried, and corrected by one in the last place where the remainder says so.
    """
    zeros = "0" * scale
    unit = f"CAST('0.{zeros[1:]}1' AS DECIMAL({scale + 1}, {scale}))"
    # Every type is just wide enough that Spark neither rounds nor overflows on the way.
    size, number = f"CAST(ABS(sum) AS DECIMAL(36, {scale}))", "CAST(count AS DECIMAL(12, 0))"
    tried = f"CAST({size} / {number} AS {type_})"
    left = f"CAST({size} - {tried} * {number} AS DECIMAL({scale + 14}, {scale}))"
    half = f"({number} * CAST('0.{zeros}5' AS DECIMAL({scale + 2}, {scale + 1})))"
    correction = f"CASE WHEN {left} >= {half} THEN {unit} WHEN {left} < -{half} THEN -{unit} ELSE 0 END"
    return f"CAST(CASE WHEN sum < 0 THEN -1 ELSE 1 END * ({tried} + {correction}) AS {type_})"


def _count(rows: Rows) -> int:
    return sum(n for row, n in rows.items() if None not in row)


def _sum(values: Counter[Any]) -> Any:
    return sum(value * n for value, n in values.items()) if values else None


def average(values: Counter[Any]) -> Any:
    """Exact, so that the order of the rows does not show."""
    return Fraction(_sum(values)) / values.total() if values else None


register(
    AggregateFunction(
        names=("count",),
        arity=ONE_OR_MORE,
        over_nothing=ZERO,
        row_order=RowOrder.UNSEEN,
        order_free=None,
        distinct_first=True,
        idempotent=False,
        countable=Countable(True, "x", lambda type_, result: Parts((), "count")),
        window_order=WindowOrder.ANY,
        reference=_count,
    )
)
register(
    AggregateFunction(
        names=("count_if",),
        arity=ONE,
        over_nothing=ZERO,
        row_order=RowOrder.UNSEEN,
        order_free=None,
        distinct_first=False,
        idempotent=False,
        countable=Countable(False, "CASE WHEN x THEN CAST(1 AS BIGINT) END", lambda type_, result: Parts((), "count")),
        window_order=WindowOrder.ANY,
        reference=of_values(lambda values: values[True]),
    )
)
register(
    AggregateFunction(
        names=("approx_count_distinct",),
        arity=ONE_OR_TWO,
        over_nothing=ZERO,
        row_order=RowOrder.UNSEEN,
        order_free=None,
        distinct_first=False,
        idempotent=True,
        countable=None,
        window_order=WindowOrder.ANY,
        reference=None,
    )
)


def _register_with_try(function: AggregateFunction) -> None:
    """A function, and its namesake that is NULL where it would overflow: its parts would not say so, none are kept."""
    register(function)
    register(replace(function, names=(f"try_{function.names[0]}",), distinct_first=False, countable=None))


_register_with_try(
    AggregateFunction(
        names=("sum",),
        arity=ONE,
        over_nothing=NULL,
        row_order=RowOrder.UNSEEN,
        order_free=_order_free_sum,
        distinct_first=True,
        idempotent=False,
        countable=Countable(False, "x", _sum_of_parts),
        window_order=WindowOrder.ONE_IF_FLOATING,
        reference=of_values(_sum),
    )
)
_register_with_try(
    AggregateFunction(
        names=("avg", "mean"),
        arity=ONE,
        over_nothing=NULL,
        row_order=RowOrder.UNSEEN,
        order_free=average_form,
        distinct_first=True,
        idempotent=False,
        countable=Countable(False, "x", _average_of_parts),
        window_order=WindowOrder.ONE_IF_FLOATING,
        reference=of_values(average),
    )
)
