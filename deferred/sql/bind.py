"""From the text of a view to its plan: names resolved, stars expanded, types made explicit.

What a view may not contain is refused here, with the construct named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from deferred.algebra.aggregates.calls import is_aggregate, name_of
from deferred.algebra.join_conditions import filtered
from deferred.algebra.operators import Aggregate, Distinct, Limit, Project
from deferred.algebra.operators.project import pick
from deferred.algebra.plan import Plan, free, transformed
from deferred.algebra.prune import prune
from deferred.algebra.scalar import Fresh, Scalar, column, columns_of, conjunction, conjuncts, is_bound, rewrite
from deferred.algebra.selfmaintenance import Promises
from deferred.algebra.types import compared_exactly, has_no_order
from deferred.errors import InvalidSQLError, NondeterministicSQLError, UnknownObjectError, UnsupportedSQLError, located
from deferred.options import AUTO
from deferred.sql import (
    event_time,
    from_clause,
    generators,
    grouping,
    ordering,
    recursive,
    set_operations,
    subquery,
    windowing,
)
from deferred.sql.clock import refuse_moments_beside
from deferred.sql.dialect import parse_query, parse_scalar, shallow, text
from deferred.sql.functions import is_built_in
from deferred.sql.quantified import EVERY, JOINED, MEMBER, MEMBER_SELECTED, NOT_MEMBER_SELECTED, Quantified, quantified
from deferred.sql.refusing import refuse_arguments, refuse_in_expression, refuse_what_varies
from deferred.sql.scope import Aliases, Field, Scope, alias_of
from deferred.sql.subquery import Member
from deferred.sql.support_tables import with_support_tables
from deferred.sql.templates import fill, operand
from deferred.sql.types import Types

Schema = Sequence[tuple[str, str]]
"""The columns of a base table: (name, type as DDL)."""

Catalog = Callable[[tuple[str, ...]], tuple[str, Schema]]
"""Finds the tracked table of a dotted name: its one name in the warehouse, and its columns."""


@dataclass(frozen=True)
class Bound:
    """A query's plan: its output column names by position, the type of every column id, what it reads.

    `choices` names what the query leaves open: LIMIT, a row number or MAX_BY choose among rows that their order leaves
    equal, a sum of doubles chooses the order of its additions. The plan always makes the same choice.
    """

    plan: Plan
    names: tuple[str, ...]
    types: Mapping[str, str]
    tables: tuple[str, ...]
    notes: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


ARRANGED = ("sort", "cluster", "distribute")
"""Clauses that place and sort the rows of a result without changing which rows it has."""


@dataclass(frozen=True)
class Relation:
    """A bound subquery: its plan and what its columns are called."""

    plan: Plan
    scope: Scope


def bind(sql: str, catalog: Catalog, types: Types, maintain: str = AUTO, promises: Promises | None = None) -> Bound:
    """Returns the plan of a view's query, with the support tables that the option `maintain` asks for.

    With `promises` about its tables the plan reads none of them after a change.
    """
    with shallow():
        return _bind(sql, catalog, types, maintain, promises)


def _bind(sql: str, catalog: Catalog, types: Types, maintain: str, promises: Promises | None) -> Bound:
    binder = Binder(catalog, types)
    query = parse_query(sql)
    refuse_what_varies(query)
    relation = binder.query(query, {})
    outputs = tuple((f.id, column(f.id)) for f in relation.scope.visible)
    plan = relation.plan if tuple(o for o, _ in outputs) == relation.plan.columns else Project(relation.plan, outputs)
    names = tuple(f.name for f in relation.scope.visible)
    stray = free(plan)
    if stray:
        raise InvalidSQLError(
            "A subquery reads a column of the outer query that is not available there, such as one that is neither in "
            "GROUP BY nor inside an aggregate. Add the column to GROUP BY, or aggregate it."
        )
    plan = transformed(plan, lambda node: from_clause.hide_inexact_equalities(node, binder.column_types))
    made = with_support_tables(prune(plan), types, binder.column_types, maintain, promises)
    notes = (*binder.notes, *made.notes)
    return Bound(made.plan, names, made.column_types, tuple(binder.tables), notes, tuple(binder.choices))


class Binder:
    """Binds one view. Column ids are numbered in the order of the text, so the same text gives the same plan."""

    def __init__(self, catalog: Catalog, types: Types) -> None:
        self.catalog = catalog
        self.types = types
        self.fresh = Fresh()
        self.column_types: dict[str, str] = {}
        self.tables: dict[str, None] = {}
        self.notes: list[str] = []
        self.choices: dict[str, None] = {}
        self.ctes: Mapping[str, Relation] = {}
        self.outers: list[Scope] = []
        self.pending: dict[str, Plan | Member] = {}
        self.recursions: list[str] = []

    # ---- queries

    def query(self, node: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
        if isinstance(node, exp.Subquery):
            refuse_arguments(node, {"this", "alias", "with_", "order", "limit", "offset"})
            return self.with_order_and_limit(node, self.query(node.this, self.with_ctes(node, ctes)))
        if isinstance(node, exp.Select):
            return self.select(node, self.with_ctes(node, ctes))
        if isinstance(node, exp.SetOperation):
            return set_operations.combined(self, node, self.with_ctes(node, ctes))
        if isinstance(node, exp.Values):
            return from_clause.relation(self, node, ctes)
        if isinstance(node, exp.Table):
            return from_clause.table(self, node, ctes)
        raise UnsupportedSQLError(f"A view may not contain {node.key.upper()}: {text(node)[:80]}.", at=node)

    def with_ctes(self, node: exp.Expr, ctes: Mapping[str, Relation]) -> Mapping[str, Relation]:
        """Returns the common table expressions in scope. Each is bound once, however often it is used."""
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        known, met = dict(ctes), set[str]()
        for cte in clause.expressions:
            if cte.alias in met:  # as written: of names that differ in case Spark, too, takes the last one
                raise InvalidSQLError(f"WITH defines {cte.alias} twice; give each query a name of its own.", at=cte)
            met.add(cte.alias)
            if clause.args.get("recursive") and recursive.refers_to_itself(cte):
                known[cte.alias.casefold()] = recursive.recursion(self, cte, known)
                continue
            relation = self.query(cte.this, known)
            alias = cte.args["alias"]
            known[alias.name.casefold()] = Relation(
                relation.plan, relation.scope.named((alias.name,), [c.name for c in alias.args.get("columns") or []])
            )
        return known

    def select(self, node: exp.Select, ctes: Mapping[str, Relation]) -> Relation:
        refuse_arguments(
            node,
            {
                "with_",
                "expressions",
                "from_",
                "joins",
                "laterals",
                "where",
                "group",
                "having",
                "qualify",
                "windows",
                "distinct",
                "order",
                "limit",
                "offset",
                "kind",
                *ARRANGED,
            },
        )
        if any(node.args.get(clause) for clause in ARRANGED):
            self.notes.append("SORT BY, CLUSTER BY and DISTRIBUTE BY are ignored: a table has no order.")
        node = windowing.inline_named_windows(node)
        around, self.ctes = self.ctes, ctes
        try:
            source = from_clause.source(self, node, ctes)
            where = node.args.get("where")
            if where is not None:
                source = Relation(self.where(source.plan, source.scope, where.this, "WHERE"), source.scope)
            result, ordered = self.select_list(node, source)
        finally:
            self.ctes = around
        return self.with_limit(node, result, ordered)

    def select_list(self, node: exp.Select, source: Relation) -> tuple[Relation, list[exp.Ordered]]:
        """The SELECT list over FROM and WHERE, and the keys of ORDER BY as columns of the result."""
        source, node = event_time.with_windows(self, source, node)
        source, items = generators.expanded(self, source, self.select_items(node, source.scope))
        order = ordering.keys_of(node, items)
        distinct = bool(node.args.get("distinct"))
        hidden = [] if distinct else [key.this for key in order if ordering.position(key.this, items) is None]
        everything = [*items, *((ordering.HIDDEN, key) for key in hidden)]
        if node.args.get("group") or node.args.get("having") or any(_aggregated(e) for _, e in everything):
            plan, resolved = grouping.grouped(self, node, source, everything)
        else:
            resolved = self.resolve_items(everything, source.scope)
            plan = self.with_subqueries(source.plan)
        plan, resolved = windowing.windowed(self, node, plan, source.scope, everything, resolved)
        pairs = [(name, e) for (name, _), e in zip(everything, resolved, strict=True)]
        result = self.projected(plan, pairs)
        visible = Scope(result.scope.fields[: len(items)])
        if distinct:
            return self.distinct(node, Relation(result.plan, visible), order, items)
        return Relation(result.plan, visible), ordering.ordered(order, items, [f.id for f in result.scope.fields])

    def distinct(
        self, node: exp.Select, result: Relation, order: Sequence[exp.Ordered], items: ordering.Items
    ) -> tuple[Relation, list[exp.Ordered]]:
        """SELECT DISTINCT; ORDER BY then reads the result's columns alone."""
        if node.args["distinct"].args.get("on"):
            raise UnsupportedSQLError("SELECT DISTINCT ON is not supported in a view.", at=node.args["distinct"])
        once = Relation(Distinct(pick(result.plan, [f.id for f in result.scope.fields])), result.scope)
        plan, ordered = ordering.over_outputs(self, once, order, items)
        return Relation(plan, result.scope), ordered

    def with_limit(self, node: exp.Expr, result: Relation, ordered: Sequence[exp.Ordered]) -> Relation:
        """ORDER BY, LIMIT and OFFSET on top of a query."""
        limit, offset = (_number(node, clause) for clause in ("limit", "offset"))
        if limit is None and offset is None:
            if ordered:
                self.notes.append("ORDER BY without LIMIT is ignored: a table has no order.")
            return Relation(pick(result.plan, [f.id for f in result.scope.fields]), result.scope)
        if not ordered:
            raise NondeterministicSQLError(
                "LIMIT without ORDER BY takes any rows, so a recomputation may give other rows. Add ORDER BY.",
                at=node.args.get("limit") or node.args["offset"],
            )
        self.choices["OFFSET" if limit is None else "LIMIT"] = None
        plan: Plan = Limit(result.plan, tuple(ordered), limit, offset or 0)
        return Relation(pick(plan, [f.id for f in result.scope.fields]), result.scope)

    # ---- subqueries in expressions

    def where(
        self,
        plan: Plan,
        scope: Scope,
        condition: exp.Expr,
        clause: str,
        lifted: Callable[[Scalar], Scalar] = lambda e: e,
        aliases: Aliases | None = None,
    ) -> Plan:
        """σ by a condition of the text; a conjunct that is [NOT] EXISTS or [NOT] IN becomes a semi or anti join.

        Conjuncts without a subquery come first: the joins that they link would otherwise be products below it.
        """
        for part in sorted(conjuncts(condition), key=lambda part: part.find(exp.Query, exp.Exists) is not None):
            negated, inner = False, part
            while isinstance(inner, (exp.Not, exp.Paren)):
                negated = negated != isinstance(inner, exp.Not)
                inner = inner.this
            if isinstance(inner, exp.Exists):
                plan = subquery.semi(plan, self.inner_query(inner.this, scope).plan, None, negated, self.column_like)
            elif (asked := quantified(inner)) is not None:
                plan = self.membership(plan, scope, asked, negated, clause, lifted, aliases)
            else:
                resolved = lifted(self.scalar(part, scope, clause, aliases))
                plan = filtered(self.with_subqueries(plan), resolved)
        return plan

    def membership(
        self,
        plan: Plan,
        scope: Scope,
        asked: Quantified,
        negated: bool,
        clause: str,
        lifted: Callable[[Scalar], Scalar],
        aliases: Aliases | None,
    ) -> Plan:
        """x ∘ ANY (SELECT s …) as a semi join on x ∘ s, x ∘ ALL (…) as an anti join on its being false or unknown.

        IN is = ANY. A negation swaps the two: NOT IN is an anti join on x = s or unknown, as SQL has it.
        """
        relation = self.inner_query(asked.query, scope)
        theirs = relation.scope.visible
        if len(asked.values) != len(theirs):
            raise InvalidSQLError(
                f"{len(asked.values)} values are compared with a subquery of {len(theirs)} columns: "
                f"{text(asked.query)[:80]}.",
                at=asked.query,
            )
        values = [lifted(self.scalar(e, scope, clause, aliases)) for e in asked.values]
        plan = self.with_subqueries(plan)
        condition = conjunction(
            [asked.operator(this=operand(v), expression=column(f.id)) for v, f in zip(values, theirs, strict=True)]
        )
        assert condition is not None
        unknown = exp.Is(this=exp.Paren(this=condition.copy()), expression=exp.Null())
        if asked.every:
            condition = exp.Not(this=exp.Paren(this=condition))
        if negated != asked.every:
            condition = exp.Or(this=exp.Paren(this=condition), expression=unknown)
        return subquery.semi(plan, relation.plan, condition, negated != asked.every, self.column_like)

    def inner_query(self, node: exp.Expr, scope: Scope) -> Relation:
        """A subquery inside an expression, which may read the columns of the outer queries."""
        self.outers.append(scope)
        waiting, self.pending = self.pending, {}
        try:
            return self.query(node, self.ctes)
        finally:
            self.outers.pop()
            self.pending = waiting

    def subquery_value(self, node: exp.Expr, scope: Scope, template: str = MEMBER) -> Scalar:
        """A subquery as a value: a column that `with_subqueries` will join to the plan."""
        if isinstance(node, exp.Exists):
            relation = self.inner_query(node.this, scope)
            found = exp.GT(this=parse_scalar("COUNT(*)"), expression=exp.Literal.number(0))
            plan = self.aggregated(relation.plan, found)
        elif (asked := quantified(node)) is not None:
            relation = self.inner_query(asked.query, scope)
            if len(asked.values) != 1 or len(relation.scope.visible) != 1:
                raise UnsupportedSQLError(
                    f"Only one column can be compared with a subquery here: {text(node)[:80]}.", at=node
                )
            value, theirs = self.scalar(asked.values[0], scope, "IN"), relation.scope.visible[0].id
            if asked.operator is exp.EQ and not asked.every and not free(relation.plan):
                values = pick(relation.plan, [theirs])
                return self.waiting_for(Member(value, self.type_of(value), values, JOINED[template]), "boolean")
            compared = asked.operator(this=operand(value), expression=column(theirs))
            called = fill(EVERY if asked.every else template, x=exp.Paren(this=compared))
            plan = self.aggregated(relation.plan, called)
        else:
            relation = self.inner_query(node, scope)
            fields = relation.scope.visible
            if len(fields) != 1:
                raise InvalidSQLError(
                    f"A subquery used as a value must have one column, not {len(fields)}: {text(node)[:80]}.", at=node
                )
            plan = pick(relation.plan, [fields[0].id])
            if not plan.one_row:
                # There is at most one row, so any aggregate gives its value; a maximum can be kept in a support table.
                whole = "ANY_VALUE" if has_no_order(self.column_types[fields[0].id]) else "MAX"
                single = fill(
                    "CASE WHEN COUNT(*) > 1 THEN RAISE_ERROR('more than one row returned by a "
                    f"subquery used as an expression') ELSE {whole}(x) END",
                    x=column(fields[0].id),
                )
                plan = self.aggregated(plan, single)
        return self.waiting_for(plan, "void")

    def waiting_for(self, asked: Plan | Member, type_: str) -> Scalar:
        """A column for the value of a subquery that is still to be joined."""
        marker = self.new_column(type_)
        self.pending[marker] = asked
        return column(marker)

    def aggregated(self, plan: Plan, expression: Scalar) -> Plan:
        """One row with an expression of aggregates over a whole plan."""
        calls: list[Scalar] = []
        for call in grouping.calls_in(expression):
            if call not in calls:
                calls.append(call)
        types = self.types.of(calls, self.column_types)
        ids = [self.new_column(type_) for type_ in types]
        named = list(zip(calls, ids, strict=True))
        above = rewrite(expression, lambda part: next((column(i) for call, i in named if part == call), None))
        aggregate = Aggregate(plan, (), tuple((i, call) for call, i in named))
        return self.projected(aggregate, [("value", above)]).plan

    def with_subqueries(self, plan: Plan, read: Sequence[Scalar] | None = None) -> Plan:
        """The plan joined with the subqueries whose values its expressions read, or only those that `read` do."""
        wanted = set(self.pending) if read is None else {name for e in read for name in columns_of(e)}
        for marker, inner in reversed(self.pending.items()):  # the value of a later one may read an earlier one
            wanted |= subquery.reads(inner) if marker in wanted else set()
        for marker, inner in list(self.pending.items()):
            if marker not in wanted:
                continue
            del self.pending[marker]
            if isinstance(inner, Member):
                plan, result = subquery.member(plan, inner, self.column_like, self.compared_exactly)
            else:
                (value,) = inner.columns
                plan, result = subquery.scalar(plan, inner, self.column_like, self.compared_exactly)
                self.column_types[marker] = self.column_types[value]
            plan = Project(plan, (*((c, column(c)) for c in plan.columns), (marker, result)))
        return plan

    def column_like(self, other: str) -> str:
        """Returns a fresh column of another column's type, or of a named type."""
        return self.new_column(self.column_types.get(other, other))

    def compared_exactly(self, left: str, right: str) -> bool:
        """Whether two columns are compared without a conversion that equates different values."""
        return compared_exactly(self.column_types[left], self.column_types[right])

    def with_order_and_limit(self, node: exp.Expr, result: Relation) -> Relation:
        """ORDER BY, LIMIT and OFFSET after a whole query, whose output columns are all that they can read."""
        items = [(f.name, column(f.id)) for f in result.scope.visible]
        plan, ordered = ordering.over_outputs(self, result, ordering.keys_of(node, items), items)
        return self.with_limit(node, Relation(plan, result.scope), ordered)

    # ---- SELECT list

    def select_items(self, node: exp.Select, scope: Scope) -> list[tuple[str, exp.Expr]]:
        """(name, unresolved expression) of every output. Stars are expanded once, when the view is created."""
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
                raise UnsupportedSQLError(f"* {modifier.upper()} is not supported in a view.", at=star)
        qualifier = [part.name for part in item.parts[:-1]] if isinstance(item, exp.Column) else []
        with located(item):
            found = scope.star(qualifier, self.column_types)
        dropped = {e.name.casefold() for e in star.args.get("except_") or []}
        for name in dropped - {known.casefold() for known, _ in found}:
            raise UnknownObjectError(f"* EXCEPT ({name}): no such column.", at=item)
        return [(name, value) for name, value in found if name.casefold() not in dropped]

    def resolve_items(self, items: Sequence[tuple[str, exp.Expr]], scope: Scope) -> list[Scalar]:
        """SELECT's expressions over plan columns; a later one may use an earlier one's alias, as Spark allows."""
        aliases: dict[str, list[Scalar]] = {}
        resolved = []
        for name, expression in items:
            if name == ordering.HIDDEN:
                expression = ordering.with_aliases(expression, aliases)
            result = self.scalar(expression, scope, "SELECT", aliases)
            if name != ordering.HIDDEN:
                aliases.setdefault(name.casefold(), []).append(result)
            resolved.append(result)
        return resolved

    def projected(self, plan: Plan, outputs: Sequence[tuple[str, Scalar]]) -> Relation:
        """Π with fresh columns, whose types the engine determines."""
        computed = [e for _, e in outputs if not isinstance(e, exp.Column)]
        computed_types = iter(self.types.of(computed, self.column_types))
        types = [self.column_types[e.name] if isinstance(e, exp.Column) else next(computed_types) for _, e in outputs]
        ids = [self.new_column(type_) for type_ in types]
        plan = Project(plan, tuple((i, e) for i, (_, e) in zip(ids, outputs, strict=True)))
        return Relation(plan, Scope(tuple(Field(name, i) for (name, _), i in zip(outputs, ids, strict=True))))

    # ---- scalars

    def scalar(self, node: exp.Expr, scope: Scope, clause: str, aliases: Aliases | None = None) -> Scalar:
        """An expression of the text with every column resolved. What no rule exists for is refused, with its name."""
        refuse_in_expression(node, clause)
        node = struct_fields_named(node)

        def replace_column(part: Scalar) -> Scalar | None:
            if isinstance(part, (exp.Subquery, exp.Exists, exp.Select, exp.SetOperation)) or quantified(part):
                if clause not in ("SELECT", "WHERE", "HAVING", "ON"):
                    raise UnsupportedSQLError(
                        f"A subquery in {clause} is not supported in a view: {text(part)[:80]}.", at=part
                    )
                selected = clause == "SELECT" and isinstance(part, exp.In)
                return self.subquery_value(part, scope, MEMBER_SELECTED if selected else MEMBER)
            if clause == "SELECT" and isinstance(part, exp.Not):
                inner = part.this.unnest()
                if isinstance(inner, exp.In) and inner.args.get("query"):
                    return self.subquery_value(inner, scope, NOT_MEMBER_SELECTED)
            if not isinstance(part, exp.Column) or is_bound(part):
                return None
            resolved = scope.resolve(part)
            if resolved is None and aliases:
                resolved = alias_of(part, aliases)
            for around in reversed(self.outers):
                resolved = around.resolve(part) if resolved is None else resolved
            if resolved is None:
                raise scope.unknown(part)
            return resolved

        result = rewrite(node, replace_column)
        self.refuse_undeclared(result)
        refuse_moments_beside(result, self.type_of)
        return result

    # ---- helpers

    def refuse_undeclared(self, expression: Scalar) -> None:
        """Refuse a user-defined function that is declared nondeterministic, which only the engine knows."""
        for call in expression.find_all(exp.Anonymous):
            user_defined = not is_built_in(call) and columns_of(call) <= self.column_types.keys()
            if user_defined and not self.types.deterministic(call, self.column_types):
                raise NondeterministicSQLError(
                    f"The function {call.this} is declared nondeterministic: a recomputation may give another result, "
                    f"so a view may not contain it. If it is deterministic, declare it so.",
                    at=call,
                )

    def new_column(self, type_: str) -> str:
        """Returns a fresh column of a type."""
        name = self.fresh("c_")
        self.column_types[name] = type_
        return name

    def type_of(self, expression: Scalar) -> str:
        """The type of an expression over columns of the plan."""
        return self.types.of([expression], self.column_types)[0]


def struct_fields_named(node: exp.Expr) -> exp.Expr:
    """STRUCT(a, b) with its fields named as Spark names them, before its columns are replaced by column ids."""
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


def _number(node: exp.Expr, clause: str) -> int | None:
    found = node.args.get(clause)
    if found is None:
        return None
    value = found.expression
    if not isinstance(value, exp.Literal) or not value.is_int:
        raise UnsupportedSQLError(f"{clause.upper()} must be a plain number in a view, not {text(value)}.", at=value)
    return int(value.this)


def _aggregated(expression: exp.Expr) -> bool:
    """Whether an expression contains an aggregate, outside windows and subqueries."""
    if isinstance(expression, (exp.Query, exp.Subquery, exp.Exists)):
        return False
    if isinstance(expression, exp.Window):
        return any(_aggregated(part) for part in windowing.inside(expression))
    return is_aggregate(expression) or any(_aggregated(part) for part in expression.iter_expressions())
