"""GROUP BY and global aggregates: maintained at the touched groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deferred.algebra.plan import Keys, Plan, Restrict, Unary
from deferred.algebra.scalar import Scalar
from deferred.algebra.support import Kept, Support, counted_delta, counted_past, counted_present

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator


@dataclass(frozen=True, eq=False)
class Aggregate(Unary):
    """γ: one row a group of `keys` (columns of E), with one aggregate expression an output.

    Without keys there is exactly one row, over an empty input too.
    """

    keys: tuple[str, ...]
    outputs: tuple[tuple[str, Scalar], ...]
    support: Support | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *(name for name, _ in self.outputs))

    @property
    def maintained(self) -> str:
        if self.support is not None:
            return "counted"
        if isinstance(self.child, Kept):
            return self.child.maintained
        return "touched groups" if self.keys else "recomputed"

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(γ(E)) = γ(New(E|K)) − γ(Old(E|K)), K the groups that Δ(E) touches.

        A group outside K has the rows it had. Gupta et al.'s Algorithm 4.1 for aggregation, without assuming that
        the aggregate can be taken back: both states of a touched group are had from its rows.
        """
        change = d.delta(self.child)
        if change is None:
            return None
        change = d.shared(change)
        if self.support is not None:
            return counted_delta(self, d, change)
        keys = Keys.same(change, self.keys) if self.keys else None
        new, old = d.states(self.child, change, keys)
        return d.difference(replace(self, child=new), replace(self, child=old), self.columns)

    def restricted(self, keys: Keys) -> Plan:
        """γ(E) ⋉ K = γ(E ⋉ K) on the grouping columns: whole groups stay or go. Kept groups are looked up."""
        if self.support is not None:
            return Restrict(self, keys)
        below = keys.within(self.keys)
        plan = self if below is None else replace(self, child=self.child.restricted(below))
        return plan if below is not None and below.completes(keys) else Restrict(plan, keys)

    def past(self, keys: Keys | None) -> Plan | None:
        return None if self.support is None else counted_past(self, keys)

    def present(self, d: Differentiator, keys: Keys | None) -> Plan | None:
        return None if self.support is None else counted_present(self, d, keys)
