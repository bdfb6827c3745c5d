"""A changed query as a change of rows: what other conditions and branches add and remove goes up by the delta rules.

Both queries are in one plan, in which the conditions and branches that only one of them has are marked. The base tables
stay: the marked nodes alone change, from the rows of the old query to those of the new one. So Δ of the plan is
Q_new − Q_old, over the support tables of the old query, and the same rules move these to the new query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.delta import differentiate
from deferred.algebra.operators import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Project,
    Recursion,
    Stored,
    Temporary,
    UnionAll,
    Window,
)
from deferred.algebra.operators.edited import Edited, says
from deferred.algebra.operators.project import only_renames, pick
from deferred.algebra.plan import Plan, replaced, transformed
from deferred.algebra.program import Program, Upkeep
from deferred.algebra.scalar import Scalar, all_true, column, conjunction, conjuncts, substitute
from deferred.algebra.sharing import Sharing, kept_before
from deferred.algebra.strategy import kept_nodes, support_tables
from deferred.algebra.support_tables import moved

if TYPE_CHECKING:
    pass

_MARK = "_deferred_edit"


def edit(new: Scalar, old: Scalar) -> exp.Case:
    """The mark of a condition that the new query has in the place of an old one. It is never evaluated."""
    ifs = [exp.If(this=new.copy(), true=exp.true()), exp.If(this=old.copy(), true=exp.false())]
    return exp.Case(ifs=ifs, default=exp.Literal.string(_MARK))


def _edited(part: Scalar) -> tuple[Scalar, Scalar] | None:
    """The new and the old condition of a mark."""
    default = part.args.get("default") if isinstance(part, exp.Case) else None
    if not isinstance(default, exp.Literal) or default.this != _MARK:
        return None
    new, old = part.args["ifs"]
    return new.this, old.this


# ---- the three plans of a marked one


def _with(plan: Plan, new: bool) -> Plan:
    """The plan of the new query, or of the old one."""

    def chosen(node: Plan) -> Plan:
        if not _is_marked(node):
            return node
        parts = [(found if new else found[::-1])[0] if (found := _edited(p)) else p for p in _parts(node)]
        condition = conjunction(part for each in parts for part in conjuncts(each) if not says(part, True))
        if isinstance(node, Join):
            return Join(node.inputs, condition)
        (child,) = node.children
        return child if condition is None else Filter(child, condition)

    return transformed(plan, chosen)


def _changing(plan: Plan) -> Plan:
    """The plan of the new query that knows what it was before."""

    def with_both(node: Plan) -> Plan:
        if not _is_marked(node):
            return node
        marks = [found for part in _parts(node) if (found := _edited(part))]
        shared = conjunction(part for part in _parts(node) if not _edited(part))
        if isinstance(node, Join):
            below: Plan = Join(node.inputs, shared)
        else:
            (below,) = node.children
            below = below if shared is None else Filter(below, shared)
        new, old = (all_true(p for mark in marks for p in conjuncts(mark[side])) for side in (0, 1))
        return Edited(below, new, old)

    return transformed(plan, with_both)


def _parts(node: Plan) -> list[Scalar]:
    return conjuncts(node.condition) if isinstance(node, (Filter, Join)) else []


def _is_marked(node: Plan) -> bool:
    return any(map(_edited, _parts(node)))


def _has_marks(plan: Plan) -> bool:
    return any(map(_edited, (part for node in plan.walk() for e in node.expressions for part in e.find_all(exp.Case))))


# ---- one form of plans that differ in how branches and conditions are nested


def _normal(plan: Plan) -> Plan:
    return transformed(plan, _simplified)


def _simplified(node: Plan) -> Plan:
    """One Π, σ or ⊎ in the place of two, σ below Π and as a part of ⋈, E ⊎ ∅ = E, ε(ε(E)) = ε(E).

    And ε(ε(E) ⊎ F) = ε(E ⊎ F).
    """
    if isinstance(node, UnionAll):
        nested = [side for each in node.inputs for side in (each.inputs if isinstance(each, UnionAll) else (each,))]
        sides = [side for side in nested if not _is_empty(side)] or nested[:1]
        if len(sides) > 1:
            return UnionAll(tuple(sides), node.ids)
        outputs = tuple((mine, column(theirs)) for mine, theirs in zip(node.ids, sides[0].columns, strict=True))
        return _simplified(Project(sides[0], outputs))
    if only_renames(node) and isinstance(node.child, UnionAll):
        union, read = node.child, [node.child.ids.index(e.name) for _, e in node.outputs]
        picked = (_simplified(pick(side, [side.columns[place] for place in read])) for side in union.inputs)
        return UnionAll(tuple(picked), node.columns)
    if isinstance(node, Project) and isinstance(node.child, Project):
        values = dict(node.child.outputs)
        return Project(node.child.child, tuple((name, substitute(e, values)) for name, e in node.outputs))
    if isinstance(node, Join):
        return Join(node.inputs, conjunction(part for part in _parts(node) if not says(part, True)))
    if isinstance(node, Filter) and isinstance(node.child, Project):
        rows = node.child
        chosen = _simplified(Filter(rows.child, substitute(node.condition, dict(rows.outputs))))
        return Project(chosen, rows.outputs)
    if isinstance(node, Filter):
        below = node.child
        parts = [part for part in (*_parts(below), *_parts(node)) if not says(part, True)]
        if isinstance(below, Join):
            return Join(below.inputs, conjunction(parts))
        below = below.child if isinstance(below, Filter) else below
        return Filter(below, all_true(parts)) if parts else below
    if isinstance(node, Distinct) and only_renames(node.child) and isinstance(node.child.child, Distinct):
        renaming, inner = node.child, node.child.child
        if inner.kept is None and {e.name for _, e in renaming.outputs} == set(inner.columns):
            return Distinct(_simplified(Project(inner.child, renaming.outputs)), node.kept)
    if isinstance(node, Distinct) and isinstance(node.child, UnionAll):
        sets = (s.child if isinstance(s, Distinct) and s.kept is None else s for s in node.child.inputs)
        return Distinct(_simplified(UnionAll(tuple(sets), node.child.ids)), node.kept)
    return node


def _is_empty(plan: Plan) -> bool:
    """Whether a branch surely has no rows."""
    if isinstance(plan, (Filter, Join)) and any(says(part, False) for part in conjuncts(plan.condition)):
        return True
    passes = isinstance(plan, (Project, Filter, Distinct, Window)) or (isinstance(plan, Aggregate) and plan.keys)
    return bool(passes) and _is_empty(plan.children[0])


# ---- the change


def was(support: str) -> str:
    """The name of the result that has the rows of a support table of the marked plan under the old query."""
    return f"{support} before"


@dataclass(frozen=True)
class Edit:
    """How the rows of an old query become those of a new one.

    The program reads support tables as they are under the old query: `supports`, plans over what the old query has kept
    (`kept_before`), or over base tables.
    """

    program: Program
    supports: Mapping[str, Plan]
    _stored: Mapping[str, Stored]
    _new: Mapping[str, Plan]

    def moved(self, moves: Mapping[str, Upkeep]) -> dict[str, Plan]:
        """What support tables of the new query hold, once the program has run and these have moved; see `was`."""
        now = {kept_before(name): moved(stored, moves.get(name), None) for name, stored in self._stored.items()}

        def read(leaf: Plan) -> Plan | None:
            if isinstance(leaf, Stored):
                return Temporary(was(leaf.name), leaf.columns)
            return replaced(now[leaf.name], read) if isinstance(leaf, Temporary) and leaf.name in now else None

        return {name: replaced(contents, read) for name, contents in self._new.items()}


@dataclass(frozen=True)
class Typed:
    """A plan and the types of its columns."""

    plan: Plan
    types: Mapping[str, str]


def edited(old: Typed, new: Typed, both: Typed, tables: frozenset[str]) -> Edit | None:
    """The change from an old to a new query by a plan in which both are marked; None where that is not surely so.

    `tables` are those that the plans read under the same names.
    """
    before, after, changing = _with(both.plan, False), _with(both.plan, True), _changing(both.plan)
    recursions = [node for node in changing.walk() if isinstance(node, Recursion)]
    if _has_marks(changing) or any(isinstance(below, Edited) for each in recursions for below in each.walk()):
        return None
    first = Sharing(_normal(old.plan), old.types, both.types, tables)
    last = Sharing(_normal(after), both.types, new.types, tables)
    wanted = _normal(new.plan)
    if not (_are_alike(first, _normal(before)) and _are_alike(last, wanted)):
        return None
    held = {name: each.contents for name, each in first.shared(_normal(before)).items()}
    used = {leaf.name for each in held.values() for leaf in each.walk() if isinstance(leaf, Temporary)}
    kept = {name: each.contents for name, each in last.shared(wanted).items()}
    if not used >= {kept_before(name) for name in kept_nodes(old.plan)}:
        return None
    if recursions and (held.keys() != kept_nodes(changing).keys() or kept.keys() != kept_nodes(new.plan).keys()):
        return None
    stored = {
        name: next(leaf for leaf in strategy.past(node, None).walk() if isinstance(leaf, Stored))
        for name, (node, strategy) in kept_nodes(changing).items()
    }
    return Edit(differentiate(changing, (), both.types), {**support_tables(before), **held}, stored, kept)


def _are_alike(sharing: Sharing, new: Plan) -> bool:
    """Whether two queries have the same bag of rows, column by column."""
    (mine, columns), (theirs, others) = map(_below_renaming, (sharing.old, new))
    pairs = sharing.columns(mine, theirs)
    return pairs is not None and [pairs.get(c) for c in others] == columns


def _below_renaming(plan: Plan) -> tuple[Plan, list[str]]:
    """What a plan is below Π that only renames, and which of its columns are the plan's."""
    if not only_renames(plan):
        return plan, list(plan.columns)
    return plan.child, [e.name for _, e in plan.outputs]
