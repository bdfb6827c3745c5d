"""Binding of GROUP BY, aggregates and HAVING."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.group import Aggregate
from deferred.algebra.plan import Plan, Project, UnionAll
from deferred.algebra.scalar import Scalar, column, columns_of, is_bound, rewrite
from deferred.errors import InvalidSQLError, UnsupportedSQLError
from deferred.sql import windowing
from deferred.sql.dialect import parse_scalar, text
from deferred.sql.functions import AGGREGATES, REFUSED_AGGREGATES, is_aggregate, name_of

if TYPE_CHECKING:
    from deferred.sql.bind import Binder, Relation

INTEGRAL = frozenset({"tinyint", "smallint", "int", "bigint"})
FLOATING = frozenset({"float", "double"})


def grouped(binder: Binder, node: exp.Select, source: Relation,
            items: Sequence[tuple[str, exp.Expr]]) -> tuple[Plan, list[Scalar]]:
    """SELECT … GROUP BY … HAVING … as σ(γ(Π(source))): keys are computed below γ, expressions above it.

    Answers the plan and SELECT's expressions over its columns.
    """
    resolved = binder.resolve_items(items, source.scope)
    keys, sets = _keys(binder, node, source, items, resolved)
    having = node.args.get("having")
    aliases = {name.casefold(): e for (name, _), e in zip(items, resolved, strict=True) if name}
    asked = [] if having is None else [binder.scalar(_without_subqueries(having.this), source.scope, "HAVING", aliases)]
    if any(is_aggregate(part) for key in keys for part in key.walk()):
        raise InvalidSQLError("GROUP BY may not contain an aggregate.")

    below, key_ids = _keyed(binder, source.plan, keys)
    marks: dict[str, Scalar] = {}
    group_ids = key_ids
    if sets is not None:
        below, key_ids, marks = _expanded(binder, below, key_ids, sets)
        group_ids = [*key_ids, marks["mask"].name, marks["id"].name]
    calls: list[Scalar] = []
    for expression in (*resolved, *asked):
        for call in calls_in(expression):
            if call not in calls:
                calls.append(call)
    outputs = [(binder.fresh("c_"), _stable(binder, call)) for call in calls]
    types = binder.types.of([e for _, e in outputs], binder.column_types, group_ids or None)
    binder.column_types.update({name: t for (name, _), t in zip(outputs, types, strict=True)})
    plan: Plan = Aggregate(below, tuple(group_ids), tuple(outputs))
    pending = set(binder.pending)

    def above(part: Scalar) -> Scalar | None:
        mark = _grouping_mark(part, keys, marks)
        if mark is not None:
            return mark
        for key, name in zip(keys, key_ids, strict=True):
            if part == key:
                return column(name)
        for call, (name, _) in zip(calls, outputs, strict=True):
            if part == call:
                return column(name)
        return None

    def lifted(expression: Scalar) -> Scalar:
        result = rewrite(expression, above)
        stray = sorted(columns_of(result) - set(plan.columns) - pending - set(binder.pending))
        if stray:
            names = [f.name for f in source.scope.fields if f.id == stray[0]]
            raise InvalidSQLError(f"Column {names[0] if names else stray[0]} is neither in GROUP BY nor inside an "
                                  f"aggregate; add it to GROUP BY, or aggregate it.")
        return result

    result = [lifted(e) for e in resolved]
    waiting, binder.pending = binder.pending, {}
    filtered = plan if having is None else binder.where(plan, source.scope, having.this, "HAVING", lifted, aliases)
    binder.pending = waiting
    return binder.attached(filtered), result


def _without_subqueries(condition: exp.Expr) -> exp.Expr:
    """A condition with NULL for its subqueries: enough to see which aggregates it asks for."""
    return rewrite(condition, lambda part: exp.Null() if isinstance(part, (exp.Query, exp.Subquery, exp.Exists)) else
                   part.this if isinstance(part, exp.In) and part.args.get("query") else None)


def _keys(binder: Binder, node: exp.Select, source: Relation, items: Sequence[tuple[str, exp.Expr]],
          resolved: Sequence[Scalar]) -> tuple[list[Scalar], list[list[int]] | None]:
    """GROUP BY's expressions: columns, ordinals, aliases, ALL; and its grouping sets as positions, if it has any."""
    group = node.args.get("group")
    if group is None:
        return [], None
    binder.refuse_arguments(group, {"expressions", "all", "rollup", "cube", "grouping_sets"})
    listed = group.expressions
    if group.args.get("all") or (len(listed) == 1 and isinstance(listed[0], exp.Column) and len(listed[0].parts) == 1
                                 and listed[0].name.casefold() == "all" and source.scope.resolve(listed[0]) is None):
        found = [e for e in resolved if not calls_in(e) and not list(e.find_all(exp.Window))]
        return list(dict.fromkeys(found)), None
    aliases = {name.casefold(): e for (name, _), e in zip(items, resolved, strict=True) if name}
    keys: list[Scalar] = []

    def position(expression: exp.Expr) -> int:
        key = _key(binder, expression, source, resolved, aliases)
        if key not in keys:
            keys.append(key)
        return keys.index(key)

    plain = [position(e) for e in listed if not isinstance(e, (exp.Rollup, exp.Cube, exp.GroupingSets))]
    factors: list[list[list[int]]] = []
    for kind in ("rollup", "cube", "grouping_sets"):
        factors += [_sets(clause, position) for clause in group.args.get(kind) or []]
    factors += [_sets(e, position) for e in listed if isinstance(e, (exp.Rollup, exp.Cube, exp.GroupingSets))]
    if not factors:
        return keys, None
    combined = [sorted(set(plain).union(*choice)) for choice in itertools.product(*factors)]
    return keys, combined


def _sets(clause: exp.Expr, position: Callable[[exp.Expr], int]) -> list[list[int]]:
    """The grouping sets of one ROLLUP, CUBE or GROUPING SETS.

    >>> from deferred.sql.dialect import parse_query
    >>> group = parse_query("SELECT 1 FROM t GROUP BY ROLLUP (a, b)").args["group"]
    >>> _sets(group.args["rollup"][0], lambda e: "ab".index(e.name))
    [[0, 1], [0], []]
    """
    elements = [[position(e) for e in _elements(item)] for item in clause.expressions
                if not isinstance(clause, exp.GroupingSets)]
    if isinstance(clause, exp.Rollup):
        return [_joined(elements[:n]) for n in range(len(elements), -1, -1)]
    if isinstance(clause, exp.Cube):
        sizes = range(len(elements), -1, -1)
        return [_joined(choice) for n in sizes for choice in itertools.combinations(elements, n)]
    result: list[list[int]] = []
    for item in clause.expressions:
        if isinstance(item, (exp.Rollup, exp.Cube, exp.GroupingSets)):
            result.extend(_sets(item, position))
        else:
            result.append([position(e) for e in _elements(item)])
    return result


def _joined(lists: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))


def _elements(item: exp.Expr) -> list[exp.Expr]:
    if isinstance(item, exp.Tuple):
        return list(item.expressions)
    return [item.this] if isinstance(item, exp.Paren) else [item]


def _key(binder: Binder, expression: exp.Expr, source: Relation, resolved: Sequence[Scalar],
         aliases: Mapping[str, Scalar]) -> Scalar:
    if isinstance(expression, exp.Literal) and expression.is_int:
        position = int(expression.this)
        if not 1 <= position <= len(resolved):
            raise InvalidSQLError(f"GROUP BY {position}: SELECT has {len(resolved)} columns.")
        key = resolved[position - 1]
    else:
        key = binder.scalar(expression, source.scope, "GROUP BY", aliases)
    while isinstance(key, exp.Paren):
        key = key.this
    return key


def _expanded(binder: Binder, below: Plan, key_ids: Sequence[str],
              sets: Sequence[Sequence[int]]) -> tuple[Plan, list[str], dict[str, Scalar]]:
    """Every row once a grouping set, with NULL for the keys that the set leaves out, and the set's number.

    As Spark has it: groups of different sets stay apart by their number, and GROUPING_ID is read off it.
    """
    copies = [binder.like(k) for k in key_ids]
    mask, number = binder.typed("bigint"), binder.typed("int")
    inputs = []
    for position, chosen in enumerate(sets):
        outputs: list[tuple[str, Scalar]] = [(c, column(c)) for c in below.columns]
        bits = 0
        for i, (key, copy) in enumerate(zip(key_ids, copies, strict=True)):
            absent = i not in chosen
            bits |= int(absent) << (len(key_ids) - 1 - i)
            null = exp.cast(exp.Null(), binder.column_types[key], dialect="spark")
            outputs.append((copy, null if absent else column(key)))
        outputs.append((mask, exp.cast(exp.Literal.number(bits), "bigint", dialect="spark")))
        outputs.append((number, exp.Literal.number(position)))
        inputs.append(Project(below, tuple(outputs)))
    ids = (*below.columns, *copies, mask, number)
    marks: dict[str, Scalar] = {"id": column(number), "mask": column(mask)}
    return UnionAll(tuple(inputs), ids), copies, marks


def _grouping_mark(part: Scalar, keys: Sequence[Scalar], marks: Mapping[str, Scalar]) -> Scalar | None:
    """GROUPING_ID() and GROUPING(key), read off the mask of the grouping set."""
    name = name_of(part)
    if name not in ("grouping", "grouping_id"):
        return None
    if not marks:
        raise InvalidSQLError(f"{text(part)} needs GROUPING SETS, ROLLUP or CUBE.")
    arguments = part.expressions if isinstance(part, exp.Anonymous) else list(part.iter_expressions())
    if name == "grouping_id" and (not arguments or [*arguments] == [*keys]):
        return marks["mask"]
    bits: list[Scalar] = []
    for argument in arguments:
        if argument not in keys:
            raise InvalidSQLError(f"{text(part)} names what is not in GROUP BY.")
        shift = len(keys) - 1 - list(keys).index(argument)
        bits.append(substitute_marks(f"CASE WHEN x & {1 << shift} <> 0 THEN 1 ELSE 0 END", marks["mask"]))
    if name == "grouping":
        return exp.cast(exp.Paren(this=bits[0]), "tinyint", dialect="spark")
    total: Scalar = exp.Paren(this=bits[0])
    for bit in bits[1:]:
        total = exp.Paren(this=exp.Add(this=exp.Mul(this=total, expression=exp.Literal.number(2)),
                                       expression=exp.Paren(this=bit)))
    return total


def substitute_marks(template: str, value: Scalar) -> Scalar:
    """A template over x, with x replaced."""
    return rewrite(parse_scalar(template), lambda part: value if isinstance(part, exp.Column) and part.name == "x"
                   and not is_bound(part) else None)


def _keyed(binder: Binder, plan: Plan, keys: Sequence[Scalar]) -> tuple[Plan, list[str]]:
    """The input with every key as a column of its own."""
    computed = [key for key in keys if not isinstance(key, exp.Column)]
    types = iter(binder.types.of(computed, binder.column_types))
    ids = [key.name if isinstance(key, exp.Column) else binder.typed(next(types)) for key in keys]
    if not computed:
        return plan, ids
    extra = tuple((i, key) for i, key in zip(ids, keys, strict=True) if not isinstance(key, exp.Column))
    return Project(plan, (*((c, column(c)) for c in plan.columns), *extra)), ids


def calls_in(expression: Scalar) -> list[Scalar]:
    """The aggregate calls of an expression, with their FILTER clauses; of a window only what it reads."""
    if isinstance(expression, exp.Window):
        return [call for part in windowing.inside(expression) for call in calls_in(part)]
    inner = expression.this if isinstance(expression, exp.Filter) else expression
    if is_aggregate(inner):
        for part in inner.walk():
            if part is not inner and is_aggregate(part):
                raise InvalidSQLError(f"An aggregate inside an aggregate: {text(expression)}. Use a subquery.")
        return [expression]
    return [call for child in expression.iter_expressions() for call in calls_in(child)]


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
