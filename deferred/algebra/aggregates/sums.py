"""Counts, sums and averages: counted exactly over integers and decimals, folded in one order over floating point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from deferred.algebra.aggregates import forms
from deferred.algebra.aggregates.registry import (
    NULL,
    ONE,
    ONE_OR_MORE,
    ONE_OR_TWO,
    ZERO,
    AggregateFunction,
    Call,
    Countable,
    Exact,
    ExactType,
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

EXACT = Context(prec=120)
"""Enough digits for a product or sum of decimals, before it is known whether its type can hold it."""

WIDEST, SCALE_KEPT = 28, 6
"""Decimals up to this many digits can be multiplied by a count and summed without losing any; of wider ones Spark keeps
up to this many digits after the point, whatever it must give up before it."""

WIDEST_AVERAGED = 20
"""Decimals up to this many digits can be averaged and multiplied back without losing any."""


def _order_free_sum(call: Call) -> str | None:
    type_ = call.type_of(0)
    if type_ not in FLOATING and type_ != "string":
        return None
    return forms.unless_none(forms.how_many(call.distinct), forms.total(call.distinct))


def average_form(call: Call, value: str = "x") -> str | None:
    """Spark averages integers as doubles: here their exact sum is divided once."""
    type_ = call.type_of(0)
    if type_ in FLOATING or type_ == "string":
        return forms.average(call.distinct, value)
    if type_ in INTEGRAL:
        wide = forms.cast(value, "DECIMAL(20, 0)") if type_ == "bigint" else value
        return forms.exact_average(call.distinct, wide, value)
    return None


def _sum_of_parts(type_: str, result: Callable[[], str]) -> Parts | None:
    digits, scale = decimal(type_) or (0, 0)
    if not is_exact(type_) or (digits > WIDEST and scale > SCALE_KEPT):
        return None
    return Parts((("sum", f"decimal(38,{scale})"),), forms.unless_none("count", forms.cast("sum", result())))


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
    return Parts((("sum", f"decimal(38,{scale})"),), forms.unless_none("count", forms.quotient(shown, size[1])))


def _count(rows: Rows) -> int:
    return sum(n for row, n in rows.items() if None not in row)


def _exact_sum(values: Sequence[Any]) -> Any:
    """The sum, without rounding however many digits it has."""
    if not values:
        return None
    return reduce(EXACT.add, values) if isinstance(values[0], Decimal) else sum(values)


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
        takes_padded=True,
        exact=Exact(ExactType.COUNT, len),
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
        takes_padded=False,
        exact=None,
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
        takes_padded=False,
        exact=None,
        reference=None,
    )
)


def _register_with_try(function: AggregateFunction) -> None:
    """A function, and its namesake that is NULL where it would overflow: its parts would not say so, none are kept."""
    register(function)
    register(replace(function, names=(f"try_{function.names[0]}",), distinct_first=False, countable=None, exact=None))


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
        takes_padded=False,
        exact=Exact(ExactType.SUM, _exact_sum),
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
        takes_padded=False,
        exact=None,
        reference=of_values(average),
    )
)
