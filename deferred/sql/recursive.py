"""Binding of WITH RECURSIVE: its branches, what a recursion may not go through, and the form that its rules need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import product
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.aggregates.calls import name_of
from deferred.algebra.bags import call
from deferred.algebra.operators import (
    ANTI,
    LEFT,
    Distinct,
    Filter,
    Generate,
    Join,
    OuterJoin,
    Project,
    Recursion,
    Reference,
    UnionAll,
)
from deferred.algebra.operators.project import pick
from deferred.algebra.operators.recursion import ROUNDS
from deferred.algebra.plan import Plan, transformed
from deferred.algebra.scalar import Scalar, column, columns_of, conjunction, conjuncts, is_column, substitute
from deferred.algebra.types import FLOATING, MAP, equality_is_coarser, has_no_order, parsed
from deferred.errors import InvalidSQLError, UnsupportedSQLError
from deferred.sql import set_operations
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
    begin = (_encoded if every else _with_one_zero)(binder, start.plan)
    ids = begin.columns
    shown = (*names, "level") if every else tuple(names)
    if every:
        ids = (*ids, binder.new_column("int"))
    reference = Reference(f"recursion{len(binder.recursions) + 1}", label, ids, shown)
    binder.recursions.append(label)
    inside = {**known, label.casefold(): _relation(binder, reference, names, types, label)}
    derived, taken = [], set(range(len(names)))
    for branch in branches:
        if _names(branch, label):
            relation = binder.query(branch, inside)
            relation = replace(relation, plan=_without_padding(binder, relation.plan))
            _refuse_cycles(relation.plan, reference, every)
            plan = _cast(binder, relation, names, types, label)
            taken &= _taken(plan)
            derived.append(
                _levelled(binder, _encoded(binder, plan), reference)
                if every
                else _prepared(binder, _with_one_zero(binder, plan))
            )
    if every:
        begin = Project(begin, (*((c, column(c)) for c in begin.columns), (ids[-1], _level(0))))
    ends = not every and len(taken) == len(names)
    rounds = None if ends else alias.meta.get("rounds", ROUNDS)
    node = Recursion(begin, UnionAll(tuple(derived), ids), reference, every, rounds, tuple(sorted(taken)))
    return _relation(binder, node, names, types, label)


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
    plan = UnionAll(tuple(set_operations.cast(binder, branch, types) for branch in branches), ids)
    return Relation(plan, Scope(tuple(Field(f.name, i) for f, i in zip(fields, ids, strict=True))))


def _cast(binder: Binder, branch: Relation, names: Sequence[str], types: Sequence[str], label: str) -> Plan:
    """A recursive branch in the types of the first branches, which must be wide enough for it, as in Spark."""
    fields = branch.scope.visible
    _refuse_width(label, len(types), len(fields))
    for name, type_, field in zip(names, types, fields, strict=True):
        theirs = binder.column_types[field.id]
        if type_ == "void":
            raise InvalidSQLError(
                f"Column {name} of the recursion {label} begins as NULL, which has no type, and goes on as {theirs}; "
                f"write CAST(NULL AS {theirs}) in the first branch."
            )
        if binder.types.common(type_, theirs) != type_:
            raise InvalidSQLError(
                f"Column {name} of the recursion {label} begins as {type_} and goes on as {theirs}; write "
                f"CAST(… AS {theirs}) in the first branch, or CAST(… AS {type_}) in the recursive one."
            )
    return set_operations.cast(binder, branch, types)


def _refuse_width(label: str, first: int, other: int) -> None:
    if first != other:
        raise InvalidSQLError(
            f"The branches of the recursion {label} have {first} and {other} columns; they must have the same number."
        )


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


@dataclass(frozen=True)
class _Code:
    """How values that SQL equates, or does not compare, are kept as values that are equal only where they are the same.

    The text of a floating-point number tells 0.0 from −0.0 and leads back to the same number; the entries of a map are
    compared in their order.
    """

    made: Callable[[Scalar], Scalar]
    undone: Callable[[Scalar], Scalar]


def _code(type_: str) -> _Code | None:
    if type_.lower() in FLOATING:
        return _Code(
            lambda value: exp.cast(value, "string", dialect="spark"),
            lambda value: exp.cast(value, type_, dialect="spark"),
        )
    whole = parsed(type_)
    if whole.kind == MAP and not any(equality_is_coarser(kind) for _, part in whole.parts for kind in part.kinds()):
        return _Code(lambda value: call("MAP_ENTRIES", value), lambda value: call("MAP_FROM_ENTRIES", value))
    return None


def _encoded(binder: Binder, plan: Plan) -> Plan:
    """The rows of a bag with other values in the columns whose own values are not told apart by SQL."""
    outputs: list[tuple[str, Scalar]] = []
    for c in plan.columns:
        code = _code(binder.column_types[c])
        if code is None:
            outputs.append((c, column(c)))
            continue
        value = code.made(column(c))
        outputs.append((binder.new_column(binder.types.of([value], binder.column_types)[0]), value))
    return plan if tuple(c for c, _ in outputs) == plan.columns else Project(plan, tuple(outputs))


def _relation(binder: Binder, rows: Plan, names: Sequence[str], types: Sequence[str], label: str) -> Relation:
    """The rows of a recursion as a query sees them: without their levels, with the values that it has written."""
    from deferred.sql.bind import Relation

    ids, outputs = [], []
    for c, type_ in zip(rows.columns, types, strict=False):
        code = _code(type_) if binder.column_types[c] != type_ else None
        ids.append(c if code is None else binder.new_column(type_))
        outputs.append((ids[-1], column(c) if code is None else code.undone(column(c))))
    scope = Scope(tuple(Field(n, i, (label,)) for n, i in zip(names, ids, strict=True)))
    return Relation(rows if tuple(ids) == rows.columns[: len(ids)] else Project(rows, tuple(outputs)), scope)


def _refuse_types(label: str, names: Sequence[str], types: Sequence[str], every: bool) -> None:
    """Refuse columns in which SQL equates different values, or whose values it does not compare."""
    for name, type_ in zip(names, types, strict=True):
        coded = _code(type_) is not None if every else type_.lower() in FLOATING
        if not coded and (equality_is_coarser(type_) or has_no_order(type_)):
            raise UnsupportedSQLError(
                f"Column {name} of the recursion {label} is {type_}: rounds end when they find no new row, and values "
                f"of this type cannot be compared reliably. CAST it to another type, such as DECIMAL or STRING."
            )


# ---- what a recursion may not go through


def _refuse_cycles(plan: Plan, reference: Reference, every: bool) -> None:
    """Refuse a branch that is not monotone in X: a larger X could give less, and no least fixpoint need exist.

    With UNION ALL, every row of a branch must also be derived from rows of X, by joins alone: then it has a level.
    """

    def refuse(through: str) -> None:
        label = reference.label
        raise InvalidSQLError(
            f"The recursion {label} goes through {through}: {label} → {through} → {label}. Only joins, filters, "
            f"expressions, and semi, anti and outer joins with other tables that keep its rows may stand between "
            f"{label} and itself; put the rest above it, or into a common table expression before it."
        )

    def visit(node: Plan) -> bool:
        """Whether the rows of a node are made of rows of X."""
        if isinstance(node, Recursion) and not any(below is reference for below in node.walk()):
            return False
        recursive = [visit(child) for child in node.children]
        if node is reference:
            return True
        if not any(recursive):
            return False
        if not node.in_recursion:
            refuse(node.called)
        if every and type(node) not in _LEVELS:
            refuse(f"{node.called}, in a recursion by UNION ALL")
        if isinstance(node, OuterJoin):
            if not node.kind.selects:
                refuse("an outer join")
            if node.kind.unmatched and recursive[1]:
                refuse("a negation (NOT EXISTS, NOT IN, ANTI JOIN)")
            if every and recursive[1]:
                refuse("a subquery, in a recursion by UNION ALL")
        if every and isinstance(node, UnionAll) and not all(recursive):
            refuse("a union with other rows, in a recursion by UNION ALL")
        return True

    if not visit(plan):
        raise InvalidSQLError(
            f"A branch of the recursion {reference.label} uses its name for something else; rename that."
        )


def _without_padding(binder: Binder, plan: Plan) -> Plan:
    """E ⟕ F = (E ⋈ F) ⊎ Π[NULL](E ▷ F), where E has the rows of X and F is another table.

    Both parts are monotone in X: a row of E is padded or not by what F holds, whatever else X holds.
    """

    def split(node: Plan) -> Plan:
        kept = isinstance(node, OuterJoin) and node.kind == LEFT and _is_recursive(node.left)
        if not kept or not isinstance(node, OuterJoin) or _is_recursive(node.right):
            return node
        matched = pick(Join((node.left, node.right), node.condition), node.columns)
        alone = OuterJoin(node.left, node.right, ANTI, node.condition)
        nulls = (exp.cast(exp.Null(), binder.column_types[c], dialect="spark") for c in node.right.columns)
        padding = zip(node.right.columns, nulls, strict=True)
        padded = Project(alone, (*((c, column(c)) for c in node.left.columns), *padding))
        return UnionAll((matched, padded), node.columns)

    return transformed(plan, split)


def _is_recursive(plan: Plan) -> bool:
    """Whether a plan reads the recursion whose branch it is in; one that is computed before is a table to it."""
    if isinstance(plan, Recursion):
        return False
    return isinstance(plan, Reference) or any(map(_is_recursive, plan.children))


# ---- whether it ends


class _From(IntEnum):
    """Where the values of a column in a recursive branch come from."""

    ELSEWHERE = 0
    X = 1
    COMPUTED = 2


def _taken(branch: Plan) -> set[int]:
    """The places of the columns that a branch takes from rows of X as they are, or from elsewhere.

    There are finitely many such values, whatever the rounds: those of the start, and those made of other tables alone.
    A set of rows of them ends.
    """
    origins = _origins(branch)
    return {place for place, c in enumerate(branch.columns) if origins[c] != _From.COMPUTED}


def _origins(plan: Plan) -> Mapping[str, _From]:
    if isinstance(plan, Reference) or not _is_recursive(plan):
        return dict.fromkeys(plan.columns, _From.X if isinstance(plan, Reference) else _From.ELSEWHERE)
    below = [_origins(child) for child in plan.children]
    if isinstance(plan, UnionAll):
        sides = [[known[c] for c in side.columns] for side, known in zip(plan.inputs, below, strict=True)]
        return {c: max(each) for c, each in zip(plan.ids, zip(*sides, strict=True), strict=True)}
    known = {c: origin for each in below for c, origin in each.items()}
    if isinstance(plan, Project):
        return {c: _origin(e, known) for c, e in plan.outputs}
    return {c: known.get(c, _From.COMPUTED) for c in plan.columns}


def _origin(value: Scalar, known: Mapping[str, _From]) -> _From:
    """That of an expression: a choice between values makes no new one."""
    if is_column(value) or all(known[c] == _From.ELSEWHERE for c in columns_of(value)):
        return max((known[c] for c in columns_of(value)), default=_From.ELSEWHERE)
    if isinstance(value, exp.Paren):
        return _origin(value.this, known)
    if isinstance(value, exp.Anonymous) and name_of(value) in _CHOOSING:
        return max(_origin(each, known) for each in value.expressions)
    if isinstance(value, exp.Case):
        chosen = [*(each.args["true"] for each in value.args["ifs"]), value.args.get("default")]
        return max(_origin(each, known) for each in chosen if each is not None)
    return _From.COMPUTED


_CHOOSING = frozenset({"coalesce", "ifnull", "nvl", "nvl2", "greatest", "least"})
"""Functions whose value is one of their arguments."""


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
    rule = _TERMS.get(type(plan))
    if rule is None:
        raise UnsupportedSQLError(
            f"A recursive branch has {plan.called} below a semi or anti join, which is not supported; put the "
            f"condition with the subquery further inside."
        )
    return rule(binder, plan)


def _terms_of_projection(binder: Binder, plan: Project) -> list[_Term]:
    return [
        replace(t, outputs={c: substitute(e, t.outputs) for c, e in plan.outputs}) for t in _terms(binder, plan.child)
    ]


def _terms_of_union(binder: Binder, plan: UnionAll) -> list[_Term]:
    return [
        replace(t, outputs={mine: t.outputs[c] for mine, c in zip(plan.ids, side.columns, strict=True)})
        for side in plan.inputs
        for t in _terms(binder, side)
    ]


def _terms_of_filter(binder: Binder, plan: Filter) -> list[_Term]:
    return [replace(t, body=Filter(t.body, substitute(plan.condition, t.outputs))) for t in _terms(binder, plan.child)]


def _terms_of_generator(binder: Binder, plan: Generate) -> list[_Term]:
    """A generator makes its rows of one row; two that are alike are one row of a set."""
    made = {c: column(c) for c in plan.ids}
    return [
        _Term(replace(plan, child=t.body, generator=substitute(plan.generator, t.outputs)), {**t.outputs, **made})
        for t in _terms(binder, plan.child)
    ]


def _terms_of_selection(binder: Binder, plan: OuterJoin) -> list[_Term]:
    """Those of E, for E ⋉ F and E ▷ F."""
    return [
        replace(t, body=replace(plan, left=t.body, condition=substitute(plan.condition, t.outputs)))
        for t in _terms(binder, plan.left)
    ]


def _terms_of_join(binder: Binder, plan: Join) -> list[_Term]:
    return [_joined(binder, plan, terms) for terms in product(*(_terms(binder, side) for side in plan.inputs))]


_TERMS: Mapping[type[Plan], Callable[[Binder, Any], list[_Term]]] = {
    Project: _terms_of_projection,
    UnionAll: _terms_of_union,
    Filter: _terms_of_filter,
    Generate: _terms_of_generator,
    OuterJoin: _terms_of_selection,
    Join: _terms_of_join,
}
"""What Π and ⊎ are pulled up through; a branch with anything else is refused."""


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
    """A branch with one more column at the end: one more than the highest level of the rows of X it is derived from.

    That is the height of a row's derivation. Each of those rows has a column for its level on the way.
    """

    def carried(node: Plan) -> _WithLevels:
        if node is reference:
            return node, reference.ids[-1:]
        if not _is_recursive(node):
            return node, ()
        return _LEVELS[type(node)](binder, node, [carried(child) for child in node.children])

    whole, levels = carried(plan)
    above = exp.Add(this=_highest(levels), expression=_level(1))
    return Project(whole, (*((c, column(c)) for c in plan.columns), (binder.new_column("int"), above)))


_WithLevels = tuple[Plan, tuple[str, ...]]
"""A plan with the levels of the rows that its rows are derived from, and their columns."""


def _levels_of_projection(binder: Binder, node: Project, below: Sequence[_WithLevels]) -> _WithLevels:
    """Π shows the levels, too."""
    ((child, levels),) = below
    fresh = tuple(binder.new_column("int") for _ in levels)
    return Project(child, (*node.outputs, *zip(fresh, map(column, levels), strict=True))), fresh


def _levels_of_union(binder: Binder, node: UnionAll, below: Sequence[_WithLevels]) -> _WithLevels:
    """Of each side the highest level, in one column."""
    sides = [
        Project(child, (*((c, column(c)) for c in side.columns), (binder.new_column("int"), _highest(levels))))
        for side, (child, levels) in zip(node.inputs, below, strict=True)
    ]
    level = binder.new_column("int")
    return UnionAll(tuple(sides), (*node.ids, level)), (level,)


def _levels_of_inputs(binder: Binder, node: Plan, below: Sequence[_WithLevels]) -> _WithLevels:
    """The rows have all columns of the rows that they are made of."""
    levels = tuple(level for _, mine in below for level in mine)
    return node.with_children([child for child, _ in below]), levels


_LEVELS: Mapping[type[Plan], Callable[[Binder, Any, Sequence[_WithLevels]], _WithLevels]] = {
    Project: _levels_of_projection,
    UnionAll: _levels_of_union,
    Filter: _levels_of_inputs,
    Generate: _levels_of_inputs,
    Join: _levels_of_inputs,
    OuterJoin: _levels_of_inputs,
}
"""All that may stand between X and itself in a recursion by UNION ALL; anything else is refused."""


def _highest(levels: Sequence[str]) -> Scalar:
    return column(levels[0]) if len(levels) == 1 else call("GREATEST", *map(column, levels))
