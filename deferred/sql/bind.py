"""From the text of a view to its plan: names resolved, stars expanded, types made explicit.

What a view may not contain is refused here, with the construct named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from deferred.algebra.group import Aggregate
from deferred.algebra.join import Join
from deferred.algebra.outer import filtered
from deferred.algebra.plan import Plan, Project, UnionAll, Values, pick
from deferred.algebra.prune import prune
from deferred.algebra.scalar import Fresh, Scalar, column, columns_of, conjunction, conjuncts, is_bound, rewrite
from deferred.algebra.sets import Distinct, SetOperation
from deferred.algebra.simplify import bottom_up
from deferred.algebra.window import Limit
from deferred.errors import InvalidSQLError, NondeterministicSQLError, UnknownObjectError, UnsupportedSQLError
from deferred.sql import generators, grouping, sources, subquery, windowing
from deferred.sql.dialect import parse_query, parse_scalar, text
from deferred.sql.functions import is_aggregate, is_built_in, name_of
from deferred.sql.refusing import refuse_arguments, refuse_in_expression, refuse_what_varies
from deferred.sql.scope import Field, Scope
from deferred.sql.supporting import supported
from deferred.sql.types import Types, unordered

Schema = Sequence[tuple[str, str]]
"""The columns of a base table: (name, type as DDL)."""

Catalog = Callable[[tuple[str, ...]], tuple[str, Schema]]
"""Finds the tracked table of a dotted name: its one name in the warehouse, and its columns."""


MEMBER = ("CASE WHEN COUNT(CASE WHEN x THEN 1 END) > 0 THEN TRUE "
          "WHEN COUNT(CASE WHEN x IS NULL THEN 1 END) > 0 THEN NULL ELSE FALSE END")
"""x IN (SELECT …) as a value, in the three-valued logic of conditions."""

EVERY = ("CASE WHEN COUNT(CASE WHEN NOT x THEN 1 END) > 0 THEN FALSE "
         "WHEN COUNT(CASE WHEN x IS NULL THEN 1 END) > 0 THEN NULL ELSE TRUE END")
"""x > ALL (SELECT …) as a value."""

MEMBER_SHOWN = "COUNT(CASE WHEN x THEN 1 END) > 0"
NOT_MEMBER_SHOWN = "COUNT(CASE WHEN x IS NULL OR x THEN 1 END) = 0"
"""What Spark shows for IN and NOT IN in a SELECT list: false, never NULL, where the answer is unknown."""


@dataclass(frozen=True)
class Bound:
    """A query's plan: its output column names by position, the type of every column id, what it reads."""

    plan: Plan
    names: tuple[str, ...]
    types: Mapping[str, str]
    tables: tuple[str, ...]
    notes: tuple[str, ...] = ()


ARRANGED = ("sort", "cluster", "distribute")
"""Clauses that say where rows lie and not which they are."""


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
    stray = subquery.free(plan)
    if stray:
        raise InvalidSQLError("A subquery reads a column of the query around it that is not there where the subquery "
                              "stands, such as one that GROUP BY has folded.")
    plan = bottom_up(plan, lambda node: sources.unlike_apart(node, binder.column_types))
    plan, column_types = supported(prune(plan), types, binder.column_types)
    return Bound(plan, names, column_types, tuple(binder.tables), tuple(binder.notes))


@dataclass(frozen=True)
class Quantified:
    """values ∘ ANY (query), or ∘ ALL (query) with `every`. x IN (query) is x = ANY (query)."""

    values: tuple[exp.Expr, ...]
    operator: type[exp.Binary]
    every: bool
    query: exp.Expr


def quantified(node: exp.Expr) -> Quantified | None:
    """A comparison with a whole subquery, None for anything else.

    >>> quantified(parse_scalar("a < ALL (SELECT b FROM t)")).every
    True
    """
    if isinstance(node, exp.In) and node.args.get("query"):
        return Quantified(_operands(node.this), exp.EQ, False, node.args["query"])
    if isinstance(node, (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)):
        against = node.expression
        if isinstance(against, (exp.Any, exp.All)) and isinstance(against.this, exp.Query):
            return Quantified(_operands(node.this), type(node), isinstance(against, exp.All), against.this)
    return None


def _operands(node: exp.Expr) -> tuple[exp.Expr, ...]:
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node,)


class Binder:
    """Binds one view. Column ids are numbered in the order of the text, so the same text gives the same plan."""

    def __init__(self, catalog: Catalog, types: Types) -> None:
        self.catalog = catalog
        self.types = types
        self.fresh = Fresh()
        self.column_types: dict[str, str] = {}
        self.tables: dict[str, None] = {}
        self.notes: list[str] = []
        self.ctes: Mapping[str, Relation] = {}
        self.outers: list[Scope] = []
        self.pending: dict[str, Plan] = {}

    # ---- queries

    def query(self, node: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
        if isinstance(node, exp.Subquery):
            refuse_arguments(node, {"this", "alias", "with_", "order", "limit", "offset"})
            return self.sorted(node, self.query(node.this, self.with_ctes(node, ctes)))
        if isinstance(node, exp.Select):
            return self.select(node, self.with_ctes(node, ctes))
        if isinstance(node, exp.SetOperation):
            return self.set_operation(node, self.with_ctes(node, ctes))
        if isinstance(node, exp.Values):
            return self.values(node)
        if isinstance(node, exp.Table):
            return sources.table(self, node, ctes)
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
        refuse_arguments(node, {"with_", "expressions", "from_", "joins", "laterals", "where", "group", "having",
                                "qualify", "windows", "distinct", "order", "limit", "offset", "kind", *ARRANGED})
        if any(node.args.get(clause) for clause in ARRANGED):
            self.notes.append("SORT BY, CLUSTER BY and DISTRIBUTE BY are ignored: a table has no order.")
        node = windowing.spelled_out(node)
        around, self.ctes = self.ctes, ctes
        try:
            source = sources.source(self, node, ctes)
            where = node.args.get("where")
            if where is not None:
                source = Relation(self.where(source.plan, source.scope, where.this, "WHERE"), source.scope)
            result, ordered = self.selected(node, source)
        finally:
            self.ctes = around
        return self.finished(node, result, ordered)

    def selected(self, node: exp.Select, source: Relation) -> tuple[Relation, list[exp.Ordered]]:
        """The SELECT list over FROM and WHERE, with what ORDER BY asks for in terms of the same columns."""
        source, items = generators.expanded(self, source, self.select_items(node, source.scope))
        order = list(node.args["order"].expressions) if node.args.get("order") else []
        hidden = [("", key.this) for key in order if _position(key.this, items) is None]
        if hidden and node.args.get("distinct"):
            raise InvalidSQLError(f"ORDER BY {text(hidden[0][1])} is not in the SELECT DISTINCT list.")
        everything = [*items, *hidden]
        if node.args.get("group") or node.args.get("having") or any(_aggregated(e) for _, e in everything):
            plan, resolved = grouping.grouped(self, node, source, everything)
        else:
            resolved = self.resolve_items(everything, source.scope)
            plan = self.attached(source.plan)
        plan, resolved = windowing.windowed(self, node, plan, source.scope, everything, resolved)
        pairs = [(name, e) for (name, _), e in zip(everything, resolved, strict=True)]
        result = self.projected(plan, pairs)
        visible = Scope(result.scope.fields[:len(items)])
        extra = iter(range(len(items), len(everything)))
        ids = [f.id for f in result.scope.fields]
        ordered = [_ordered(key, _position(key.this, items), extra, ids, len(items)) for key in order]
        return Relation(result.plan, visible), ordered

    def finished(self, node: exp.Expr, result: Relation, ordered: Sequence[exp.Ordered]) -> Relation:
        """DISTINCT, ORDER BY, LIMIT and OFFSET on top of a query."""
        distinct = node.args.get("distinct") if isinstance(node, exp.Select) else None
        if distinct is not None:
            if distinct.args.get("on"):
                raise UnsupportedSQLError("SELECT DISTINCT ON is not supported in a view.")
            ids = [f.id for f in result.scope.fields]
            result = Relation(Distinct(pick(result.plan, ids)), result.scope)
        limit, offset = (_number(node, clause) for clause in ("limit", "offset"))
        if limit is None and offset is None:
            if ordered:
                self.notes.append("ORDER BY without LIMIT is ignored: a table has no order.")
            return Relation(pick(result.plan, [f.id for f in result.scope.fields]), result.scope)
        if not ordered:
            raise NondeterministicSQLError("LIMIT without ORDER BY takes any rows, so a recomputation may give others. "
                                           "Add ORDER BY.")
        plan: Plan = Limit(result.plan, tuple(ordered), limit, offset or 0)
        return Relation(pick(plan, [f.id for f in result.scope.fields]), result.scope)

    # ---- subqueries in expressions

    def where(self, plan: Plan, scope: Scope, condition: exp.Expr, clause: str,
              lifted: Callable[[Scalar], Scalar] = lambda e: e, aliases: Mapping[str, Scalar] | None = None) -> Plan:
        """σ by a condition of the text; a conjunct that is [NOT] EXISTS or [NOT] IN becomes a semi or anti join.

        Conjuncts without a subquery come first: the joins that they link would otherwise be products below it.
        """
        for part in sorted(conjuncts(condition), key=lambda part: part.find(exp.Query, exp.Exists) is not None):
            negated, inner = False, part
            while isinstance(inner, (exp.Not, exp.Paren)):
                negated = negated != isinstance(inner, exp.Not)
                inner = inner.this
            if isinstance(inner, exp.Exists):
                plan = subquery.semi(plan, self.inner(inner.this, scope).plan, None, negated, self.like)
            elif (asked := quantified(inner)) is not None:
                plan = self.membership(plan, scope, asked, negated, clause, lifted)
            else:
                resolved = lifted(self.scalar(part, scope, clause, aliases))
                plan = filtered(self.attached(plan), resolved)
        return plan

    def membership(self, plan: Plan, scope: Scope, asked: Quantified, negated: bool, clause: str,
                   lifted: Callable[[Scalar], Scalar]) -> Plan:
        """x ∘ ANY (SELECT s …) as a semi join on x ∘ s, x ∘ ALL (…) as an anti join on its being false or unknown.

        IN is = ANY. A negation swaps the two: NOT IN is an anti join on x = s or unknown, as SQL has it.
        """
        relation = self.inner(asked.query, scope)
        theirs = relation.scope.visible
        if len(asked.values) != len(theirs):
            raise InvalidSQLError(f"{text(asked.query)[:80]}: {len(asked.values)} values are compared with "
                                  f"{len(theirs)} columns.")
        values = [lifted(self.scalar(e, scope, clause)) for e in asked.values]
        plan = self.attached(plan)
        condition = conjunction([asked.operator(this=wrapped(v), expression=column(f.id))
                                 for v, f in zip(values, theirs, strict=True)])
        assert condition is not None
        unknown = exp.Is(this=exp.Paren(this=condition.copy()), expression=exp.Null())
        if asked.every:
            condition = exp.Not(this=exp.Paren(this=condition))
        if negated != asked.every:
            condition = exp.Or(this=exp.Paren(this=condition), expression=unknown)
        return subquery.semi(plan, relation.plan, condition, negated != asked.every, self.like)

    def inner(self, node: exp.Expr, scope: Scope) -> Relation:
        """A subquery inside an expression; it sees the columns around it."""
        self.outers.append(scope)
        waiting, self.pending = self.pending, {}
        try:
            return self.query(node, self.ctes)
        finally:
            self.outers.pop()
            self.pending = waiting

    def value_of(self, node: exp.Expr, scope: Scope, template: str = MEMBER) -> Scalar:
        """A subquery as a value: a column that `attached` will join to the plan."""
        if isinstance(node, exp.Exists):
            relation = self.inner(node.this, scope)
            found = exp.GT(this=parse_scalar("COUNT(*)"), expression=exp.Literal.number(0))
            plan = self.aggregated(relation.plan, found)
        elif (asked := quantified(node)) is not None:
            relation = self.inner(asked.query, scope)
            if len(asked.values) != 1 or len(relation.scope.visible) != 1:
                raise UnsupportedSQLError(f"Only one column can be compared here: {text(node)[:80]}")
            compared = asked.operator(this=wrapped(self.scalar(asked.values[0], scope, "IN")),
                                      expression=column(relation.scope.visible[0].id))
            called = parse_scalar(EVERY if asked.every else template)
            plan = self.aggregated(relation.plan, substitute_name(called, "x", exp.Paren(this=compared)))
        else:
            relation = self.inner(node, scope)
            fields = relation.scope.visible
            if len(fields) != 1:
                raise InvalidSQLError(f"A subquery used as a value must have one column: {text(node)[:80]}")
            plan = pick(relation.plan, [fields[0].id])
            if not _one_row(plan):
                # Of at most one row any aggregate is the value; a maximum can be kept in a support table.
                whole = "ANY_VALUE" if unordered(self.column_types[fields[0].id]) else "MAX"
                single = parse_scalar("CASE WHEN COUNT(*) > 1 THEN RAISE_ERROR('more than one row returned by a "
                                      f"subquery used as an expression') ELSE {whole}(x) END")
                plan = self.aggregated(plan, substitute_name(single, "x", column(fields[0].id)))
        marker = self.typed("void")
        self.pending[marker] = plan
        return column(marker)

    def aggregated(self, plan: Plan, expression: Scalar) -> Plan:
        """One row with an expression of aggregates over a whole plan."""
        calls: list[Scalar] = []
        for call in grouping.calls_in(expression):
            if call not in calls:
                calls.append(call)
        types = self.types.of(calls, self.column_types)
        ids = [self.typed(type_) for type_ in types]
        named = list(zip(calls, ids, strict=True))
        above = rewrite(expression, lambda part: next((column(i) for call, i in named if part == call), None))
        aggregate = Aggregate(plan, (), tuple((i, call) for call, i in named))
        return self.projected(aggregate, [("value", above)]).plan

    def attached(self, plan: Plan) -> Plan:
        """The plan joined with the subqueries that its expressions have asked for."""
        for marker, inner in list(self.pending.items()):
            del self.pending[marker]
            (value,) = inner.columns
            plan, result = subquery.scalar(plan, inner, self.like)
            self.column_types[marker] = self.column_types[value]
            plan = Project(plan, (*((c, column(c)) for c in plan.columns), (marker, result)))
        return plan

    def like(self, other: str) -> str:
        """A fresh column of another's type, or of a named type."""
        return self.typed(self.column_types.get(other, other))

    def set_operation(self, node: exp.SetOperation, ctes: Mapping[str, Relation]) -> Relation:
        refuse_arguments(node, {"with_", "this", "expression", "distinct", "order", "limit", "offset", "kind"})
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
        plan: Plan
        if isinstance(node, exp.Union):
            plan = UnionAll(tuple(plans), ids)
            plan = plan if every else Distinct(plan)
        else:
            kind = "EXCEPT" if isinstance(node, exp.Except) else "INTERSECT"
            plan = SetOperation(plans[0], plans[1], kind, every, ids)
        return self.sorted(node, Relation(plan, scope))

    def sorted(self, node: exp.Expr, result: Relation) -> Relation:
        """ORDER BY, LIMIT and OFFSET behind a query as a whole: they see its columns only."""
        order = node.args["order"].expressions if node.args.get("order") else []
        fields = result.scope.visible
        named = [(f.name, exp.Null()) for f in fields]
        ids = [f.id for f in fields]
        ordered = [_ordered(key, _position(key.this, named), iter(()), ids, len(ids)) for key in order]
        return self.finished(node, result, ordered)

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
        return Relation(Values(ids, cast), sources.aliased(scope, alias))

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
        refuse_in_expression(node, clause)
        node = struct_fields_named(node)

        def replace_column(part: Scalar) -> Scalar | None:
            if isinstance(part, (exp.Subquery, exp.Exists, exp.Select, exp.SetOperation)) or quantified(part):
                if clause not in ("SELECT", "WHERE", "HAVING", "ON"):
                    raise UnsupportedSQLError(f"A subquery in {clause} is not supported in a view: {text(part)[:80]}")
                shown = clause == "SELECT" and isinstance(part, exp.In)
                return self.value_of(part, scope, MEMBER_SHOWN if shown else MEMBER)
            if clause == "SELECT" and isinstance(part, exp.Not):
                inner = part.this.unnest()
                if isinstance(inner, exp.In) and inner.args.get("query"):
                    return self.value_of(inner, scope, NOT_MEMBER_SHOWN)
            if not isinstance(part, exp.Column) or is_bound(part):
                return None
            resolved = scope.resolve(part)
            if resolved is None and aliases and len(part.parts) == 1:
                resolved = aliases.get(part.name.casefold())
                if resolved is not None and not isinstance(resolved, (exp.Column, exp.Literal)):
                    resolved = exp.Paren(this=resolved.copy())
            for around in reversed(self.outers):
                resolved = around.resolve(part) if resolved is None else resolved
            if resolved is None:
                raise scope.unknown(part)
            return resolved

        result = rewrite(node, replace_column)
        self.refuse_undeclared(result)
        return result

    # ---- helpers

    def refuse_undeclared(self, expression: Scalar) -> None:
        """A function of the user's own must be declared deterministic, which only the engine knows."""
        for call in expression.find_all(exp.Anonymous):
            own = not is_built_in(call) and columns_of(call) <= self.column_types.keys()
            if own and not self.types.deterministic(call, self.column_types):
                raise NondeterministicSQLError(
                    f"The function {call.this} is declared nondeterministic: a recomputation may give another result, "
                    f"so a view may not contain it. Declare it deterministic, if it is.")

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


def wrapped(expression: Scalar) -> Scalar:
    """An operand that keeps together next to any operator."""
    plain = isinstance(expression, (exp.Column, exp.Literal, exp.Paren, exp.Func, exp.Anonymous))
    return expression if plain else exp.Paren(this=expression)


def substitute_name(expression: Scalar, name: str, by: Scalar) -> Scalar:
    """A parsed template with one of its names exchanged."""
    return rewrite(expression, lambda part: by if isinstance(part, exp.Column) and not is_bound(part)
                   and part.name == name else None)


def struct_fields_named(node: exp.Expr) -> exp.Expr:
    """STRUCT(a, b) with its fields named as Spark names them, before the columns get the names of the plan."""
    if not any(name_of(call) == "struct" for call in node.find_all(exp.Anonymous)):
        return node
    result = node.copy()
    for struct in result.find_all(exp.Anonymous):
        if name_of(struct) != "struct":
            continue
        named = []
        for field in struct.expressions:
            plain = isinstance(field, (exp.Column, exp.Dot)) and not is_bound(field)
            named.append(exp.alias_(field.copy(), field.name, quoted=True) if plain else field)
        struct.set("expressions", named)
    return result


def _one_row(plan: Plan) -> bool:
    """Whether a plan yields exactly one row whatever it reads: a projection of global aggregates."""
    while isinstance(plan, Project):
        plan = plan.child
    if isinstance(plan, Join):
        return plan.condition is None and all(map(_one_row, plan.inputs))
    return isinstance(plan, Aggregate) and not plan.keys


def _position(key: exp.Expr, items: Sequence[tuple[str, exp.Expr]]) -> int | None:
    """The position of the output column that an ORDER BY key names, by number or alias."""
    if isinstance(key, exp.Literal) and key.is_int:
        return int(key.this) - 1
    if isinstance(key, exp.Column):
        names = [name.casefold() for name, _ in items]
        if len(key.parts) == 1 and key.name.casefold() in names:
            return names.index(key.name.casefold())
    return next((i for i, (_, e) in enumerate(items) if e == key), None)


def _ordered(key: exp.Ordered, position: int | None, extra: Iterator[int], ids: Sequence[str],
             shown: int) -> exp.Ordered:
    """An ORDER BY key as a column of the result: the one it names, or the next of those added for it."""
    found = next(extra, None) if position is None else position if 0 <= position < shown else None
    if found is None:
        raise InvalidSQLError(f"ORDER BY {text(key.this)} is not among the {shown} columns of the result.")
    result = key.copy()
    result.set("this", column(ids[found]))
    return result


def _number(node: exp.Expr, clause: str) -> int | None:
    found = node.args.get(clause)
    if found is None:
        return None
    value = found.expression
    if not isinstance(value, exp.Literal) or not value.is_int:
        raise UnsupportedSQLError(f"{clause.upper()} must be a plain number in a view: {text(found)}")
    return int(value.this)


def _aggregated(expression: exp.Expr) -> bool:
    """Whether an expression holds an aggregate of its own: not a window's, not a subquery's."""
    if isinstance(expression, (exp.Query, exp.Subquery, exp.Exists)):
        return False
    if isinstance(expression, exp.Window):
        return any(_aggregated(part) for part in windowing.inside(expression))
    return is_aggregate(expression) or any(_aggregated(part) for part in expression.iter_expressions())
