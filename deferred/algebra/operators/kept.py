"""E with its rows kept in a support table, each once with its count, for nodes that must read all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.nodes import AtHand
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.project import signed
from deferred.algebra.operators.signed import Net, Repeat
from deferred.algebra.operators.temporary import Stored
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Demands, Keys, Plan
from deferred.algebra.program import Upkeep
from deferred.algebra.scalar import column
from deferred.algebra.strategy import Keeping, Strategy
from deferred.algebra.support_tables import keys_gone, looked_up, rows_at_new_cut

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.sharing import Sharing
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True)
class KeptValues(Keeping):
    """Rows with their counts in a support table: a change updates the counts, and both states are read there."""

    name: ClassVar[str] = "kept values"
    support: str

    def contents(self, node: Kept) -> Plan:
        return Net(signed(node.child), node.bitwise)

    def carried_over(self, node: Kept, old: Plan, kept: Keeping, sharing: Sharing) -> Plan | None:
        return sharing.taken_whole(old, node, old.stored) if isinstance(old, Kept) else None

    def past(self, node: Kept, keys: Keys | None) -> Plan:
        return Repeat(looked_up(node.stored, keys))

    def present(self, node: Kept, d: Differentiator, keys: Keys | None) -> Plan:
        return Repeat(rows_at_new_cut(d, node, node.stored, keys))

    def reads_again(self, node: Kept) -> bool:
        return False


@dataclass(frozen=True)
class Auxiliary(KeptValues):
    """Rows of one base table that can matter to a view which reads no base table (Quass et al. 1996).

    They are stored in the order of the columns by which they are looked up: its key, if others refer to it, first.
    """

    name: ClassVar[str] = "auxiliary table"
    by: tuple[str, ...] = ()

    def order(self, node: Kept) -> Sequence[str]:
        return self.by

    def base_rows_in(self, node: Kept, labels: Labels) -> str:
        return f"kept in {self.support} as {labels.text(node)}"


@dataclass(frozen=True, eq=False)
class Kept(AtHand):
    """E with its rows kept: of the base tables only the changes are read, even if E is a join of many tables.

    `bitwise` has the types of the columns in which SQL equates different values; their texts are kept beside them.
    """

    kept: KeptValues
    bitwise: Mapping[str, str] = field(default_factory=dict)

    called = "kept rows"

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E), netted. The kept counts are updated by it, and rows whose count becomes zero are removed."""
        change = d.delta(self.child)
        if change is None:
            return None
        change = d.shared(Net(change, self.bitwise))
        touched = looked_up(self.stored, Keys.same(change, self.columns))
        both = united([touched, change], self.stored.columns)
        rows = d.shared(Filter(Net(both, self.bitwise), exp.GT(this=column(COUNT), expression=bigint(0))))
        d.supports[self.kept.support] = Upkeep(rows, keys_gone(change, rows, self.columns), self.columns)
        return change

    @property
    def strategy(self) -> Strategy:
        return self.kept

    def reads(self, labels: Labels) -> str:
        read = self.columns[: len(self.columns) - len(self.bitwise)]  # without the texts beside them
        return f"the changed rows, and the kept counts of their values ({labels.columns(read)})"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        raise u.unsupported("kept values")

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        """The support table holds all rows, whatever is asked of them."""
        return [c.ANY]

    @property
    def stored(self) -> Stored:
        return Stored(self.kept.support, (*self.columns, COUNT), self.columns)
