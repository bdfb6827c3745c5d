"""ε: every row once, decided row by row, so maintained at the touched rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.operators.counts import NEW, OLD, changed_rows, counts_of_both_states, once
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.operators.signed import Summed
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Barrier, Conjunction, Demands, Keys, Origin, Plan, Unary, Writer
from deferred.algebra.scalar import Scalar
from deferred.algebra.strategy import TOUCHED_ROWS, Strategy, SupportTables

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.paper.figure2 import Figure2, Pair
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True, eq=False)
class Distinct(Barrier, Unary):
    """ε: every row of E once."""

    row_by_row = False
    one_row = False

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return ()

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return self.columns

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        return self.columns

    def origin(self, name: str) -> Origin | None:
        return self.child.origin(name)

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(self.columns),)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(ε(E)) = ε(New(E|K)) − ε(Old(E|K)), K the rows of Δ(E): only how often each row is there matters.

        Figure 2's ε(ADD) ∸ (E ∸ DEL) decides the same for each touched row: whether it was there, and whether it is.
        Old = New − Δ is a subtraction of counts, so a row of which there are millions is one row here.
        """
        change = d.delta(self.child)
        if change is None:
            return None
        change = d.shared(change)
        counts = counts_of_both_states(self.child, change, Keys.same(change, self.columns), self.columns, (NEW, OLD))
        return changed_rows(Summed(united(counts, (*self.columns, NEW, OLD)), (NEW, OLD)), once(NEW), once(OLD))

    def restricted(self, keys: Keys) -> Plan:
        """ε(E) ⋉ K = ε(E ⋉ K)."""
        return Distinct(self.child.restricted(keys))

    @property
    def strategy(self) -> Strategy:
        return TOUCHED_ROWS

    def supported(self, tables: SupportTables) -> Plan:
        return self

    def reads(self, labels: Labels) -> str:
        return f"the changed rows, and the same rows in {listed_tables(self)}"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        child, values = u.plan(self.child)
        return Distinct(child), values

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        return [[c.apart(demand, self.columns) for demand in asked]]

    def known(self, c: Conditions) -> Conjunction:
        return c.facts_of(self.child)

    def figure2(self, f: Figure2) -> Pair:
        return f.distinct(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}

    def notation(self, labels: Labels) -> str:
        return f"ε({labels.text(self.child)})"

    def evaluate(self, e: Evaluation) -> Bag:
        return Counter(dict.fromkeys(e(self.child), 1))

    def sql(self, w: Writer) -> exp.Query:
        query = bags.select(map(bags.column, self.columns), w.below(self.child, "q"))
        query.set("distinct", exp.Distinct())
        return query
