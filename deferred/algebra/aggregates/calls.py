"""Calls of aggregates inside expressions."""

from __future__ import annotations

from sqlglot import exp, parse_one

from deferred.algebra.aggregates.registry import REGISTRY, AggregateFunction, lookup
from deferred.algebra.scalar import Scalar, rewrite
from deferred.errors import UnsupportedSQLError


def name_of(node: exp.Expr) -> str | None:
    """The lower-case name of a function call, None for what is not one.

    >>> from sqlglot import parse_one
    >>> name_of(parse_one("Rand(3)")), name_of(parse_one("current_date")), name_of(parse_one("a + 1"))
    ('rand', 'current_date', None)
    >>> name_of(parse_one("`Rand`(3)", dialect="spark"))
    'rand'
    """
    if isinstance(node, exp.Anonymous):
        return node.name.lower()  # a quoted name means the same function
    if isinstance(node, exp.Func) and not isinstance(node, (exp.And, exp.Or, exp.Cast, exp.Case, exp.Connector)):
        return node.sql_name().lower()
    return None


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is a call of an aggregate, a refused one too."""
    return name_of(node) in REGISTRY or isinstance(node, exp.AggFunc)


def aggregate_of(node: exp.Expr) -> AggregateFunction | None:
    """The aggregate that a node calls, None for a refused one and for any other node.

    >>> from sqlglot import parse_one
    >>> aggregate_of(parse_one("Mean(a)")).names, aggregate_of(parse_one("first(a)"))
    (('avg', 'mean'), None)
    """
    return lookup(name_of(node))


def ignores_copies(expression: Scalar) -> bool:
    """Whether an expression over aggregates is the same over distinct rows: each call is idempotent, or DISTINCT.

    >>> [ignores_copies(parse_one(sql)) for sql in ("MAX(a) - MIN(a)", "COUNT(DISTINCT a)", "MAX(a) + COUNT(a)")]
    [True, True, False]
    """
    for call in (part for part in expression.walk() if is_aggregate(part)):
        function = aggregate_of(call)
        distinct = any(isinstance(argument, exp.Distinct) for argument in call.iter_expressions())
        if function is None or not (function.idempotent or distinct):
            return False
    return True


def over_nothing(expression: Scalar) -> Scalar:
    """The value of an expression over aggregates when there are no rows."""

    def replace_call(part: Scalar) -> Scalar | None:
        call = part
        while isinstance(call, (exp.Filter, exp.WithinGroup)):
            call = call.this
        if not is_aggregate(call):
            return None
        function = aggregate_of(call)
        if function is None:
            return exp.Null()
        if not function.over_nothing:
            raise UnsupportedSQLError(f"A correlated subquery may not contain {call.this}.")
        value = _over_nulls(call.expressions[0]) if call.expressions else exp.Null()
        return rewrite(
            parse_one(function.over_nothing, dialect="spark"),
            lambda name: value if isinstance(name, exp.Column) else None,
        )

    return rewrite(expression, replace_call)


def _over_nulls(argument: Scalar) -> Scalar:
    """An argument of an aggregate with NULL for every column that it reads."""
    value = argument.expressions[0] if isinstance(argument, exp.Distinct) else argument
    return rewrite(value, lambda part: exp.Null() if isinstance(part, exp.Column) else None)
