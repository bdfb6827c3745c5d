"""What the program knows of one aggregate function, and where all of them are looked up.

The modules beside this one hold the functions, one module per family. Each states every field: none has a default, so
a function that leaves one out fails when it is imported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from deferred.algebra.types import INTEGRAL

NULL, ZERO, EMPTY_ARRAY = "NULL", "0", "SLICE(ARRAY(x), 1, 0)"
"""Values over no rows, as SQL; x is the argument over columns that are NULL, which gives the type of its elements."""

ONE, TWO, ONE_OR_TWO, TWO_OR_THREE, ONE_OR_MORE = range(1, 2), range(2, 3), range(1, 3), range(2, 4), range(1, 1000)
"""How many arguments a function takes."""

Rows = Counter[tuple[Any, ...]]
"""The arguments of a call: one tuple per row of the group, with its multiplicity. NULL is None, count(*) has ()."""


class RowOrder(Enum):
    """Whether the order of the rows can be seen in a function's value."""

    UNSEEN = "the value is, or its order-free form is, a function of the bag of arguments"
    HIDDEN_BY_CALLER = "the value is an array in any order: taken only inside a function such as sort_array"
    WITHIN_GROUP = "WITHIN GROUP (ORDER BY …) is required, and its ties are broken by the value itself"


class WindowOrder(Enum):
    """Whether the rows of a window frame must be taken in one order, for two computations to agree bit by bit."""

    ANY = "any order gives the same value"
    ONE_IF_FLOATING = "over floating point the order shows: in the last bits of sums, in 0.0 and −0.0 of extremes"
    FORM = "the order-free form replaces the call: of several values the call may take any"
    ONE = "the order always shows: values are computed in floating point, or one of several equal rows is chosen"


@dataclass(frozen=True)
class Call:
    """What an order-free form may depend on. Types are asked of the engine, and only when a form needs them."""

    distinct: bool
    type_of: Callable[[int], str]


@dataclass(frozen=True)
class Parts:
    """The kept parts of a call, beside the count of its values that is always kept, and its value made of them.

    `kept` lists kind (sum, min or max) and type. `final` is SQL over the names of the kinds and `count`.
    """

    kept: tuple[tuple[str, str], ...]
    final: str


@dataclass(frozen=True)
class Countable:
    """How a function of one argument is made of parts that a change adds to or takes from.

    `star` says whether f(*) is the number of rows. `value` is SQL over x: what is counted of the argument. `parts` gets
    the type of that value, and a way to ask for the type of the function's result; it returns None for types over which
    nothing exact can be kept.
    """

    star: bool
    value: str
    parts: Callable[[str, Callable[[], str]], Parts | None]


class ExactType(Enum):
    """Which type Spark gives a value that is computed exactly."""

    COUNT = "bigint"
    ARGUMENT = "the type of the argument"
    SUM = "bigint of whole numbers, and of decimals the decimal with room for ten more digits"


@dataclass(frozen=True)
class Exact:
    """How a function of one argument is computed without Spark, with Spark's value whatever the session's settings are.

    `value` is over the values that are not NULL, exact however many digits it has: one that its type cannot hold, and a
    sum of floating point, is left to Spark.
    """

    type: ExactType
    value: Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, kw_only=True)
class AggregateFunction:
    """An aggregate that a view may contain.

    names: its name and its aliases, in lower case
    arity: how many arguments it takes
    over_nothing: its value over no rows, as SQL
    row_order: whether the order of the rows can be seen in its value
    order_free: its SQL over x and y as a function of the bag of arguments, in whatever order Spark adds them up; None,
        or a form that returns None, leaves the call as it is
    distinct_first: whether a total f(DISTINCT x) is f(x) over the distinct rows, where it may be counted
    idempotent: whether a second copy of a row adds nothing to its value, as with the greatest of several values
    countable: how it is made of kept parts; None where it is not
    window_order: whether a window must take its rows in one order
    takes_padded: whether the value of a CHAR column may be its argument as it is stored, without its padding
    exact: how it is computed without Spark, with the same value and type; None where that is not known
    reference: its value over rows of arguments, by definition; None where only Spark can say
    """

    names: tuple[str, ...]
    arity: range
    over_nothing: str
    row_order: RowOrder
    order_free: Callable[[Call], str | None] | None
    distinct_first: bool
    idempotent: bool
    countable: Countable | None
    window_order: WindowOrder
    takes_padded: bool
    exact: Exact | None
    reference: Callable[[Rows], Any] | None


def folded(
    names: tuple[str, ...],
    arity: range,
    order_free: Callable[[Call], str | None],
    reference: Callable[[Rows], Any],
    over_nothing: str = NULL,
) -> AggregateFunction:
    """A function in floating point, folded over its values in one order: nothing less than all of them makes it."""
    return AggregateFunction(
        names=names,
        arity=arity,
        over_nothing=over_nothing,
        row_order=RowOrder.UNSEEN,
        order_free=order_free,
        distinct_first=False,
        idempotent=False,
        countable=None,
        window_order=WindowOrder.ONE,
        takes_padded=False,
        exact=None,
        reference=reference,
    )


@dataclass(frozen=True, kw_only=True)
class RefusedAggregate:
    """Aggregates that a view may not contain, and the message that says why: {call} is replaced by the call."""

    names: tuple[str, ...]
    deterministic: bool
    message: str


REGISTRY: dict[str, AggregateFunction | RefusedAggregate] = {}
"""Every known aggregate by its names in lower case."""


def register(function: AggregateFunction | RefusedAggregate) -> None:
    """Adds a function under all its names."""
    for name in function.names:
        if name in REGISTRY:
            raise ValueError(f"The aggregate {name} is registered twice.")
        REGISTRY[name] = function


def lookup(name: str | None) -> AggregateFunction | None:
    """The function of a name, None for a refused or unknown one.

    >>> lookup("std") is lookup("stddev_samp"), lookup("first")
    (True, None)
    """
    function = REGISTRY.get(name or "")
    return function if isinstance(function, AggregateFunction) else None


_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)$")


def decimal(type_: str) -> tuple[int, int] | None:
    """Digits and scale of a decimal type, None for another type.

    >>> decimal("decimal(10,2)"), decimal("int")
    ((10, 2), None)
    """
    parsed = _DECIMAL.match(type_)
    return (int(parsed.group(1)), int(parsed.group(2))) if parsed else None


def is_exact(type_: str) -> bool:
    """Whether values of a type are added without rounding."""
    return type_ in INTEGRAL or decimal(type_) is not None


def of_values(function: Callable[[Counter[Any]], Any]) -> Callable[[Rows], Any]:
    """A reference over the values of one argument that are not NULL.

    >>> of_values(max)(Counter({(1,): 2, (None,): 1}))
    1
    """

    def reference(rows: Rows) -> Any:
        return function(Counter({value: n for (value,), n in rows.items() if value is not None}))

    return reference


def in_order(values: Counter[Any]) -> Sequence[Any]:
    """Every value as often as it occurs, the least first."""
    return sorted(values.elements())
