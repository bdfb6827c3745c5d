"""The SQL of aggregates: their order-free forms, and values made of kept parts, as templates.

In a template x and y are the arguments of a call, count and sum are kept parts: `sql.templates` puts expressions in
their place. Inside a fold, a is what has been folded so far and v the next value.
"""

from __future__ import annotations

from collections.abc import Mapping

BOTH = "x IS NOT NULL AND y IS NOT NULL"
"""Whether a pair counts."""


def of_pairs(value: str) -> str:
    """A value where the pair counts, NULL elsewhere."""
    return f"CASE WHEN {BOTH} THEN {value} END"


def unless_none(count: str, value: str) -> str:
    """A value, NULL where nothing is counted."""
    return f"CASE WHEN {count} > 0 THEN {value} END"


def cast(value: str, type_: str) -> str:
    return f"CAST({value} AS {type_})"


# ---- folds over sorted values, so that every computation over them takes the same steps


def sorted_values(distinct: bool, value: str = "x") -> str:
    """The values as doubles in one order."""
    return f"ARRAY_SORT({'COLLECT_SET' if distinct else 'COLLECT_LIST'}({cast(value, 'DOUBLE')}))"


def how_many(distinct: bool, value: str = "x") -> str:
    return f"COUNT({'DISTINCT ' if distinct else ''}{value})"


def total(distinct: bool, value: str = "x") -> str:
    """The sum of the sorted values: one of the orders of summation that Spark may use."""
    return f"AGGREGATE({sorted_values(distinct, value)}, CAST(0 AS DOUBLE), (total, value) -> total + value)"


def average(distinct: bool, value: str = "x") -> str:
    count = how_many(distinct, value)
    return unless_none(count, f"{total(distinct, value)} / {count}")


def _folded(values: str, steps: Mapping[str, str], final: str) -> str:
    """Numbers that begin at zero and are folded over values; the final value is made of them."""
    zeros = ", ".join(f"'{name}', CAST(0 AS DOUBLE)" for name in steps)
    step = ", ".join(f"'{name}', {value}" for name, value in steps.items())
    return f"AGGREGATE({values}, NAMED_STRUCT({zeros}), (a, v) -> NAMED_STRUCT({step}), a -> {final})"


def moments(distinct: bool, final: str, higher: bool = False) -> str:
    """n counts, m is the mean, s the sum of squared deviations from it, as Spark computes them in one task.

    For the `higher` moments, c is the sum of cubed deviations, q of their fourth powers.
    """
    delta = "(v - a.m)"
    part = f"({delta} / (a.n + 1))"
    squares = f"(a.s + {delta} * ({delta} - {part}))"
    steps = {"n": "a.n + 1", "m": f"a.m + {part}", "s": squares}
    if higher:
        cubes = f"(a.c - 3 * {part} * {squares} + {delta} * ({delta} * {delta} - {part} * {part}))"
        steps["c"] = cubes
        steps["q"] = (
            f"a.q - 4 * {part} * {cubes} - 6 * {part} * {part} * {squares} "
            f"+ {delta} * ({delta} * {delta} * {delta} - {part} * {part} * {part})"
        )
    return unless_none(how_many(False), _folded(sorted_values(distinct), steps, final))


def co_moments(final: str) -> str:
    """n counts the pairs, mx and my are means, c is the co-moment, sx and sy are sums of squared deviations."""
    dx, dy = "(v.x - a.mx)", "(v.y - a.my)"
    steps = {
        "n": "a.n + 1",
        "mx": f"a.mx + {dx} / (a.n + 1)",
        "my": f"a.my + {dy} / (a.n + 1)",
        "c": f"a.c + {dx} * ({dy} - {dy} / (a.n + 1))",
        "sx": f"a.sx + {dx} * ({dx} - {dx} / (a.n + 1))",
        "sy": f"a.sy + {dy} * ({dy} - {dy} / (a.n + 1))",
    }
    pair = f"NAMED_STRUCT('x', {cast('x', 'DOUBLE')}, 'y', {cast('y', 'DOUBLE')})"
    pairs = f"ARRAY_SORT(COLLECT_LIST(IF(x IS NULL OR y IS NULL, NULL, {pair})))"
    return unless_none(f"COUNT_IF({BOTH})", _folded(pairs, steps, final))


# ---- exact values


def mean(value: str) -> str:
    """Spark's own average, which is exact of decimals."""
    return f"AVG({value})"


def exact_average(distinct: bool, wide: str, value: str = "x") -> str:
    """The sum of whole numbers, which fits the type of `wide`, divided once."""
    prefix = "DISTINCT " if distinct else ""
    return f"{cast(f'SUM({prefix}{wide})', 'DOUBLE')} / NULLIF({how_many(distinct, value)}, 0)"


def quotient(type_: str, scale: int) -> str:
    """sum / count rounded half up to the scale of AVG's result, exactly: SQL's own division rounds once before.

    The quotient is tried, and corrected by one in the last place where the remainder says so.
    """
    zeros = "0" * scale
    unit = f"CAST('0.{zeros[1:]}1' AS DECIMAL({scale + 1}, {scale}))"
    # Every type is just wide enough that Spark neither rounds nor overflows on the way.
    size, number = f"CAST(ABS(sum) AS DECIMAL(36, {scale}))", "CAST(count AS DECIMAL(12, 0))"
    tried = f"CAST({size} / {number} AS {type_})"
    left = f"CAST({size} - {tried} * {number} AS DECIMAL({scale + 14}, {scale}))"
    half = f"({number} * CAST('0.{zeros}5' AS DECIMAL({scale + 2}, {scale + 1})))"
    correction = f"CASE WHEN {left} >= {half} THEN {unit} WHEN {left} < -{half} THEN -{unit} ELSE 0 END"
    return f"CAST(CASE WHEN sum < 0 THEN -1 ELSE 1 END * ({tried} + {correction}) AS {type_})"


def extreme(best: str, type_: str) -> str:
    """MIN or MAX of floating point. 0.0 and −0.0 are equal, and Spark shows the first that comes; here −0.0 is less."""
    zero = cast(f"{best}(CASE WHEN x = 0 THEN CAST(x AS STRING) END)", type_)
    return f"CASE WHEN {best}(x) = 0 THEN {zero} ELSE {best}(x) END"


def beside(extreme: str) -> str:
    """x where y is least or greatest; of several such rows, the one whose x is least or greatest as well."""
    return f"{extreme}(IF(y IS NULL, NULL, NAMED_STRUCT('k', y, 'v', x))).v"
