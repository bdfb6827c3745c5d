"""φ and {x}: bags of constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.plan import Barrier, Keys, Leaf, Origin, Plan, Writer
from deferred.algebra.scalar import Scalar
from deferred.algebra.strategy import LINEAR, Strategy, SupportTables

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.paper.figure2 import Figure2, Pair
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True, eq=False)
class Values(Barrier, Leaf):
    """A constant bag: φ without rows, {x} with one."""

    ids: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]

    row_by_row = True
    one_row = False
    looked_up_by = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return tuple(value for row in self.rows for value in row)

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    def origin(self, name: str) -> Origin | None:
        return None

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(φ) = Δ({x}) = ∅."""
        return None

    def restricted(self, keys: Keys) -> Plan:
        return Restrict(self, keys)

    @property
    def strategy(self) -> Strategy:
        return LINEAR

    def supported(self, tables: SupportTables) -> Plan:
        return self

    def reads(self, labels: Labels) -> str:
        return "nothing"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        raise u.unsupported("VALUES")

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
