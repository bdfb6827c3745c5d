"""Auxiliary tables already aggregated to the columns by which they are joined, where that suffices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from deferred.algebra.operators import Aggregate, Counted, Join, Project
from deferred.algebra.operators.counted import Extreme, Sum
from deferred.algebra.plan import Plan, used
from deferred.algebra.scalar import Scalar, column, columns_of, substitute
from deferred.algebra.types import equality_is_coarser, has_no_order


@dataclass(frozen=True)
class AggregatedFirst(Counted):
    """The parts of an auxiliary table that is aggregated, in the order of the columns by which it is joined."""

    def order(self, node: Aggregate) -> Sequence[str]:
        return node.keys


@dataclass(frozen=True)
class PreAggregation:
    """γ[K; Σf](E ⋈ F) = γ[K; Σ Σf](γ[G; Σf](E) ⋈ F), for parts f that are sums and counts over columns of E.

    G are the columns of E that the join or K read. A row of γ(E) stands for all rows of E with the same G, which meet
    the same rows of F and are in the same group; sums and counts of exact numbers may be added in any order. γ(E) is a
    counted aggregate, so its parts are kept, one row for each G.
    """

    aggregate: Aggregate
    counted: Counted
    join: Join
    computed: Mapping[str, Scalar]
    """What the aggregate reads, as expressions over the join."""

    @staticmethod
    def of(node: Plan) -> PreAggregation | None:
        """An aggregate of sums and counts over a join; None for anything else."""
        if not isinstance(node, Aggregate) or not isinstance(node.strategy, Counted):
            return None
        if any(isinstance(part, Extreme) for part in node.strategy.parts):
            return None
        below = node.child
        outputs: Mapping[str, Scalar] = {c: column(c) for c in below.columns}
        while isinstance(below, Project):
            inner = dict(below.outputs)
            outputs = {name: substitute(e, inner) for name, e in outputs.items()}
            below = below.child
        return PreAggregation(node, node.strategy, below, outputs) if isinstance(below, Join) else None

    def over(
        self, i: int, types: dict[str, str], fresh: Callable[[], str], names: Callable[[], str]
    ) -> Aggregate | None:
        """The same with the i-th input of the join aggregated first; None where a part reads another input too."""
        rows = self.join.inputs[i]
        arguments = {part.argument: self.computed[part.argument] for part in self.counted.parts if part.argument}
        if not all(columns_of(value) <= set(rows.columns) for value in arguments.values()):
            return None
        read = used(self.join.condition, *(self.computed[key] for key in self.aggregate.keys))
        group = tuple(c for c in rows.columns if c in read)
        if not group or any(equality_is_coarser(types[c]) or has_no_order(types[c]) for c in group):
            return None
        inner, totals = self._inner(rows, group, arguments, types, fresh, names)
        inputs = (*self.join.inputs[:i], inner, *self.join.inputs[i + 1 :])
        keys = tuple((key, self.computed[key]) for key in self.aggregate.keys)
        child = Project(replace(self.join, inputs=inputs), (*keys, *((t, column(t)) for t in totals)))
        parts = tuple(Sum(part.id, part.type, total) for part, total in zip(self.counted.parts, totals, strict=True))
        values = {part.id: part.computed() for part in parts}
        outputs = tuple((name, substitute(final, values)) for name, final in self.counted.finals)
        return Aggregate(child, self.aggregate.keys, outputs, replace(self.counted, parts=parts))

    def _inner(
        self,
        rows: Plan,
        group: tuple[str, ...],
        arguments: Mapping[str, Scalar],
        types: dict[str, str],
        fresh: Callable[[], str],
        names: Callable[[], str],
    ) -> tuple[Aggregate, list[str]]:
        """γ[G; …](E) with the parts of the outer aggregate as its columns."""
        passed = tuple((c, column(c)) for c in group)
        child = Project(rows, (*passed, *((a, value) for a, value in arguments.items() if a not in group)))
        parts = tuple(replace(part, id=fresh()) for part in self.counted.parts)
        totals = [fresh() for _ in parts]
        for part, total in zip(parts, totals, strict=True):
            types[part.id] = types[total] = part.type
        finals = tuple((total, column(part.id)) for part, total in zip(parts, totals, strict=True))
        outputs = tuple((total, part.computed()) for part, total in zip(parts, totals, strict=True))
        return Aggregate(child, group, outputs, AggregatedFirst(names(), parts, finals)), totals
