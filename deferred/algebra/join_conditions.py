"""Pushes conditions into the inner joins whose inputs they link."""

from __future__ import annotations

from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.join import Join
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Scalar, conjunction, conjuncts, equated_columns


def filtered(plan: Plan, condition: Scalar) -> Plan:
    """σ over a plan; over an inner join, which is σ over a product, the condition becomes part of the join.

    An equality of two columns is also pushed through filters and outer joins (`Plan.joined_on`), so that the links of
    a join are known. It is then evaluated on rows that the query would filter out first, which is safe, because
    comparing two columns of one type cannot fail.
    """
    if isinstance(plan, Join):
        return Join(plan.inputs, conjunction([*conjuncts(plan.condition), *conjuncts(condition)]))
    rest = []
    for part in conjuncts(condition):
        pushed = plan.joined_on(part) if equated_columns(part) else None
        if pushed is None:
            rest.append(part)
        else:
            plan = pushed
    above = conjunction(rest)
    return plan if above is None else Filter(plan, above)
