"""Correlated subqueries without correlation: a plan with free columns, computed for all their values at once.

Each operator defines its own rewriting (`Plan.unnested`); this module has what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deferred.algebra.operators.distinct import Distinct
from deferred.algebra.operators.join import product_of
from deferred.algebra.operators.project import Project
from deferred.algebra.plan import Plan, free
from deferred.algebra.scalar import Scalar, column, same, substitute
from deferred.errors import UnsupportedSQLError

NewColumn = Callable[[str], str]
"""Returns a fresh column of another column's type, or of a named type."""

Bindings = dict[str, str]
"""Which columns of the plan hold the values of the free columns: free column → column of the plan."""


def unnested(plan: Plan, subquery: Plan, new: NewColumn) -> tuple[Plan, list[Scalar]]:
    """The subquery for every value of its free columns that the plan has; and the equalities that join the two."""
    mine = sorted(free(subquery) & set(plan.columns))
    names = {c: new(c) for c in mine}
    domain = Distinct(Project(plan, tuple((names[c], column(c)) for c in mine)))
    inner, values = Unnesting(domain, names, new).plan(subquery)
    return inner, [same(column(c), column(values[c])) for c in mine]


class Unnesting:
    """Rewrites a plan with free columns into one that yields its rows for every value of them."""

    def __init__(self, domain: Plan, names: Mapping[str, str], new: NewColumn) -> None:
        self.domain = domain
        self.names = dict(names)
        self.new = new

    def plan(self, node: Plan) -> tuple[Plan, Bindings]:
        return node.unnested(self) if self.is_correlated(node) else self.for_every_value(node)

    def is_correlated(self, node: Plan) -> bool:
        return bool(free(node) & self.names.keys())

    def for_every_value(self, node: Plan) -> tuple[Plan, Bindings]:
        """A plan that reads no free column, combined with every value."""
        domain, values = self.instance()
        return product_of(node, domain, []), values

    def instance(self) -> tuple[Plan, Bindings]:
        """The values once more, under fresh columns."""
        values = {c: self.new(c) for c in self.names}
        return Project(self.domain, tuple((values[c], column(self.names[c])) for c in self.names)), values

    def put(self, expression: Scalar, values: Mapping[str, str]) -> Scalar:
        """An expression with the free columns replaced by the columns that hold their values."""
        return substitute(expression, {c: column(v) for c, v in values.items()})

    def carried(self, values: Mapping[str, str]) -> tuple[tuple[str, Scalar], ...]:
        return tuple((v, column(v)) for v in values.values())

    def equal(self, left: Mapping[str, str], right: Mapping[str, str]) -> list[Scalar]:
        return [same(column(left[c]), column(right[c])) for c in self.names]

    def unsupported(self, where: str) -> UnsupportedSQLError:
        return UnsupportedSQLError(f"A correlated subquery may not read outer columns in {where}.")
