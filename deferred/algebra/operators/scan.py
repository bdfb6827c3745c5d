"""R: a base table at the current cut, and its net log between the two cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.bags import COUNT
from deferred.algebra.nodes import Derived, Leaf, QueryLeaf
from deferred.algebra.plan import Conjunction, Origin, Plan, Writer

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True, eq=False)
class Scan(QueryLeaf):
    """R, a base table at the current cut: `names` of its columns, known in the plan as `ids`."""

    table: str
    names: tuple[str, ...]
    ids: tuple[str, ...]

    called = "a table"
    row_by_row = True

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        pairs = [(n, i) for n, i in zip(self.names, self.ids, strict=True) if i in needed]
        pairs = pairs or [(self.names[0], self.ids[0])]
        return replace(self, names=tuple(n for n, _ in pairs), ids=tuple(i for _, i in pairs))

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(R) = ▲R − ▼R, the net base log; safe after the update because the log is a record and does not read R."""
        return Change(self.table, self.names, self.ids) if self.table in d.changed else None

    def reads(self, labels: Labels) -> str:
        return "its changes"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        return u.for_every_value(self)

    def known(self, c: Conditions) -> Conjunction:
        return ()

    def figure2(self, f: Figure2) -> Pair:
        return f.table(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {
            mine: f"{labels.table(self)}.{name}" if labels.is_ambiguous(name) else name
            for name, mine in zip(self.names, self.ids, strict=True)
        }

    def notation(self, labels: Labels) -> str:
        return labels.table(self)

    def evaluate(self, e: Evaluation) -> Bag:
        return e.picked(e.state[self.table], self.names)

    def sql(self, w: Writer) -> exp.Query:
        return bags.select(_renamed(self), w.scan(self.table))


@dataclass(frozen=True, eq=False)
class Change(Derived, Leaf):
    """The net base log ▲R − ▼R between the two cuts, as a signed bag."""

    table: str
    names: tuple[str, ...]
    ids: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.ids, COUNT)

    def origin(self, name: str) -> Origin | None:
        return self, dict(zip(self.ids, self.names, strict=True)).get(name, name)

    def notation(self, labels: Labels) -> str:
        return f"(▲{labels.table(self)} − ▼{labels.table(self)})"

    def evaluate(self, e: Evaluation) -> Bag:
        rows = e.picked(e.changes[self.table], self.names)
        return type(rows)({(*row, count): 1 for row, count in rows.items() if count})

    def sql(self, w: Writer) -> exp.Query:
        return bags.select([*_renamed(self), bags.column(COUNT)], w.change(self.table))


def _renamed(leaf: Scan | Change) -> list[exp.Expr]:
    return [bags.alias(bags.column(name), mine) for name, mine in zip(leaf.names, leaf.ids, strict=True)]


def tables_of(plan: Plan) -> frozenset[str]:
    """The base tables that a plan reads, in either state."""
    return frozenset(node.table for node in plan.walk() if isinstance(node, (Scan, Change)))


def scans_of(plan: Plan) -> list[Scan]:
    """The places where a plan reads base tables at the new cut."""
    return [node for node in plan.walk() if isinstance(node, Scan)]


def listed_tables(plan: Plan) -> str:
    """The names of a plan's base tables, for `explain`."""
    return ", ".join(sorted(tables_of(plan))) or "no table"
