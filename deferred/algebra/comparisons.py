"""Conditions that only compare columns with literals: what they say of a row needs nothing but the row."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from deferred.algebra.scalar import Scalar

_COMPARISONS = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ),
    *(exp.In, exp.Between, exp.Is),
)
_AROUND = (exp.Paren, exp.And, exp.Or, exp.Not)


def compares_with_literals(condition: Scalar) -> bool:
    """Whether a condition only compares columns with literals: it has one value for a row, however often it is asked.

    >>> from sqlglot import parse_one
    >>> [compares_with_literals(parse_one(sql)) for sql in ("a = 1 OR b IS NULL", "rand() < 0.5", "a = b", "1 = 1")]
    [True, False, False, False]
    """
    if isinstance(condition, _AROUND):
        return all(map(compares_with_literals, condition.iter_expressions()))
    if not isinstance(condition, _COMPARISONS):
        return False
    operands = list(condition.iter_expressions())
    columns = {operand.name.casefold() for operand in operands if isinstance(operand, exp.Column)}
    return len(columns) == 1 and all(isinstance(o, exp.Column) or _is_literal(o, is_text=False) for o in operands)


def holds_anywhere(condition: Scalar, types: Mapping[str, str]) -> bool:
    """Whether a condition can be asked of any row, also of those that a view leaves out: it cannot fail.

    It compares columns with literals. A text that is compared with a number would be converted, which can fail.

    >>> from sqlglot import parse_one
    >>> known = {"a": "int", "s": "string"}
    >>> [holds_anywhere(parse_one(sql), known) for sql in ("a = 1 OR s IS NULL", "s = 1", "10 / a > 1", "a = s")]
    [True, False, False, False]
    """
    if isinstance(condition, _AROUND):
        return all(holds_anywhere(part, types) for part in condition.iter_expressions())
    if not isinstance(condition, _COMPARISONS):
        return False
    operands = list(condition.iter_expressions())
    kinds = {types.get(operand.name) for operand in operands if isinstance(operand, exp.Column)}
    if len(kinds) != 1 or None in kinds:
        return False
    is_text = kinds == {"string"}
    return all(_is_literal(o, is_text) for o in operands if not isinstance(o, exp.Column))


def _is_literal(operand: Scalar, is_text: bool) -> bool:
    if isinstance(operand, exp.Neg):
        operand = operand.this
    if isinstance(operand, exp.Literal):
        return operand.is_string or not is_text
    return isinstance(operand, (exp.Null, exp.Boolean))
