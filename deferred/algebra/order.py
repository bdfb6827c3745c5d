"""Orders without ties: every ORDER BY is completed by the rows' own values, so that computations agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.scalar import column

if TYPE_CHECKING:
    from deferred.algebra.paper.evaluate import Evaluation
    from deferred.algebra.paper.interpret import Row


def completed(order: Sequence[exp.Ordered], columns: Sequence[str]) -> tuple[exp.Ordered, ...]:
    """An order in which ties are broken by the other columns.

    >>> a = exp.Ordered(this=column("a"), desc=True, nulls_first=False)
    >>> [key.sql(dialect="spark") for key in completed([a], ["a", "b"])]
    ['`a` DESC', '`b`']
    """
    taken = {e.this.name for e in order if isinstance(e.this, exp.Column)}
    return (*order, *(exp.Ordered(this=column(c), nulls_first=True) for c in columns if c not in taken))


def sort_key(e: Evaluation, order: Sequence[exp.Ordered], columns: Sequence[str]) -> Callable[[Row], Any]:
    """The reference evaluator's key for sorting rows by an order."""
    values = [e.value(key.this, columns) for key in order]
    keys = [(v, bool(k.args.get("desc")), bool(k.args.get("nulls_first"))) for v, k in zip(values, order, strict=True)]

    def compare(left: Row, right: Row) -> int:
        for value, descending, nulls_first in keys:
            a, b = value(left), value(right)
            if a == b:
                continue
            if a is None or b is None:
                return -1 if (a is None) == nulls_first else 1
            return -1 if (a < b) != descending else 1
        return 0

    return cmp_to_key(compare)
