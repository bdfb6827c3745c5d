"""⋈ along declared keys and references: what cannot meet by their promises is never joined (Quass et al. 1996)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.bags import COUNT
from deferred.algebra.guards import guards, scan_below
from deferred.algebra.operators.join import Join
from deferred.algebra.operators.project import minus, signed
from deferred.algebra.operators.referring import part
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import Scan
from deferred.algebra.operators.union_all import union, united
from deferred.algebra.plan import Keys, Plan, used
from deferred.algebra.strategy import PROMISED, Stateful, Strategy

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels


@dataclass(frozen=True)
class Link:
    """A reference between two inputs of a join, by their positions; `on` pairs its columns with those of the key."""

    referring: int
    referred: int
    on: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class PromisedJoin(
    Join,
    inherits=(
        "called",
        "columns",
        "demanded",
        "evaluate",
        "expressions",
        "figure2",
        "in_recursion",
        "joined_on",
        "known",
        "labelled",
        "looked_up_by",
        "needs",
        "notation",
        "one_row",
        "origin",
        "pruned",
        "pulled_up",
        "row_by_row",
        "sql",
        "supported",
        "unique_key",
        "unnested",
        "with_join_condition",
    ),
):
    """E₁ ⋈ … ⋈ Eₙ, in which `links` are references to unique keys. What refers comes before what it refers to."""

    links: tuple[Link, ...] = ()

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ = Σⱼ C₁ ⋈ … ⋈ Cⱼ₋₁ ⋈ (▲ⱼ ⋈ Newⱼ₊₁ ⋈ … ⋈ Newₙ − ▼ⱼ ⋈ Oldⱼ₊₁ ⋈ … ⋈ Oldₙ), C = Old − ▼ = New − ▲.

        A new row of the join has a first inserted part, an old one that goes has a first deleted part, and all parts
        before it stay. If Eⱼ is referred to by an Eᵢ, then i < j, and the rows of Cᵢ refer to rows of Eⱼ that are there
        before and after. So of Δⱼ only updated rows can meet them: keys of which it has an old and a new row
        (Rule 4.1; Properties 4.4 and 4.5). If nothing above reads a column of Eⱼ that such an update can change, the
        term vanishes, and with it what it would read.
        """
        changes = [d.delta(plan) for plan in self.inputs]
        changes = [None if change is None else d.shared(change) for change in changes]
        d.guards += guards(self, d, changes)
        terms = []
        for j, change in enumerate(changes):
            if change is None or not self.matters(j):
                continue
            inserted, deleted = part(change, exp.GT), part(change, exp.LT)
            key = self.key(j)
            if key is not None:
                deleted = d.shared(Restrict(deleted, Keys.same(inserted, key)))
                inserted = d.shared(Restrict(inserted, Keys.same(deleted, key)))
            terms.append(self._new_term(d, j, inserted, changes))
            terms.append(self._old_term(d, j, deleted, changes))
        return union(terms, (*self.columns, COUNT))

    def key(self, j: int) -> tuple[str, ...] | None:
        """The key of an input that another one refers to."""
        return next((tuple(key for _, key in link.on) for link in self.links if link.referred == j), None)

    def matters(self, j: int) -> bool:
        """Whether a change of an input can meet rows of the others that stay."""
        key = self.key(j)
        return key is None or not set(self.inputs[j].columns) <= set(key) | used(self.condition)

    @property
    def watched(self) -> Sequence[Scan]:
        """The tables of which every change must be seen, also of rows that do not reach the join: they have promises.

        Of an update that takes a row out of what the join reads, or into it, half a log would show an insertion or a
        deletion, which the rule treats in another way.
        """
        return [scan_below(self.inputs[j]) for j in sorted({link.referred for link in self.links})]

    def is_read(self, i: int) -> bool:
        """Whether a change of another input can make the join read rows of an input."""
        return any(self.matters(j) for j in range(len(self.inputs)) if j != i)

    def _new_term(self, d: Differentiator, i: int, start: Plan, changes: Sequence[Plan | None]) -> Plan:
        def state(j: int, keys: Keys | None) -> Plan:
            return self.staying(j, changes[j], keys) if j < i else self._new(j, keys)

        return self.outward(d, i, start, state)

    def _old_term(self, d: Differentiator, i: int, start: Plan, changes: Sequence[Plan | None]) -> Plan:
        def state(j: int, keys: Keys | None) -> Plan:
            return self.staying(j, changes[j], keys) if j < i else self._old(j, changes[j], keys)

        return self.outward(d, i, start, state)

    def _new(self, j: int, keys: Keys | None) -> Plan:
        plan = self.inputs[j]
        return plan if keys is None else plan.restricted(keys)

    def _old(self, j: int, change: Plan | None, keys: Keys | None) -> Plan:
        plan = self.inputs[j]
        if change is None:
            return self._new(j, keys)
        strategy = plan.strategy
        if isinstance(strategy, Stateful):
            return strategy.past(plan, keys)
        return united([signed(self._new(j, keys)), minus(_at(change, keys))], (*plan.columns, COUNT))

    def staying(self, j: int, change: Plan | None, keys: Keys | None) -> Plan:
        """C: the rows of an input that are there before and after, plain or signed."""
        plan = self.inputs[j]
        if change is None:
            return self._new(j, keys)
        strategy = plan.strategy
        if isinstance(strategy, Stateful):
            old = signed(strategy.past(plan, keys))
            return united([old, _at(part(change, exp.LT), keys)], (*plan.columns, COUNT))
        inserted = minus(_at(part(change, exp.GT), keys))
        return united([signed(self._new(j, keys)), inserted], (*plan.columns, COUNT))

    def restricted(self, keys: Keys) -> Plan:
        """A state of the join is a plain join: promises are about changes."""
        return Join(self.inputs, self.condition).restricted(keys)

    @property
    def strategy(self) -> Strategy:
        return PROMISED

    def reads(self, labels: Labels) -> str:
        return f"{super().reads(labels)}, as far as keys and references leave something to be read"


def _at(change: Plan, keys: Keys | None) -> Plan:
    return change if keys is None else Restrict(change, keys)
