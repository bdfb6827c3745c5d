"""Medians, spreads and ratios of repeated measurements. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The median of some values, the smallest and the largest, and how many there are."""

    median: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        if self.count < 2 and self.low == self.high:
            return number(self.median)
        return f"{number(self.median)} ({number(self.low)}–{number(self.high)})"


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of values; None when there are none.

    >>> spread([3.0, 1.0, 2.0])
    Spread(median=2.0, low=1.0, high=3.0, count=3)
    """
    if not values:
        return None
    return Spread(statistics.median(values), min(values), max(values), len(values))


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Spread | None:
    """How many times the one is of the other, repetition by repetition: what slows the machine slows both.

    Where there are not equally many repetitions of both, none belong together: it is the quotient.

    >>> ratio([2.0, 6.0, 4.0], [1.0, 2.0, 4.0])
    Spread(median=2.0, low=1.0, high=3.0, count=3)
    >>> ratio([10.0], [1.0, 2.0, 5.0])
    Spread(median=5.0, low=2.0, high=10.0, count=1)
    """
    if len(numerators) != len(denominators):
        return quotient(numerators, denominators)
    return spread([n / d for n, d in zip(numerators, denominators) if d > 0])


def quotient(numerators: Sequence[float], denominators: Sequence[float]) -> Spread | None:
    """How many times the one is of the other, where the repetitions do not belong together: medians and extremes.

    >>> quotient([2.0, 4.0, 3.0], [1.0, 2.0])
    Spread(median=2.0, low=1.0, high=4.0, count=2)
    """
    above, below = spread(numerators), spread(denominators)
    if above is None or below is None or below.low <= 0:
        return None
    count = min(above.count, below.count)
    return Spread(above.median / below.median, above.low / below.high, above.high / below.low, count)


def number(value: float) -> str:
    """A number with about three digits.

    >>> [number(x) for x in (0.01234, 1.234, 56.78, 1234.5, 0)]
    ['0.012', '1.23', '56.8', '1234', '0']
    """
    if value == 0:
        return "0"
    size = abs(value)
    digits = 3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:.{digits}f}"


def covered(intervals: Sequence[tuple[int, int]], begin: int, end: int) -> int:
    """The length of the part of begin…end that at least one interval covers.

    >>> covered([(0, 4), (2, 5), (7, 9)], 1, 8)
    5
    """
    total, reached = 0, begin
    for low, high in sorted(intervals):
        low, high = max(low, reached), min(high, end)
        if high > low:
            total += high - low
            reached = high
    return total
