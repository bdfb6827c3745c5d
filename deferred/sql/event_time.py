"""Binding of windows of time: window(t, duration [, slide [, start]]) as a generator below SELECT, as Spark has it.

A row is in ⌈duration / slide⌉ windows, of which those remain that its time is in; a row without a time is in none.
So the windows of a row are an array that is exploded, and all rules of generators hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.aggregates.calls import name_of
from deferred.algebra.bags import alias, bigint, call
from deferred.algebra.scalar import column
from deferred.errors import InvalidSQLError, UnsupportedSQLError
from deferred.sql.dialect import text
from deferred.sql.generators import generated
from deferred.sql.scope import field_of
from deferred.sql.templates import fill

if TYPE_CHECKING:
    from deferred.sql.bind import Binder, Relation

WINDOW, WINDOW_TIME = "window", "window_time"

_UNITS = {"week": 604_800_000_000, "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000}
_UNITS |= {"second": 1_000_000, "millisecond": 1_000, "microsecond": 1}
_PART = re.compile(r"\s*([-+]?\d+)\s*([a-z]+?)s?(?![a-z])\s*", re.IGNORECASE)

_WINDOW_AT = """NAMED_STRUCT('start', TIMESTAMP_MICROS(first - i * slide), 'end',
  TIMESTAMP_MICROS(first - i * slide + duration))"""
_WINDOWS = f"""EXPLODE(FILTER(TRANSFORM(SEQUENCE(CAST(0 AS BIGINT), last), i -> {_WINDOW_AT}),
  w -> UNIX_MICROS(w.start) <= t AND t < UNIX_MICROS(w.end)))"""
_FIRST = "t - PMOD(t - begin, slide)"
_TIME = "TIMESTAMP_MICROS(UNIX_MICROS(end) - CAST(1 AS BIGINT))"


def with_windows(binder: Binder, source: Relation, node: exp.Select) -> tuple[Relation, exp.Select]:
    """FROM with the window of each row, where SELECT asks for one, and SELECT with that column in place of the calls.

    A name `window` means it, too, if no column of FROM has this name.
    """
    from deferred.sql.bind import Relation

    calls = [part for part in _parts(node) if name_of(part) == WINDOW]
    if not calls:
        return source, node
    if len({text(part).casefold() for part in calls}) > 1:
        raise InvalidSQLError("A query may group by one window of time only, as in Spark.", at=calls[1])
    plan, (field,) = generated(binder, source, _exploded(binder, source, calls[0]), [WINDOW], False)
    result = node.copy()
    for part in list(_parts(result)):
        if name_of(part) == WINDOW:
            _replace(part, column(field.id))
        elif isinstance(part, exp.Column) and part.parts[0].name.casefold() == WINDOW:
            names = [step.name for step in part.parts]
            if source.scope.find(names) is None:
                _replace(part, field_of(column(field.id), names[1:]))
    for part in [part for part in _parts(result) if name_of(part) == WINDOW_TIME]:
        _replace(part, fill(_TIME, end=field_of(part.expressions[0], ["end"])))
    return Relation(plan, source.scope), result


def _parts(node: exp.Select) -> Iterator[exp.Expr]:
    """What SELECT, GROUP BY, HAVING, QUALIFY and ORDER BY contain, without their subqueries."""
    clauses = (node.args.get(name) for name in ("group", "having", "qualify", "order"))
    for clause in (*node.expressions, *(clause for clause in clauses if clause is not None)):
        yield from clause.walk(prune=lambda part: isinstance(part, exp.Query))


def _replace(part: exp.Expr, value: exp.Expr) -> None:
    """Another expression in the place of one; as an item of SELECT it keeps the name that Spark gives it."""
    if isinstance(part.parent, exp.Select):
        name = part.name if isinstance(part, exp.Column) else str(part.this)
        value = alias(value, name.lower() if name_of(part) else name)
    part.replace(value)


def _exploded(binder: Binder, source: Relation, node: exp.Expr) -> exp.Expr:
    """The generator of a row's windows, over the names of FROM."""
    time, *given = node.expressions
    if not 1 <= len(given) <= 3:
        raise InvalidSQLError(f"{text(node)[:80]} needs a time and a duration.", at=node)
    time = binder.scalar(time, source.scope, "GROUP BY")  # before it is inside a lambda, whose names are its own
    if binder.type_of(time) == "timestamp_ntz":
        raise UnsupportedSQLError(
            f"{text(node)[:80]}: a window of a TIMESTAMP_NTZ is not supported in a view. "
            f"Group by the time at which it begins, such as DATE_TRUNC('HOUR', t).",
            at=node,
        )
    duration, slide, begin = ([_micros(part) for part in given] + [None, None])[:3]
    assert duration is not None
    slide = duration if slide is None else slide
    if not 0 < slide <= duration:
        raise InvalidSQLError(
            f"{text(node)[:80]}: the slide must be more than nothing, and at most the duration.", at=node
        )
    micros = call("UNIX_MICROS", exp.Cast(this=time.copy(), to=exp.DataType.build("timestamp_ltz", dialect="spark")))
    first = fill(_FIRST, t=micros, begin=bigint(begin or 0), slide=bigint(slide))
    last = bigint(-(-duration // slide) - 1)
    return fill(_WINDOWS, t=micros, first=first, slide=bigint(slide), duration=bigint(duration), last=last)


def _micros(node: exp.Expr) -> int:
    """The microseconds of a duration: a text such as '1 hour 30 minutes', or an INTERVAL.

    >>> from deferred.sql.dialect import parse_scalar
    >>> [_micros(parse_scalar(sql)) for sql in ("'1 hour 30 minutes'", "INTERVAL 5 MINUTES", "'interval 1 day'")]
    [5400000000, 300000000, 86400000000]
    """
    written = text(node) if not isinstance(node, exp.Literal) else node.name
    words = re.sub(r"(?i)^\s*interval\b|'", " ", written)
    found = [(int(number), unit.lower()) for number, unit in _PART.findall(words)]
    if not found or _PART.sub("", words).strip() or not {unit for _, unit in found} <= _UNITS.keys():
        raise InvalidSQLError(f"{written} is not a duration in weeks, days, hours, minutes or seconds.", at=node)
    return sum(number * _UNITS[unit] for number, unit in found)
