"""Bitmaps and count-min sketches: sums and unions of what each value adds, so no order of the rows shows.

Other sketches (HLL, KLL, theta, tuple, approx_top_k) depend on the order in which Spark reads or merges the rows.
"""

from __future__ import annotations

from deferred.algebra.aggregates.registry import ONE, AggregateFunction, RowOrder, WindowOrder, register

EMPTY_BITMAP, FULL_BITMAP = "UNHEX(REPEAT('00', 4096))", "UNHEX(REPEAT('FF', 4096))"
"""Bitmaps of Spark's one size over no rows: the union of nothing, and the intersection of nothing."""

NOT_A_VALUE = ""
"""Over no rows the value depends on the other arguments, so it cannot be written without the aggregate itself."""


def _sketch(name: str, arity: range, over_nothing: str, idempotent: bool) -> AggregateFunction:
    return AggregateFunction(
        names=(name,),
        arity=arity,
        over_nothing=over_nothing,
        row_order=RowOrder.UNSEEN,
        order_free=None,
        distinct_first=False,
        idempotent=idempotent,
        countable=None,
        window_order=WindowOrder.ANY,
        takes_padded=False,
        exact=None,
        reference=None,
    )


register(_sketch("bitmap_construct_agg", ONE, EMPTY_BITMAP, True))
register(_sketch("bitmap_or_agg", ONE, EMPTY_BITMAP, True))
register(_sketch("bitmap_and_agg", ONE, FULL_BITMAP, True))
register(_sketch("count_min_sketch", range(4, 5), NOT_A_VALUE, False))
