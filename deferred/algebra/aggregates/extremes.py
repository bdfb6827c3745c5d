"""Least and greatest values, truth of all or any, bits, and the value beside an extreme."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from deferred.algebra.aggregates import forms
from deferred.algebra.aggregates.registry import (
    NULL,
    ONE,
    TWO,
    AggregateFunction,
    Call,
    Countable,
    Exact,
    ExactType,
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
    """Equal floating-point numbers may be shown in two ways."""
    return lambda call: forms.extreme(best, call.type_of(0)) if call.type_of(0) in FLOATING else None


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
        takes_padded=True,
        exact=Exact(ExactType.ARGUMENT, partial(best, default=None)),
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
        takes_padded=False,
        exact=None,
        reference=of_values(lambda values: best(values, default=None)),
    )


def _bitwise(name: str, combine: Callable[[int, int], int], idempotent: bool) -> AggregateFunction:
    def reference(values: Counter[Any]) -> Any:
        return reduce(combine, values.elements()) if values else None

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
        takes_padded=False,
        exact=None,
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
        order_free=lambda call: forms.beside(extreme),
        distinct_first=False,
        idempotent=True,
        countable=None,
        window_order=WindowOrder.ONE,
        takes_padded=False,
        exact=None,
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
