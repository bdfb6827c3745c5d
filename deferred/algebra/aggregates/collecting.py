"""Aggregates that keep all their values: in an array whose order may not be seen, or in a text whose order is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from deferred.algebra.aggregates.registry import (
    EMPTY_ARRAY,
    NULL,
    ONE,
    ONE_OR_TWO,
    AggregateFunction,
    RowOrder,
    WindowOrder,
    in_order,
    of_values,
    register,
)

HIDE_ORDER = frozenset({"sort_array", "array_sort", "size", "cardinality", "array_size", "array_max", "array_min"})
"""Functions of an array to which the order of its elements makes no difference."""


def _collected(names: tuple[str, ...], idempotent: bool, reference: Callable[[Counter[Any]], Any]) -> AggregateFunction:
    """The reference sorts the values, as a view must."""
    return AggregateFunction(
        names=names,
        arity=ONE,
        over_nothing=EMPTY_ARRAY,
        row_order=RowOrder.HIDDEN_BY_CALLER,
        order_free=None,
        distinct_first=False,
        idempotent=idempotent,
        countable=None,
        window_order=WindowOrder.ANY,
        takes_padded=False,
        exact=None,
        reference=of_values(reference),
    )


register(_collected(("collect_list", "array_agg"), False, lambda values: tuple(in_order(values))))
register(_collected(("collect_set",), True, lambda values: tuple(sorted(values))))
register(
    AggregateFunction(
        names=("listagg", "string_agg"),
        arity=ONE_OR_TWO,
        over_nothing=NULL,
        row_order=RowOrder.WITHIN_GROUP,
        order_free=None,
        distinct_first=False,
        idempotent=False,
        countable=None,
        window_order=WindowOrder.ANY,
        takes_padded=False,
        exact=None,
        reference=None,
    )
)
