"""Scalar expressions inside plans: sqlglot trees whose columns are plan column ids.

The algebra treats an expression as opaque except for the columns it reads, its conjuncts and its equalities.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sqlglot import exp

Scalar = exp.Expr

COMPARISONS: Mapping[type[Scalar], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
"""Comparisons of values that are not NULL, in Python's operators."""


def column(name: str) -> exp.Column:
    """A column of a plan, by its id."""
    found = exp.Column(this=exp.Identifier(this=name, quoted=True))
    found.meta["bound"] = True
    return found


def is_bound(node: Scalar) -> bool:
    """Whether a column is already a column id of a plan, not a name in the text of a query."""
    return bool(node.meta.get("bound"))


def negated(operand: Scalar) -> Scalar:
    return exp.Neg(this=operand.copy())


def product(left: Scalar, right: Scalar) -> Scalar:
    return exp.Mul(this=left.copy(), expression=right.copy())


def is_column(expression: Scalar) -> bool:
    return isinstance(expression, exp.Column)


def columns_of(expression: Scalar | None) -> frozenset[str]:
    """The column ids that an expression reads.

    >>> sorted(columns_of(exp.EQ(this=column("c1"), expression=column("c2"))))
    ['c1', 'c2']
    """
    if expression is None:
        return frozenset()
    return frozenset(c.name for c in expression.find_all(exp.Column))


def rewrite(expression: Scalar, replace: Callable[[Scalar], Scalar | None]) -> Scalar:
    """A copy in which every topmost subtree for which `replace` returns an expression is replaced by it."""

    def visit(node: Scalar) -> Scalar:
        replacement = replace(node)
        return node if replacement is None else replacement.copy()

    return expression.copy().transform(visit, copy=False)


def substitute(expression: Scalar, by: Mapping[str, Scalar]) -> Scalar:
    """η on scalars: every column id in `by` replaced, all at once.

    >>> substitute(column("c1"), {"c1": column("c9")}).sql()
    '"c9"'
    """

    def replace(node: Scalar) -> Scalar | None:
        return by.get(node.name) if isinstance(node, exp.Column) else None

    return rewrite(expression, replace)


def conjuncts(condition: Scalar | None) -> list[Scalar]:
    """The parts of a conjunction, in order.

    >>> [c.sql() for c in conjuncts(exp.and_(column("a"), column("b"), column("c")))]
    ['"a"', '"b"', '"c"']

    What all parts of a disjunction have in common is a part of its own: (p AND q) OR (p AND r) = p AND (q OR r).

    >>> from sqlglot import parse_one
    >>> [c.sql() for c in conjuncts(parse_one("(p AND q) OR (r AND p)"))]
    ['p', 'q OR r']
    """
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return conjuncts(condition.this) + conjuncts(condition.expression)
    if isinstance(condition, exp.Or):
        return _common(condition)
    return [condition]


def _common(condition: exp.Or) -> list[Scalar]:
    sides = [conjuncts(side) for side in _disjuncts(condition)]
    common = [part for part in sides[0] if all(part in side for side in sides[1:])]
    if not common:
        return [condition]
    rest = [conjunction(part for part in side if part not in common) for side in sides]
    if any(side is None for side in rest):
        return common
    return [*common, exp.or_(*(side for side in rest if side is not None), copy=True)]


def _disjuncts(condition: Scalar) -> list[Scalar]:
    if isinstance(condition, exp.Paren):
        return _disjuncts(condition.this)
    if isinstance(condition, exp.Or):
        return _disjuncts(condition.this) + _disjuncts(condition.expression)
    return [condition]


def conjunction(parts: Iterable[Scalar]) -> Scalar | None:
    """The conjunction of parts; None, which means true, if there are none."""
    listed = [part.copy() for part in parts]
    if not listed:
        return None
    result: Scalar = _wrapped(listed[0]) if len(listed) > 1 else listed[0]
    for part in listed[1:]:
        result = exp.And(this=result, expression=_wrapped(part))
    return result


def all_true(parts: Iterable[Scalar]) -> Scalar:
    """The conjunction of parts; TRUE if there are none."""
    whole = conjunction(parts)
    return exp.true() if whole is None else whole


def _wrapped(part: Scalar) -> Scalar:
    return exp.Paren(this=part) if isinstance(part, exp.Connector) else part


def same(left: Scalar, right: Scalar) -> Scalar:
    """Null-safe equality, the identity of rows and groups (<=>)."""
    return exp.NullSafeEQ(this=left.copy(), expression=right.copy())


def equated_columns(part: Scalar) -> tuple[str, str] | None:
    """The two columns of a conjunct `a = b` or `a <=> b`, None for any other conjunct."""
    if isinstance(part, (exp.EQ, exp.NullSafeEQ)) and is_column(part.this) and is_column(part.expression):
        return part.this.name, part.expression.name
    return None


def equated(part: Scalar) -> list[tuple[Scalar, Scalar]]:
    """The two values of a conjunct `x = y` or `x <=> y` in both orders, nothing for any other conjunct."""
    if not isinstance(part, (exp.EQ, exp.NullSafeEQ)):
        return []
    return [(part.this, part.expression), (part.expression, part.this)]


def looked_up_in(condition: Scalar | None) -> tuple[str, ...]:
    """The columns whose own values a condition equates with values of other columns.

    >>> from sqlglot import parse_one
    >>> looked_up_in(parse_one("a = b + 1 AND c <=> d AND e = 5 AND f < g"))
    ('a', 'c', 'd')
    """
    pairs = [pair for part in conjuncts(condition) for pair in equated(part)]
    return tuple(dict.fromkeys(mine.name for mine, theirs in pairs if is_column(mine) and columns_of(theirs)))


class Fresh:
    """A source of column ids and temporary names that no plan has used before."""

    def __init__(self, prefix: str = "c", taken: int = 0) -> None:
        self.prefix = prefix
        self.taken = taken

    def __call__(self, prefix: str | None = None) -> str:
        self.taken += 1
        return f"{prefix or self.prefix}{self.taken}"


def written(expression: Scalar) -> str:
    """The tree itself: different ones can have the same SQL, and sqlglot's comparison ignores the case of names.

    DATE '2024-01-01' is a CAST of another class than the CAST that it is written out as.
    """
    if any(type(node) is exp.Cast for node in expression.find_all(exp.Cast)):
        expression = expression.transform(lambda node: exp.TryCast(**node.args) if type(node) is exp.Cast else node)
    return repr(expression)
