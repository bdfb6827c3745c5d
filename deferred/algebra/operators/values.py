"""φ and {x}: bags of constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.nodes import QueryLeaf
from deferred.algebra.plan import Conjunction, Plan, Writer
from deferred.algebra.scalar import Scalar, column, same

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True, eq=False)
class Values(QueryLeaf):
    """A constant bag: φ without rows, {x} with one."""

    ids: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]

    called = "VALUES"
    row_by_row = True

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return tuple(value for row in self.rows for value in row)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(φ) = Δ({x}) = ∅."""
        return None

    def reads(self, labels: Labels) -> str:
        return "nothing"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        raise u.unsupported("VALUES")

    def known(self, c: Conditions) -> Conjunction:
        return c.one_of([tuple(map(same, map(column, self.ids), row)) for row in self.rows])

    def figure2(self, f: Figure2) -> Pair:
        return f.constant(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}

    def notation(self, labels: Labels) -> str:
        rows = (f"({', '.join(labels.scalar(value) for value in row)})" for row in self.rows)
        return f"{{{', '.join(rows)}}}" if self.rows else "φ"

    def evaluate(self, e: Evaluation) -> Bag:
        return Counter(tuple(e.value(value, ())(()) for value in row) for row in self.rows)

    def sql(self, w: Writer) -> exp.Query:
        if not self.rows:
            nothing = exp.Select(expressions=[bags.alias(exp.Null(), i) for i in self.ids])
            return nothing.where(exp.false(), copy=False)
        return bags.union_all(
            [
                exp.Select(expressions=[bags.alias(w.scalar(e), i) for e, i in zip(row, self.ids, strict=True)])
                for row in self.rows
            ]
        )
