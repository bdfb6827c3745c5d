"""A new definition over the rows of the view itself: with other joins, conditions and columns.

Plans are compared, not texts: in a text the same words can mean another column, group or variable. Joins of the old
definition that the new one does not have may be left out where they neither add nor remove a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from deferred.algebra.blocks import Block, block_of
from deferred.algebra.operators import Aggregate, Distinct, Filter, Join, OuterJoin, Project, Scan
from deferred.algebra.operators.project import pick
from deferred.algebra.operators.recursion import has_recursion
from deferred.algebra.operators.scan import tables_of
from deferred.algebra.operators.temporary import Temporary
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Plan, replaced, transformed
from deferred.algebra.scalar import (
    Scalar,
    column,
    columns_of,
    conjunction,
    conjuncts,
    equated_columns,
    is_column,
    rewrite,
    substitute,
    written,
)
from deferred.algebra.selfmaintenance.promises import Promises, Reference
from deferred.algebra.sharing import Pairs, Sharing, text_over
from deferred.algebra.types import equality_is_coarser

VIEW = "old view"
"""The name of the result that has the rows of the view under its old definition, under the columns of its plan."""


@dataclass(frozen=True)
class OverView:
    """A new definition over the rows of the old view, and the promises that must hold at s_i for it to be right."""

    plan: Plan
    relied: Promises

    @property
    def follows(self) -> bool:
        """Whether the rows of the view say everything: no table is read, no round runs, and no promise is relied on."""
        return not tables_of(self.plan) and not has_recursion(self.plan) and not self.relied.keys

    def left(self, names: Sequence[str]) -> Scalar | None:
        """The condition for which rows of the view stay as they are, if that is all that the new definition changes.

        It is over the names of the view's columns; None where the new definition shows others.
        """
        if not isinstance(self.plan, Project):
            return None
        shown, child = self.plan.outputs, self.plan.child
        below, condition = (child.child, child.condition) if isinstance(child, Filter) else (child, exp.true())
        if not isinstance(below, Temporary) or [e.name if is_column(e) else "" for _, e in shown] != [*below.columns]:
            return None
        return substitute(condition, {c: column(name) for c, name in zip(below.columns, names, strict=True)})


def over_view(sharing: Sharing, new: Plan, promises: Promises) -> OverView | None:
    """new = Π(σ(V ⋈ others)): the inputs and conditions of the old plan are among those of the new one.

    A join with another table multiplies rows of the view as it multiplies those of its inputs, whatever its keys. What
    the new plan reads of the old inputs must be in columns of the view. None where that does not hold.

    An old input that the new plan does not have is left out where every row met exactly one of its rows (`_left_out`).
    """
    old, keyed = _without_left_joins(sharing.old, tables_of(new), promises)
    before = block_of(_with_conditions_above(old, sharing.old_types))
    after = block_of(_with_conditions_above(new, sharing.new_types))
    inputs = _Inputs.of(sharing, before, after)
    links = _left_out(before, inputs.dropped, promises, sharing.old_types)
    plan = None if links is None else _of_view(sharing.old.columns, new.columns, before, after, inputs, links)
    if links is None or plan is None:
        return None
    relied = _relied(links, keyed, promises)
    if not links:
        return OverView(plan, relied)
    unmatched = _referring_to_nothing(new, links, inputs.pairs)
    return None if unmatched is None else OverView(united([plan, unmatched], new.columns), relied)


@dataclass(frozen=True)
class _Inputs:
    """The inputs of two blocks: columns of those that both have, what the new one adds, and what it drops."""

    pairs: Pairs
    added: Sequence[Plan]
    dropped: Sequence[Plan]

    @staticmethod
    def of(sharing: Sharing, before: Block, after: Block) -> _Inputs:
        added, dropped = list(after.inputs), list[Plan]()
        pairs: dict[str, str] = {}
        for mine in before.inputs:
            found = next((side for side in added if sharing.columns(mine, side) is not None), None)
            if found is None:
                dropped.append(mine)
                continue
            added.remove(found)
            pairs |= sharing.columns(mine, found) or {}
        return _Inputs(pairs, added, dropped)


def _of_view(
    old: Sequence[str], new: Sequence[str], before: Block, after: Block, inputs: _Inputs, links: Sequence[_Link]
) -> Plan | None:
    """Π(σ(V ⋈ others)), V the view with the columns `old`; None where an old condition is gone, or V lacks a column."""
    known = {written(part) for part in before.conditions if not any(part in link.conditions for link in links)}
    if not known <= {text_over(part, inputs.pairs) for part in after.conditions}:
        return None
    view = Temporary(VIEW, tuple(map(of_view, old)))  # both plans may have columns of the same ids
    shown = {written(e): of_view(c) for c, e in before.outputs.items()}
    allowed = {*view.columns, *(c for side in inputs.added for c in side.columns)}

    def over(expression: Scalar) -> Scalar | None:
        result = rewrite(expression, lambda node: _shown(node, inputs.pairs, shown))
        return result if columns_of(result) <= allowed else None

    conditions = [over(part) for part in after.conditions if text_over(part, inputs.pairs) not in known]
    outputs = [(c, over(after.outputs[c])) for c in new]
    if any(part is None for part in conditions) or any(value is None for _, value in outputs):
        return None
    condition = conjunction([part for part in conditions if part is not None])
    body: Plan = Join((view, *inputs.added), condition) if inputs.added else view
    if not inputs.added and condition is not None:
        body = Filter(view, condition)
    return Project(body, tuple((c, e) for c, e in outputs if e is not None))


def _with_conditions_above(plan: Plan, types: Mapping[str, str]) -> Plan:
    """γ[K](σ[c](E)) = σ[c](γ[K](E)) and ε(σ[c](E)) = σ[c](ε(E)), where c asks only for keys: groups go as a whole.

    Not of the one group of all rows, which stays whatever c says, nor of keys that are equal but not the same.
    """

    def pulled_up(node: Plan) -> Plan:
        if not isinstance(node, (Aggregate, Distinct)):
            return node
        keys = node.keys if isinstance(node, Aggregate) else node.columns
        below = block_of(node.child)
        known = {written(below.outputs[c]): c for c in keys if not equality_is_coarser(types.get(c, ""))}
        above, rest = list[Scalar](), list[Scalar]()
        for part in below.conditions:
            asked = rewrite(part, lambda e: _shown(e, {c: c for c in columns_of(e)}, known))
            whole = columns_of(asked) and columns_of(asked) <= set(known.values())
            (above if whole else rest).append(asked if whole else part)
        condition = conjunction(rest)
        body = Join(below.inputs, condition) if len(below.inputs) > 1 else below.inputs[0]
        if len(below.inputs) == 1 and condition is not None:
            body = Filter(body, condition)
        groups = replace(node, child=Project(body, tuple((c, below.outputs[c]) for c in node.child.columns)))
        asked_above = conjunction(above)
        return groups if asked_above is None else Filter(groups, asked_above)

    return transformed(plan, pulled_up)


# ---- joins that are left out


@dataclass(frozen=True)
class _Link:
    """An inner join along a reference: `columns` of a row lead to the one row of `other` with this `key`."""

    table: Scan
    columns: tuple[str, ...]
    other: str
    key: tuple[str, ...]
    conditions: tuple[Scalar, ...]


def _left_out(
    block: Block, dropped: Sequence[Plan], promises: Promises, types: Mapping[str, str]
) -> list[_Link] | None:
    """R ⋈ T along a reference of R to the key of T has each row of R once, but for those that refer to nothing."""
    links = []
    for gone in dropped:
        if not isinstance(gone, Scan):
            return None
        mine = set(gone.ids)
        conditions = tuple(part for part in block.conditions if columns_of(part) & mine)
        on: dict[str, str] = {}
        for part in conditions:
            both = equated_columns(part) if isinstance(part, exp.EQ) else None
            if both is None or len(mine & set(both)) != 1:
                return None
            theirs, other = both if both[0] in mine else both[::-1]
            if theirs in on or types.get(theirs) != types.get(other):
                return None
            on[dict(zip(gone.ids, gone.names, strict=True))[theirs]] = other
        key = promises.keys.get(gone.table, ())
        referring = {side for side in block.inputs if set(side.columns) & set(on.values())}
        if set(on) != set(key) or len(referring) != 1:
            return None
        (side,) = referring
        if not isinstance(side, Scan) or side in dropped:
            return None
        names = dict(zip(side.ids, side.names, strict=True))
        columns = tuple(names[on[name]] for name in key)
        if not promises.refers(side.table, columns, gone.table):
            return None
        links.append(_Link(side, columns, gone.table, key, conditions))
    return links if len({link.table for link in links}) <= 1 else None


def _referring_to_nothing(new: Plan, links: Sequence[_Link], pairs: Pairs) -> Plan | None:
    """The rows of the new plan that refer to nothing, as a column of the reference is NULL: the old view lacks them."""
    old = links[0].table
    table = next((side for side in block_of(new).inputs if {pairs.get(c) for c in side.columns} & set(old.ids)), None)
    if not isinstance(table, Scan):
        return None
    names = tuple(dict.fromkeys(name for link in links for name in link.columns))
    ids = tuple(f"_deferred_refers_{name}" for name in names)
    wider = replace(table, names=(*table.names, *names), ids=(*table.ids, *ids))
    is_null = exp.or_(*(exp.Is(this=column(c), expression=exp.Null()) for c in ids), copy=False)
    return replaced(new, lambda node: pick(Filter(wider, is_null), table.columns) if node is table else None)


def _without_left_joins(plan: Plan, kept: frozenset[str], promises: Promises) -> tuple[Plan, list[str]]:
    """E for E ⟕ T by the key of a table T that the new plan does not read: each row of E is there once.

    Columns of T that are left in expressions have no partner in the new plan. And the tables whose keys count.
    """
    keyed: list[str] = []

    def without(node: Plan) -> Plan:
        if not isinstance(node, OuterJoin) or not isinstance(node.right, Scan):
            return node
        if node.kind.selects or node.kind.unmatched_right:
            return node
        table = node.right
        pairs = [equated_columns(part) for part in conjuncts(node.condition)]
        names = dict(zip(table.ids, table.names, strict=True))
        mine = [names[c] for pair in pairs if pair is not None for c in pair if c in names]
        key = promises.keys.get(table.table, ())
        if table.table in kept or None in pairs or not key or sorted(mine) != sorted(key):
            return node
        keyed.append(table.table)
        return node.left

    return transformed(plan, without), keyed


def _relied(links: Sequence[_Link], keyed: Sequence[str], promises: Promises) -> Promises:
    """What of the promises a new definition relies on."""
    references: dict[str, list[Reference]] = {}
    for link in links:
        references.setdefault(link.table.table, []).append(Reference(link.columns, link.other, link.key))
    tables = {*keyed, *(link.other for link in links)}
    keys = {table: promises.keys[table] for table in sorted(tables)}
    return Promises(keys, {table: tuple(each) for table, each in references.items()})


def of_view(name: str) -> str:
    """A column of the old plan where the rows of the view are read."""
    return f"_deferred_view_{name}"


def _shown(node: Scalar, pairs: Pairs, shown: Mapping[str, str]) -> Scalar | None:
    """The column of the view that has the value of an expression of the new plan.

    A constant stays one: some functions take nothing else, as ROUND for its number of places.
    """
    text = text_over(node, pairs) if isinstance(node, exp.Condition) and columns_of(node) else None
    found = None if text is None else shown.get(text)
    return None if found is None else column(found)
