"""Window functions, and the first rows of an order: decided within a partition, so maintained at the touched ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.plan import Keys, Plan, Restrict, Unary
from deferred.algebra.scalar import Scalar, column
from deferred.algebra.support import limit_delta, limit_past, limit_present

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator

PEERS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Functions that give rows of equal order the same value, and so need no tie broken."""


@dataclass(frozen=True, eq=False)
class Window(Unary):
    """ω: every row of E with window functions added, all over one set of partition columns."""

    partition: tuple[str, ...]
    functions: tuple[tuple[str, exp.Window], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.child.columns, *(name for name, _ in self.functions))

    @property
    def maintained(self) -> str:
        return "touched partitions" if self.partition else "recomputed"

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(ω(E)) = ω(New(E|K)) − ω(Old(E|K)), K the partitions that Δ(E) touches."""
        change = d.delta(self.child)
        if change is None:
            return None
        change = d.shared(change)
        keys = Keys.same(change, self.partition) if self.partition else None
        new, old = d.states(self.child, change, keys)
        return d.difference(replace(self, child=new), replace(self, child=old), self.columns)

    def restricted(self, keys: Keys) -> Plan:
        """ω(E) ⋉ K = ω(E ⋉ K) on the partition columns: whole partitions stay or go."""
        below = keys.within(self.partition)
        plan = self if below is None else replace(self, child=self.child.restricted(below))
        return plan if below is not None and below.completes(keys) else Restrict(plan, keys)

    @property
    def decided(self) -> tuple[tuple[str, exp.Window], ...]:
        """The functions with every tie broken by the rows' own values, so that both states decide alike."""
        return tuple((name, _decided(function, self.child.columns)) for name, function in self.functions)


@dataclass(frozen=True, eq=False)
class Limit(Unary):
    """The first rows of E in an order, after an offset; ties are broken by the rows' own values."""

    order: tuple[exp.Ordered, ...]
    count: int | None
    offset: int = 0
    support: str | None = None

    @property
    def maintained(self) -> str:
        return "recomputed" if self.support is None else "kept rows"

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(λ(E)) = λ(New(E)) − λ(Old(E)): a row that leaves makes room for one that only E knows.

        With the first rows kept in a support table, E is asked again only when one of them has gone.
        """
        change = d.delta(self.child)
        if change is None:
            return None
        if self.support is not None:
            return limit_delta(self, d, d.shared(change))
        new, old = d.states(self.child, d.shared(change), None)
        return d.difference(replace(self, child=new), replace(self, child=old), self.columns)

    def past(self, keys: Keys | None) -> Plan | None:
        return None if self.support is None else limit_past(self, keys)

    def present(self, d: Differentiator, keys: Keys | None) -> Plan | None:
        return None if self.support is None else limit_present(self, d, keys)

    @property
    def decided(self) -> tuple[exp.Ordered, ...]:
        """The order with every tie broken by the rows' own values."""
        return (*self.order, *_ties(self.child.columns, self.order))


def _decided(window: exp.Window, columns: Sequence[str]) -> exp.Window:
    order = window.args.get("order")
    function = window.this
    while isinstance(function, (exp.IgnoreNulls, exp.RespectNulls)):
        function = function.this
    name = str(function.this).lower() if isinstance(function, exp.Anonymous) else function.key
    spec = window.args.get("spec")
    framed_by_rows = spec is not None and str(spec.args.get("kind", "")).upper() == "ROWS"
    numbering = name in ("row_number", "ntile", "lag", "lead", "first_value", "first")
    if order is None or name in PEERS or not (numbering or framed_by_rows):
        return window
    result = window.copy()
    listed = list(result.args["order"].expressions)
    result.args["order"].set("expressions", [*listed, *_ties(columns, listed)])
    return result


def _ties(columns: Sequence[str], order: Sequence[Scalar]) -> list[exp.Ordered]:
    taken = {e.this.name for e in order if isinstance(e.this, exp.Column)}
    return [exp.Ordered(this=column(c), nulls_first=True) for c in columns if c not in taken]
