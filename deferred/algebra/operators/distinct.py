"""ε: every row once, decided row by row.

How it follows its input is a strategy: `TouchedRows`, which reads the touched rows in both states, or `GoodCounters`
(good_counters.py), which keeps how often each row is there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.nodes import Barrier, Unary
from deferred.algebra.operators.counts import NEW, OLD, changed_rows, counts_of_both_states, once
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.operators.signed import Summed
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer
from deferred.algebra.scalar import Scalar
from deferred.algebra.strategy import TOUCHED_ROWS, Keeping, Strategy, SupportTables

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


class KeptSet(Keeping):
    """A strategy that keeps the rows of ε(E) in a support table."""

    @abstractmethod
    def delta(self, node: Distinct, d: Differentiator, change: Plan) -> Plan:
        """Δ(ε(E)) from Δ(E)."""

    @abstractmethod
    def reads(self, node: Distinct, labels: Labels) -> str:
        """What a change makes the node read."""


@dataclass(frozen=True, eq=False)
class Distinct(Barrier, Unary):
    """ε: every row of E once."""

    kept: KeptSet | None = None

    called = "DISTINCT"
    row_by_row = False
    in_recursion = True
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
        if self.kept is not None:
            return self.kept.delta(self, d, change)
        change = d.shared(change)
        counts = counts_of_both_states(self.child, change, Keys.same(change, self.columns), self.columns, (NEW, OLD))
        summed = Summed(united(counts, (*self.columns, NEW, OLD)), (NEW, OLD))
        return changed_rows(summed, self.columns, once(NEW), once(OLD))

    def restricted(self, keys: Keys) -> Plan:
        """ε(E) ⋉ K = ε(E ⋉ K); rows that are kept are looked up, see `Differentiator.reading`."""
        return Distinct(self.child.restricted(keys)) if self.kept is None else Restrict(self, keys)

    @property
    def strategy(self) -> Strategy:
        return TOUCHED_ROWS if self.kept is None else self.kept

    def supported(self, tables: SupportTables) -> Plan:
        return tables.good_counters(self)

    def reads(self, labels: Labels) -> str:
        if self.kept is not None:
            return self.kept.reads(self, labels)
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
