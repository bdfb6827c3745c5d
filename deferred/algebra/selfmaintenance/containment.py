"""Auxiliary tables that contain others: Π_Y(σ_D(R)) follows from Π_X(σ_C(R)) if C is part of D, and X has what D adds.

Such a table depends on nothing but the state of one base table, so that several views can share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deferred.algebra.operators import Filter, Kept, Project, Scan
from deferred.algebra.operators.in_view import InShared, Seen
from deferred.algebra.operators.kept import Auxiliary
from deferred.algebra.operators.project import pick
from deferred.algebra.plan import Plan, replaced
from deferred.algebra.scalar import Scalar, column, columns_of, conjunction, conjuncts, is_column, substitute
from deferred.algebra.strategy import kept_nodes

PREFIX = "of_"
"""Begins the names of a shared table's columns, so that they are no ids of a view's plan."""


@dataclass(frozen=True)
class Portion:
    """Π_X(σ_C(R)): the names of X, and C as conditions by their text. Columns are those of a shared table."""

    table: str
    names: tuple[str, ...]
    conditions: Mapping[str, Scalar]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(PREFIX + name for name in self.names)

    @property
    def read(self) -> tuple[str, ...]:
        """The names of the columns of R that it is computed from."""
        own = {c for condition in self.conditions.values() for c in columns_of(condition)}
        return tuple(dict.fromkeys([*self.names, *sorted(c.removeprefix(PREFIX) for c in own)]))

    @property
    def plan(self) -> Plan:
        """The portion as a plan over the base table."""
        rows: Plan = Scan(self.table, self.read, tuple(PREFIX + name for name in self.read))
        condition = conjunction(list(self.conditions.values()))
        return pick(rows if condition is None else Filter(rows, condition), self.columns)

    def contains(self, other: Portion) -> bool:
        """Whether the other one can be computed from this one."""
        more = [c for text, condition in other.conditions.items() if text not in self.conditions for c in [condition]]
        needed = {*other.columns, *(c for condition in more for c in columns_of(condition))}
        same = self.table == other.table and self.conditions.keys() <= other.conditions.keys()
        return same and needed <= set(self.columns)

    def like(self, names: tuple[str, ...], texts: frozenset[str]) -> Portion:
        """A portion that contains this one, with the names and the conditions of a table that exists."""
        return Portion(self.table, names, {t: c for t, c in self.conditions.items() if t in texts})


@dataclass(frozen=True)
class Shared:
    """A shared auxiliary table: its folder among those of the warehouse, and what it holds of a base table."""

    folder: str
    portion: Portion


def portions(plan: Plan) -> dict[str, Portion]:
    """The auxiliary tables of a plan that are portions of one base table, by their names."""
    found = {name: _portion(node) for name, (node, _) in kept_nodes(plan).items()}
    return {name: portion for name, (portion, _) in ((n, f) for n, f in found.items() if f is not None)}


def over_shared(plan: Plan, shared: Mapping[str, Shared]) -> Plan:
    """The plan in which some of its auxiliary tables, by their names, are read in shared tables that contain them."""

    def read_there(node: Plan) -> Plan | None:
        name = node.kept.support if isinstance(node, Kept) else ""
        found = _portion(node) if name in shared else None
        if found is None or not isinstance(node, Kept):
            return None
        mine, columns = found
        held = shared[name].portion
        rest = conjunction([c for text, c in mine.conditions.items() if text not in held.conditions])
        return Seen(node.child, InShared(columns, name, shared[name].folder, held.columns, rest), {})

    return replaced(plan, read_there)


def _portion(node: Plan) -> tuple[Portion, tuple[tuple[str, str], ...]] | None:
    """The portion that an auxiliary table is, and its columns beside those that a shared table has for them."""
    if not isinstance(node, Kept) or not isinstance(node.kept, Auxiliary) or node.bitwise:
        return None
    below, conditions = node.child, list[Scalar]()
    columns: Mapping[str, Scalar] = {c: column(c) for c in node.columns}
    while isinstance(below, (Filter, Project)):
        if isinstance(below, Filter):
            conditions += conjuncts(below.condition)
        else:
            outputs = dict(below.outputs)
            columns = {c: substitute(e, outputs) for c, e in columns.items()}
            conditions = [substitute(e, outputs) for e in conditions]
        below = below.child
    if not isinstance(below, Scan) or not all(map(is_column, columns.values())):
        return None
    names = dict(zip(below.ids, below.names, strict=True))
    renamed = {i: column(PREFIX + name) for i, name in names.items()}
    texts = {c.sql(dialect="spark"): c for c in (substitute(e, renamed) for e in conditions)}
    pairs = tuple((c, PREFIX + names[e.name]) for c, e in columns.items())
    listed = [columns[c] for c in (*node.kept.by, *node.columns)]  # those first by which rows are looked up
    return Portion(below.table, tuple(dict.fromkeys(names[e.name] for e in listed)), texts), pairs
