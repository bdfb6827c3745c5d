"""σ: the rows for which a condition is true. Linear."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.nodes import RowByRow, Unary
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer, used
from deferred.algebra.scalar import Scalar, columns_of, conjunction, conjuncts

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True, eq=False)
class Filter(RowByRow, Unary):
    """σ: the rows for which the condition is true (not false, not NULL)."""

    condition: Scalar

    one_row = False

    called = "WHERE"

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return (self.condition,)

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return self.child.unique_key

    def origin(self, name: str) -> Origin | None:
        return self.child.origin(name)

    def pulled_up(self) -> tuple[Plan, list[Scalar]]:
        child, parts = self.child.pulled_up()
        mine = [p for p in conjuncts(self.condition) if columns_of(p) <= set(child.columns)]
        parts += [p for p in conjuncts(self.condition) if p not in mine]
        condition = conjunction(mine)
        return (child if condition is None else Filter(child, condition)), parts

    def joined_on(self, equality: Scalar) -> Plan | None:
        below = self.child.joined_on(equality)
        return None if below is None else Filter(below, self.condition)

    def with_join_condition(self, change: Callable[[Scalar], Scalar]) -> Plan:
        return self

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | used(self.condition),)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(σ(E)) = σ(Δ(E)): a condition looks at one row, so it commutes with taking differences."""
        change = d.delta(self.child)
        return None if change is None else Filter(change, self.condition)

    def restricted(self, keys: Keys) -> Plan:
        """σ(E) ⋉ K = σ(E ⋉ K)."""
        below = keys.plain
        plan = self if below is None else Filter(self.child.restricted(below), self.condition)
        return plan if below is not None and below.completes(keys) else Restrict(plan, keys)

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        from deferred.algebra.join_conditions import filtered

        child, values = u.plan(self.child)
        return filtered(child, u.put(self.condition, values)), values

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        return [[(*demand, *conjuncts(self.condition)) for demand in asked]]

    def known(self, c: Conditions) -> Conjunction:
        return (*c.facts_of(self.child), *conjuncts(self.condition))

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}

    def notation(self, labels: Labels) -> str:
        return f"σ[{labels.scalar(self.condition)}]({labels.text(self.child)})"

    def evaluate(self, e: Evaluation) -> Bag:
        return e.selected(e(self.child), self.condition, self.columns)

    def sql(self, w: Writer) -> exp.Query:
        query = bags.select(map(bags.column, self.columns), w.below(self.child, "q"))
        return query.where(w.scalar(self.condition), copy=False)
