"""SQL templates: text in which names are replaced by expressions."""

from __future__ import annotations

from sqlglot import exp

from deferred.algebra.scalar import Scalar, is_bound, rewrite
from deferred.sql.dialect import parse_scalar


def fill(template: str, **values: Scalar) -> Scalar:
    """The expression of a template, with its names replaced by expressions, in parentheses next to an operator.

    >>> from deferred.sql.dialect import text
    >>> text(fill("IF(x IS NULL, 0, x)", x=parse_scalar("a AND b")))
    'IF((a AND b) IS NULL, 0, a AND b)'
    """

    def replace(part: Scalar) -> Scalar | None:
        if not isinstance(part, exp.Column) or is_bound(part) or len(part.parts) != 1 or part.name not in values:
            return None
        value = values[part.name]
        return operand(value) if _is_operator(part.parent) else value

    return rewrite(parse_scalar(template), replace)


def operand(expression: Scalar) -> Scalar:
    """An expression in parentheses where it would not stay together next to an operator.

    >>> operand(parse_scalar("NOT a")).sql(), operand(parse_scalar("f(a)")).sql()
    ('(NOT a)', 'F(a)')
    """
    call = isinstance(expression, exp.Func) and not isinstance(expression, exp.Binary)
    plain = call or isinstance(expression, (exp.Column, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Dot))
    return expression if plain else exp.Paren(this=expression.copy())


def _is_operator(node: exp.Expr | None) -> bool:
    return isinstance(node, (exp.Binary, exp.Unary, exp.Predicate)) and not isinstance(node, exp.Paren)
