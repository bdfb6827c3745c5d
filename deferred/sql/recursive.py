"""Binding of WITH RECURSIVE: its branches, what a recursion may not go through, and the form that its rules need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.operators import (
    ANTI,
    SEMI,
    Aggregate,
    Distinct,
    Filter,
    Join,
    Limit,
    OuterJoin,
    Project,
    Recursion,
    Reference,
    SetOperation,
    UnionAll,
    Window,
)
from deferred.algebra.operators.project import pick
from deferred.algebra.operators.recursion import ROUNDS
from deferred.algebra.plan import Plan, transformed
from deferred.algebra.scalar import Scalar, column, conjunction, conjuncts, substitute
from deferred.algebra.types import equality_is_coarser, has_no_order
from deferred.errors import InvalidSQLError, UnsupportedSQLError
from deferred.sql.refusing import refuse_arguments
from deferred.sql.scope import Field, Scope

if TYPE_CHECKING:
    from deferred.sql.bind import Binder, Relation


def refers_to_itself(cte: exp.CTE) -> bool:
    """Whether a common table expression names itself."""
    return _names(cte.this, cte.alias)


def _names(query: exp.Expr, name: str) -> bool:
    return any(len(t.parts) == 1 and t.name.casefold() == name.casefold() for t in query.find_all(exp.Table))


def recursion(binder: Binder, cte: exp.CTE, ctes: Mapping[str, Relation]) -> Relation:
    """fix X. S ∪ T(X), S the branches without X, whose types its columns have, and T those with it."""
    from deferred.sql.bind import Relation

    alias = cte.args["alias"]
    label = alias.name
    body = _bare(cte.this)
    if not isinstance(body, exp.Union):
        raise InvalidSQLError(
            f"The recursion {label} must be a UNION of branches that do not name {label} and branches that do.", at=cte
        )
    refuse_arguments(body, {"with_", "this", "expression", "distinct"})
    known = binder.with_ctes(body, ctes)
    every = not body.args.get("distinct")
    branches = _branches(body, every)
    first = [binder.query(branch, known) for branch in branches if not _names(branch, label)]
    if not first:
        raise InvalidSQLError(
            f"Every branch of the recursion {label} names {label}; one must not, to begin with.", at=cte
        )
    start = _united(binder, first, label)
    names = [c.name for c in alias.args.get("columns") or []] or [f.name for f in start.scope.visible]
    if len(names) != len(start.plan.columns):
        raise InvalidSQLError(
            f"{label} lists {len(names)} column names for {len(start.plan.columns)} columns.", at=alias
        )
    types = [binder.column_types[c] for c in start.plan.columns]
    _refuse_types(label, names, types, every)
    begin = start.plan if every else _with_one_zero(binder, start.plan)
    ids = begin.columns
    shown = (*names, "level") if every else tuple(names)
    if every:
        ids = (*ids, binder.new_column("int"))
    reference = Reference(f"recursion{len(binder.recursions) + 1}", label, ids, shown)
    binder.recursions.append(label)
    scope = Scope(tuple(Field(n, i, (label,)) for n, i in zip(names, ids[: len(names)], strict=True)))
    inside = {**known, label.casefold(): Relation(reference, scope)}
    derived = []
    for branch in branches:
        if _names(branch, label):
            relation = binder.query(branch, inside)
            _refuse_cycles(relation.plan, reference, every)
            plan = _cast(binder, relation, names, types, label)
            prepared = _levelled(binder, plan, reference) if every else _prepared(binder, _with_one_zero(binder, plan))
            derived.append(prepared)
    if every:
        begin = Project(begin, (*((c, column(c)) for c in begin.columns), (ids[-1], _level(0))))
    rounds = alias.meta.get("rounds", ROUNDS)
    node = Recursion(begin, UnionAll(tuple(derived), ids), reference, every, rounds)
    return Relation(node, scope)


def _bare(query: exp.Expr) -> exp.Expr:
    """A query without the parentheses around it."""
    while isinstance(query, exp.Subquery) and not any(v for k, v in query.args.items() if k != "this"):
        query = query.this
    return query


def _branches(union: exp.Expr, every: bool) -> list[exp.Expr]:
    """The branches of a union: of UNION all that stand below it, of UNION ALL those that are united by the same."""
    found: list[exp.Expr] = []
    for side in (union.this, union.expression):
        inner = _bare(side)
        plain = isinstance(inner, exp.Union) and not any(map(inner.args.get, ("with_", "order", "limit", "offset")))
        found += _branches(inner, every) if plain and not (every and inner.args.get("distinct")) else [side]
    return found


def _united(binder: Binder, branches: Sequence[Relation], label: str) -> Relation:
    """The branches that a recursion begins with, as one bag under fresh columns."""
    from deferred.sql.bind import Relation

    fields = branches[0].scope.visible
    for branch in branches[1:]:
        _refuse_width(label, len(fields), len(branch.scope.visible))
    types = []
    for position in zip(*(branch.scope.visible for branch in branches), strict=True):
        type_ = binder.column_types[position[0].id]
        for field in position[1:]:
            type_ = binder.types.common(type_, binder.column_types[field.id])
        types.append(type_)
    ids = tuple(binder.new_column(type_) for type_ in types)
    plan = UnionAll(tuple(binder.cast(branch, types) for branch in branches), ids)
    return Relation(plan, Scope(tuple(Field(f.name, i) for f, i in zip(fields, ids, strict=True))))


def _cast(binder: Binder, branch: Relation, names: Sequence[str], types: Sequence[str], label: str) -> Plan:
    """A recursive branch in the types of the first branches, which must be wide enough for it, as in Spark."""
    fields = branch.scope.visible
    _refuse_width(label, len(types), len(fields))
    for name, type_, field in zip(names, types, fields, strict=True):
        theirs = binder.column_types[field.id]
        if binder.types.common(type_, theirs) != type_:
            raise InvalidSQLError(
                f"Column {name} of the recursion {label} begins as {type_} and goes on as {theirs}; write "
                f"CAST(… AS {theirs}) in the first branch, or CAST(… AS {type_}) in the recursive one."
            )
    return binder.cast(branch, types)


def _refuse_width(label: str, first: int, other: int) -> None:
    if first != other:
        raise InvalidSQLError(
            f"The branches of the recursion {label} have {first} and {other} columns; they must have the same number."
        )


FLOATING = ("float", "double")


def _with_one_zero(binder: Binder, plan: Plan) -> Plan:
    """The rows of a set with 0.0 for −0.0, as DISTINCT and UNION of Spark give it: then equal values are the same."""
    outputs: list[tuple[str, Scalar]] = []
    for c in plan.columns:
        type_ = binder.column_types[c]
        if type_.lower() not in FLOATING:
            outputs.append((c, column(c)))
            continue
        zero = exp.cast(exp.Literal.number(0), type_, dialect="spark")
        is_zero = exp.EQ(this=column(c), expression=zero)
        value = exp.Case(ifs=[exp.If(this=is_zero, true=zero.copy())], default=column(c))
        outputs.append((binder.new_column(type_), value))
    return plan if tuple(c for c, _ in outputs) == plan.columns else Project(plan, tuple(outputs))


def _refuse_types(label: str, names: Sequence[str], types: Sequence[str], every: bool) -> None:
    """Refuse columns in which SQL equates different values, or whose values it does not compare."""
    for name, type_ in zip(names, types, strict=True):
        is_exact = not equality_is_coarser(type_) or (type_.lower() in FLOATING and not every)
        if not is_exact or has_no_order(type_):
            raise UnsupportedSQLError(
                f"Column {name} of the recursion {label} is {type_}: rounds end when they find no new row, and values "
                f"of this type cannot be compared reliably. CAST it to another type, such as DECIMAL or STRING."
            )


# ---- what a recursion may not go through

THROUGH: Mapping[type[Plan], str] = {
    Aggregate: "an aggregate",
    Window: "a window",
    Limit: "LIMIT",
    SetOperation: "EXCEPT or INTERSECT",
    Recursion: "another recursion",
}
"""What operators are called in SQL that a recursion may not go through; others are called by their own name."""


def _refuse_cycles(plan: Plan, reference: Reference, every: bool) -> None:
    """Refuse a branch that is not monotone in X: a larger X could give less, and no least fixpoint need exist.

    With UNION ALL, a branch must also be linear: it derives each row from one row of X.
    """

    def refuse(through: str) -> None:
        label = reference.label
        raise InvalidSQLError(
            f"The recursion {label} goes through {through}: {label} → {through} → {label}. Only joins, filters, "
            f"expressions, and semi and anti joins with other tables may stand between {label} and itself; put the "
            f"rest above it, or into a common table expression before it."
        )

    def visit(node: Plan) -> int:
        """How often the rows of a node are made of rows of X."""
        if isinstance(node, Recursion) and not any(below is reference for below in node.walk()):
            return 0
        counts = [visit(child) for child in node.children]
        if node is reference:
            return 1
        if not any(counts):
            return 0
        if not node.in_recursion:
            refuse(THROUGH.get(type(node), type(node).__name__))
        if isinstance(node, OuterJoin):
            if node.kind not in (SEMI, ANTI):
                refuse("an outer join")
            if node.kind == ANTI and counts[1]:
                refuse("a negation (NOT EXISTS, NOT IN, ANTI JOIN)")
        if every and isinstance(node, Distinct):
            refuse("DISTINCT, in a recursion by UNION ALL")
        if every and isinstance(node, OuterJoin) and counts[1]:
            refuse("a subquery, in a recursion by UNION ALL")
        if isinstance(node, UnionAll):
            if every and 0 in counts:
                refuse("a union with other rows, in a recursion by UNION ALL")
            return max(counts)
        return sum(counts)

    uses = visit(plan)
    if not uses:
        raise InvalidSQLError(
            f"A branch of the recursion {reference.label} uses its name for something else; rename that."
        )
    if uses > 1 and every:
        raise UnsupportedSQLError(
            f"A branch of the recursion {reference.label} names it more than once. With UNION ALL that counts "
            f"derivations for which there is no rule; use UNION."
        )


def _is_recursive(plan: Plan) -> bool:
    """Whether a plan reads the recursion whose branch it is in; one that is computed before is a table to it."""
    if isinstance(plan, Recursion):
        return False
    return isinstance(plan, Reference) or any(map(_is_recursive, plan.children))


# ---- UNION: the form that delete and rederive needs


@dataclass(frozen=True)
class _Term:
    """A branch as Π(body): `outputs` are the columns of the branch as expressions over the body."""

    body: Plan
    outputs: Mapping[str, Scalar]

    def plan(self, columns: Sequence[str]) -> Plan:
        return Project(self.body, tuple((c, self.outputs[c]) for c in columns))


def _prepared(binder: Binder, plan: Plan) -> Plan:
    """A branch of a set, in which no row is counted: ε and repeated rows do not matter.

    A semi join whose right side is recursive is a join. Below a semi or anti join, whose rule nets the rows of its left
    side, no two derivations of a row may look alike: Π and ⊎ are pulled up to the top of the branch.
    """

    def simpler(node: Plan) -> Plan:
        if isinstance(node, Distinct) and _is_recursive(node):
            return node.child
        if isinstance(node, OuterJoin) and _is_recursive(node.right):
            return pick(Join((node.left, node.right), conjunction(conjuncts(node.condition))), node.columns)
        return node

    plan = transformed(plan, simpler)
    if not any(isinstance(node, OuterJoin) and _is_recursive(node.left) for node in plan.walk()):
        return plan
    terms = [term.plan(plan.columns) for term in _terms(binder, plan)]
    ids = tuple(binder.column_like(c) for c in plan.columns)
    return terms[0] if len(terms) == 1 else UnionAll(tuple(terms), ids)


def _terms(binder: Binder, plan: Plan) -> list[_Term]:
    """The plan as a union of projections of bodies without Π and ⊎ over recursive rows."""
    if isinstance(plan, Reference) or not _is_recursive(plan):
        return [_Term(plan, {c: column(c) for c in plan.columns})]
    if isinstance(plan, Project):
        return [
            replace(t, outputs={c: substitute(e, t.outputs) for c, e in plan.outputs})
            for t in _terms(binder, plan.child)
        ]
    if isinstance(plan, UnionAll):
        return [
            replace(t, outputs={mine: t.outputs[c] for mine, c in zip(plan.ids, side.columns, strict=True)})
            for side in plan.inputs
            for t in _terms(binder, side)
        ]
    if isinstance(plan, Filter):
        return [
            replace(t, body=Filter(t.body, substitute(plan.condition, t.outputs))) for t in _terms(binder, plan.child)
        ]
    if isinstance(plan, OuterJoin):
        return [
            replace(t, body=replace(plan, left=t.body, condition=substitute(plan.condition, t.outputs)))
            for t in _terms(binder, plan.left)
        ]
    if isinstance(plan, Join):
        sides = [_terms(binder, side) for side in plan.inputs]
        return [_joined(binder, plan, terms) for terms in product(*sides)]
    raise UnsupportedSQLError(
        f"{type(plan).__name__} below a semi or anti join in a recursive branch is not supported; put the condition "
        f"with the subquery further inside."
    )


def _joined(binder: Binder, join: Join, terms: Sequence[_Term]) -> _Term:
    """The join of one term of each side; columns that two bodies share get other names in the second."""
    bodies: list[Plan] = []
    outputs: dict[str, Scalar] = {}
    taken: set[str] = set()
    for term in terms:
        if taken & set(term.body.columns):
            others = {c: binder.column_like(c) for c in term.body.columns}
            body: Plan = Project(term.body, tuple((new, column(old)) for old, new in others.items()))
            names: Mapping[str, Scalar] = {old: column(new) for old, new in others.items()}
            term = _Term(body, {c: substitute(e, names) for c, e in term.outputs.items()})
        taken |= set(term.body.columns)
        bodies.append(term.body)
        outputs |= term.outputs
    condition = None if join.condition is None else substitute(join.condition, outputs)
    return _Term(Join(tuple(bodies), condition), outputs)


# ---- UNION ALL: every row with its level


def _level(number: int) -> Scalar:
    return exp.cast(exp.Literal.number(number), "int", dialect="spark")


def _levelled(binder: Binder, plan: Plan, reference: Reference) -> Plan:
    """A branch with one more column at the end: the level of the row of X that a row is derived from, plus one."""
    below = reference.ids[-1]

    def carried(node: Plan) -> Plan:
        if isinstance(node, Project) and _is_recursive(node):
            return Project(node.child, (*node.outputs, (below, column(below))))
        if isinstance(node, UnionAll) and _is_recursive(node):
            sides = [pick(side, [*(c for c in side.columns if c != below), below]) for side in node.inputs]
            return UnionAll(tuple(sides), (*node.ids, below))
        return node

    level = binder.new_column("int")
    whole = transformed(plan, carried)
    above = exp.Add(this=column(below), expression=_level(1))
    return Project(whole, (*((c, column(c)) for c in plan.columns), (level, above)))
