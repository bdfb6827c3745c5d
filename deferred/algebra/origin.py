"""Where a column of a plan comes from: the change or the temporary result that has its values."""

from __future__ import annotations

from deferred.algebra.operators.distinct import Distinct
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.project import Project
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import Change
from deferred.algebra.operators.signed import Net
from deferred.algebra.operators.temporary import Temporary
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import is_column


def origin(plan: Plan, name: str) -> tuple[Change | Temporary, str] | None:
    """The leaf whose column has all values that a column of the plan can have, None if it is not one of a single leaf.

    >>> from sqlglot import exp
    >>> leaf = Temporary("step1", ("a", "b"))
    >>> origin(Project(Filter(leaf, exp.true()), (("x", exp.column("b")),)), "x")
    (Temporary(name='step1', ids=('a', 'b')), 'b')
    """
    while True:
        if isinstance(plan, Temporary):
            return plan, name
        if isinstance(plan, Change):
            return plan, dict(zip(plan.ids, plan.names, strict=True))[name] if name in plan.ids else name
        if isinstance(plan, Project):
            expression = dict(plan.outputs)[name]
            if not is_column(expression):
                return None
            plan, name = plan.child, expression.name
        elif isinstance(plan, (Filter, Restrict, Net, Distinct)):
            plan = plan.child
        else:
            return None
