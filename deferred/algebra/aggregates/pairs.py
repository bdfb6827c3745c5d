"""Covariances, correlation and linear regression of pairs, folded over the sorted pairs.

A pair with a NULL does not count. REGR_*(y, x) has the dependent value first: it is the x of a form here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from deferred.algebra.aggregates import forms
from deferred.algebra.aggregates.registry import TWO, ZERO, Call, Rows, folded, register
from deferred.algebra.aggregates.sums import average_form


def _moments(rows: Rows) -> tuple[int, Fraction, Fraction, Fraction]:
    """The number of pairs, their co-moment, and the sums of squared deviations of either side."""
    pairs = [(Fraction(x), Fraction(y), n) for (x, y), n in rows.items() if x is not None and y is not None]
    count = sum(n for _, _, n in pairs)
    mx = sum((x * n for x, _, n in pairs), Fraction()) / max(count, 1)
    my = sum((y * n for _, y, n in pairs), Fraction()) / max(count, 1)
    both = sum((n * (x - mx) * (y - my) for x, y, n in pairs), Fraction())
    sx = sum((n * (x - mx) ** 2 for x, _, n in pairs), Fraction())
    sy = sum((n * (y - my) ** 2 for _, y, n in pairs), Fraction())
    return count, both, sx, sy


def _covariance(fewer: int) -> Callable[[Rows], Any]:
    def reference(rows: Rows) -> Any:
        count, both, _, _ = _moments(rows)
        return both / (count - fewer) if count > fewer else None

    return reference


def _correlation(rows: Rows) -> Any:
    """NULL of fewer than two pairs, and NaN, which Spark divides to, where one side does not vary."""
    count, both, sx, sy = _moments(rows)
    if count < 2:
        return None
    return float(both) / math.sqrt(sx * sy) if sx and sy else math.nan


def _paired(name: str, final: str, reference: Callable[[Rows], Any]) -> None:
    register(folded((name,), TWO, lambda call: forms.co_moments(final), reference))


_paired("covar_pop", "a.c / a.n", _covariance(0))
_paired("covar_samp", "IF(a.n > 1, a.c / (a.n - 1), NULL)", _covariance(1))
_paired("corr", "IF(a.n > 1, a.c / SQRT(a.sx * a.sy), NULL)", _correlation)


def _average(chosen: str) -> Callable[[Call], str]:
    """The average of one side, over the pairs."""
    position, value = "xy".index(chosen), forms.of_pairs(chosen)
    return lambda call: average_form(Call(call.distinct, lambda _: call.type_of(position)), value) or forms.mean(value)


def _of_pairs(function: Callable[[int, Fraction, Fraction, Fraction], Any]) -> Callable[[Rows], Any]:
    def reference(rows: Rows) -> Any:
        moments = _moments(rows)
        return function(*moments) if moments[0] else None

    return reference


def _mean(position: int) -> Callable[[Rows], Any]:
    def reference(rows: Rows) -> Any:
        values = [(Fraction(row[position]), n) for row, n in rows.items() if None not in row]
        return sum(value * n for value, n in values) / sum(n for _, n in values) if values else None

    return reference


def _intercept(rows: Rows) -> Any:
    count, both, _, squares = _moments(rows)
    return _mean(0)(rows) - both / squares * _mean(1)(rows) if count and squares else None


_paired("regr_sxx", "a.sy", _of_pairs(lambda n, c, sx, sy: sy))
_paired("regr_syy", "a.sx", _of_pairs(lambda n, c, sx, sy: sx))
_paired("regr_sxy", "a.c", _of_pairs(lambda n, c, sx, sy: c))
_paired("regr_slope", "IF(a.sy = 0, NULL, a.c / a.sy)", _of_pairs(lambda n, c, sx, sy: c / sy if sy else None))
_paired("regr_intercept", "IF(a.sy = 0, NULL, a.mx - a.c / a.sy * a.my)", _intercept)
_paired(
    "regr_r2",
    "IF(a.sy = 0, NULL, IF(a.sx = 0, CAST(1 AS DOUBLE), POW(a.c / SQRT(a.sx * a.sy), 2)))",
    _of_pairs(lambda n, c, sx, sy: None if not sy else c * c / (sx * sy) if sx else 1),
)
register(folded(("regr_avgx",), TWO, _average("y"), _mean(1)))
register(folded(("regr_avgy",), TWO, _average("x"), _mean(0)))
register(
    folded(
        ("regr_count",),
        TWO,
        lambda call: forms.how_many(False, forms.of_pairs("1")),
        lambda rows: _moments(rows)[0],
        over_nothing=ZERO,
    )
)
