"""Binding of FROM: tables, derived tables, joins of every kind, LATERAL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.operators import ANTI, FULL, LEFT, SEMI, OuterJoin, Project, Scan, Values
from deferred.algebra.operators.join import product_of
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Scalar, all_true, column, conjuncts, equated_columns
from deferred.algebra.types import compared_exactly
from deferred.errors import UnknownObjectError, UnsupportedSQLError, located
from deferred.sql import generators, pivoting, set_operations, subquery
from deferred.sql.dialect import text
from deferred.sql.refusing import refuse_arguments
from deferred.sql.scope import Field, Scope

if TYPE_CHECKING:
    from deferred.sql.bind import Binder, Relation


def source(binder: Binder, node: exp.Select, ctes: Mapping[str, Relation]) -> Relation:
    """FROM and its joins. Inner and cross joins become one n-ary join with all their conditions."""
    from deferred.sql.bind import Relation

    clause = node.args.get("from_")
    if clause is None:
        one = binder.new_column("int")
        result = Relation(Values((one,), ((exp.Literal.number(1),),)), Scope(()))
    else:
        result = relation(binder, clause.this, ctes)
    return _with_joins(binder, result, node, ctes)


def relation(binder: Binder, node: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
    """One item of FROM, with the joins inside its parentheses."""
    from deferred.sql.bind import Relation

    if isinstance(node, exp.Table):
        result = table(binder, node, ctes)
    elif isinstance(node, exp.Subquery):
        refuse_arguments(node, {"this", "alias", "with_", "joins", "laterals", "pivots"})
        known = binder.with_ctes(node, ctes)
        inner = (
            relation(binder, node.this, known)
            if isinstance(node.this, (exp.Table, exp.Subquery))
            else binder.query(node.this, known)
        )
        result = Relation(inner.plan, aliased(inner.scope, node.args.get("alias")))
    elif isinstance(node, exp.Values):
        rows = set_operations.values(binder, node)
        result = Relation(rows.plan, aliased(rows.scope, node.args.get("alias")))
    else:
        raise UnsupportedSQLError(f"FROM may not contain {node.key.upper()}: {text(node)[:80]}.", at=node)
    for pivot in node.args.get("pivots") or []:
        result = pivoting.pivoted(binder, result, pivot, ctes)
    return _with_joins(binder, result, node, ctes)


def _with_joins(binder: Binder, result: Relation, node: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
    """An item of FROM with what is joined to it, in order."""
    for join in node.args.get("joins") or []:
        result = joined(binder, result, join, ctes)
    for view in node.args.get("laterals") or []:
        result = generators.lateral_view(binder, result, view)
    return result


def table(binder: Binder, node: exp.Table, ctes: Mapping[str, Relation]) -> Relation:
    """A tracked table or view, or one use of a common table expression."""
    from deferred.sql.bind import Relation

    refuse_arguments(node, {"this", "alias", "db", "catalog", "joins", "laterals", "pivots"})
    if not isinstance(node.this, exp.Identifier):
        made = generators.table_function(binder, node.this)
        return Relation(made.plan, aliased(made.scope, node.args.get("alias")))
    path = tuple(part.name for part in node.parts)
    cte = ctes.get(path[0].casefold()) if len(path) == 1 else None
    if cte is not None:
        fields = cte.scope.visible
        renamed = tuple((binder.new_column(binder.column_types[f.id]), column(f.id)) for f in fields)
        scope = Scope(tuple(replace(f, id=i, qualifier=path) for f, (i, _) in zip(fields, renamed, strict=True)))
        return Relation(Project(cte.plan, renamed), aliased(scope, node.args.get("alias")))
    with located(node):
        name, schema = binder.catalog(path)
    binder.tables[name] = None
    ids = tuple(binder.new_column(type_) for _, type_ in schema)
    scope = Scope(tuple(Field(n, i, path) for (n, _), i in zip(schema, ids, strict=True)))
    return Relation(Scan(name, tuple(n for n, _ in schema), ids), aliased(scope, node.args.get("alias")))


def aliased(scope: Scope, alias: exp.TableAlias | None) -> Scope:
    if alias is None:
        return scope
    return scope.named((alias.name,) if alias.name else (), [c.name for c in alias.args.get("columns") or []])


def joined(binder: Binder, left: Relation, join: exp.Join, ctes: Mapping[str, Relation]) -> Relation:
    """left JOIN right of any kind."""
    from deferred.sql.bind import Relation

    refuse_arguments(join, {"this", "on", "side", "kind", "using", "method"})
    side, kind, method = join.side, join.kind, join.method
    if (
        side not in ("", "LEFT", "RIGHT", "FULL")
        or kind not in ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI")
        or method not in ("", "NATURAL")
    ):
        what = " ".join(word for word in (method, side, kind, "JOIN") if word)
        raise UnsupportedSQLError(f"{what} is not supported in a view.", at=join)
    if isinstance(join.this, exp.Lateral):
        return _lateral(binder, left, join, ctes)
    right = relation(binder, join.this, ctes)
    using = [c.name for c in join.args.get("using") or []]
    if method == "NATURAL":
        theirs = {f.name.casefold() for f in right.scope.visible}
        using = [f.name for f in left.scope.visible if f.name.casefold() in theirs]
    conditions = [_equal(left.scope, right.scope, name) for name in using]
    both = left.scope + right.scope
    on = join.args.get("on")
    inner = not side and kind not in ("SEMI", "ANTI")
    if on is not None and not inner:
        left, right, asked = _on(binder, left, right, on)
        conditions.extend(asked)
    if kind in ("SEMI", "ANTI"):
        plan: Plan = OuterJoin(left.plan, right.plan, SEMI if kind == "SEMI" else ANTI, all_true(conditions))
        return Relation(plan, left.scope)
    if not side:
        plan = product_of(left.plan, right.plan, conditions)
        if on is not None:
            plan = binder.where(plan, both, on, "WHERE")  # ON of an inner join is one more condition on its rows
        return Relation(plan, _merged(left.scope, right.scope, using) if using else both)
    if side == "RIGHT":
        plan = OuterJoin(right.plan, left.plan, LEFT, all_true(conditions))
        return Relation(plan, _merged(left.scope, right.scope, using, right.scope) if using else both)
    plan = OuterJoin(left.plan, right.plan, FULL if side == "FULL" else LEFT, all_true(conditions))
    if side == "FULL" and using:
        return _coalesced(binder, plan, left.scope, right.scope, using)
    return Relation(plan, _merged(left.scope, right.scope, using) if using else both)


def _on(binder: Binder, left: Relation, right: Relation, on: exp.Expr) -> tuple[Relation, Relation, list[Scalar]]:
    """Both sides and the conjuncts of ON; a subquery in it becomes a column of the side whose columns it reads."""
    waiting, binder.pending = binder.pending, {}
    condition = binder.scalar(on, left.scope + right.scope, "ON")
    asked, sides = binder.pending, []
    for side in (left, right):
        binder.pending = {m: value for m, value in asked.items() if subquery.reads(value) <= set(side.plan.columns)}
        asked = {m: value for m, value in asked.items() if m not in binder.pending}
        sides.append(replace(side, plan=binder.with_subqueries(side.plan)))
    binder.pending = waiting
    if asked:
        raise UnsupportedSQLError(
            f"A subquery in ON of an outer join that reads columns of both sides is not "
            f"supported in a view: {text(on)[:80]}.",
            at=on,
        )
    return sides[0], sides[1], conjuncts(condition)


def _lateral(binder: Binder, left: Relation, join: exp.Join, ctes: Mapping[str, Relation]) -> Relation:
    """JOIN LATERAL (subquery that reads the left side's columns)."""
    from deferred.sql.bind import Relation

    node = join.this
    if not isinstance(node.this, exp.Subquery):
        return generators.lateral_view(binder, left, node)
    binder.outers.append(left.scope)
    try:
        inner = binder.query(node.this, ctes)
    finally:
        binder.outers.pop()
    scope = left.scope + aliased(inner.scope, node.args.get("alias"))
    on = join.args.get("on")
    condition = None if on is None else binder.scalar(on, scope, "ON of JOIN LATERAL")
    return Relation(subquery.lateral(left.plan, inner.plan, condition, join.side == "LEFT", binder.column_like), scope)


def _equal(left: Scope, right: Scope, name: str) -> Scalar:
    pair = [scope.find([name]) for scope in (left, right)]
    if pair[0] is None or pair[1] is None:
        raise UnknownObjectError(f"USING ({name}): both sides of the join must have a column {name}.")
    return exp.EQ(this=column(pair[0][0].id), expression=column(pair[1][0].id))


def _merged(left: Scope, right: Scope, using: Sequence[str], preserved: Scope | None = None) -> Scope:
    """USING: the common columns once and first, then the rest of both sides.

    One column of each pair is shown for both: the left one, or that of the side that an outer join preserves.
    """
    names = {name.casefold() for name in using}
    chosen = preserved or left
    first = [f for name in using for f in chosen.visible if f.name.casefold() == name.casefold()]
    rest = [
        replace(f, hidden=True) if f.name.casefold() in names else f
        for f in (*left.fields, *right.fields)
        if f not in first
    ]
    return Scope((*first, *rest))


def _coalesced(binder: Binder, plan: Plan, left: Scope, right: Scope, using: Sequence[str]) -> Relation:
    """FULL JOIN … USING: the common column is the left one's value, or the right one's where there is no left row."""
    from deferred.sql.bind import Relation

    first, outputs = [], [(c, column(c)) for c in plan.columns]
    for name in using:
        pair = [scope.find([name]) for scope in (left, right)]
        assert pair[0] is not None
        assert pair[1] is not None
        value = exp.Anonymous(this="COALESCE", expressions=[column(pair[0][0].id), column(pair[1][0].id)])
        merged = binder.new_column(binder.types.of([value], binder.column_types)[0])
        outputs.append((merged, value))  # type: ignore[arg-type]
        first.append(Field(pair[0][0].name, merged))
    names = {name.casefold() for name in using}
    rest = [replace(f, hidden=True) if f.name.casefold() in names else f for f in (*left.fields, *right.fields)]
    return Relation(Project(plan, tuple(outputs)), Scope((*first, *rest)))


def hide_inexact_equalities(node: Plan, types: Mapping[str, str]) -> Plan:
    """A join whose equalities between columns of different types are hidden from the rules by parentheses.

    Rules conclude b = k from a = b and a = k. Across types that is false: '01' = 1 and 1 = '1', yet '01' <> '1'.
    """

    def hidden(condition: Scalar) -> Scalar:
        parts = [part.copy() for part in conjuncts(condition)]
        inexact = [
            part
            for part in parts
            if (pair := equated_columns(part)) and not compared_exactly(*map(types.__getitem__, pair))
        ]
        for part in inexact:
            part.set("this", exp.Paren(this=part.this))
        return all_true(parts) if inexact else condition

    return node.with_join_condition(hidden)
