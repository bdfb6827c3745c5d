"""Binding of GROUP BY, aggregates and HAVING."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.group import Aggregate
from deferred.algebra.join import Join
from deferred.algebra.plan import Filter, Plan, Project, UnionAll
from deferred.algebra.scalar import Scalar, column, columns_of, is_bound, rewrite
from deferred.algebra.sets import Distinct
from deferred.errors import InvalidSQLError
from deferred.sql import subquery, windowing
from deferred.sql.dialect import parse_scalar, text
from deferred.sql.functions import (
    COLLECTING,
    is_aggregate,
    name_of,
    ordered_away,
)
from deferred.sql.refusing import refuse_arguments

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
    outputs = [(binder.fresh("c_"), call) for call in calls]
    plan = _aggregated(binder, below, group_ids, outputs)
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


def _aggregated(binder: Binder, child: Plan, keys: Sequence[str], calls: Sequence[tuple[str, Scalar]]) -> Plan:
    """γ, where a total over distinct values is apart: γ_{f(DISTINCT x)}(E) = γ_{f(x)}(ε(Π_x(E))) can be counted.

    Totals are one row each, so a product puts them together.
    """
    correlated = bool(subquery.free(child))
    together: list[tuple[str, Scalar]] = []
    apart: list[tuple[tuple[list[Scalar], Scalar | None], list[tuple[str, Scalar]]]] = []
    for name, call in calls:
        values = None if keys or correlated else _distinct_values(call)
        if values is None:
            together.append((name, call))
            continue
        group = next((group for known, group in apart if known == values), None)
        if group is None:
            apart.append((values, [(name, call)]))
        else:
            group.append((name, call))
    plans = [_aggregate(binder, child, keys, together)] if together or not apart else []
    for (chosen, where), group in apart:
        types = binder.types.of(chosen, binder.column_types)
        ids = [binder.typed(type_) for type_ in types]
        rows = child if where is None else Filter(child, where)
        inner = Distinct(Project(rows, tuple(zip(ids, chosen, strict=True))))
        plans.append(_aggregate(binder, inner, (), [(name, _over(call, ids)) for name, call in group]))
    return plans[0] if len(plans) == 1 else Join(tuple(plans))


def _aggregate(binder: Binder, child: Plan, keys: Sequence[str], calls: Sequence[tuple[str, Scalar]]) -> Plan:
    outputs = [(name, stable(binder, call)) for name, call in calls]
    types = binder.types.of([e for _, e in outputs], binder.column_types, list(keys) or None)
    binder.column_types.update({name: t for (name, _), t in zip(outputs, types, strict=True)})
    return Aggregate(child, tuple(keys), tuple(outputs))


def _distinct_values(call: Scalar) -> tuple[list[Scalar], Scalar | None] | None:
    """The values and the FILTER of f(DISTINCT …), None for any other call."""
    inner = call.this if isinstance(call, exp.Filter) else call
    arguments = inner.expressions if isinstance(inner, exp.Anonymous) else []
    if name_of(inner) not in ("count", "sum", "avg", "mean", "min", "max") or len(arguments) != 1 or \
            not isinstance(arguments[0], exp.Distinct):
        return None
    return list(arguments[0].expressions), call.expression.this if isinstance(call, exp.Filter) else None


def _over(call: Scalar, ids: Sequence[str]) -> Scalar:
    """f(DISTINCT …) over rows that are distinct already; several values count where none of them is NULL."""
    inner = call.this if isinstance(call, exp.Filter) else call
    value: Scalar = column(ids[0])
    if len(ids) > 1:
        missing = parse_scalar("CASE WHEN " + " AND ".join(f"`{i}` IS NOT NULL" for i in ids) + " THEN 1 END")
        value = rewrite(missing, lambda part: column(part.name) if isinstance(part, exp.Column) else None)
    return exp.Anonymous(this=inner.this, expressions=[value])


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
    refuse_arguments(group, {"expressions", "all", "rollup", "cube", "grouping_sets"})
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

    clauses = [*(group.args.get("rollup") or []), *(group.args.get("cube") or [])]
    trailing = [clause for clause in clauses if not clause.expressions]
    if trailing:  # GROUP BY a, b WITH ROLLUP is GROUP BY ROLLUP (a, b)
        keyed = type(trailing[0])(expressions=[e.copy() for e in listed])
        return keys, [sorted(set(chosen)) for chosen in _sets(keyed, position)]
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
    >>> rollup = parse_query("SELECT 1 FROM t GROUP BY ROLLUP (a, b)").find(exp.Rollup)
    >>> _sets(rollup, lambda e: "ab".index(e.name))
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
    """The aggregate calls of an expression, with their FILTER and WITHIN GROUP; of a window only what it reads."""
    if isinstance(expression, exp.Window):
        return [call for part in windowing.inside(expression) for call in calls_in(part)]
    inner = expression
    while isinstance(inner, (exp.Filter, exp.WithinGroup)):
        inner = inner.this
    if is_aggregate(inner) or ordered_away(expression):
        within = [part for part in expression.walk() if is_aggregate(part)]
        if len(within) > 1:
            raise InvalidSQLError(f"An aggregate inside an aggregate: {text(expression)}. Use a subquery.")
        return [expression]
    return [call for child in expression.iter_expressions() for call in calls_in(child)]


MOMENTS = {
    "var_pop": "s / n", "var_samp": "IF(n > 1, s / (n - 1), NULL)", "stddev_pop": "SQRT(s / n)",
    "stddev_samp": "IF(n > 1, SQRT(s / (n - 1)), NULL)",
}
MOMENTS |= {"variance": MOMENTS["var_samp"], "stddev": MOMENTS["stddev_samp"], "std": MOMENTS["stddev_samp"]}
PAIRED = {"covar_pop": "c / n", "covar_samp": "IF(n > 1, c / (n - 1), NULL)",
          "corr": "IF(n > 1, c / SQRT(sx * sy), NULL)"}


def stable(binder: Binder, call: Scalar) -> Scalar:
    """An aggregate as a function of the bag of its arguments, whatever order Spark happens to add them up in.

    Two computations of one group must agree bit by bit, or a maintained view would keep rows that nobody deletes.
    Floating-point sums are folded over the sorted values: one order of summation among those Spark may use.
    """
    inner = call.this if isinstance(call, exp.Filter) else call
    if isinstance(inner, exp.WithinGroup):
        return _within_group(call, inner)
    name = name_of(inner)
    if name is None or not isinstance(inner, exp.Anonymous) or name in COLLECTING or ordered_away(inner):
        return call
    arguments = inner.expressions
    if name in ("max_by", "min_by") and len(arguments) == 2:
        best = name[:3].upper()
        pair = "IF(y IS NULL, NULL, NAMED_STRUCT('k', y, 'v', x))"
        return _filled(f"{best}({pair}).v", call, x=arguments[0], y=arguments[1])
    if name in PAIRED and len(arguments) == 2:
        return _filled(_folded_pairs(PAIRED[name]), call, x=arguments[0], y=arguments[1])
    if len(arguments) != 1:
        return call
    distinct = isinstance(arguments[0], exp.Distinct)
    value = arguments[0].expressions[0] if distinct else arguments[0]
    if name in MOMENTS:
        return _filled(_folded_moments(MOMENTS[name], distinct), call, x=value)
    if name in ("sum", "avg", "mean", "min", "max", "try_sum", "try_avg"):
        return _stable_sum(binder, call, name.removeprefix("try_"), value, distinct)
    return call


def _stable_sum(binder: Binder, call: Scalar, name: str, value: Scalar, distinct: bool) -> Scalar:
    type_ = binder.types.of([value], binder.column_types)[0].lower()
    if type_ in FLOATING and name in ("min", "max"):
        # 0.0 and −0.0 are equal, and Spark shows whichever comes first: here −0.0 is the less, and so a group decides.
        best = name.upper()
        zero = f"CAST({best}(CASE WHEN x = 0 THEN CAST(x AS STRING) END) AS {type_})"
        return _filled(f"CASE WHEN {best}(x) = 0 THEN {zero} ELSE {best}(x) END", call, x=value)
    if name in ("min", "max"):
        return call
    if type_ in FLOATING or type_ == "string":
        count = "COUNT(DISTINCT x)" if distinct else "COUNT(x)"
        total = f"AGGREGATE({_sorted(distinct)}, CAST(0 AS DOUBLE), (total, value) -> total + value)"
        quotient = f" / {count}" if name != "sum" else ""
        return _filled(f"CASE WHEN {count} > 0 THEN {total}{quotient} END", call, x=value)
    if type_ in INTEGRAL and name in ("avg", "mean"):
        wide = "CAST(x AS DECIMAL(20, 0))" if type_ == "bigint" else "x"
        prefix = "DISTINCT " if distinct else ""
        return _filled(f"CAST(SUM({prefix}{wide}) AS DOUBLE) / NULLIF(COUNT({prefix}x), 0)", call, x=value)
    return call


def _sorted(distinct: bool) -> str:
    return f"ARRAY_SORT({'COLLECT_SET' if distinct else 'COLLECT_LIST'}(CAST(x AS DOUBLE)))"


def _folded_moments(result: str, distinct: bool) -> str:
    """Count, mean and sum of squared deviations, one sorted value after the other, as Spark does it for one task."""
    start = "NAMED_STRUCT('n', CAST(0 AS DOUBLE), 'm', CAST(0 AS DOUBLE), 's', CAST(0 AS DOUBLE))"
    step = ("(a, v) -> NAMED_STRUCT('n', a.n + 1, 'm', a.m + (v - a.m) / (a.n + 1), "
            "'s', a.s + (v - a.m) * ((v - a.m) - (v - a.m) / (a.n + 1)))")
    final = re.sub(r"\b(n|s)\b", r"a.\1", result)
    return f"CASE WHEN COUNT(x) > 0 THEN AGGREGATE({_sorted(distinct)}, {start}, {step}, a -> {final}) END"


def _folded_pairs(result: str) -> str:
    """Counts, means and co-moments of pairs in sorted order."""
    start = ", ".join(f"'{name}', CAST(0 AS DOUBLE)" for name in ("n", "mx", "my", "c", "sx", "sy"))
    dx, dy = "(v.x - a.mx)", "(v.y - a.my)"
    step = (f"(a, v) -> NAMED_STRUCT('n', a.n + 1, 'mx', a.mx + {dx} / (a.n + 1), 'my', a.my + {dy} / (a.n + 1), "
            f"'c', a.c + {dx} * ({dy} - {dy} / (a.n + 1)), 'sx', a.sx + {dx} * ({dx} - {dx} / (a.n + 1)), "
            f"'sy', a.sy + {dy} * ({dy} - {dy} / (a.n + 1)))")
    pairs = ("ARRAY_SORT(COLLECT_LIST(IF(x IS NULL OR y IS NULL, NULL, "
             "NAMED_STRUCT('x', CAST(x AS DOUBLE), 'y', CAST(y AS DOUBLE)))))")
    final = re.sub(r"\b(n|c|sx|sy)\b", r"a.\1", result)
    return (f"CASE WHEN COUNT_IF(x IS NOT NULL AND y IS NOT NULL) > 0 THEN "
            f"AGGREGATE({pairs}, NAMED_STRUCT({start}), {step}, a -> {final}) END")


def _within_group(call: Scalar, inner: exp.WithinGroup) -> Scalar:
    """LISTAGG … WITHIN GROUP (ORDER BY …) with its ties broken by the value itself; percentiles need nothing."""
    if name_of(inner.this) not in ("listagg", "string_agg"):
        return call
    result = call.copy()
    group = result.this if isinstance(result, exp.Filter) else result
    order = group.expression
    value = group.this.expressions[0]
    if isinstance(value, exp.Distinct) or any(o.this == value for o in order.expressions):
        return result
    order.set("expressions", [*order.expressions, exp.Ordered(this=value.copy(), nulls_first=True)])
    return result


def _filled(template: str, call: Scalar, **arguments: Scalar) -> Scalar:
    """A template with its names replaced by arguments, and the call's FILTER given to each aggregate in it."""
    where = call.args["expression"] if isinstance(call, exp.Filter) else None

    def named(part: Scalar) -> Scalar | None:
        if isinstance(part, exp.Column) and not is_bound(part) and len(part.parts) == 1:
            return arguments.get(part.name)
        return None

    def fill(part: Scalar) -> Scalar | None:
        if where is not None and is_aggregate(part):
            return exp.Filter(this=rewrite(part, named), expression=where.copy())
        return named(part)

    return rewrite(parse_scalar(template), fill)
