"""Good-counters: ε(E) with the number of copies of each row kept (Shmueli, Itai 1984).

Below the joins of a tree (`algebra/trees.py`) each ε is the table that the paper calls C: the key values by which good
rows of a table support rows of its parent, and how many of them do. A row of the parent has a *mark* for the table
where its key has no count, and is good without marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.operators.counts import NEW, OLD, changed_rows, once
from deferred.algebra.operators.distinct import Distinct, KeptSet
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.project import Project, pick, signed
from deferred.algebra.operators.signed import Net, Summed
from deferred.algebra.operators.temporary import Stored, Temporary
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.program import Upkeep
from deferred.algebra.scalar import Scalar, column
from deferred.algebra.strategy import Keeping
from deferred.algebra.support_tables import looked_up, rows_at_new_cut

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.sharing import Sharing


@dataclass(frozen=True)
class GoodCounters(KeptSet):
    """ε(E) with the count of each row in a support table: a change that leaves it above zero goes no further."""

    name: ClassVar[str] = "good-counters"
    absorbs: ClassVar[bool] = True
    support: str

    def contents(self, node: Distinct) -> Plan:
        return Net(signed(node.child))

    def carried_over(self, node: Distinct, old: Plan, kept: Keeping, sharing: Sharing) -> Plan | None:
        if not isinstance(old, Distinct) or not isinstance(kept, GoodCounters):
            return None
        return sharing.taken_whole(old, node, kept._stored(old))

    def past(self, node: Distinct, keys: Keys | None) -> Plan:
        return pick(looked_up(self._stored(node), keys), node.columns)

    def present(self, node: Distinct, d: Differentiator, keys: Keys | None) -> Plan:
        return pick(rows_at_new_cut(d, node, self._stored(node), keys), node.columns)

    def reads_again(self, node: Distinct) -> bool:
        return False

    def reads(self, node: Distinct, labels: Labels) -> str:
        return f"the changed rows, and their kept counts ({labels.columns(node.columns)})"

    def delta(self, node: Distinct, d: Differentiator, change: Plan) -> Plan:
        """Δ(ε(E)): the rows whose kept count Δ(E) lifts from zero, less those whose count it brings down to zero.

        Insert and Delete of the paper for a set of rows at once, as its last section advises. Neither state of E is
        read: the old counts are those at s_i, and Δ(E) leads from s_i to s_c.
        """
        columns = node.columns
        change = d.shared(Net(change))
        old = looked_up(self._stored(node), Keys.same(change, columns))
        counts = [_with_counts(old, columns, column(COUNT)), _with_counts(change, columns, bigint(0))]
        both = d.shared(Summed(united(counts, (*columns, NEW, OLD)), (NEW, OLD)), when=change)
        there = exp.GT(this=column(NEW), expression=bigint(0))
        rows = Project(Filter(both, there), (*((c, column(c)) for c in columns), (COUNT, column(NEW))))
        gone = pick(Filter(both, exp.Not(this=there.copy())), columns)
        moves = both.name if isinstance(both, Temporary) else None
        d.supports[self.support] = Upkeep(rows, gone, columns, moves)
        return changed_rows(both, columns, once(NEW), once(OLD))

    def _stored(self, node: Distinct) -> Stored:
        return Stored(self.support, (*node.columns, COUNT), node.columns)


def _with_counts(rows: Plan, columns: tuple[str, ...], old: Scalar) -> Plan:
    """Rows with what they add to the new count, which is their own, and to the old one."""
    return Project(rows, (*((c, column(c)) for c in columns), (NEW, column(COUNT)), (OLD, old)))
