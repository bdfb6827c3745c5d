"""Least and greatest values, truth of all or any, bits, and the value beside an extreme."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

from deferred.algebra.aggregates.registry import (
    NULL,
    ONE,
    TWO,
    AggregateFunction,
    Call,
    Countable,
    Parts,
    RowOrder,
    Rows,
    WindowOrder,
    is_exact,
    of_values,
    register,
)
from deferred.algebra.types import FLOATING

_ORDERED = frozenset({"date", "timestamp", "timestamp_ntz", "string", "boolean"})
"""Types, beside the exact numbers, in which equal values are the same value."""


def _order_free(best: str) -> Callable[[Call], str | None]:
    """0.0 and −0.0 are equal, and Spark shows whichever comes first: here −0.0 is the lesser."""

    def form(call: Call) -> str | None:
        type_ = call.type_of(0)
        if type_ not in FLOATING:
            return None
        zero = f"CAST({best}(CASE WHEN x = 0 THEN CAST(x AS STRING) END) AS {type_})"
        return f"CASE WHEN {best}(x) = 0 THEN {zero} ELSE {best}(x) END"

    return form


def _kept(kind: str) -> Countable:
    def parts(type_: str, result: Callable[[], str]) -> Parts | None:
        return Parts(((kind, type_),), kind) if is_exact(type_) or type_ in _ORDERED else None

    return Countable(False, "x", parts)


def _extreme(name: str, best: Callable[..., Any]) -> AggregateFunction:
    return AggregateFunction(
        names=(name,),
        arity=ONE,
        over_nothing=NULL,
        row_order=RowOrder.UNSEEN,
        order_free=_order_free(name.upper()),
        distinct_first=True,
        idempotent=True,
        countable=_kept(name),
        window_order=WindowOrder.ONE_IF_FLOATING,
        reference=of_values(lambda values: best(values, default=None)),
    )


def _logical(names: tuple[str, ...], kind: str, best: Callable[..., Any]) -> AggregateFunction:
    """false < true: all are true when the least is, one is when the greatest is."""
    return AggregateFunction(
        names=names,
        arity=ONE,
        over_nothing=NULL,
        row_order=RowOrder.UNSEEN,
        order_free=None,
        distinct_first=False,
        idempotent=True,
        countable=_kept(kind),
        window_order=WindowOrder.ANY,
        reference=of_values(lambda values: best(values, default=None)),
    )


def _bitwise(name: str, combine: Callable[[int, int], int], idempotent: bool) -> AggregateFunction:
    def reference(values: Counter[Any]) -> Any:
        return functools.reduce(combine, values.elements()) if values else None

    return AggregateFunction(
        names=(name,),
        arity=ONE,
        over_nothing=NULL,
        row_order=RowOrder.UNSEEN,
        order_free=None,
        distinct_first=False,
        idempotent=idempotent,
        countable=None,
        window_order=WindowOrder.ANY,
        reference=of_values(reference),
    )


def _beside(name: str, extreme: str, best: Callable[..., Any]) -> AggregateFunction:
    """x where y is least or greatest; of several such rows, the one whose x is least or greatest as well."""

    def reference(rows: Rows) -> Any:
        found = [(y, x is not None, x) for x, y in rows if y is not None]
        return best(found)[2] if found else None

    return AggregateFunction(
        names=(name,),
        arity=TWO,
        over_nothing=NULL,
        row_order=RowOrder.UNSEEN,
        order_free=lambda call: f"{extreme}(IF(y IS NULL, NULL, NAMED_STRUCT('k', y, 'v', x))).v",
        distinct_first=False,
        idempotent=True,
        countable=None,
        window_order=WindowOrder.ONE,
        reference=reference,
    )


register(_extreme("min", min))
register(_extreme("max", max))
register(_logical(("bool_and", "every"), "min", min))
register(_logical(("bool_or", "some", "any"), "max", max))
register(_bitwise("bit_and", operator.and_, True))
register(_bitwise("bit_or", operator.or_, True))
register(_bitwise("bit_xor", operator.xor, False))
register(_beside("min_by", "MIN", min))
register(_beside("max_by", "MAX", max))
