"""Medians, percentiles and modes: decided by the sorted values, so no order of the rows shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from deferred.algebra.aggregates.registry import (
    NULL,
    ONE,
    TWO_OR_THREE,
    AggregateFunction,
    RowOrder,
    Rows,
    WindowOrder,
    in_order,
    of_values,
    register,
)


def _interpolated(values: Counter[Any], share: Any) -> Any:
    """The value at a share of the way through the sorted values, between two of them if need be."""
    if not values:
        return None
    place = Fraction(str(share)) * (values.total() - 1)
    ordered, below = in_order(values), math.floor(place)
    low, high = Fraction(ordered[below]), Fraction(ordered[math.ceil(place)])
    return low + (place - below) * (high - low)


def _percentile(rows: Rows) -> Any:
    """percentile(x, share [, frequency]): x counts as often as its frequency says."""
    values: Counter[Any] = Counter()
    share = None
    for (value, share_, *frequency), n in rows.items():
        share = share_
        if value is not None:
            values[value] += n * (frequency[0] or 0 if frequency else 1)
    return None if share is None else _interpolated(+values, share)


def _percentiles(
    names: tuple[str, ...], arity: range, window_order: WindowOrder, reference: Callable[[Rows], Any] | None
) -> AggregateFunction:
    return AggregateFunction(
        names=names,
        arity=arity,
        over_nothing=NULL,
        row_order=RowOrder.UNSEEN,
        order_free=None,
        distinct_first=False,
        idempotent=False,
        countable=None,
        window_order=window_order,
        takes_padded=False,
        exact=None,
        reference=reference,
    )


register(_percentiles(("median",), ONE, WindowOrder.ANY, of_values(lambda values: _interpolated(values, 0.5))))
register(_percentiles(("percentile",), TWO_OR_THREE, WindowOrder.ANY, _percentile))
# These take their values from WITHIN GROUP (ORDER BY …), which is no argument.
register(_percentiles(("percentile_cont",), ONE, WindowOrder.ANY, None))
register(_percentiles(("percentile_disc",), ONE, WindowOrder.ANY, None))
register(_percentiles(("percentile_approx", "approx_percentile"), TWO_OR_THREE, WindowOrder.ONE, None))
register(
    AggregateFunction(
        names=("mode",),
        arity=range(3),  # none where the values are in WITHIN GROUP (ORDER BY …)
        over_nothing=NULL,
        row_order=RowOrder.UNSEEN,
        order_free=lambda call: "MODE(x, TRUE)",  # of several values that are equally frequent, the least
        distinct_first=False,
        idempotent=False,
        countable=None,
        window_order=WindowOrder.FORM,
        takes_padded=False,
        exact=None,
        reference=None,
    )
)
