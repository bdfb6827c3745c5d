"""Duplicate elimination, difference and intersection: decided row by row, so maintained at the touched rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deferred.algebra.plan import Keys, Plan, Project, Restrict, Unary, union
from deferred.algebra.scalar import column

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator


@dataclass(frozen=True, eq=False)
class Distinct(Unary):
    """ε: every row of E once."""

    @property
    def maintained(self) -> str:
        return "touched rows"

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(ε(E)) = ε(New(E|K)) − ε(Old(E|K)), K the rows of Δ(E).

        Figure 2's ε(ADD) ∸ (E ∸ DEL) asks the same of each touched row: was it there, is it there.
        """
        change = d.delta(self.child)
        if change is None:
            return None
        change = d.shared(change)
        new, old = d.states(self.child, change, Keys.same(change, self.columns))
        return d.difference(Distinct(new), Distinct(old), self.columns)

    def restricted(self, keys: Keys) -> Plan:
        """ε(E) ⋉ K = ε(E ⋉ K)."""
        return Distinct(self.child.restricted(keys))


@dataclass(frozen=True, eq=False)
class SetOperation(Plan):
    """A binary operation that looks only at the multiplicities n and m of one row in its two inputs.

    EXCEPT ALL is the paper's monus, max(0, n − m); INTERSECT ALL its min. Without ALL the result is a set:
    the row is there when n > 0 and m = 0 (EXCEPT), or when both are positive (INTERSECT).
    """

    left: Plan
    right: Plan
    kind: str  # "EXCEPT" or "INTERSECT"
    every: bool  # ALL
    ids: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.left, self.right)

    def with_children(self, children: Sequence[Plan]) -> Plan:
        left, right = children
        return replace(self, left=left, right=right)

    @property
    def maintained(self) -> str:
        return "touched rows"

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E ∘ F) = New(E|K) ∘ New(F|K) − Old(E|K) ∘ Old(F|K), K the rows of Δ(E) and of Δ(F).

        A row outside K has the multiplicities it had on both sides, so its result is what it was. Inside K both
        states are had after the update, Old = New − Δ: no side is read at the past cut.
        """
        changes = [d.delta(self.left), d.delta(self.right)]
        shared = [None if change is None else d.shared(change) for change in changes]
        touched = [_named(change, side.columns, self.ids)
                   for change, side in zip(shared, self.children, strict=True) if change is not None]
        rows = union(touched, self.ids)
        if rows is None:
            return None
        rows = d.shared(Distinct(rows))
        states = []
        for side, change in zip(self.children, shared, strict=True):
            keys = Keys.of(rows, zip(side.columns, self.ids, strict=True))
            states.append(d.states(side, change, keys))
        (new_left, old_left), (new_right, old_right) = states
        return d.difference(replace(self, left=new_left, right=new_right),
                            replace(self, left=old_left, right=old_right), self.ids)

    def restricted(self, keys: Keys) -> Plan:
        """(E ∘ F) ⋉ K = (E ⋉ K) ∘ (F ⋉ K)."""
        plain = keys.plain
        if plain is None:
            return Restrict(self, keys)
        sides = []
        for side in self.children:
            below = plain.renamed(dict(zip(self.ids, side.columns, strict=True)))
            assert below is not None
            sides.append(side.restricted(below))
        plan = self.with_children(sides)
        return plan if plain.completes(keys) else Restrict(plan, keys)


def _named(change: Plan, columns: Sequence[str], ids: Sequence[str]) -> Plan:
    return Project(change, tuple((new, column(old)) for new, old in zip(ids, columns, strict=True)))
