"""Generators: rows made out of one row (explode and its kin). Linear, like a projection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deferred.algebra.plan import COUNT, Keys, Plan, Restrict, Unary, pick
from deferred.algebra.scalar import Scalar

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator


@dataclass(frozen=True, eq=False)
class Generate(Unary):
    """Every row of E with each row that a generator makes of it; with `outer`, with NULLs where it makes none."""

    generator: Scalar
    ids: tuple[str, ...]
    outer: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.child.columns, *self.ids)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(μ(E)) = μ(Δ(E)): a generator looks at one row, so counts are carried along."""
        change = d.delta(self.child)
        return None if change is None else pick(replace(self, child=change), (*self.columns, COUNT))

    def restricted(self, keys: Keys) -> Plan:
        plain = keys.plain
        below = None if plain is None else plain.within(self.child.columns)
        plan = self if below is None else replace(self, child=self.child.restricted(below))
        return plan if below is not None and below.completes(keys) else Restrict(plan, keys)
