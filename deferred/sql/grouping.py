"""Binding of GROUP BY, aggregates and HAVING."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.group import Aggregate
from deferred.algebra.plan import Filter, Plan, Project
from deferred.algebra.scalar import Scalar, column, columns_of, rewrite
from deferred.errors import InvalidSQLError, UnsupportedSQLError
from deferred.sql.dialect import parse_scalar, text
from deferred.sql.functions import AGGREGATES, REFUSED_AGGREGATES, is_aggregate, name_of

if TYPE_CHECKING:
    from deferred.sql.bind import Binder, Relation

INTEGRAL = frozenset({"tinyint", "smallint", "int", "bigint"})
FLOATING = frozenset({"float", "double"})


def grouped(binder: Binder, node: exp.Select, source: Relation,
            items: Sequence[tuple[str, exp.Expr]]) -> Relation:
    """SELECT … GROUP BY … HAVING … as Π(σ(γ(Π(source)))): keys are computed below γ, expressions above it."""
    resolved = binder.resolve_items(items, source.scope)
    keys = _keys(binder, node, source, items, resolved)
    having = node.args.get("having")
    aliases = {name.casefold(): e for (name, _), e in zip(items, resolved, strict=True)}
    condition = None if having is None else binder.scalar(having.this, source.scope, "HAVING", aliases)
    if any(is_aggregate(part) for key in keys for part in key.walk()):
        raise InvalidSQLError("GROUP BY may not contain an aggregate.")

    below, key_ids = _keyed(binder, source.plan, keys)
    calls: list[Scalar] = []
    for expression in (*resolved, *([condition] if condition is not None else [])):
        for call in _calls(expression):
            if call not in calls:
                calls.append(call)
    outputs = [(binder.fresh("c_"), _stable(binder, call)) for call in calls]
    types = binder.types.of([e for _, e in outputs], binder.column_types, key_ids or None)
    binder.column_types.update({name: t for (name, _), t in zip(outputs, types, strict=True)})
    plan: Plan = Aggregate(below, tuple(key_ids), tuple(outputs))

    def above(part: Scalar) -> Scalar | None:
        for key, name in zip(keys, key_ids, strict=True):
            if part == key:
                return column(name)
        for call, (name, _) in zip(calls, outputs, strict=True):
            if part == call:
                return column(name)
        return None

    def lifted(expression: Scalar) -> Scalar:
        result = rewrite(expression, above)
        stray = sorted(columns_of(result) - set(plan.columns))
        if stray:
            names = [f.name for f in source.scope.fields if f.id == stray[0]]
            raise InvalidSQLError(f"Column {names[0] if names else stray[0]} is neither in GROUP BY nor inside an "
                                  f"aggregate; add it to GROUP BY, or aggregate it.")
        return result

    if condition is not None:
        plan = Filter(plan, lifted(condition))
    return binder.projected(plan, [(name, lifted(e)) for (name, _), e in zip(items, resolved, strict=True)])


def _keys(binder: Binder, node: exp.Select, source: Relation, items: Sequence[tuple[str, exp.Expr]],
          resolved: Sequence[Scalar]) -> list[Scalar]:
    """GROUP BY's expressions: columns, ordinals, aliases, ALL."""
    group = node.args.get("group")
    if group is None:
        return []
    binder.refuse_arguments(group, {"expressions", "all"})
    listed = group.expressions
    if group.args.get("all") or (len(listed) == 1 and isinstance(listed[0], exp.Column) and len(listed[0].parts) == 1
                                 and listed[0].name.casefold() == "all" and source.scope.resolve(listed[0]) is None):
        found = [e for e in resolved if not any(is_aggregate(part) for part in e.walk())]
        return list(dict.fromkeys(found))
    aliases = {name.casefold(): e for (name, _), e in zip(items, resolved, strict=True)}
    keys: list[Scalar] = []
    for expression in listed:
        if isinstance(expression, exp.Literal) and expression.is_int:
            position = int(expression.this)
            if not 1 <= position <= len(resolved):
                raise InvalidSQLError(f"GROUP BY {position}: SELECT has {len(resolved)} columns.")
            key = resolved[position - 1]
        else:
            if isinstance(expression, (exp.Tuple, exp.Rollup, exp.Cube, exp.GroupingSets)):
                raise UnsupportedSQLError(f"GROUP BY {text(expression)} is not supported in a view.")
            key = binder.scalar(expression, source.scope, "GROUP BY", aliases)
        while isinstance(key, exp.Paren):
            key = key.this
        if key not in keys:
            keys.append(key)
    return keys


def _keyed(binder: Binder, plan: Plan, keys: Sequence[Scalar]) -> tuple[Plan, list[str]]:
    """The input with every key as a column of its own."""
    computed = [key for key in keys if not isinstance(key, exp.Column)]
    types = iter(binder.types.of(computed, binder.column_types))
    ids = [key.name if isinstance(key, exp.Column) else binder.typed(next(types)) for key in keys]
    if not computed:
        return plan, ids
    extra = tuple((i, key) for i, key in zip(ids, keys, strict=True) if not isinstance(key, exp.Column))
    return Project(plan, (*((c, column(c)) for c in plan.columns), *extra)), ids


def _calls(expression: Scalar) -> list[Scalar]:
    """The aggregate calls of an expression, with their FILTER clauses, outermost ones."""
    if isinstance(expression, exp.Filter) or is_aggregate(expression):
        inner = expression.this if isinstance(expression, exp.Filter) else expression
        for part in inner.walk():
            if part is not inner and is_aggregate(part):
                raise InvalidSQLError(f"An aggregate inside an aggregate: {text(expression)}. Use a subquery.")
        return [expression]
    found: list[Scalar] = []
    for child in expression.iter_expressions():
        found.extend(_calls(child))
    return found


def refuse_unknown_aggregate(node: exp.Expr) -> None:
    name = name_of(node)
    if name in REFUSED_AGGREGATES or (isinstance(node, exp.AggFunc) and name not in AGGREGATES):
        raise UnsupportedSQLError(f"The aggregate {text(node)[:80]} is not supported in a view.")


def _stable(binder: Binder, call: Scalar) -> Scalar:
    """An aggregate as a function of the bag of its arguments, whatever order Spark happens to add them up in.

    Two computations of one group must agree bit by bit, or a maintained view would keep rows that nobody deletes.
    Floating-point sums are folded over the sorted values: one order of summation among those Spark may use.
    """
    inner = call.this if isinstance(call, exp.Filter) else call
    name = name_of(inner)
    if name not in ("sum", "avg", "mean", "min", "max") or len(inner.expressions) != 1:
        return call
    argument = inner.expressions[0]
    distinct = isinstance(argument, exp.Distinct)
    value = argument.expressions[0] if distinct else argument
    type_ = binder.types.of([value], binder.column_types)[0].lower()
    if type_ in FLOATING and name in ("min", "max"):
        return exp.Add(this=call.copy(), expression=exp.cast(exp.Literal.number(0), type_, dialect="spark"))
    if type_ in FLOATING or (type_ == "string" and name != "min" and name != "max"):
        collect = "COLLECT_SET" if distinct else "COLLECT_LIST"
        total = ("AGGREGATE(ARRAY_SORT(" + collect + "(CAST(x AS DOUBLE))), CAST(0 AS DOUBLE), "
                 "(total, value) -> total + value)")
        count = "COUNT(DISTINCT x)" if distinct else "COUNT(x)"
        quotient = f" / {count}" if name != "sum" else ""
        return _filled(f"CASE WHEN {count} > 0 THEN {total}{quotient} END", value, call)
    if type_ in INTEGRAL and name in ("avg", "mean"):
        wide = "CAST(x AS DECIMAL(20, 0))" if type_ == "bigint" else "x"
        prefix = "DISTINCT " if distinct else ""
        return _filled(f"CAST(SUM({prefix}{wide}) AS DOUBLE) / NULLIF(COUNT({prefix}x), 0)", value, call)
    return call


def _filled(template: str, value: Scalar, call: Scalar) -> Scalar:
    """A template with x replaced by the argument, and the call's FILTER given to each aggregate in it."""
    where = call.args["expression"] if isinstance(call, exp.Filter) else None

    def fill(part: Scalar) -> Scalar | None:
        if isinstance(part, exp.Column) and part.name == "x":
            return value
        if where is not None and name_of(part) in ("sum", "count", "collect_list", "collect_set"):
            return exp.Filter(this=rewrite_arguments(part), expression=where.copy())
        return None

    def rewrite_arguments(part: Scalar) -> Scalar:
        copy = part.copy()
        for inner in list(copy.find_all(exp.Column)):
            if inner.name == "x":
                inner.replace(value.copy())
        return copy

    return rewrite(parse_scalar(template), fill)
