"""Two queries node by node: which rows that a view keeps are rows that its new definition needs.

Nodes are alike if they have the same bag of rows in the columns that they share. One of them may have more columns:
what a query reads of a table does not change how many rows there are. Only what is surely alike is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sqlglot import exp

from deferred.algebra.operators import Aggregate, Filter, Join, OuterJoin, Project, Reference, Scan, UnionAll
from deferred.algebra.operators.scan import scans_of
from deferred.algebra.operators.temporary import Stored, Temporary
from deferred.algebra.plan import Plan, transformed
from deferred.algebra.scalar import Scalar, column, columns_of, conjuncts, substitute, written
from deferred.algebra.strategy import Keeping, Strategy, kept_nodes

Pairs = Mapping[str, str]
"""Columns of the new plan, each with the column of the old one that has the same values."""

Outputs = Sequence[tuple[str, Scalar]]

AtHand = Callable[[Stored], Sequence[Mapping[str, Any]] | None]


@dataclass(frozen=True)
class Shared:
    """A support table of the new plan as it follows from the old ones, and the rows of its node."""

    contents: Plan
    node: Plan


@dataclass
class Sharing:
    """Compares nodes of an old plan with nodes of a new one; `tables` are those that both read under one name."""

    old: Plan
    old_types: Mapping[str, str]
    new_types: Mapping[str, str]
    tables: frozenset[str]
    at_hand: AtHand = lambda stored: None
    """The rows of a small support table of the old plan, where they can be looked at before anything is computed."""
    _pairs: dict[tuple[Plan, Plan], Pairs | None] = field(default_factory=dict)

    def columns(self, old: Plan, new: Plan) -> Pairs | None:
        """The columns that two nodes share, if they have the same bag of rows in these; None if that is not sure."""
        if (old, new) not in self._pairs:
            self._pairs[old, new] = self._columns(old, new) if type(old) is type(new) else None
        return self._pairs[old, new]

    def shared(self, new: Plan) -> dict[str, Shared]:
        """The support tables of a new plan that follow from the old ones, of all ways the one that reads least."""
        found: dict[str, Shared] = {}
        olds = kept_nodes(self.old)
        for name, (node, strategy) in kept_nodes(new).items():
            ways = [
                way for old, kept in olds.values() if (way := strategy.carried_over(node, old, kept, self)) is not None
            ]
            if ways:
                best = min(ways, key=lambda way: len(scans_of(way)))
                found[name] = Shared(best, node)
        return found

    def taken(self, table: Stored, names: Iterable[tuple[str, str]]) -> Plan:
        """(new, old) columns of an old support table: a result that is there before the new plan is computed."""
        return Project(Temporary(kept_before(table.name), table.columns), tuple((new, column(c)) for new, c in names))

    def taken_whole(self, old: Plan, new: Plan, stored: Stored) -> Plan | None:
        """An old support table under the columns of a new node, if both nodes have the same rows."""
        pairs = self.columns(old, new)
        if pairs is None or not pairs.keys() >= set(new.columns):
            return None
        counts = [(c, c) for c in stored.columns if c not in old.columns]
        return self.taken(stored, [*((c, pairs[c]) for c in new.columns), *counts])

    # ---- which nodes are alike

    def _columns(self, old: Any, new: Any) -> Pairs | None:
        leaf = _LEAVES.get(type(new))
        if leaf is not None:
            return leaf(self, old, new)
        if len(old.children) != len(new.children):
            return None
        below: dict[str, str] = {}
        sides = []
        for mine, theirs in zip(old.children, new.children, strict=True):
            pairs = self.columns(mine, theirs)
            if pairs is None or any(below.get(c, pairs[c]) != pairs[c] for c in pairs):
                return None
            sides.append(pairs)
            below |= pairs
        if isinstance(new, UnionAll):
            return _unions(old, new, sides)
        return _RULES.get(type(new), _others)(old, new, below)

    def scans(self, old: Scan, new: Scan) -> Pairs | None:
        if old.table != new.table or new.table not in self.tables:
            return None
        known = dict(zip(old.names, old.ids, strict=True))
        return {
            mine: known[name]
            for name, mine in zip(new.names, new.ids, strict=True)
            if name in known and self.old_types.get(known[name]) == self.new_types.get(mine)
        }

    def references(self, old: Reference, new: Reference) -> Pairs | None:
        """Only the branches of two recursions that are compared have one."""
        return dict(zip(new.ids, old.ids, strict=True)) if len(new.ids) == len(old.ids) else None


def text_over(expression: Scalar, pairs: Pairs) -> str | None:
    """An expression of the new plan over the columns of the old one, None where one has no partner."""
    if not columns_of(expression) <= pairs.keys():
        return None
    return written(substitute(expression, {new: column(old) for new, old in pairs.items()}))


def _conditions(condition: Scalar | None, pairs: Pairs) -> list[str | None]:
    return sorted((text_over(part, pairs) for part in conjuncts(condition)), key=str)


def _same_conditions(old: Scalar | None, new: Scalar | None, pairs: Pairs) -> bool:
    theirs = _conditions(new, pairs)
    return None not in theirs and _conditions(old, {c: c for c in columns_of(old)}) == theirs


def _projections(old: Project, new: Project, pairs: Pairs) -> Pairs:
    """Π keeps every row: the outputs that both compute are shared."""
    return _outputs(old.outputs, new.outputs, pairs)


def _outputs(old: Outputs, new: Outputs, pairs: Pairs) -> dict[str, str]:
    """The outputs of the new node that the old one has, rather in the same place than in another one."""
    listed = [(name, written(e)) for name, e in old]
    known = {text: name for name, text in listed}
    found = {}
    for place, (name, e) in enumerate(new):
        text = text_over(e, pairs)
        if text is not None and text in known:
            found[name] = listed[place][0] if place < len(listed) and listed[place][1] == text else known[text]
    return found


def _filters(old: Filter, new: Filter, pairs: Pairs) -> Pairs | None:
    return pairs if _same_conditions(old.condition, new.condition, pairs) else None


def _outer_joins(old: OuterJoin, new: OuterJoin, pairs: Pairs) -> Pairs | None:
    same = old.kind == new.kind and _same_conditions(old.condition, new.condition, pairs)
    return {c: pairs[c] for c in new.columns if c in pairs} if same else None


def _aggregates(old: Aggregate, new: Aggregate, pairs: Pairs) -> Pairs | None:
    """γ by the same columns has the same groups, whatever else it computes of them."""
    if len(old.keys) != len(new.keys) or {pairs.get(key) for key in new.keys} != set(old.keys):
        return None
    return {**{key: pairs[key] for key in new.keys}, **_outputs(old.outputs, new.outputs, pairs)}


def _unions(old: UnionAll, new: UnionAll, sides: list[Pairs]) -> Pairs:
    """A column of ⊎ is shared if it is so on every side, in one place."""
    places = {old_columns: i for i, old_columns in enumerate(zip(*(side.columns for side in old.inputs), strict=True))}
    found = {}
    for i, mine in enumerate(zip(*(side.columns for side in new.inputs), strict=True)):
        place = places.get(tuple(pairs.get(c, "") for pairs, c in zip(sides, mine, strict=True)))
        if place is not None:
            found[new.ids[i]] = old.ids[place]
    return found


def _others(old: Plan, new: Plan, pairs: Pairs) -> Pairs | None:
    """Any other node: every column of it and every field is the same, but how it is maintained."""
    if len(old.columns) != len(new.columns):
        return None
    whole = {**pairs, **dict(zip(new.columns, old.columns, strict=True))}
    if any(whole[c] != pairs[c] for c in pairs):
        return None
    mine = {c: c for side in (old, *old.children) for c in side.columns}
    for part in fields(new):  # type: ignore[arg-type]  # every node is a dataclass
        if _normal(getattr(old, part.name), mine) != _normal(getattr(new, part.name), whole):
            return None
    below = [c for child in new.children for c in child.columns]
    return dict(zip(new.columns, old.columns, strict=True)) if all(c in pairs for c in below) else None


def _normal(value: Any, pairs: Pairs) -> Any:
    """The value of a field over the columns of the old plan; inputs are compared by themselves."""
    if isinstance(value, (Plan, Strategy)):
        return None
    if isinstance(value, exp.Expr):
        return text_over(value, pairs) or value
    if isinstance(value, str):
        return pairs.get(value, value)
    if isinstance(value, Mapping):
        return {_normal(k, pairs): _normal(v, pairs) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_normal(each, pairs) for each in value)
    return value


_RULES: Mapping[type[Plan], Callable[[Any, Any, Pairs], Pairs | None]] = {
    Project: _projections,
    Filter: _filters,
    Join: _filters,
    OuterJoin: _outer_joins,
    Aggregate: _aggregates,
}
"""How nodes of a class are compared; others share rows only where all their fields agree."""

_LEAVES: Mapping[type[Plan], Callable[[Sharing, Any, Any], Pairs | None]] = {
    Scan: Sharing.scans,
    Reference: Sharing.references,
}


# ---- a plan over what is shared


def kept_before(support: str) -> str:
    """The name of the result that has the rows of an old support table."""
    return f"old {support}"


def over_shared(plan: Plan, shared: Mapping[str, Shared]) -> Plan:
    """The plan in which the rows of shared nodes come from what follows from the old support tables."""

    def replaced(node: Plan) -> Plan:
        strategy = node.strategy
        if not isinstance(strategy, Keeping) or strategy.support not in shared:
            return node
        contents = shared[strategy.support].contents
        return transformed(strategy.past(node, None), lambda leaf: contents if isinstance(leaf, Stored) else leaf)

    return transformed(plan, replaced)
