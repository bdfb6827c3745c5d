"""Comparisons with a whole subquery: IN, ANY, ALL; and their values in three-valued logic."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

MEMBER = (
    "CASE WHEN COUNT(CASE WHEN x THEN 1 END) > 0 THEN TRUE "
    "WHEN COUNT(CASE WHEN x IS NULL THEN 1 END) > 0 THEN NULL ELSE FALSE END"
)
"""x IN (SELECT …) as a value, in the three-valued logic of conditions."""

EVERY = (
    "CASE WHEN COUNT(CASE WHEN NOT x THEN 1 END) > 0 THEN FALSE "
    "WHEN COUNT(CASE WHEN x IS NULL THEN 1 END) > 0 THEN NULL ELSE TRUE END"
)
"""x > ALL (SELECT …) as a value."""

MEMBER_SELECTED = "COUNT(CASE WHEN x THEN 1 END) > 0"
NOT_MEMBER_SELECTED = "COUNT(CASE WHEN x IS NULL OR x THEN 1 END) = 0"
"""What Spark shows for IN and NOT IN in a SELECT list: false, never NULL, where the comparison is unknown."""


JOINED = {
    MEMBER: "CASE WHEN found THEN TRUE WHEN unknown THEN NULL ELSE FALSE END",
    MEMBER_SELECTED: "found",
    NOT_MEMBER_SELECTED: "NOT (found OR unknown)",
}
"""The same values where it is known, from a join, whether a value is found, and whether the comparison is unknown."""


@dataclass(frozen=True)
class Quantified:
    """values ∘ ANY (query), or ∘ ALL (query) with `every`. x IN (query) is x = ANY (query)."""

    values: tuple[exp.Expr, ...]
    operator: type[exp.Binary]
    every: bool
    query: exp.Expr


def quantified(node: exp.Expr) -> Quantified | None:
    """A comparison with a whole subquery, None for anything else.

    >>> from deferred.sql.dialect import parse_scalar
    >>> quantified(parse_scalar("a < ALL (SELECT b FROM t)")).every
    True
    """
    if isinstance(node, exp.In) and node.args.get("query"):
        return Quantified(_operands(node.this), exp.EQ, False, node.args["query"])
    if isinstance(node, (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)):
        against = node.expression
        if isinstance(against, (exp.Any, exp.All)) and isinstance(against.this, exp.Query):
            return Quantified(_operands(node.this), type(node), isinstance(against, exp.All), against.this)
    return None


def _operands(node: exp.Expr) -> tuple[exp.Expr, ...]:
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node,)
