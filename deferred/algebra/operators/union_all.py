"""⊎: the bags of all inputs added up. Linear."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.bags import COUNT
from deferred.algebra.nodes import Barrier, Nary, RowByRow
from deferred.algebra.operators.project import Project, pick
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer
from deferred.algebra.scalar import Scalar, column

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.operators.scan import Scan
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True, eq=False)
class UnionAll(RowByRow, Barrier, Nary):
    """⊎: the bags of all inputs added up, columns by position."""

    ids: tuple[str, ...]

    one_row = False

    called = "UNION ALL"

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return ()

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    def origin(self, name: str) -> Origin | None:
        return None

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(side.columns[p] for p in self._positions(needed)) for side in self.inputs)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        positions = self._positions(needed)
        inputs = (
            pick(new, [old.columns[p] for p in positions]) for new, old in zip(children, self.inputs, strict=True)
        )
        return UnionAll(tuple(inputs), tuple(self.ids[p] for p in positions))

    def _positions(self, needed: frozenset[str]) -> list[int]:
        return [p for p, name in enumerate(self.ids) if name in needed] or [0]

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E ⊎ F) = Δ(E) + Δ(F)."""
        changes = [change for change in map(d.delta, self.inputs) if change is not None]
        return union(changes, (*self.ids, COUNT))

    def restricted(self, keys: Keys) -> Plan:
        """(E ⊎ F) ⋉ K = (E ⋉ K) ⊎ (F ⋉ K)."""
        pushed = []
        for plan in self.inputs:
            below = keys.renamed(dict(zip(self.ids, plan.columns, strict=True)))
            pushed.append(plan if below is None else plan.restricted(below))
        return replace(self, inputs=tuple(pushed))

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        values = {c: u.new(c) for c in u.names}
        return UnionAll(unnested_sides(u, self.inputs), (*self.ids, *values.values())), values

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        return [[c.renamed(demand, self.ids, side.columns) for demand in asked] for side in self.inputs]

    def known(self, c: Conditions) -> Conjunction:
        return c.one_of([c.renamed(c.facts_of(side), side.columns, self.ids) for side in self.inputs])

    @property
    def watched(self) -> Sequence[Scan]:
        return ()

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {mine: labels.column(theirs) for mine, theirs in zip(self.ids, self.inputs[0].columns, strict=True)}

    def notation(self, labels: Labels) -> str:
        return labels.infix("⊎", self.inputs)

    def evaluate(self, e: Evaluation) -> Bag:
        result: Bag = Counter()
        for side in self.inputs:
            result.update(e(side))
        return result

    def sql(self, w: Writer) -> exp.Query:
        return bags.select(map(bags.column, self.ids), bags.union_all(sides_by_position(w, self.inputs, self.ids)), "u")


def union(plans: Sequence[Plan], ids: tuple[str, ...]) -> Plan | None:
    """The union of any number of plans with the given columns; None if there are no plans."""
    if not plans:
        return None
    return united(plans, ids)


def united(plans: Sequence[Plan], ids: tuple[str, ...]) -> Plan:
    """The union of at least one plan."""
    if len(plans) == 1 and plans[0].columns == ids:
        return plans[0]
    return UnionAll(tuple(plans), ids)


def unnested_sides(u: Unnesting, sides: Sequence[Plan]) -> tuple[Plan, ...]:
    """Sides that are combined by position, each for every value of the free columns, which come last."""
    result = []
    for side in sides:
        inner, theirs = u.plan(side)
        result.append(pick(inner, (*side.columns, *(theirs[n] for n in u.names))))
    return tuple(result)


def sides_by_position(w: Writer, inputs: Sequence[Plan], ids: Sequence[str]) -> list[exp.Query]:
    """Inputs that are combined by position, the first one under the ids of the result; each in parentheses."""
    first, *others = inputs
    named = Project(first, tuple((new, column(old)) for old, new in zip(first.columns, ids, strict=True)))
    return [exp.Subquery(this=w.query(plan)) for plan in (named, *others)]
