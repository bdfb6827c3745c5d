"""Conditions on the rows of a plan, pushed down to where they leave out most: for readers who want a part of a view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

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
