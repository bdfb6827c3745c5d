"""The value of a scalar expression on one row, by SQL's three-valued logic: the reference for checking the rules.

NULL is None. Only the expressions of the reference evaluator are here; Spark evaluates all others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from deferred.algebra.scalar import COMPARISONS, Scalar

Row = tuple[Any, ...]
Interpretation = Callable[[Row], Any]

_STRICT: dict[type[Scalar], Callable[[Any, Any], Any]] = {
    **COMPARISONS,
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}


def interpret(expression: Scalar, columns: Sequence[str]) -> Interpretation:
    """The function from a row with the given columns to the value of the expression.

    >>> from sqlglot import parse_one
    >>> value = interpret(parse_one("a = 1 OR b = 1", dialect="spark"), ("a", "b"))
    >>> value((1, None)), value((2, None)), value((2, 2))
    (True, None, False)
    """
    if type(expression) in _STRICT:
        return _strict(_STRICT[type(expression)], *_operands(expression, columns))
    if isinstance(expression, (exp.And, exp.Or)):
        return _connected(*_operands(expression, columns), decisive=isinstance(expression, exp.Or))
    if isinstance(expression, exp.NullSafeEQ):
        left, right = _operands(expression, columns)
        return lambda row: left(row) == right(row)
    if isinstance(expression, exp.Is):
        return _is(expression, columns)
    if isinstance(expression, exp.Column):
        return operator.itemgetter(list(columns).index(expression.name))
    if isinstance(expression, (exp.Literal, exp.Null, exp.Boolean)):
        constant = _constant(expression)
        return lambda row: constant
    if isinstance(expression, (exp.Paren, exp.Cast)):
        return interpret(expression.this, columns)
    if isinstance(expression, exp.Not):
        inner = interpret(expression.this, columns)
        return _unary(operator.not_, inner)
    if isinstance(expression, exp.Neg):
        return _unary(operator.neg, interpret(expression.this, columns))
    if isinstance(expression, exp.Case):
        return _case(expression, columns)
    if isinstance(expression, exp.Anonymous) and str(expression.this).upper() in _FUNCTIONS:
        function = _FUNCTIONS[str(expression.this).upper()]
        arguments = [interpret(argument, columns) for argument in expression.expressions]
        return lambda row: function([argument(row) for argument in arguments])
    raise NotImplementedError(f"The reference evaluator does not support {expression.sql()}.")


_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "COALESCE": lambda values: next((value for value in values if value is not None), None),
    "ARRAY": tuple,
    "LEAST": lambda values: min((value for value in values if value is not None), default=None),
    "GREATEST": lambda values: max((value for value in values if value is not None), default=None),
}
"""Functions of values that may be NULL."""


def _operands(expression: Scalar, columns: Sequence[str]) -> tuple[Interpretation, Interpretation]:
    return interpret(expression.this, columns), interpret(expression.expression, columns)


def _strict(function: Callable[[Any, Any], Any], left: Interpretation, right: Interpretation) -> Interpretation:
    """NULL as soon as one operand is NULL."""

    def value(row: Row) -> Any:
        a, b = left(row), right(row)
        return None if a is None or b is None else function(a, b)

    return value


def _unary(function: Callable[[Any], Any], inner: Interpretation) -> Interpretation:
    def value(row: Row) -> Any:
        a = inner(row)
        return None if a is None else function(a)

    return value


def _connected(left: Interpretation, right: Interpretation, decisive: bool) -> Interpretation:
    """Kleene's AND and OR: the decisive value wins (false for AND, true for OR), then NULL, then the other."""

    def value(row: Row) -> Any:
        both = (left(row), right(row))
        if decisive in both:
            return decisive
        return None if None in both else not decisive

    return value


def _is(expression: exp.Is, columns: Sequence[str]) -> Interpretation:
    inner = interpret(expression.this, columns)
    wanted = _constant(expression.expression)
    return lambda row: inner(row) is wanted


def _case(expression: exp.Case, columns: Sequence[str]) -> Interpretation:
    """The first branch whose condition is true, the default without one."""
    operand = expression.args.get("this")
    branches = []
    for branch in expression.args["ifs"]:
        condition = branch.this if operand is None else exp.EQ(this=operand.copy(), expression=branch.this.copy())
        branches.append((interpret(condition, columns), interpret(branch.args["true"], columns)))
    default = expression.args.get("default")
    otherwise: Interpretation = (lambda row: None) if default is None else interpret(default, columns)

    def value(row: Row) -> Any:
        for condition, result in branches:
            if condition(row) is True:
                return result(row)
        return otherwise(row)

    return value


def _constant(expression: Scalar) -> Any:
    if isinstance(expression, exp.Null):
        return None
    if isinstance(expression, exp.Boolean) or expression.is_string:
        return expression.this
    text = str(expression.this)
    return float(text) if "." in text else int(text)
