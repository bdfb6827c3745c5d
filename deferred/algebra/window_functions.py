"""Window functions beside the aggregates: what each one depends on, and its value by definition.

To add one, register it here and give it a row in tests/algebra/operators/test_window.py. No field has a default, so a
function that leaves one out fails when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlglot import exp

from deferred.algebra.aggregates.calls import name_of


class Ties(Enum):
    """Whether it shows which of several rows that ORDER BY leaves equal comes first."""

    UNSEEN = "rows of equal order have the same value"
    SEEN = "the value depends on it, whatever the frame is"
    SEEN_IN_ROWS = "the value depends on it over a frame of ROWS, whose edge may fall between them"


class Shown(Enum):
    """Which row of its frame a function shows."""

    FIRST, LAST, NTH = "first", "last", "n-th"


@dataclass(frozen=True)
class Place:
    """A row of a partition in its order, by what a window function may know of it: rows are numbered from 0.

    row: its number
    peers: the rows that ORDER BY leaves equal to it, itself included
    groups: how many groups of peers come before it
    size: how many rows the partition has
    frame: the rows of its frame
    arguments: of each argument of the function the values at all rows
    ignores_nulls: whether rows are passed over at which the first argument is NULL
    """

    row: int
    peers: range
    groups: int
    size: int
    frame: range
    arguments: Sequence[Sequence[Any]]
    ignores_nulls: bool

    def values(self, rows: Iterable[int]) -> list[Any]:
        """The first argument at some rows, in their order."""
        found = [self.arguments[0][row] for row in rows]
        return [value for value in found if value is not None] if self.ignores_nulls else found

    def argument(self, place: int, default: Any) -> Any:
        """An argument at this row."""
        return self.arguments[place][self.row] if place < len(self.arguments) else default


@dataclass(frozen=True, kw_only=True)
class WindowFunction:
    """A window function that a view may contain.

    names: its name and its aliases, in lower case
    ties: whether the order of rows that ORDER BY leaves equal can be seen in its value
    shown: which row of its frame it shows; None where it looks at no frame
    reference: its value at a row, by definition
    """

    names: tuple[str, ...]
    ties: Ties
    shown: Shown | None
    reference: Callable[[Place], Any]


REGISTRY: dict[str, WindowFunction] = {}
"""Every window function beside the aggregates by its names in lower case."""


def register(function: WindowFunction) -> None:
    """Adds a function under all its names."""
    for name in function.names:
        if name in REGISTRY:
            raise ValueError(f"The window function {name} is registered twice.")
        REGISTRY[name] = function


def _around(window: exp.Window) -> Iterator[exp.Expr]:
    """What is written around the call of a window, and the call itself at last."""
    part: exp.Expr = window.this
    while isinstance(part, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
        yield part
        part = part.this
    yield part


def call_of(window: exp.Window) -> exp.Expr:
    """The call of a window, without what is written around it.

    >>> from sqlglot import parse_one
    >>> call_of(parse_one("LAG(a) IGNORE NULLS OVER (ORDER BY b)", dialect="spark")).sql()
    'LAG(a)'
    """
    *_, call = _around(window)
    return call


def filter_of(window: exp.Window) -> exp.Where | None:
    """The FILTER of an aggregate over a window.

    >>> from sqlglot import parse_one
    >>> filter_of(parse_one("SUM(a) FILTER (WHERE a > 1) OVER (ORDER BY b)", dialect="spark")).sql()
    'WHERE a > 1'
    """
    return next((part.expression for part in _around(window) if isinstance(part, exp.Filter)), None)


def function_of(window: exp.Window) -> WindowFunction | None:
    """The function of a window; None where it is an aggregate."""
    return REGISTRY.get(name_of(call_of(window)) or "")


def ignores_nulls(window: exp.Window) -> bool:
    """Whether a window passes over NULL: IGNORE NULLS, or first(x, true)."""
    if any(isinstance(part, exp.IgnoreNulls) for part in _around(window)):
        return True
    function = function_of(window)
    has_flag = function is not None and function.shown in (Shown.FIRST, Shown.LAST)
    return has_flag and call_of(window).expressions[1:] == [exp.true()]


# ---- numbers and ranks


def _ntile(p: Place) -> int:
    """Buckets whose sizes differ by one at most, the larger ones first."""
    small, larger = divmod(p.size, p.argument(0, 1))
    in_larger = larger * (small + 1)
    return p.row // (small + 1) + 1 if p.row < in_larger else larger + (p.row - in_larger) // small + 1


def _numbered(name: str, ties: Ties, reference: Callable[[Place], Any]) -> None:
    register(WindowFunction(names=(name,), ties=ties, shown=None, reference=reference))


_numbered("row_number", Ties.SEEN, lambda p: p.row + 1)
_numbered("rank", Ties.UNSEEN, lambda p: p.peers.start + 1)
_numbered("dense_rank", Ties.UNSEEN, lambda p: p.groups + 1)
_numbered("percent_rank", Ties.UNSEEN, lambda p: p.peers.start / (p.size - 1) if p.size > 1 else 0.0)
_numbered("cume_dist", Ties.UNSEEN, lambda p: p.peers.stop / p.size)
_numbered("ntile", Ties.SEEN, _ntile)


# ---- values of other rows


def _away(p: Place, direction: int) -> Any:
    """f(x [, distance [, default]]): x so many rows away; a negative distance goes the other way."""
    distance = direction * p.argument(1, 1)
    if not distance:
        return p.arguments[0][p.row]
    rows = range(p.row + 1, p.size) if distance > 0 else range(p.row - 1, -1, -1)
    found = p.values(rows)
    return found[abs(distance) - 1] if abs(distance) <= len(found) else p.argument(2, None)


def _first(p: Place) -> Any:
    return next(iter(p.values(p.frame)), None)


def _last(p: Place) -> Any:
    return next(iter(p.values(reversed(p.frame))), None)


def _nth(p: Place) -> Any:
    found, n = p.values(p.frame), p.argument(1, 1)
    return found[n - 1] if n <= len(found) else None


register(WindowFunction(names=("lag",), ties=Ties.SEEN, shown=None, reference=lambda p: _away(p, -1)))
register(WindowFunction(names=("lead",), ties=Ties.SEEN, shown=None, reference=lambda p: _away(p, 1)))
register(WindowFunction(names=("first_value", "first"), ties=Ties.SEEN, shown=Shown.FIRST, reference=_first))
register(WindowFunction(names=("last_value", "last"), ties=Ties.SEEN_IN_ROWS, shown=Shown.LAST, reference=_last))
register(WindowFunction(names=("nth_value",), ties=Ties.SEEN_IN_ROWS, shown=Shown.NTH, reference=_nth))
