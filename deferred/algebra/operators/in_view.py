"""E whose rows are at hand elsewhere, in the view or in a shared table: both states are read there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from deferred.algebra.bags import COUNT
from deferred.algebra.nodes import AtHand
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.project import Project
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.signed import Net, Repeat
from deferred.algebra.operators.temporary import Temporary
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Demands, Keys, Plan
from deferred.algebra.scalar import Scalar, column
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


SHARED = "shared "
"""With this begin the names of the temporary results that hold rows of shared auxiliary tables."""


def shared_rows(support: str, columns: Sequence[str]) -> Temporary:
    """The rows of a shared auxiliary table at s_i: a signed bag, not netted."""
    return Temporary(f"{SHARED}{support}", (*columns, COUNT))


def is_shared(rows: Temporary) -> bool:
    """Whether a temporary result is what `shared_rows` gives."""
    return rows.name.startswith(SHARED)


@dataclass(frozen=True)
class HeldRows(Stateful):
    """The node's rows are among others that are at hand; `shown` pairs its columns with theirs."""

    shown: tuple[tuple[str, str], ...]

    @property
    @abstractmethod
    def held(self) -> Plan:
        """The rows that are at hand, at s_i: a signed bag, not netted."""

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
        rows = self.held
        found = None if keys is None else keys.renamed(dict(self.shown))
        if found is not None:
            rows = Restrict(rows, found)
        outputs = tuple((mine, column(theirs)) for mine, theirs in self.shown)
        return Project(rows, (*outputs, (COUNT, column(COUNT))))


@dataclass(frozen=True)
class InView(HeldRows):
    """Each row of the node is in one row of the view, of which `view` are all columns."""

    name: ClassVar[str] = "in the view"
    view: tuple[str, ...]

    @property
    def held(self) -> Plan:
        return view_rows(self.view)

    def base_rows_in(self, node: Seen, labels: Labels) -> str:
        return "not kept; it refers to all others, and the view shows its rows"


@dataclass(frozen=True)
class InShared(HeldRows):
    """The node is Π(σ(T)) of an auxiliary table T that several views share: `columns` are T's, `condition` is σ's."""

    name: ClassVar[str] = "shared auxiliary table"
    support: str
    folder: str
    columns: tuple[str, ...]
    condition: Scalar | None

    @property
    def held(self) -> Plan:
        rows = shared_rows(self.support, self.columns)
        return rows if self.condition is None else Filter(rows, self.condition)

    def base_rows_in(self, node: Seen, labels: Labels) -> str:
        return f"kept in {self.folder}, which views share, as {labels.text(node)}"


@dataclass(frozen=True, eq=False)
class Seen(AtHand):
    """E, of which both states are at hand: every row is in exactly one row of the view, or E is part of a shared table.

    An E that is in the view refers, directly or through others, to all other tables of the view: each of its rows that
    is in the view is there once. `bitwise` has the types of the columns in which SQL equates different values.
    """

    seen: HeldRows
    bitwise: Mapping[str, str]

    called = "rows that the view shows"

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E), netted: what is at hand changes with the view, or by itself."""
        change = d.delta(self.child)
        return None if change is None else d.shared(Net(change, self.bitwise))

    @property
    def strategy(self) -> Strategy:
        return self.seen

    def reads(self, labels: Labels) -> str:
        where = "the view's own rows" if isinstance(self.seen, InView) else "rows of a shared auxiliary table"
        return f"the changed rows, and {where} ({labels.columns(mine for mine, _ in self.seen.shown)})"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        raise u.unsupported("rows of the view itself")

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        return [asked]
