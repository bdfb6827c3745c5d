"""Pushes conditions into the inner joins whose inputs they link."""

from __future__ import annotations

from dataclasses import replace

from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.join import Join
from deferred.algebra.operators.outer_join import FULL, OuterJoin
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Scalar, columns_of, conjunction, conjuncts, equated_columns


def filtered(plan: Plan, condition: Scalar) -> Plan:
    """σ over a plan; over an inner join the condition becomes part of the join, so that its links are known.

    An equality of two columns is also pushed through filters and outer joins. It is then evaluated on rows that the
    query would filter out first, which is safe, because comparing two columns of one type cannot fail.
    """
    if isinstance(plan, Join):
        return Join(plan.inputs, conjunction([*conjuncts(plan.condition), *conjuncts(condition)]))
    rest = []
    for part in conjuncts(condition):
        pushed = _pushed_down(plan, part) if equated_columns(part) else None
        if pushed is None:
            rest.append(part)
        else:
            plan = pushed
    above = conjunction(rest)
    return plan if above is None else Filter(plan, above)


def _pushed_down(plan: Plan, part: Scalar) -> Plan | None:
    """The plan with a conjunct moved into an inner join below, None if no such join has its columns."""
    if isinstance(plan, Join):
        return filtered(plan, part) if columns_of(part) <= set(plan.columns) else None
    if isinstance(plan, Filter):
        below = _pushed_down(plan.child, part)
        return None if below is None else Filter(below, plan.condition)
    if isinstance(plan, OuterJoin) and plan.kind != FULL and columns_of(part) <= set(plan.left.columns):
        below = _pushed_down(plan.left, part)
        return None if below is None else replace(plan, left=below)
    return None
