"""From the text of a view to its plan: names resolved, stars expanded, types made explicit.

What a view may not contain is refused here, with the construct named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from deferred.algebra.join import Join
from deferred.algebra.plan import Filter, Plan, Project, Scan, UnionAll, Values
from deferred.algebra.prune import prune
from deferred.algebra.scalar import Fresh, Scalar, column, conjunction, conjuncts, is_bound, rewrite
from deferred.algebra.sets import Distinct, SetOperation
from deferred.errors import InvalidSQLError, UnknownObjectError, UnsupportedSQLError
from deferred.sql import grouping
from deferred.sql.dialect import parse_query, text
from deferred.sql.functions import GENERATORS, WINDOW_ONLY, is_aggregate, name_of, refuse_what_varies
from deferred.sql.scope import Field, Scope
from deferred.sql.types import Types

Schema = Sequence[tuple[str, str]]
"""The columns of a base table: (name, type as DDL)."""

Catalog = Callable[[tuple[str, ...]], tuple[str, Schema]]
"""Finds the tracked table of a dotted name: its one name in the warehouse, and its columns."""


@dataclass(frozen=True)
class Bound:
    """A query's plan: its output column names by position, the type of every column id, what it reads."""

    plan: Plan
    names: tuple[str, ...]
    types: Mapping[str, str]
    tables: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Relation:
    """A bound subquery: its plan and what its columns are called."""

    plan: Plan
    scope: Scope


def bind(sql: str, catalog: Catalog, types: Types) -> Bound:
    """The plan of a view's query."""
    binder = Binder(catalog, types)
    query = parse_query(sql)
    refuse_what_varies(query)
    relation = binder.query(query, {})
    outputs = tuple((f.id, column(f.id)) for f in relation.scope.visible)
    plan = relation.plan if tuple(o for o, _ in outputs) == relation.plan.columns else Project(relation.plan, outputs)
    names = tuple(f.name for f in relation.scope.visible)
    return Bound(prune(plan), names, binder.column_types, tuple(binder.tables), tuple(binder.notes))


class Binder:
    """Binds one view. Column ids are numbered in the order of the text, so the same text gives the same plan."""

    def __init__(self, catalog: Catalog, types: Types) -> None:
        self.catalog = catalog
        self.types = types
        self.fresh = Fresh()
        self.column_types: dict[str, str] = {}
        self.tables: dict[str, None] = {}
        self.notes: list[str] = []

    # ---- queries

    def query(self, node: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
        if isinstance(node, exp.Subquery):
            self.refuse_arguments(node, {"this", "alias", "with_"})
            return self.query(node.this, self.with_ctes(node, ctes))
        if isinstance(node, exp.Select):
            return self.select(node, self.with_ctes(node, ctes))
        if isinstance(node, exp.SetOperation):
            return self.set_operation(node, self.with_ctes(node, ctes))
        if isinstance(node, exp.Values):
            return self.values(node)
        if isinstance(node, exp.Table):
            return self.table(node, ctes)
        raise UnsupportedSQLError(f"A view may not contain {node.key.upper()}: {text(node)[:80]}")

    def with_ctes(self, node: exp.Expr, ctes: Mapping[str, Relation]) -> Mapping[str, Relation]:
        """The common table expressions in scope: bound once, however often they are used."""
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        if clause.args.get("recursive"):
            raise UnsupportedSQLError("WITH RECURSIVE is not supported in a view.")
        known = dict(ctes)
        for cte in clause.expressions:
            relation = self.query(cte.this, known)
            alias = cte.args["alias"]
            known[alias.name.casefold()] = Relation(relation.plan, relation.scope.named(
                (alias.name,), [c.name for c in alias.args.get("columns") or []]))
        return known

    def select(self, node: exp.Select, ctes: Mapping[str, Relation]) -> Relation:
        self.refuse_arguments(node, {"with_", "expressions", "from_", "joins", "where", "group", "having", "distinct",
                                     "order", "kind"})
        self.ordering(node)
        source = self.source(node, ctes)
        where = node.args.get("where")
        if where is not None:
            condition = self.scalar(where.this, source.scope, "WHERE")
            source = Relation(filtered(source.plan, condition), source.scope)
        items = self.select_items(node, source.scope)
        having = node.args.get("having")
        if node.args.get("group") or having or any(_aggregated(e) for _, e in items):
            result = grouping.grouped(self, node, source, items)
        else:
            resolved = self.resolve_items(items, source.scope)
            result = self.projected(source.plan, [(name, e) for (name, _), e in zip(items, resolved, strict=True)])
        distinct = node.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on"):
                raise UnsupportedSQLError("SELECT DISTINCT ON is not supported in a view.")
            result = Relation(Distinct(result.plan), result.scope)
        return result

    def set_operation(self, node: exp.SetOperation, ctes: Mapping[str, Relation]) -> Relation:
        self.refuse_arguments(node, {"with_", "this", "expression", "distinct", "order", "kind"})
        self.ordering(node)
        left, right = self.query(node.this, ctes), self.query(node.expression, ctes)
        fields, others = left.scope.visible, right.scope.visible
        what = type(node).__name__.upper()
        if len(fields) != len(others):
            raise InvalidSQLError(f"{what} joins queries of {len(fields)} and {len(others)} columns.")
        common = [self.types.common(self.column_types[a.id], self.column_types[b.id])
                  for a, b in zip(fields, others, strict=True)]
        plans = [self.cast(side, common) for side in (left, right)]
        ids = tuple(self.typed(type_) for type_ in common)
        scope = Scope(tuple(Field(f.name, i) for f, i in zip(fields, ids, strict=True)))
        every = not node.args.get("distinct")
        if isinstance(node, exp.Union):
            union = UnionAll(tuple(plans), ids)
            return Relation(union if every else Distinct(union), scope)
        kind = "EXCEPT" if isinstance(node, exp.Except) else "INTERSECT"
        return Relation(SetOperation(plans[0], plans[1], kind, every, ids), scope)

    def values(self, node: exp.Values) -> Relation:
        tuples = [t.expressions if isinstance(t, exp.Tuple) else [t] for t in node.expressions]
        rows = tuple(tuple(self.scalar(e, Scope(()), "VALUES") for e in row) for row in tuples)
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            raise InvalidSQLError("The rows of VALUES have different numbers of columns.")
        types = []
        for position in range(width):
            found = [self.types.of([row[position]], {})[0] for row in rows]
            type_ = found[0]
            for other in found[1:]:
                type_ = self.types.common(type_, other)
            types.append(type_)
        ids = tuple(self.typed(t) for t in types)
        cast = tuple(tuple(exp.cast(e, t, dialect="spark") for e, t in zip(row, types, strict=True)) for row in rows)
        alias = node.args.get("alias")
        scope = Scope(tuple(Field(f"col{i + 1}", c) for i, c in enumerate(ids)))
        return Relation(Values(ids, cast), self.aliased(scope, alias))

    # ---- FROM

    def source(self, node: exp.Select, ctes: Mapping[str, Relation]) -> Relation:
        """FROM and its joins: inner and cross joins become one n-ary product, with the conditions above it."""
        clause = node.args.get("from_")
        if clause is None:
            one = self.typed("int")
            return Relation(Values((one,), ((exp.Literal.number(1),),)), Scope(()))
        result = self.relation(clause.this, ctes)
        for join in node.args.get("joins") or []:
            result = self.join(result, join, ctes)
        return result

    def join(self, left: Relation, join: exp.Join, ctes: Mapping[str, Relation]) -> Relation:
        self.refuse_arguments(join, {"this", "on", "side", "kind", "using", "method"})
        side, kind, method = join.side, join.kind, join.method
        if side or kind not in ("", "INNER", "CROSS") or method not in ("", "NATURAL"):
            what = " ".join(word for word in (method, side, kind, "JOIN") if word)
            raise UnsupportedSQLError(f"{what} is not supported in a view.")
        right = self.relation(join.this, ctes)
        using = [c.name for c in join.args.get("using") or []]
        if method == "NATURAL":
            theirs = {f.name.casefold() for f in right.scope.visible}
            using = [f.name for f in left.scope.visible if f.name.casefold() in theirs]
        scope = left.scope + right.scope
        conditions: list[Scalar] = []
        for name in using:
            pair = [side.scope.find([name]) for side in (left, right)]
            if pair[0] is None or pair[1] is None:
                raise UnknownObjectError(f"USING ({name}): both sides of the join must have a column {name}.")
            conditions.append(exp.EQ(this=column(pair[0][0].id), expression=column(pair[1][0].id)))
        if using:
            scope = _merged(left.scope, right.scope, using)
        on = join.args.get("on")
        if on is not None:
            conditions.extend(conjuncts(self.scalar(on, scope, "ON")))
        return Relation(product(left.plan, right.plan, conditions), scope)

    def relation(self, node: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
        """One item of FROM."""
        if isinstance(node, exp.Table):
            return self.with_joins(self.table(node, ctes), node, ctes)
        if isinstance(node, exp.Subquery):
            self.refuse_arguments(node, {"this", "alias", "with_", "joins"})
            known = self.with_ctes(node, ctes)
            inside = self.relation if isinstance(node.this, exp.Table) else self.query
            inner = inside(node.this, known)
            scope = self.aliased(inner.scope, node.args.get("alias"))
            return self.with_joins(Relation(inner.plan, scope), node, ctes)
        if isinstance(node, exp.Values):
            return self.values(node)
        raise UnsupportedSQLError(f"FROM may not contain {node.key.upper()}: {text(node)[:80]}")

    def with_joins(self, relation: Relation, node: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
        """The joins that stand inside parentheses with a table."""
        for join in node.args.get("joins") or []:
            relation = self.join(relation, join, ctes)
        return relation

    def table(self, node: exp.Table, ctes: Mapping[str, Relation]) -> Relation:
        self.refuse_arguments(node, {"this", "alias", "db", "catalog", "joins"})
        if not isinstance(node.this, exp.Identifier):
            raise UnsupportedSQLError(f"FROM may not contain a table function: {text(node)[:80]}")
        path = tuple(part.name for part in node.parts)
        cte = ctes.get(path[0].casefold()) if len(path) == 1 else None
        if cte is not None:
            return self.instance(cte, node.args.get("alias"), path)
        name, schema = self.catalog(path)
        self.tables[name] = None
        ids = tuple(self.typed(type_) for _, type_ in schema)
        scope = Scope(tuple(Field(n, i, path) for (n, _), i in zip(schema, ids, strict=True)))
        return Relation(Scan(name, tuple(n for n, _ in schema), ids), self.aliased(scope, node.args.get("alias")))

    def instance(self, cte: Relation, alias: exp.TableAlias | None, path: tuple[str, ...]) -> Relation:
        """One use of a common table expression: fresh columns over the one shared plan."""
        fields = cte.scope.visible
        renamed = tuple((self.typed(self.column_types[f.id]), column(f.id)) for f in fields)
        scope = Scope(tuple(replace(f, id=i, qualifier=path) for f, (i, _) in zip(fields, renamed, strict=True)))
        return Relation(Project(cte.plan, renamed), self.aliased(scope, alias))

    def aliased(self, scope: Scope, alias: exp.TableAlias | None) -> Scope:
        if alias is None:
            return scope
        return scope.named((alias.name,) if alias.name else (), [c.name for c in alias.args.get("columns") or []])

    # ---- SELECT list

    def select_items(self, node: exp.Select, scope: Scope) -> list[tuple[str, exp.Expr]]:
        """(name, unresolved expression) of every output; stars expanded now, for good."""
        items: list[tuple[str, exp.Expr]] = []
        for item in node.expressions:
            star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
            if isinstance(star, exp.Star):
                items.extend(self.star(star, item, scope))
            elif isinstance(item, exp.Alias):
                items.append((item.alias, item.this))
            elif isinstance(item, exp.Aliases):
                raise UnsupportedSQLError(f"A generator in SELECT is not supported in a view: {text(item)}")
            else:
                items.append((item.name if isinstance(item, (exp.Column, exp.Dot)) else text(item), item))
        return items

    def star(self, star: exp.Star, item: exp.Expr, scope: Scope) -> list[tuple[str, exp.Expr]]:
        for modifier in ("replace", "rename", "ilike"):
            if star.args.get(modifier):
                raise UnsupportedSQLError(f"* {modifier.upper()} is not supported in a view.")
        qualifier = [part.name for part in item.parts[:-1]] if isinstance(item, exp.Column) else []
        fields = scope.star(qualifier)
        dropped = {e.name.casefold() for e in star.args.get("except_") or []}
        known = {f.name.casefold() for f in fields}
        for name in dropped - known:
            raise UnknownObjectError(f"* EXCEPT ({name}): no such column.")
        return [(f.name, column(f.id)) for f in fields if f.name.casefold() not in dropped]

    def resolve_items(self, items: Sequence[tuple[str, exp.Expr]], scope: Scope) -> list[Scalar]:
        """SELECT's expressions over plan columns; a later one may use an earlier one's alias, as Spark allows."""
        aliases: dict[str, Scalar] = {}
        resolved = []
        for name, expression in items:
            result = self.scalar(expression, scope, "SELECT", aliases)
            aliases.setdefault(name.casefold(), result)
            resolved.append(result)
        return resolved

    def projected(self, plan: Plan, outputs: Sequence[tuple[str, Scalar]]) -> Relation:
        """Π with fresh columns, its types asked of the engine."""
        computed = [e for _, e in outputs if not isinstance(e, exp.Column)]
        answers = iter(self.types.of(computed, self.column_types))
        types = [self.column_types[e.name] if isinstance(e, exp.Column) else next(answers) for _, e in outputs]
        ids = [self.typed(type_) for type_ in types]
        plan = Project(plan, tuple((i, e) for i, (_, e) in zip(ids, outputs, strict=True)))
        return Relation(plan, Scope(tuple(Field(name, i) for (name, _), i in zip(outputs, ids, strict=True))))

    # ---- scalars

    def scalar(self, node: exp.Expr, scope: Scope, clause: str,
               aliases: Mapping[str, Scalar] | None = None) -> Scalar:
        """An expression of the text with every column resolved; what no rule exists for is refused by name."""
        for part in node.walk():
            if isinstance(part, (exp.Query, exp.Exists)) or (isinstance(part, exp.In) and part.args.get("query")):
                raise UnsupportedSQLError(f"A subquery in {clause} is not supported in a view: {text(part)[:80]}")
            if isinstance(part, exp.Window) or name_of(part) in WINDOW_ONLY:
                raise UnsupportedSQLError(f"A window function is not supported in a view: {text(part)[:80]}")
            if name_of(part) in GENERATORS:
                raise UnsupportedSQLError(f"A generator in {clause} is not supported in a view: {text(part)[:80]}")
            if isinstance(part, (exp.Placeholder, exp.Parameter, exp.SessionParameter)):
                raise UnsupportedSQLError(f"A parameter is not supported in a view: {text(part)}")
            grouping.refuse_unknown_aggregate(part)
            if clause not in ("SELECT", "HAVING") and is_aggregate(part):
                raise InvalidSQLError(f"{text(part)} is an aggregate and may not stand in {clause}.")

        def replace_column(part: Scalar) -> Scalar | None:
            if not isinstance(part, exp.Column) or is_bound(part):
                return None
            resolved = scope.resolve(part)
            if resolved is None and aliases and len(part.parts) == 1:
                resolved = aliases.get(part.name.casefold())
                if resolved is not None and not isinstance(resolved, (exp.Column, exp.Literal)):
                    resolved = exp.Paren(this=resolved.copy())
            if resolved is None:
                raise scope.unknown(part)
            return resolved

        return rewrite(node, replace_column)

    # ---- helpers

    def typed(self, type_: str) -> str:
        """A fresh column of a type."""
        name = self.fresh("c_")
        self.column_types[name] = type_
        return name

    def cast(self, side: Relation, types: Sequence[str]) -> Plan:
        """A side of a set operation with its columns in the common types, so that either side alone has them."""
        fields = side.scope.visible
        outputs: list[tuple[str, Scalar]] = []
        for field, type_ in zip(fields, types, strict=True):
            if self.column_types[field.id] == type_:
                outputs.append((field.id, column(field.id)))
            else:
                outputs.append((self.typed(type_), exp.cast(column(field.id), type_, dialect="spark")))
        if tuple(i for i, _ in outputs) == side.plan.columns:
            return side.plan
        return Project(side.plan, tuple(outputs))

    def ordering(self, node: exp.Expr) -> None:
        if node.args.get("order"):
            self.notes.append("ORDER BY without LIMIT is ignored: a table has no order.")

    def refuse_arguments(self, node: exp.Expr, allowed: set[str]) -> None:
        """Refuse every clause that no rule exists for, rather than overlook it."""
        for name, value in node.args.items():
            if value and name not in allowed:
                shown = value[0] if isinstance(value, list) else value
                what = text(shown)[:80] if isinstance(shown, exp.Expr) else str(shown)
                raise UnsupportedSQLError(f"{name.rstrip('_').upper()} is not supported in a view: {what}")


def filtered(plan: Plan, condition: Scalar) -> Plan:
    """σ over a plan; over an inner join the condition becomes the join's own, so that its links are known."""
    if isinstance(plan, Join):
        return Join(plan.inputs, conjunction([*conjuncts(plan.condition), *conjuncts(condition)]))
    return Filter(plan, condition)


def product(left: Plan, right: Plan, conditions: Sequence[Scalar]) -> Plan:
    """left ⋈ right as one n-ary join, whatever was joined already."""
    inputs: list[Plan] = []
    parts: list[Scalar] = []
    for plan in (left, right):
        if isinstance(plan, Join):
            inputs.extend(plan.inputs)
            parts.extend(conjuncts(plan.condition))
        else:
            inputs.append(plan)
    return Join(tuple(inputs), conjunction([*parts, *conditions]))


def _merged(left: Scope, right: Scope, using: Sequence[str]) -> Scope:
    """USING: the common columns once and first, then the rest of either side."""
    names = {name.casefold() for name in using}
    first = [f for name in using for f in left.visible if f.name.casefold() == name.casefold()]
    rest = [f for f in left.fields if f not in first]
    others = [replace(f, hidden=True) if f.name.casefold() in names else f for f in right.fields]
    return Scope((*first, *rest, *others))


def _aggregated(expression: exp.Expr) -> bool:
    return any(is_aggregate(part) for part in expression.walk())
