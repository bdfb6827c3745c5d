"""⋈: inner joins and products, one n-ary node, and its telescoped delta of at most one term per changed input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.bags import COUNT
from deferred.algebra.nodes import Nary
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.project import Project, minus, pick, signed
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.union_all import union, united
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer, used
from deferred.algebra.scalar import (
    Scalar,
    column,
    columns_of,
    conjunction,
    conjuncts,
    equated,
    equated_columns,
    is_column,
    looked_up_in,
    product,
)
from deferred.algebra.strategy import TELESCOPED, Stateful, Strategy, SupportTables

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.operators.scan import Scan
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting

OTHER = "_deferred_m"
"""The count of a joined signed input, before it is multiplied into the count of the result."""


@dataclass(frozen=True, eq=False)
class Join(Nary):
    """σ_p(E₁ × … × Eₙ); without a condition the plain product ×."""

    condition: Scalar | None = None

    called = "a join"
    row_by_row = False
    in_recursion = True

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(c for plan in self.inputs for c in plan.columns)

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return () if self.condition is None else (self.condition,)

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        return looked_up_in(self.condition)

    @property
    def one_row(self) -> bool:
        return self.condition is None and all(plan.one_row for plan in self.inputs)

    def origin(self, name: str) -> Origin | None:
        return next(plan for plan in self.inputs if name in plan.columns).origin(name)

    def pulled_up(self) -> tuple[Plan, list[Scalar]]:
        mine, parts = _split(conjuncts(self.condition), set(self.columns))
        return Join(self.inputs, conjunction(mine)), parts

    def joined_on(self, equality: Scalar) -> Plan | None:
        if not columns_of(equality) <= set(self.columns):
            return None
        return Join(self.inputs, conjunction([*conjuncts(self.condition), equality]))

    def with_join_condition(self, change: Callable[[Scalar], Scalar]) -> Plan:
        return self if self.condition is None else replace(self, condition=change(self.condition))

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        asked = needed | used(self.condition)
        return tuple(asked & frozenset(plan.columns) for plan in self.inputs)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E₁ ⋈ … ⋈ Eₙ) = Σᵢ New₁ ⋈ … ⋈ Newᵢ₋₁ ⋈ Δᵢ ⋈ Oldᵢ₊₁ ⋈ … ⋈ Oldₙ.

        Figure 2's three products, telescoped: each change meets the new state of the inputs before it and the old
        state of those after it, so every combination of changes is counted once. Everything is read after the update:
        Oldⱼ = Newⱼ − Δⱼ is a signed bag, and because products distribute over signed counts no monus is needed.
        Terms of unchanged inputs vanish: n changed inputs make n terms. The term of an input that absorbs most changes
        is a step of its own, which reads nothing where the input has not changed.
        """
        changes = [d.delta(plan) for plan in self.inputs]
        changes = [None if change is None else d.shared(change) for change in changes]
        terms = []
        for i, (plan, change) in enumerate(zip(self.inputs, changes, strict=True)):
            if change is not None:
                term = self._term(d, i, changes)
                terms.append(d.shared(term, when=change) if plan.strategy.absorbs else term)
        return union(terms, (*self.columns, COUNT))

    def _term(self, d: Differentiator, i: int, changes: Sequence[Plan | None]) -> Plan:
        """The i-th term: the change, the new state of the inputs before it, the old state of those after it."""

        def state(j: int, keys: Keys | None) -> Plan:
            plan, change = self.inputs[j], changes[j]
            if change is not None and j > i and isinstance(plan.strategy, Stateful):
                return plan.strategy.past(plan, keys)
            new = plan if keys is None else plan.restricted(keys)
            if change is None or j < i:
                return new
            change = change if keys is None else Restrict(change, keys)
            return united([signed(new), minus(change)], (*plan.columns, COUNT))

        start = changes[i]
        assert start is not None
        return self.outward(d, i, start, state, start if self.inputs[i].strategy.absorbs else None)

    def outward(
        self,
        d: Differentiator,
        i: int,
        start: Plan,
        state: Callable[[int, Keys | None], Plan],
        when: Plan | None = None,
    ) -> Plan:
        """A change of the i-th input, joined outward with states of the others: Spark starts with the small side.

        `state` gives the rows of an input, plain or signed, for the keys that the rows so far ask for; None for all.
        Nothing is read where `when` is a step without rows.
        """
        result: Plan = start
        pending = conjuncts(self.condition)
        left = [j for j in range(len(self.inputs)) if j != i]
        result, pending = _filtered(result, pending)
        while left:
            j = _next(result, left, self.inputs, pending)
            left.remove(j)
            plan = self.inputs[j]
            links = _links(result, plan, pending)
            keys = None
            if links and not d.is_row_by_row(plan):
                result = d.shared(result, when=when)
                keys = Keys(result, links)
            result, pending = _joined(result, state(j, keys), plan.columns, pending)
        return pick(result, (*self.columns, COUNT))

    def restricted(self, keys: Keys) -> Plan:
        """(E ⋈ F) ⋉ K: each input is restricted by its key columns, or by columns that the condition equates to them.

        Equality in a join excludes NULL, so `a = b` and `a <=> k` give `b <=> k`. A key that is spread over several
        inputs is compared once more on the result, because restricting each input alone keeps too many rows.
        """
        plain = keys.plain
        if plain is None:
            return Restrict(self, keys)
        equal = equivalences(self.condition)
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

    @property
    def strategy(self) -> Strategy:
        return TELESCOPED

    def supported(self, tables: SupportTables) -> Plan:
        return self

    @property
    def watched(self) -> Sequence[Scan]:
        return ()

    def reads(self, labels: Labels) -> str:
        links = [labels.scalar(part) for part in conjuncts(self.condition) if equated(part)]
        at = f"at their keys ({' AND '.join(links)})" if links else "whole: no equality links them"
        return f"the changed rows of each input, and the other inputs {at}"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        inputs: list[Plan] = []
        links: list[Scalar] = []
        values: Bindings | None = None
        for plan in self.inputs:
            if not u.is_correlated(plan):
                inputs.append(plan)
                continue
            inner, theirs = u.plan(plan)
            inputs.append(inner)
            if values is None:
                values = theirs
            else:
                links += u.equal(values, theirs)
        if values is None:
            domain, values = u.instance()
            inputs.append(domain)
        parts = [u.put(p, values) for p in conjuncts(self.condition)]
        return Join(tuple(inputs), conjunction([*parts, *links])), values

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        """A row of Eᵢ is joined with rows of the other inputs, of which what holds for all their rows holds."""

        def of_input(i: int) -> Demands:
            others = [fact for j, plan in enumerate(self.inputs) if j != i for fact in c.facts_of(plan)]
            met = (*conjuncts(self.condition), *others)
            return [c.apart((*demand, *met), self.inputs[i].columns) for demand in asked]

        return [of_input(i) for i in range(len(self.inputs))]

    def known(self, c: Conditions) -> Conjunction:
        return (*(fact for plan in self.inputs for fact in c.facts_of(plan)), *conjuncts(self.condition))

    def figure2(self, f: Figure2) -> Pair:
        return f.product(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}

    def notation(self, labels: Labels) -> str:
        if self.condition is not None and len(self.inputs) == 2:
            return labels.infix(f"⋈[{labels.scalar(self.condition)}]", self.inputs)
        product_ = labels.infix("×", self.inputs)
        return product_ if self.condition is None else f"σ[{labels.scalar(self.condition)}]({product_})"

    def evaluate(self, e: Evaluation) -> Bag:
        """The product, each conjunct applied as soon as its columns are available."""
        result: Bag = Counter({(): 1})
        columns: tuple[str, ...] = ()
        pending = conjuncts(self.condition)
        for side in self.inputs:
            rows = e(side)
            result = Counter({left + right: n * m for left, n in result.items() for right, m in rows.items()})
            columns += side.columns
            for part in [part for part in pending if columns_of(part) <= set(columns)]:
                result = e.selected(result, part, columns)
                pending.remove(part)
        return result

    def sql(self, w: Writer) -> exp.Query:
        """Each conjunct at the first join that has all its columns; a change comes first and is broadcast."""
        pending = conjuncts(self.condition)
        inputs = linked(self.inputs, pending)
        have = set(inputs[0].columns)
        query = bags.select(map(bags.column, self.columns), w.below(inputs[0], "j0"))
        first, pending = _split(pending, have)
        for i, right in enumerate(inputs[1:], start=1):
            have |= set(right.columns)
            ready, pending = _split(pending, have)
            condition = conjunction(ready)
            kind = "CROSS" if condition is None else "INNER"
            on = None if condition is None else w.scalar(condition)
            query.append("joins", exp.Join(this=w.below(right, f"j{i}"), kind=kind, on=on))
        where = conjunction(first)
        if where is not None:
            query.where(w.scalar(where), copy=False)
        if COUNT not in inputs[0].columns:
            return query
        for mine, theirs in self._linked_to(inputs[0]):
            near = w.near(mine, inputs[0], theirs)
            if near is not None:
                query.where(near, copy=False)
        return w.broadcast(query, "j0")

    def _linked_to(self, change: Plan) -> list[tuple[Scalar, Scalar]]:
        """Pairs of columns that the condition equates: one of another input, one of the change."""
        have = set(change.columns)
        return [
            (mine, theirs)
            for part in conjuncts(self.condition)
            for mine, theirs in equated(part)
            if is_column(mine) and is_column(theirs) and theirs.name in have and mine.name not in have
        ]


def _split(parts: Sequence[Scalar], columns: set[str]) -> tuple[list[Scalar], list[Scalar]]:
    """The conjuncts that read only the given columns, and the others."""
    ready = [p for p in parts if columns_of(p) <= columns]
    return ready, [p for p in parts if p not in ready]


def linked(inputs: Sequence[Plan], conditions: Sequence[Scalar]) -> list[Plan]:
    """The inputs of a join, each after one that a condition links it to where there is one, the first one first."""
    left = list(inputs)
    ordered = [left.pop(0)]
    while left:
        have = {c for plan in ordered for c in plan.columns}
        found = next(
            (
                plan
                for plan in left
                for condition in conditions
                if columns_of(condition) & have
                and columns_of(condition) & set(plan.columns)
                and columns_of(condition) <= have | set(plan.columns)
            ),
            left[0],
        )
        left.remove(found)
        ordered.append(found)
    return ordered


def product_of(left: Plan, right: Plan, conditions: Sequence[Scalar]) -> Join:
    """left ⋈ right as one n-ary join; joins on either side are merged into it."""
    inputs: list[Plan] = []
    parts: list[Scalar] = []
    for plan in (left, right):
        if isinstance(plan, Join):
            inputs.extend(plan.inputs)
            parts.extend(conjuncts(plan.condition))
        else:
            inputs.append(plan)
    return Join(tuple(inputs), conjunction([*parts, *conditions]))


def _filtered(result: Plan, pending: list[Scalar]) -> tuple[Plan, list[Scalar]]:
    """Apply the conjuncts that read only columns of the result."""
    ready, others = _split(pending, set(result.columns))
    condition = conjunction(ready)
    return result if condition is None else Filter(result, condition), others


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
            if (
                columns_of(mine) <= set(plan.columns)
                and columns_of(theirs) <= set(result.columns[:-1])
                and columns_of(mine)
                and columns_of(theirs)
            ):
                pairs.append((mine, theirs))
    return tuple(pairs)


def _joined(result: Plan, other: Plan, columns: Sequence[str], pending: list[Scalar]) -> tuple[Plan, list[Scalar]]:
    """result ⋈ other with every conjunct that can be applied now; signed counts multiply."""
    have = set(result.columns) | set(columns)
    ready, others = _split(pending, have)
    signed = COUNT in other.columns
    if signed:
        other = Project(other, (*((c, column(c)) for c in columns), (OTHER, column(COUNT))))
    joined: Plan = Join((result, other), conjunction(ready))
    outputs = tuple((c, column(c)) for c in (*result.columns[:-1], *columns))
    count = product(column(COUNT), column(OTHER)) if signed else column(COUNT)
    return Project(joined, (*outputs, (COUNT, count))), others


def equivalences(condition: Scalar | None) -> dict[str, frozenset[str]]:
    """For each column, the columns that the condition makes equal to it.

    >>> from sqlglot import parse_one
    >>> sorted(equivalences(parse_one('a = b AND b = c'))['a'])
    ['a', 'b', 'c']
    """
    classes: list[set[str]] = []
    for part in conjuncts(condition):
        pair = set(equated_columns(part) or ())
        if pair:
            classes = [c for c in classes if not c & pair] + [pair.union(*(c for c in classes if c & pair))]
    return {name: frozenset(c) for c in classes for name in c}
