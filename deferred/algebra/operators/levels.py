"""Counting by level: a bag that is defined by recursion (UNION ALL), one row for each derivation.

L₀ = S, Lₖ₊₁ = T(Lₖ), and the bag is the union of all levels. The kept rows have their level and their count, so no
derivation rests on itself, and the counting algorithm of Gupta, Mumick, Subrahmanian 1993 applies: T is linear in X, so

    ΔL₀ = ΔS,  ΔLₖ₊₁ = Δ(T)(Lₖ) + T(ΔLₖ)

with Δ(T)(Lₖ), the change of T while X stands still, computed for all levels at once, and T read at s_c. A level is
netted before the next one is derived from it: what is added to it and taken away goes no further.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.keeping import keys_gone, looked_up, rows_at_new_cut, without_keys_of
from deferred.algebra.operators.aggregate import Aggregate
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.project import signed
from deferred.algebra.operators.recursion import Fixpoint, Recursion
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.signed import Net, Repeat
from deferred.algebra.operators.temporary import Stored, Temporary
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.program import Rederivation, Step, Upkeep
from deferred.algebra.scalar import column
from deferred.algebra.strategy import Keeping

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator, Standing
    from deferred.algebra.sharing import Sharing

LOWEST = "_deferred_lowest"
"""The level that a round works on."""


@dataclass(frozen=True)
class CountedLevels(Fixpoint):
    """Derivations, counted by row and level."""

    name: ClassVar[str] = "counted by level"
    support: str

    def contents(self, node: Recursion) -> Plan:
        return Net(signed(node))

    def carried_over(self, node: Recursion, old: Plan, kept: Keeping, sharing: Sharing) -> Plan | None:
        if not isinstance(old, Recursion) or not isinstance(kept, CountedLevels):
            return None
        return sharing.taken_whole(old, node, kept._stored(old))

    def past(self, node: Recursion, keys: Keys | None) -> Plan:
        return Repeat(looked_up(self._stored(node), keys))

    def present(self, node: Recursion, d: Differentiator, keys: Keys | None) -> Plan:
        return Repeat(rows_at_new_cut(d, node, self._stored(node), keys))

    def computed(self, node: Recursion) -> Plan:
        return Repeat(Temporary(node.reference.name, (*node.columns, COUNT)))

    def filling(self, node: Recursion, d: Differentiator) -> None:
        """Level by level from S, until one is empty."""

        def following(inner: Differentiator, found: Temporary, newest: Temporary) -> Plan:
            return Net(self._derived_once(node, inner))

        name = node.reference.name
        d.loop(self._finding(node), name, Net(signed(node.start)), _standing, following, node.bound, name)

    def delta(self, node: Recursion, d: Differentiator, start: Plan | None, step: Plan | None) -> Plan:
        """Each round takes the lowest level of what is pending, and adds to the rest what is derived from it."""
        columns = (*node.columns, COUNT)
        changes = [change for change in (start, step) if change is not None]
        pending = d.shared(Net(united(changes, columns)))
        assert isinstance(pending, Temporary)

        def following(inner: Differentiator, found: Temporary, newest: Temporary) -> Plan:
            rest = without_keys_of(pending, newest, node.columns[-1:])
            both = Net(united([rest, self._derived_once(node, inner)], columns))
            inner.steps.append(Step(pending.name, inner.reading(both)))
            return _lowest(pending)

        bound = replace(node.bound, levels=True)
        found = d.loop(self._finding(node), node.reference.name, _lowest(pending), _standing, following, bound)
        moved = united([looked_up(self._stored(node), Keys.same(found, node.columns)), found], columns)
        rows = d.shared(Filter(Net(moved), exp.GT(this=column(COUNT), expression=bigint(0))))
        d.supports[self.support] = Upkeep(rows, keys_gone(found, rows, node.columns), node.columns)
        d.recursions.append(Rederivation(node.reference.label, None, found.name, None))
        return found

    def _derived_once(self, node: Recursion, inner: Differentiator) -> Plan:
        change = inner.delta(node.step)
        assert change is not None, "a recursive branch reads its recursion"
        return change

    def _finding(self, node: Recursion) -> str:
        return f"{node.reference.label}, derivations by level"

    def _stored(self, node: Recursion) -> Stored:
        return Stored(self.support, (*node.columns, COUNT), node.columns)


def _standing(found: Temporary, newest: Temporary) -> Standing:
    """ΔX = newest, signed. X itself is not read: T is linear in it."""
    from deferred.algebra.delta import Standing

    return Standing(lambda keys: Repeat(looked_up(found, keys)), newest)


def _lowest(pending: Temporary) -> Plan:
    """The rows of the lowest level."""
    level = pending.columns[-2]
    lowest = Aggregate(pending, (), ((LOWEST, bags.call("MIN", column(level))),))
    return Restrict(pending, Keys.of(lowest, [(level, LOWEST)]))
