"""E whose rows are all in the view: both states are read there, and nothing is kept beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from deferred.algebra.bags import COUNT
from deferred.algebra.operators.project import Project
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.signed import Net, Repeat
from deferred.algebra.operators.temporary import Temporary
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Barrier, Conjunction, Demands, Keys, Origin, Plan, Unary, Writer
from deferred.algebra.scalar import Scalar, column
from deferred.algebra.strategy import Stateful, Strategy, SupportTables

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.paper.figure2 import Figure2, Pair
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting

VIEW = "view"
"""The temporary result that holds the view at s_i: a signed bag, not netted, under the ids of the plan's columns."""


def view_rows(columns: Sequence[str]) -> Temporary:
    """(MV ∸ ∇MV) ⊎ ΔMV, for a plan with the given columns."""
    return Temporary(VIEW, (*columns, COUNT))


@dataclass(frozen=True)
class InView(Stateful):
    """Each row of the node is in one row of the view: `shown` says in which columns. `view` are all its columns."""

    name: ClassVar[str] = "in the view"
    view: tuple[str, ...]
    shown: tuple[tuple[str, str], ...]

    def past(self, node: Seen, keys: Keys | None) -> Plan:
        return Repeat(Net(self._rows(keys), node.bitwise))

    def present(self, node: Seen, d: Differentiator, keys: Keys | None) -> Plan:
        assert d.has_delta(node), "a node's change comes before its new state"
        change = d.delta(node)
        if change is None:
            return self.past(node, keys)
        both = united([self._rows(keys), change if keys is None else Restrict(change, keys)], (*node.columns, COUNT))
        return Repeat(Net(both, node.bitwise))

    def reads_again(self, node: Seen) -> bool:
        return False

    def _rows(self, keys: Keys | None) -> Plan:
        rows: Plan = view_rows(self.view)
        found = None if keys is None else keys.renamed(dict(self.shown))
        if found is not None:
            rows = Restrict(rows, found)
        outputs = tuple((mine, column(theirs)) for mine, theirs in self.shown)
        return Project(rows, (*outputs, (COUNT, column(COUNT))))


@dataclass(frozen=True, eq=False)
class Seen(Barrier, Unary):
    """E, of which every row is in exactly one row of the view, so that the view is its auxiliary table.

    Such an E refers, directly or through others, to all other tables of the view: each of its rows that is in the view
    is there once. `bitwise` has the types of the columns in which SQL equates different values.
    """

    seen: InView
    bitwise: Mapping[str, str]

    row_by_row = False
    in_recursion = True
    one_row = False
    looked_up_by = ()

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return ()

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    def origin(self, name: str) -> Origin | None:
        return None

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(self.columns),)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E): what the view shows of E changes with the view."""
        change = d.delta(self.child)
        return None if change is None else d.shared(change)

    def restricted(self, keys: Keys) -> Plan:
        return Restrict(self, keys)

    @property
    def strategy(self) -> Strategy:
        return self.seen

    def supported(self, tables: SupportTables) -> Plan:
        return self

    def reads(self, labels: Labels) -> str:
        return f"the changed rows, and the view's own rows ({labels.columns(theirs for _, theirs in self.seen.shown)})"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        raise u.unsupported("rows of the view itself")

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        return [asked]

    def known(self, c: Conditions) -> Conjunction:
        return c.facts_of(self.child)

    def figure2(self, f: Figure2) -> Pair:
        return f.linear(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}

    def notation(self, labels: Labels) -> str:
        return labels.text(self.child)

    def evaluate(self, e: Evaluation) -> Bag:
        return e(self.child)

    def sql(self, w: Writer) -> exp.Query:
        return w.query(self.child)
