"""Texts that Spark reads as the moment at which it runs: 'now' and 'today' as dates, a time of day as a timestamp.

Spark takes them so in literals with a type, in casts, and wherever it casts a constant text by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sqlglot import exp

from deferred.algebra.aggregates.calls import name_of
from deferred.errors import InvalidSQLError, NondeterministicSQLError

_MOMENT = re.compile(r"\s*(?:(?:now|today|tomorrow|yesterday)\b.*|T?\d{1,2}:\d{1,2}\b.*)", re.IGNORECASE | re.DOTALL)
_DAYS = {exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ}
_READING = re.compile(r"(try_)?(to_)?(date|timestamp)(_ltz|_ntz)?")
"""Functions that read a text as a date or a timestamp, if no format is given."""
_OF_DATES = re.compile(
    r".*(date|timestamp).*|year|quarter|month|week|day.*|hour|minute|second|last_day|next_day|add_months|months_between|"
    r"trunc|extract"
)
"""Functions that take dates or timestamps, for which Spark casts a text."""


def refuse_moments(expression: exp.Expr) -> None:
    """Refuse a text that is read as a moment, where the words around it say so.

    >>> from deferred.sql.dialect import parse_scalar
    >>> refuse_moments(parse_scalar("DATE 'Today' - 1"))
    Traceback (most recent call last):
    deferred.errors.NondeterministicSQLError: 'Today' is read as the day or time at which Spark runs, and no change of \
a base table says when it changes. Put the date into a column or a small table that your job updates, or filter on it \
when you read the view.
    >>> refuse_moments(parse_scalar("CASE WHEN a = 0 THEN 'today' ELSE 'earlier' END"))
    """
    for moment, around in _moments(expression):
        cast = isinstance(around, exp.Cast) and around.to.this in _DAYS
        name = name_of(around) or ""
        reads = isinstance(around, exp.Func) and (
            len(around.expressions) == 1 if _READING.fullmatch(name) else _OF_DATES.fullmatch(name)
        )
        if cast or reads or (isinstance(around, exp.Var) and around.args.get("value") is moment):
            raise _refused(moment)


def refuse_moments_beside(expression: exp.Expr, type_of: Callable[[exp.Expr], str]) -> None:
    """Refuse a text that Spark reads as a moment because it stands beside a date or a timestamp, as in d > 'today'."""
    for moment, around in _moments(expression):
        for other in _beside(around):
            try:
                type_ = type_of(other)
            except (InvalidSQLError, KeyError):  # the variable of a lambda function
                continue
            if type_.startswith(("date", "timestamp")):
                raise _refused(moment)


def _moments(expression: exp.Expr) -> Iterator[tuple[exp.Literal, exp.Expr]]:
    """Texts that may mean a moment, and what they are a part of."""
    for text in expression.find_all(exp.Literal):
        if text.is_string and text.parent is not None and _MOMENT.fullmatch(text.this):
            around = text.parent
            while isinstance(around, (exp.Paren, exp.If, exp.Tuple)) and around.parent is not None:
                around = around.parent
            yield text, around


def _beside(around: exp.Expr) -> list[exp.Expr]:
    """The other values of a comparison, a choice or a call."""
    if isinstance(around, exp.Case):
        values = [around.args.get("default"), *(choice.args["true"] for choice in around.args["ifs"])]
    else:
        values = list(around.iter_expressions())
    plain = (exp.Literal, exp.Var, exp.Identifier, exp.DataType, exp.Lambda, exp.Query)
    return [value for value in values if value is not None and not isinstance(value, plain)]


def _refused(moment: exp.Literal) -> NondeterministicSQLError:
    return NondeterministicSQLError(
        f"'{moment.this}' is read as the day or time at which Spark runs, and no change of a base table says when it "
        f"changes. Put the date into a column or a small table that your job updates, or filter on it when you read "
        f"the view.",
        at=moment,
    )
