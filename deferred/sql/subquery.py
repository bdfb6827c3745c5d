"""Subqueries as joins: EXISTS and IN become semi and anti joins, scalar subqueries joins with one row a value.

A subquery that reads columns of the query around it has *free* columns in its plan. Either its conditions on them are
pulled up into the join, or the subquery is computed for all their values at once and joined on those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlglot import exp

from deferred.algebra.generate import Generate
from deferred.algebra.group import Aggregate
from deferred.algebra.join import Join
from deferred.algebra.outer import ANTI, FULL, LEFT, SEMI, OuterJoin, filtered
from deferred.algebra.plan import Filter, Plan, Project, UnionAll, Values, used
from deferred.algebra.scalar import (
    Scalar,
    column,
    columns_of,
    conjunction,
    conjuncts,
    equated_columns,
    rewrite,
    same,
    substitute,
)
from deferred.algebra.sets import Distinct, SetOperation
from deferred.algebra.window import Limit, Window
from deferred.errors import UnsupportedSQLError
from deferred.sql.functions import is_aggregate, name_of

NewColumn = Callable[[str], str]
"""Makes a fresh column of the type of another."""


def expressions(node: Plan) -> list[Scalar]:
    """The scalar expressions that a node itself holds."""
    if isinstance(node, Filter):
        return [node.condition]
    if isinstance(node, Project):
        return [e for _, e in node.outputs]
    if isinstance(node, Join):
        return [] if node.condition is None else [node.condition]
    if isinstance(node, OuterJoin):
        return [node.condition]
    if isinstance(node, Aggregate):
        return [e for _, e in node.outputs]
    if isinstance(node, Window):
        return [f for _, f in node.functions]
    if isinstance(node, Limit):
        return list(node.order)
    if isinstance(node, Generate):
        return [node.generator]
    if isinstance(node, Values):
        return [e for row in node.rows for e in row]
    return []


def free(plan: Plan) -> frozenset[str]:
    """The columns that a plan reads and nothing in it makes: those of the query around it."""
    found: set[str] = set()
    for node in plan.walk():
        have = {c for child in node.children for c in child.columns}
        found |= used(*expressions(node)) - have
    return frozenset(found)


def pulled(plan: Plan) -> tuple[Plan, list[Scalar]]:
    """A plan without its conditions on free columns, and those conditions, where they stand at its top.

    What is below must not have free columns, and the columns that the conditions read must reach the top.
    """
    if isinstance(plan, Filter):
        child, parts = pulled(plan.child)
        mine = [p for p in conjuncts(plan.condition) if columns_of(p) <= set(child.columns)]
        parts += [p for p in conjuncts(plan.condition) if p not in mine]
        condition = conjunction(mine)
        return (child if condition is None else Filter(child, condition)), parts
    if isinstance(plan, Join):
        have = set(plan.columns)
        mine = [p for p in conjuncts(plan.condition) if columns_of(p) <= have]
        parts = [p for p in conjuncts(plan.condition) if p not in mine]
        return Join(plan.inputs, conjunction(mine)), parts
    if isinstance(plan, Project):
        child, parts = pulled(plan.child)
        if not parts:
            return (plan if child is plan.child else Project(child, plan.outputs)), []
        extra = sorted((used(*parts) & set(child.columns)) - set(plan.columns))
        return Project(child, (*plan.outputs, *((c, column(c)) for c in extra))), parts
    return plan, []


def semi(plan: Plan, subquery: Plan, condition: Scalar | None, anti: bool, new: NewColumn) -> Plan:
    """plan ⋉ subquery or plan ▷ subquery, on a condition between them."""
    inner, parts = pulled(subquery)
    if free(inner) & set(plan.columns):
        inner, links = unnested(plan, subquery, new)
        parts = links
    whole = conjunction([*parts, *conjuncts(condition)])
    return OuterJoin(plan, inner, ANTI if anti else SEMI, whole if whole is not None else exp.true())


def scalar(plan: Plan, subquery: Plan, new: NewColumn) -> tuple[Plan, Scalar]:
    """The plan joined with a one-column subquery that yields one row a row of the plan; and the value's expression."""
    (value,) = subquery.columns
    if not free(subquery) & set(plan.columns):
        return product_of(plan, subquery, []), column(value)
    simple = _grouped_by_links(subquery)
    if simple is not None:
        inner, links, result, otherwise = simple
        marker = new("boolean")
        marked = Project(inner, (*((c, column(c)) for c in inner.columns), (marker, exp.true())))
        condition = conjunction(links)
        assert condition is not None
        joined = OuterJoin(plan, marked, LEFT, condition)
        found = exp.Is(this=column(marker), expression=exp.Null())
        return joined, exp.Case(ifs=[exp.If(this=found, true=otherwise)], default=result)
    inner, links = unnested(plan, subquery, new)
    return product_of(plan, inner, links), column(value)


def lateral(plan: Plan, subquery: Plan, condition: Scalar | None, outer: bool, new: NewColumn) -> Plan:
    """plan joined with a subquery that reads its columns."""
    inner, links = unnested(plan, subquery, new) if free(subquery) & set(plan.columns) else (subquery, [])
    parts = [*links, *conjuncts(condition)]
    if outer:
        whole = conjunction(parts)
        return OuterJoin(plan, inner, LEFT, whole if whole is not None else exp.true())
    return product_of(plan, inner, parts)


def product_of(left: Plan, right: Plan, conditions: list[Scalar]) -> Plan:
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


def _grouped_by_links(subquery: Plan) -> tuple[Plan, list[Scalar], Scalar, Scalar] | None:
    """A correlated aggregate whose free columns occur only in equalities, as a GROUP BY on their inner sides.

    Answers the grouped plan, the equalities, the value where a group is there, and the value over no rows.
    """
    if not isinstance(subquery, Project) or not isinstance(subquery.child, Aggregate) or subquery.child.keys:
        return None
    aggregate = subquery.child
    below, parts = pulled(aggregate.child)
    outputs = [e for _, e in (*subquery.outputs, *aggregate.outputs)]
    if free(below) or not parts or used(*outputs) - set(aggregate.columns) - set(below.columns):
        return None
    keys = []
    for part in parts:
        equated = equated_columns(part)
        mine = [c for c in equated or () if c in below.columns]
        if equated is None or not isinstance(part, exp.EQ) or len(mine) != 1:
            return None
        keys.append(mine[0])
    grouped = Aggregate(below, tuple(dict.fromkeys(keys)), aggregate.outputs)
    (_, result), = subquery.outputs
    otherwise = substitute(result, {name: _over_nothing(e) for name, e in aggregate.outputs})
    return grouped, parts, result, otherwise


def _over_nothing(expression: Scalar) -> Scalar:
    """An aggregate expression's value over no rows: counts are zero, all else is NULL."""

    def replace_call(part: Scalar) -> Scalar | None:
        inner = part.this if isinstance(part, exp.Filter) else part
        if name_of(inner) in ("count", "count_if", "approx_count_distinct"):
            return exp.Literal.number(0)
        return exp.Null() if is_aggregate(inner) or name_of(inner) in ("collect_list", "collect_set") else None

    return rewrite(expression, replace_call)


def unnested(plan: Plan, subquery: Plan, new: NewColumn) -> tuple[Plan, list[Scalar]]:
    """The subquery for every value of its free columns that the plan has; and the equalities that join the two."""
    mine = sorted(free(subquery) & set(plan.columns))
    names = {c: new(c) for c in mine}
    domain = Distinct(Project(plan, tuple((names[c], column(c)) for c in mine)))
    inner, values = _Unnesting(domain, names, new).plan(subquery)
    return inner, [same(column(c), column(values[c])) for c in mine]


class _Unnesting:
    """Rewrites a plan with free columns into one that yields its rows for every value of them.

    Each method answers a plan and where the values stand in it: free column → column of the plan.
    """

    def __init__(self, domain: Plan, names: Mapping[str, str], new: NewColumn) -> None:
        self.domain = domain
        self.names = dict(names)
        self.new = new

    def plan(self, node: Plan) -> tuple[Plan, dict[str, str]]:
        if not free(node) & self.names.keys():
            domain, values = self.instance()
            return product_of(node, domain, []), values
        if isinstance(node, Filter):
            child, values = self.plan(node.child)
            return filtered(child, self.put(node.condition, values)), values
        if isinstance(node, Project):
            child, values = self.plan(node.child)
            outputs = tuple((name, self.put(e, values)) for name, e in node.outputs)
            return Project(child, (*outputs, *self.kept(values))), values
        if isinstance(node, Join):
            return self.join(node)
        if isinstance(node, OuterJoin):
            return self.outer(node)
        if isinstance(node, Aggregate):
            return self.aggregate(node)
        if isinstance(node, Distinct):
            child, values = self.plan(node.child)
            return Distinct(child), values
        if isinstance(node, (UnionAll, SetOperation)):
            return self.combined(node)
        if isinstance(node, Window):
            return self.window(node)
        if isinstance(node, Limit):
            return self.limit(node)
        if isinstance(node, Generate):
            child, values = self.plan(node.child)
            return replace(node, child=child, generator=self.put(node.generator, values)), values
        raise UnsupportedSQLError(f"A correlated subquery may not read outer columns in {type(node).__name__}.")

    def instance(self) -> tuple[Plan, dict[str, str]]:
        """One more use of the values, under columns of its own."""
        values = {c: self.new(c) for c in self.names}
        return Project(self.domain, tuple((values[c], column(self.names[c])) for c in self.names)), values

    def put(self, expression: Scalar, values: Mapping[str, str]) -> Scalar:
        return substitute(expression, {c: column(v) for c, v in values.items()})

    def kept(self, values: Mapping[str, str]) -> tuple[tuple[str, Scalar], ...]:
        return tuple((v, column(v)) for v in values.values())

    def equal(self, left: Mapping[str, str], right: Mapping[str, str]) -> list[Scalar]:
        return [same(column(left[c]), column(right[c])) for c in self.names]

    def join(self, node: Join) -> tuple[Plan, dict[str, str]]:
        inputs: list[Plan] = []
        links: list[Scalar] = []
        values: dict[str, str] | None = None
        for plan in node.inputs:
            if not free(plan) & self.names.keys():
                inputs.append(plan)
                continue
            inner, theirs = self.plan(plan)
            inputs.append(inner)
            if values is None:
                values = theirs
            else:
                links += self.equal(values, theirs)
        if values is None:
            domain, values = self.instance()
            inputs.append(domain)
        parts = [self.put(p, values) for p in conjuncts(node.condition)]
        return Join(tuple(inputs), conjunction([*parts, *links])), values

    def outer(self, node: OuterJoin) -> tuple[Plan, dict[str, str]]:
        if node.kind == FULL:
            raise UnsupportedSQLError("A correlated subquery may not contain FULL OUTER JOIN.")
        left, values = self.plan(node.left)
        condition = [self.put(p, values) for p in conjuncts(node.condition)]
        right = node.right
        if free(right) & self.names.keys():
            right, theirs = self.plan(right)
            condition += self.equal(values, theirs)
            whole = conjunction(condition)
            assert whole is not None
            joined: Plan = replace(node, left=left, right=right, condition=whole)
            return Project(joined, tuple((c, column(c)) for c in (*node.columns, *values.values()))), values
        whole = conjunction(condition)
        return replace(node, left=left, right=right, condition=whole if whole is not None else exp.true()), values

    def aggregate(self, node: Aggregate) -> tuple[Plan, dict[str, str]]:
        """Groups within each value; a global aggregate keeps its one row for a value that has no rows."""
        child, values = self.plan(node.child)
        outputs = tuple((name, self.put(e, values)) for name, e in node.outputs)
        grouped = Aggregate(child, (*node.keys, *values.values()), outputs)
        if node.keys:
            return grouped, values
        domain, mine = self.instance()
        marker = self.new("boolean")
        marked = Project(grouped, (*((c, column(c)) for c in grouped.columns), (marker, exp.true())))
        condition = conjunction(self.equal(mine, values))
        assert condition is not None
        joined = OuterJoin(domain, marked, LEFT, condition)
        absent = exp.Is(this=column(marker), expression=exp.Null())
        filled = []
        for name, e in outputs:
            out = exp.Case(ifs=[exp.If(this=absent.copy(), true=_over_nothing(e))], default=column(name))
            filled.append((name, out))
        return Project(joined, (*filled, *self.kept(mine))), mine

    def combined(self, node: UnionAll | SetOperation) -> tuple[Plan, dict[str, str]]:
        values = {c: self.new(c) for c in self.names}
        ids = (*node.ids, *values.values())
        sides = []
        for side in node.children:
            inner, theirs = self.plan(side)
            kept = (*side.columns, *(theirs[n] for n in self.names))
            sides.append(Project(inner, tuple((c, column(c)) for c in kept)))
        return replace(node.with_children(sides), ids=ids), values  # type: ignore[call-arg]

    def window(self, node: Window) -> tuple[Plan, dict[str, str]]:
        child, values = self.plan(node.child)
        functions = []
        for name, function in node.functions:
            extended = self.put(function, values)
            extended.set("partition_by", [*(extended.args.get("partition_by") or []), *map(column, values.values())])
            functions.append((name, extended))
        return Window(child, (*node.partition, *values.values()), tuple(functions)), values  # type: ignore[arg-type]

    def limit(self, node: Limit) -> tuple[Plan, dict[str, str]]:
        """The first rows for each value: a row number within it, and a condition on that."""
        child, values = self.plan(node.child)
        number = self.new("int")
        over = exp.Window(this=exp.Anonymous(this="ROW_NUMBER"), partition_by=[column(v) for v in values.values()],
                          order=exp.Order(expressions=[self.put(o, values) for o in node.order]), over="OVER")
        plan = Window(child, tuple(values.values()), ((number, over),))
        parts: list[Scalar] = []
        if node.offset:
            parts.append(exp.GT(this=column(number), expression=exp.Literal.number(node.offset)))
        if node.count is not None:
            parts.append(exp.LTE(this=column(number), expression=exp.Literal.number(node.offset + node.count)))
        condition = conjunction(parts)
        assert condition is not None
        kept = tuple((c, column(c)) for c in (*node.columns, *values.values()))
        return Project(Filter(plan, condition), kept), values
