"""E whose rows are all in the view: both states are read there, and nothing is kept beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from deferred.algebra.bags import COUNT
from deferred.algebra.nodes import AtHand
from deferred.algebra.operators.project import Project
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.signed import Net, Repeat
from deferred.algebra.operators.temporary import Temporary
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Demands, Keys, Plan
from deferred.algebra.scalar import column
from deferred.algebra.strategy import Stateful, Strategy

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
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
class Seen(AtHand):
    """E, of which every row is in exactly one row of the view, so that the view is its auxiliary table.

    Such an E refers, directly or through others, to all other tables of the view: each of its rows that is in the view
    is there once. `bitwise` has the types of the columns in which SQL equates different values.
    """

    seen: InView
    bitwise: Mapping[str, str]

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E): what the view shows of E changes with the view."""
        change = d.delta(self.child)
        return None if change is None else d.shared(change)

    @property
    def strategy(self) -> Strategy:
        return self.seen

    def reads(self, labels: Labels) -> str:
        return f"the changed rows, and the view's own rows ({labels.columns(theirs for _, theirs in self.seen.shown)})"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        raise u.unsupported("rows of the view itself")

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        return [asked]
