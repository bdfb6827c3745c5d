"""fix: WITH RECURSIVE, the rows that follow from a start by rounds, and the reference to them in their own branches.

How a recursion is maintained stands in `rederiving` (UNION: a set) and in `levels` (UNION ALL: a bag).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.nodes import Barrier, QueryLeaf
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer, inputs_first
from deferred.algebra.program import Bound, Loop, Step
from deferred.algebra.scalar import Fresh, Scalar
from deferred.algebra.strategy import RECOMPUTED, Keeping, Strategy, SupportTables

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.operators.scan import Scan
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting

ROUNDS = 100
"""How many rounds a recursion may take that need not end and does not say so itself, as in Spark."""


@dataclass(frozen=True, eq=False)
class Reference(QueryLeaf):
    """X: the rows of a recursion as its own branches read them. What they are, the recursion's rules say."""

    name: str
    label: str
    ids: tuple[str, ...]
    names: tuple[str, ...]

    called = "a recursion itself"
    row_by_row = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(X) in a round is what the round before has found; X stands still while its inputs change."""
        standing = d.references.get(self.name)
        return None if standing is None else standing.change

    def reads(self, labels: Labels) -> str:
        return "the rows of the round before"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        return u.for_every_value(self)

    def known(self, c: Conditions) -> Conjunction:
        return ()

    def figure2(self, f: Figure2) -> Pair:
        return f.constant(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {mine: f"{self.label}.{name}" for mine, name in zip(self.ids, self.names, strict=True)}

    def notation(self, labels: Labels) -> str:
        return self.label

    def evaluate(self, e: Evaluation) -> Bag:
        return e.temporaries[self.name]

    def sql(self, w: Writer) -> exp.Query:
        raise TypeError(f"The reference to {self.label} has no rows of its own: its recursion runs in rounds.")


class Fixpoint(Keeping):
    """How a recursion is maintained: its rows are kept, and a change of its inputs goes through it in rounds.

    Every round looks rows up.
    """

    def order(self, node: Recursion) -> Sequence[str]:
        return self.contents(node).columns

    def reads_again(self, node: Recursion) -> bool:
        return True

    @abstractmethod
    def delta(self, node: Recursion, d: Differentiator, start: Plan | None, step: Plan | None) -> Plan:
        """Δ of the recursion, from the changes of its inputs while X stands still; at least one is not None."""

    @abstractmethod
    def filling(self, node: Recursion, d: Differentiator) -> None:
        """Adds the loop that computes the recursion from the base tables alone, under its own name."""

    @abstractmethod
    def computed(self, node: Recursion) -> Plan:
        """The rows that `filling` has computed."""


@dataclass(frozen=True, eq=False)
class Recursion(Barrier):
    """fix X. S ∪ T(X): the start S, and all that T derives from it, from that, and so on.

    Without `every` (UNION) it is a set: the least X = ε(S ⊎ T(X)). With it (UNION ALL) it is a bag with one row for
    each derivation, the least X = S ⊎ T(X), whose last column is the level: the height of the derivation.
    T is monotone: a larger X gives no less. The binder refuses a recursion through negation or aggregation.

    Without `rounds` it surely ends: it is a set, and T takes all values from rows of X or from elsewhere, and computes
    none. `taken` are the places of the columns of which that is so.
    """

    start: Plan
    step: Plan
    reference: Reference
    every: bool
    rounds: int | None = ROUNDS
    taken: tuple[int, ...] = ()
    kept: Fixpoint | None = None

    called = "a recursion"
    row_by_row = False
    in_recursion = False
    one_row = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.reference.ids

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.start, self.step)

    def with_children(self, children: Sequence[Plan]) -> Plan:
        start, step = children
        return replace(self, start=start, step=step)

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return ()

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None if self.every else self.columns

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        return self.columns

    def origin(self, name: str) -> Origin | None:
        return None

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(child.columns) for child in self.children)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(S ⊎ T(X)) while X stands still, then the rounds of its strategy. Without a change there is no round."""
        from deferred.algebra.delta import Standing

        kept = self._kept
        d.references[self.reference.name] = Standing(lambda keys: kept.past(self, keys))
        start, step = d.delta(self.start), d.delta(self.step)
        return None if start is None and step is None else kept.delta(self, d, start, step)

    def restricted(self, keys: Keys) -> Plan:
        return Restrict(self, keys)

    @property
    def strategy(self) -> Strategy:
        return RECOMPUTED if self.kept is None else self.kept

    def supported(self, tables: SupportTables) -> Plan:
        return tables.recursion(self)

    def reads(self, labels: Labels) -> str:
        what = "derivations, by level" if self.every else "rows, by keys"
        return f"the changed rows, then in each round those of the round before; the kept {what}"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        raise u.unsupported("WITH RECURSIVE")

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        """A row may lead to any other one through rounds, whatever is asked of these."""
        return [c.ANY for _ in self.children]

    def known(self, c: Conditions) -> Conjunction:
        return ()

    @property
    def watched(self) -> Sequence[Scan]:
        return ()

    def figure2(self, f: Figure2) -> Pair:
        return f.recomputed(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return dict(zip(self.columns, self.reference.names, strict=True))

    def notation(self, labels: Labels) -> str:
        union = labels.infix("⊎" if self.every else "∪", self.children)
        return f"fix[{self.reference.label}]({union})"

    def evaluate(self, e: Evaluation) -> Bag:
        """The plain fixpoint, by its definition."""
        start, found = e(self.start), Counter[Any]()
        for _ in count() if self.rounds is None else range(self.rounds + 2):
            derived = start + e.given(self.reference.name, found)(self.step)
            newest = derived if self.every else Counter(dict.fromkeys(derived, 1))
            if newest == found:
                return found
            found = newest
        raise RecursionError(f"{self.reference.label} does not end within {self.rounds} rounds.")

    def sql(self, w: Writer) -> exp.Query:
        """Its rows are computed before: see `rounds_before`."""
        return w.query(self._kept.computed(self))

    @property
    def bound(self) -> Bound | None:
        if self.rounds is None:
            return None
        return Bound(self.rounds, self.reference.label, len(self.columns) - self.every, self.taken)

    @property
    def _kept(self) -> Fixpoint:
        assert self.kept is not None, "a recursion of a view always has a support table"
        return self.kept


def rounds_before(plan: Plan) -> list[Step | Loop]:
    """What must run before a plan over the base tables can: its recursions, each after those that it reads.

    No support table is read: this is how a view is filled, recomputed and verified.
    """
    from deferred.algebra.delta import Differentiator

    steps: list[Step | Loop] = []
    for node in inputs_first(plan):
        if isinstance(node, Recursion):
            d = Differentiator(())
            d.keeps, d.fresh = False, Fresh(f"{node.reference.name}_step")
            node._kept.filling(node, d)
            steps += d.steps
    return steps


def has_recursion(plan: Plan) -> bool:
    return any(isinstance(node, Recursion) for node in plan.walk())
