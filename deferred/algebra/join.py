"""Inner joins: one n-ary node, and its telescoped delta of at most one term a changed input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deferred.algebra.plan import COUNT, Filter, Keys, Plan, Project, Restrict, counted, minus, pick, union, used
from deferred.algebra.scalar import (
    Scalar,
    column,
    columns_of,
    conjunction,
    conjuncts,
    equated,
    equated_columns,
    product,
)

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator

OTHER = "_deferred_m"
"""The count of a joined signed input, until it is multiplied into the result's."""


@dataclass(frozen=True, eq=False)
class Join(Plan):
    """σ_p(E₁ × … × Eₙ); without a condition the plain product ×."""

    inputs: tuple[Plan, ...]
    condition: Scalar | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(c for plan in self.inputs for c in plan.columns)

    @property
    def children(self) -> tuple[Plan, ...]:
        return self.inputs

    def with_children(self, children: Sequence[Plan]) -> Plan:
        return replace(self, inputs=tuple(children))

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E₁ ⋈ … ⋈ Eₙ) = Σᵢ New₁ ⋈ … ⋈ Newᵢ₋₁ ⋈ Δᵢ ⋈ Oldᵢ₊₁ ⋈ … ⋈ Oldₙ.

        Figure 2's three products, telescoped: each change meets the new state of the inputs before it and the old
        state of those after it, so every combination of changes is counted once. All is read after the update:
        Oldⱼ = Newⱼ − Δⱼ is a signed bag, and because products distribute over signed counts no monus is needed.
        Terms of unchanged inputs vanish: n changed inputs make n terms.
        """
        changes = [d.delta(plan) for plan in self.inputs]
        changes = [None if change is None else d.shared(change) for change in changes]
        terms = [self._term(d, i, changes) for i, change in enumerate(changes) if change is not None]
        return union(terms, (*self.columns, COUNT))

    def _term(self, d: Differentiator, i: int, changes: Sequence[Plan | None]) -> Plan:
        """The i-th term, joined outward from the change so that Spark starts with the small side."""
        start = changes[i]
        assert start is not None
        result: Plan = start
        pending = conjuncts(self.condition)
        left = [j for j in range(len(self.inputs)) if j != i]
        result, pending = _filtered(result, pending)
        while left:
            j = _next(result, left, self.inputs, pending)
            left.remove(j)
            plan = self.inputs[j]
            links = _links(result, plan, pending)
            if links and not d.is_simple(plan):
                result = d.shared(result)
                plan = plan.restricted(Keys(result, links))
            change = changes[j]
            if change is not None and j > i:
                if links and not d.is_simple(self.inputs[j]):
                    change = Restrict(change, Keys(result, links))
                other = union([counted(plan), minus(change)], (*plan.columns, COUNT))
                assert other is not None
            else:
                other = plan
            result, pending = _joined(result, other, plan.columns, pending)
        return pick(result, (*self.columns, COUNT))

    def restricted(self, keys: Keys) -> Plan:
        """(E ⋈ F) ⋉ K: each input by the key columns it has, or has an equal of by the join condition.

        Equality in a join excludes NULL, so `a = b` and `a <=> k` give `b <=> k`. A key that is spread over several
        inputs is compared once more on the whole: restricting the inputs singly lets too much through.
        """
        plain = keys.plain
        if plain is None:
            return Restrict(self, keys)
        equal = _equivalences(self.condition)
        whole = False
        pushed = []
        for plan in self.inputs:
            have = {c: c for c in plan.columns}
            for key in used(*(mine for mine, _ in plain.on)) - have.keys():
                found = sorted(equal.get(key, frozenset()) & set(plan.columns))
                if found:
                    have[key] = found[0]
            below = plain.renamed(have)
            pushed.append(plan if below is None else plan.restricted(below))
            own = plain.within(plan.columns)
            whole = whole or (own is not None and own.completes(keys))
        plan = replace(self, inputs=tuple(pushed))
        return plan if whole else Restrict(plan, keys)


def _filtered(result: Plan, pending: list[Scalar]) -> tuple[Plan, list[Scalar]]:
    """Apply the conjuncts that one input alone decides."""
    ready = [p for p in pending if columns_of(p) <= set(result.columns)]
    condition = conjunction(ready)
    if condition is not None:
        result = Filter(result, condition)
    return result, [p for p in pending if p not in ready]


def _next(result: Plan, left: Sequence[int], inputs: Sequence[Plan], pending: Sequence[Scalar]) -> int:
    """The input to join next: one that an equality links, else one that any condition links, else the first."""
    linked = [j for j in left if _links(result, inputs[j], pending)]
    if linked:
        return linked[0]
    have = set(result.columns)
    for j in left:
        both = have | set(inputs[j].columns)
        if any(columns_of(p) <= both and columns_of(p) & have for p in pending):
            return j
    return left[0]


def _links(result: Plan, plan: Plan, pending: Sequence[Scalar]) -> tuple[tuple[Scalar, Scalar], ...]:
    """Pairs (value of plan, value of result) that a conjunct equates."""
    pairs = []
    for part in pending:
        for mine, theirs in equated(part):
            if columns_of(mine) <= set(plan.columns) and columns_of(theirs) <= set(result.columns[:-1]) and \
                    columns_of(mine) and columns_of(theirs):
                pairs.append((mine, theirs))
    return tuple(pairs)


def _joined(result: Plan, other: Plan, columns: Sequence[str], pending: list[Scalar]) -> tuple[Plan, list[Scalar]]:
    """result ⋈ other with every conjunct that now can be decided; signed counts multiply."""
    have = set(result.columns) | set(columns)
    ready = [p for p in pending if columns_of(p) <= have]
    signed = COUNT in other.columns
    if signed:
        other = Project(other, (*((c, column(c)) for c in columns), (OTHER, column(COUNT))))
    joined: Plan = Join((result, other), conjunction(ready))
    outputs = tuple((c, column(c)) for c in (*result.columns[:-1], *columns))
    count = product(column(COUNT), column(OTHER)) if signed else column(COUNT)
    return Project(joined, (*outputs, (COUNT, count))), [p for p in pending if p not in ready]


def _equivalences(condition: Scalar | None) -> dict[str, frozenset[str]]:
    """For each column, the columns that the condition makes equal to it.

    >>> from sqlglot import parse_one
    >>> sorted(_equivalences(parse_one('a = b AND b = c'))['a'])
    ['a', 'b', 'c']
    """
    classes: list[set[str]] = []
    for part in conjuncts(condition):
        pair = set(equated_columns(part) or ())
        if pair:
            classes = [c for c in classes if not c & pair] + [pair.union(*(c for c in classes if c & pair))]
    return {name: frozenset(c) for c in classes for name in c}
