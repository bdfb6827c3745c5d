"""Variances, standard deviations, skewness and kurtosis, folded over the sorted values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from deferred.algebra.aggregates import forms
from deferred.algebra.aggregates.registry import ONE, AggregateFunction, folded, of_values, register
from deferred.algebra.aggregates.sums import average


def _variance(values: Counter[Any], fewer: int) -> Fraction | None:
    """The squared deviations from the mean over the number of values, or over one fewer for a sample."""
    if values.total() <= fewer:
        return None
    mean = average(values)
    squares = sum(n * (Fraction(value) - mean) ** 2 for value, n in values.items())
    return Fraction(squares) / (values.total() - fewer)


def _deviation(values: Counter[Any], fewer: int) -> float | None:
    variance = _variance(values, fewer)
    return None if variance is None else math.sqrt(variance)


def _standardized(values: Counter[Any], power: int) -> float | None:
    """The mean power of the deviations, in standard deviations; NULL where all values are equal."""
    variance = _variance(values, 0)
    if not variance:
        return None
    mean = average(values)
    total = sum((n * (Fraction(value) - mean) ** power for value, n in values.items()), Fraction())
    return float(total / values.total()) / math.sqrt(variance) ** power


def _kurtosis(values: Counter[Any]) -> float | None:
    """Above that of a normal distribution, which is 3."""
    fourth = _standardized(values, 4)
    return None if fourth is None else fourth - 3


def _moment(
    names: tuple[str, ...], final: str, reference: Callable[[Counter[Any]], Any], higher: bool = False
) -> AggregateFunction:
    return folded(names, ONE, lambda call: forms.moments(call.distinct, final, higher), of_values(reference))


register(_moment(("var_pop",), "a.s / a.n", lambda values: _variance(values, 0)))
register(_moment(("var_samp", "variance"), "IF(a.n > 1, a.s / (a.n - 1), NULL)", lambda values: _variance(values, 1)))
register(_moment(("stddev_pop",), "SQRT(a.s / a.n)", lambda values: _deviation(values, 0)))
register(
    _moment(
        ("stddev_samp", "stddev", "std"),
        "IF(a.n > 1, SQRT(a.s / (a.n - 1)), NULL)",
        lambda values: _deviation(values, 1),
    )
)
register(
    _moment(
        ("skewness",),
        "IF(a.s = 0, NULL, SQRT(a.n) * a.c / SQRT(a.s * a.s * a.s))",
        lambda values: _standardized(values, 3),
        higher=True,
    )
)
register(_moment(("kurtosis",), "IF(a.s = 0, NULL, a.n * a.q / (a.s * a.s) - 3)", _kurtosis, higher=True))
