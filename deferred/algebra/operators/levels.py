"""Counting by level: a bag that is defined by recursion (UNION ALL), one row for each derivation.

The level of a row is the height of its derivation: 0 in S, and one more than the highest of the rows of X that T
derives it from. The bag is the union of all levels. The kept rows have their level and their count, so no derivation
rests on itself, and the counting algorithm of Gupta, Mumick, Subrahmanian 1993 applies, a level being a stratum:

    ΔX begins as ΔS + Δ(T)(X₀), the change while X stands still, of all levels at once; then, from the lowest level up,
    ΔX += T(X₀ + ΔX≤ₖ) − T(X₀ + ΔX<ₖ), whose rows are of levels above k

with T read at s_c. T may use X several times: the delta rule of the join counts every combination once. Where it is
linear, the last line is T(ΔLₖ). A level is netted before others are derived from it: what is added to it and taken away
goes no further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.bags import COUNT, bigint
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
from deferred.algebra.support_tables import keys_gone, looked_up, rows_at_new_cut, without_keys_of

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
        d.loop(self._finding(node), name, Net(signed(node.start)), _levels_so_far, following, node.bound, name)

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

        bound = None if node.bound is None else replace(node.bound, levels=True)
        standing = self._standing(node)
        found = d.loop(self._finding(node), node.reference.name, _lowest(pending), standing, following, bound)
        moved = united([looked_up(self._stored(node), Keys.same(found, node.columns)), found], columns)
        rows = d.shared(Filter(Net(moved), exp.GT(this=column(COUNT), expression=bigint(0))))
        d.supports[self.support] = Upkeep(rows, keys_gone(found, rows, node.columns), node.columns)
        d.recursions.append(Rederivation(node.reference.label, None, found.name, None))
        return found

    def _standing(self, node: Recursion) -> Callable[[Temporary, Temporary], Standing]:
        """ΔX = newest, signed, and X = X₀ + found."""
        from deferred.algebra.delta import Standing

        def standing(found: Temporary, newest: Temporary) -> Standing:
            def rows(keys: Keys | None) -> Plan:
                both = [looked_up(self._stored(node), keys), looked_up(found, keys)]
                return Repeat(Net(united(both, found.columns)))

            return Standing(rows, newest)

        return standing

    def _derived_once(self, node: Recursion, inner: Differentiator) -> Plan:
        change = inner.delta(node.step)
        assert change is not None, "a recursive branch reads its recursion"
        return change

    def _finding(self, node: Recursion) -> str:
        return f"{node.reference.label}, derivations by level"

    def _stored(self, node: Recursion) -> Stored:
        return Stored(self.support, (*node.columns, COUNT), node.columns)


def _levels_so_far(found: Temporary, newest: Temporary) -> Standing:
    """ΔX = newest, and X = found."""
    from deferred.algebra.delta import Standing

    return Standing(lambda keys: Repeat(looked_up(found, keys)), newest)


def _lowest(pending: Temporary) -> Plan:
    """The rows of the lowest level."""
    level = pending.columns[-2]
    lowest = Aggregate(pending, (), ((LOWEST, bags.call("MIN", column(level))),))
    return Restrict(pending, Keys.of(lowest, [(level, LOWEST)]))
