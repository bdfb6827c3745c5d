"""UNION, EXCEPT, INTERSECT and VALUES: rows of several origins, in common types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.operators import Distinct, Project, UnionAll, Values
from deferred.algebra.operators.set_operation import EXCEPT, INTERSECT, SetOperation
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Scalar, column
from deferred.errors import InvalidSQLError
from deferred.sql.refusing import refuse_arguments
from deferred.sql.scope import Field, Scope

if TYPE_CHECKING:
    from deferred.sql.bind import Binder, Relation


def combined(binder: Binder, node: exp.SetOperation, ctes: Mapping[str, Relation]) -> Relation:
    """UNION, EXCEPT and INTERSECT: two queries by the places of their columns, in types that both can have."""
    from deferred.sql.bind import Relation

    refuse_arguments(node, {"with_", "this", "expression", "distinct", "order", "limit", "offset", "kind"})
    left, right = binder.query(node.this, ctes), binder.query(node.expression, ctes)
    fields, others = left.scope.visible, right.scope.visible
    what = type(node).__name__.upper()
    if len(fields) != len(others):
        raise InvalidSQLError(
            f"{what} combines queries with {len(fields)} and {len(others)} columns; they must have equally many.",
            at=node.expression,
        )
    common = [
        binder.types.common(binder.column_types[a.id], binder.column_types[b.id])
        for a, b in zip(fields, others, strict=True)
    ]
    plans = [cast(binder, side, common) for side in (left, right)]
    ids = tuple(binder.new_column(type_) for type_ in common)
    scope = Scope(tuple(Field(f.name, i) for f, i in zip(fields, ids, strict=True)))
    every = not node.args.get("distinct")
    plan: Plan
    if isinstance(node, exp.Union):
        plan = UnionAll(tuple(plans), ids)
        plan = plan if every else Distinct(plan)
    else:
        kind = EXCEPT if isinstance(node, exp.Except) else INTERSECT
        plan = SetOperation(plans[0], plans[1], kind, every, ids)
    return binder.with_order_and_limit(node, Relation(plan, scope))


def cast(binder: Binder, side: Relation, types: Sequence[str]) -> Plan:
    """A side of a set operation with its columns cast to the common types."""
    fields = side.scope.visible
    outputs: list[tuple[str, Scalar]] = []
    for field, type_ in zip(fields, types, strict=True):
        if binder.column_types[field.id] == type_:
            outputs.append((field.id, column(field.id)))
        else:
            outputs.append((binder.new_column(type_), exp.cast(column(field.id), type_, dialect="spark")))
    if tuple(i for i, _ in outputs) == side.plan.columns:
        return side.plan
    return Project(side.plan, tuple(outputs))


def values(binder: Binder, node: exp.Values) -> Relation:
    """VALUES: rows that the text gives, in types that all of them can have."""
    from deferred.sql.bind import Relation

    tuples = [t.expressions if isinstance(t, exp.Tuple) else [t] for t in node.expressions]
    rows = tuple(tuple(binder.scalar(e, Scope(()), "VALUES") for e in row) for row in tuples)
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise InvalidSQLError("The rows of VALUES have different numbers of columns.", at=node)
    types = []
    for position in range(width):
        found = [binder.types.of([row[position]], binder.column_types)[0] for row in rows]
        type_ = found[0]
        for other in found[1:]:
            type_ = binder.types.common(type_, other)
        types.append(type_)
    ids = tuple(binder.new_column(t) for t in types)
    typed = tuple(tuple(exp.cast(e, t, dialect="spark") for e, t in zip(row, types, strict=True)) for row in rows)
    scope = Scope(tuple(Field(f"col{i + 1}", c) for i, c in enumerate(ids)))
    return Relation(Values(ids, typed), scope)
