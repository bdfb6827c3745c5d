"""Conditions on the rows of a plan, pushed down to where they leave out most: for readers who want a part of a view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from deferred.algebra.operators import Aggregate, Filter, Restrict, Values
from deferred.algebra.plan import Keys, Plan, transformed
from deferred.algebra.scalar import Scalar, columns_of, conjuncts, is_column, substitute
from deferred.algebra.strategy import Keeping
from deferred.algebra.types import equality_is_coarser


def selected(plan: Plan, condition: Scalar, types: Mapping[str, str]) -> Plan:
    """A plan E′ with σ(E′) = σ(E) and σ(Δ(E′)) = σ(Δ(E)) for a condition on its columns, which reads less than E.

    A condition goes down the ways that keys go (`restricted`): each of its conjuncts is sent down as a set of keys for
    the columns that it reads, and where the keys arrive it is put as a filter. What is left out below contributes to no
    row for which the condition holds, neither before nor after a change. Rows for which it does not hold may be missing
    from E′, or be wrong; whoever reads E′ applies the condition to its rows.
    """
    for part in conjuncts(condition):
        if columns_of(part):
            plan = _selected(plan, part, types)
    return plan


def _selected(plan: Plan, condition: Scalar, types: Mapping[str, str]) -> Plan:
    names = sorted(columns_of(condition))
    marker = Values(tuple(f"selected_{name}" for name in names), ())
    pairs = dict(zip(names, marker.columns, strict=True))

    def filtered(node: Plan) -> Plan:
        if not isinstance(node, Restrict) or node.keys.plan is not marker:
            return node
        values = {theirs.name: mine for mine, theirs in node.keys.on}
        found = {name: values[theirs] for name, theirs in pairs.items() if theirs in values}
        if len(found) < len(names) or not all(_is_same(name, mine, types) for name, mine in found.items()):
            return node.child
        groups = node.child
        if isinstance(groups, Aggregate):  # a group is kept, or left out, as a whole
            below = node.keys.within(groups.keys)
            if below is not None and below.completes(node.keys):
                return replace(groups, child=transformed(groups.child.restricted(below), filtered))
        return Filter(node.child, substitute(condition, found))

    result = transformed(plan.restricted(Keys.of(marker, pairs.items())), filtered)
    return result if _has_one_node_per_support(result) else plan


def _is_same(name: str, mine: Scalar, types: Mapping[str, str]) -> bool:
    """Whether a value that keys were compared with is the column's own value, not only an equal one."""
    if not is_column(mine):
        return False
    if mine.name == name:
        return True
    type_ = types.get(name)
    return type_ is not None and types.get(mine.name) == type_ and not equality_is_coarser(type_)


def _has_one_node_per_support(plan: Plan) -> bool:
    """Whether no support table belongs to two nodes: a shared one may have got different conditions on its two ways."""
    kept = Counter(node.strategy.support for node in plan.walk() if isinstance(node.strategy, Keeping))
    return all(times == 1 for times in kept.values())


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
