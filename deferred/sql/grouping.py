"""Binding of GROUP BY, aggregates and HAVING."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.aggregates.calls import aggregate_of, is_aggregate, name_of
from deferred.algebra.operators import Aggregate, Distinct, Filter, Join, Project, UnionAll
from deferred.algebra.plan import Plan, free
from deferred.algebra.scalar import Scalar, column, columns_of, conjunction, rewrite
from deferred.errors import InvalidSQLError
from deferred.sql import windowing
from deferred.sql.dialect import as_written
from deferred.sql.functions import hides_order
from deferred.sql.order_free import order_free
from deferred.sql.refusing import refuse_arguments
from deferred.sql.scope import Aliases, alias_of
from deferred.sql.subquery import Member

if TYPE_CHECKING:
    from deferred.sql.bind import Binder, Relation


def grouped(
    binder: Binder, node: exp.Select, source: Relation, items: Sequence[tuple[str, exp.Expr]]
) -> tuple[Plan, list[Scalar]]:
    """SELECT … GROUP BY … HAVING … as σ(γ(Π(source))): keys are computed below γ, expressions above it.

    Subqueries are joined below γ where a key or an aggregate reads them, else above it.

    Returns the plan and SELECT's expressions over its columns.
    """
    resolved = binder.resolve_items(items, source.scope)
    keys, sets = _keys(binder, node, source, items, resolved)
    having = node.args.get("having")
    aliases = named(items, resolved)
    asked = [] if having is None else [binder.scalar(_without_subqueries(having.this), source.scope, "HAVING", aliases)]
    if any(is_aggregate(part) for key in keys for part in key.walk()):
        raise InvalidSQLError("GROUP BY may not contain an aggregate.", at=node.args["group"])

    calls = dict.fromkeys(call for expression in (*resolved, *asked) for call in calls_in(expression))
    below, key_ids = _keyed(binder, binder.with_subqueries(source.plan, [*keys, *calls]), keys)
    marks: dict[str, Scalar] = {}
    if sets is not None:
        below, key_ids, marks = _expanded(binder, below, key_ids, sets)
    outputs = [(binder.fresh("c_"), call) for call in calls]
    plan = _aggregated(binder, below, [*key_ids, *(marks[name].name for name in ("mask", "id") if marks)], outputs)
    values = {**{call: name for name, call in outputs}, **dict(zip(keys, key_ids, strict=True))}
    groups = _Groups(binder, source, plan, keys, values, marks, aliases, frozenset(binder.pending))

    result = [groups.lifted(e) for e in resolved]
    waiting, binder.pending = binder.pending, {}
    if having is not None:
        plan = binder.where(plan, source.scope, having.this, "HAVING", groups.lifted_in_having, aliases)
    binder.pending = waiting
    return binder.with_subqueries(plan), result


@dataclass(frozen=True)
class _Groups:
    """γ over a relation: `values` are the columns that hold its keys and calls, `marks` those of grouping sets."""

    binder: Binder
    source: Relation
    plan: Plan
    keys: Sequence[Scalar]
    values: Mapping[Scalar, str]
    marks: Mapping[str, Scalar]
    aliases: Aliases
    pending: frozenset[str]

    def lifted(self, expression: Scalar) -> Scalar:
        """An expression over the columns of γ, in place of the columns of its input."""
        result = rewrite(expression, self._above)
        for marker in columns_of(result) & set(self.binder.pending):
            if isinstance(asked := self.binder.pending[marker], Member):
                self.binder.pending[marker] = replace(asked, x=self.lifted(asked.x))
        stray = sorted(columns_of(result) - set(self.plan.columns) - self.pending - set(self.binder.pending))
        if stray:
            names = [f.name for f in self.source.scope.fields if f.id == stray[0]]
            raise InvalidSQLError(
                f"Column {names[0] if names else stray[0]} is neither in GROUP BY nor inside an "
                f"aggregate; add it to GROUP BY, or aggregate it.",
                at=next(part for part in result.find_all(exp.Column) if part.name == stray[0]),
            )
        return result

    def lifted_in_having(self, expression: Scalar) -> Scalar:
        """The same for HAVING, where a column that is not grouped gives way to an alias of its name."""
        named_by = {f.id: f.name for f in self.source.scope.fields}

        def raised(part: Scalar) -> Scalar | None:
            found = self._above(part)
            if found is not None or not isinstance(part, exp.Column) or part.name not in named_by:
                return found
            value = alias_of(exp.column(named_by[part.name]), self.aliases)
            return None if value is None else self.lifted(value)

        return self.lifted(rewrite(expression, raised))

    def _above(self, part: Scalar) -> Scalar | None:
        """The column that holds a key or a call; of a window only what it reads is one."""
        if isinstance(part, exp.Window):
            return windowing.rewritten_inside(part, lambda inner: rewrite(inner, self._above))
        mark = _grouping_mark(part, self.keys, self.marks)
        if mark is not None:
            return mark
        return column(self.values[part]) if part in self.values else None


def named(items: Sequence[tuple[str, exp.Expr]], resolved: Sequence[Scalar]) -> dict[str, list[Scalar]]:
    """What the aliases of a SELECT list mean."""
    found: dict[str, list[Scalar]] = {}
    for (name, _), expression in zip(items, resolved, strict=True):
        if name:
            found.setdefault(name.casefold(), []).append(expression)
    return found


def _aggregated(binder: Binder, child: Plan, keys: Sequence[str], calls: Sequence[tuple[str, Scalar]]) -> Plan:
    """γ, with each total over distinct values as a γ of its own, which can be counted.

    γ_{f(DISTINCT x)}(E) = γ_{f(x)}(ε(Π_x(E))). Totals are one row each, so a product combines them.
    """
    correlated = bool(free(child))
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
        ids = [binder.new_column(type_) for type_ in types]
        rows = child if where is None else Filter(child, where)
        inner = Distinct(Project(rows, tuple(zip(ids, chosen, strict=True))))
        plans.append(_aggregate(binder, inner, (), [(name, _over(call, ids)) for name, call in group]))
    return plans[0] if len(plans) == 1 else Join(tuple(plans))


def _aggregate(binder: Binder, child: Plan, keys: Sequence[str], calls: Sequence[tuple[str, Scalar]]) -> Plan:
    outputs = [(name, order_free(call, binder.type_of)) for name, call in calls]
    for (_, call), (_, form) in zip(calls, outputs, strict=True):
        if form != call:
            binder.choices[str(next(filter(None, map(name_of, call.walk())))).upper()] = None
    types = binder.types.of([e for _, e in outputs], binder.column_types, list(keys) or None)
    binder.column_types.update({name: t for (name, _), t in zip(outputs, types, strict=True)})
    return Aggregate(child, tuple(keys), tuple(outputs))


def _distinct_values(call: Scalar) -> tuple[list[Scalar], Scalar | None] | None:
    """The values and the FILTER of f(DISTINCT …), None for any other call."""
    inner = call.this if isinstance(call, exp.Filter) else call
    function = aggregate_of(inner)
    arguments = inner.expressions if isinstance(inner, exp.Anonymous) else []
    if (
        function is None
        or not function.distinct_first
        or len(arguments) != 1
        or not isinstance(arguments[0], exp.Distinct)
    ):
        return None
    return list(arguments[0].expressions), call.expression.this if isinstance(call, exp.Filter) else None


def _over(call: Scalar, ids: Sequence[str]) -> Scalar:
    """f(DISTINCT …) over rows that are distinct already; several values count where none of them is NULL."""
    inner = call.this if isinstance(call, exp.Filter) else call
    value: Scalar = column(ids[0])
    if len(ids) > 1:
        known = conjunction(exp.Not(this=exp.Is(this=column(i), expression=exp.Null())) for i in ids)
        value = exp.Case(ifs=[exp.If(this=known, true=exp.Literal.number(1))])
    return exp.Anonymous(this=inner.this, expressions=[value])


def _without_subqueries(condition: exp.Expr) -> exp.Expr:
    """A condition with NULL in place of its subqueries, to find the aggregates that it contains."""
    return rewrite(
        condition,
        lambda part: (
            exp.Null()
            if isinstance(part, (exp.Query, exp.Subquery, exp.Exists))
            else part.this
            if isinstance(part, exp.In) and part.args.get("query")
            else None
        ),
    )


def _keys(
    binder: Binder,
    node: exp.Select,
    source: Relation,
    items: Sequence[tuple[str, exp.Expr]],
    resolved: Sequence[Scalar],
) -> tuple[list[Scalar], list[list[int]] | None]:
    """GROUP BY's expressions: columns, ordinals, aliases, ALL; and its grouping sets as positions, if it has any."""
    group = node.args.get("group")
    if group is None:
        return [], None
    refuse_arguments(group, {"expressions", "all", "rollup", "cube", "grouping_sets"})
    listed = group.expressions
    if group.args.get("all") or (
        len(listed) == 1
        and isinstance(listed[0], exp.Column)
        and len(listed[0].parts) == 1
        and listed[0].name.casefold() == "all"
        and source.scope.resolve(listed[0]) is None
    ):
        found = [e for e in resolved if not calls_in(e) and not list(e.find_all(exp.Window))]
        return list(dict.fromkeys(found)), None
    aliases = {name: found[:1] for name, found in named(items, resolved).items()}
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
    elements = [
        [position(e) for e in _elements(item)]
        for item in clause.expressions
        if not isinstance(clause, exp.GroupingSets)
    ]
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


def _key(
    binder: Binder, expression: exp.Expr, source: Relation, resolved: Sequence[Scalar], aliases: Aliases
) -> Scalar:
    if isinstance(expression, exp.Literal) and expression.is_int:
        position = int(expression.this)
        if not 1 <= position <= len(resolved):
            raise InvalidSQLError(f"GROUP BY {position}: SELECT has {len(resolved)} columns.", at=expression)
        key = resolved[position - 1]
    else:
        key = binder.scalar(expression, source.scope, "GROUP BY", aliases)
    while isinstance(key, exp.Paren):
        key = key.this
    return key


def _expanded(
    binder: Binder, below: Plan, key_ids: Sequence[str], sets: Sequence[Sequence[int]]
) -> tuple[Plan, list[str], dict[str, Scalar]]:
    """Every row once per grouping set, with NULL for the keys that the set leaves out, and the set's number.

    As in Spark, the number keeps groups of different sets separate, and GROUPING_ID is read from the mask.
    """
    copies = [binder.column_like(k) for k in key_ids]
    mask, number = binder.new_column("bigint"), binder.new_column("int")
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
    """GROUPING_ID() and GROUPING(key), read from the mask of the grouping set."""
    name = name_of(part)
    if name not in ("grouping", "grouping_id"):
        return None
    if not marks:
        raise InvalidSQLError(f"{as_written(part)} needs GROUPING SETS, ROLLUP or CUBE in GROUP BY.", at=part)
    arguments = part.expressions if isinstance(part, exp.Anonymous) else list(part.iter_expressions())
    if name == "grouping_id" and (not arguments or [*arguments] == [*keys]):
        return marks["mask"]
    bits: list[Scalar] = []
    for argument in arguments:
        if argument not in keys:
            raise InvalidSQLError(
                f"{as_written(part)} names {as_written(argument)}, which is not in GROUP BY.", at=part
            )
        shift = len(keys) - 1 - list(keys).index(argument)
        zero, one, place = map(exp.Literal.number, (0, 1, 1 << shift))
        is_set = exp.NEQ(this=exp.BitwiseAnd(this=marks["mask"].copy(), expression=place), expression=zero)
        bits.append(exp.Case(ifs=[exp.If(this=is_set, true=one)], default=zero.copy()))
    if name == "grouping":
        return exp.cast(exp.Paren(this=bits[0]), "tinyint", dialect="spark")
    total: Scalar = exp.Paren(this=bits[0])
    for bit in bits[1:]:
        total = exp.Paren(
            this=exp.Add(this=exp.Mul(this=total, expression=exp.Literal.number(2)), expression=exp.Paren(this=bit))
        )
    return total


def _keyed(binder: Binder, plan: Plan, keys: Sequence[Scalar]) -> tuple[Plan, list[str]]:
    """The input with every key as a column of its own."""
    computed = [key for key in keys if not isinstance(key, exp.Column)]
    types = iter(binder.types.of(computed, binder.column_types))
    ids = [key.name if isinstance(key, exp.Column) else binder.new_column(next(types)) for key in keys]
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
    if is_aggregate(inner) or hides_order(expression):
        within = [part for part in expression.walk() if is_aggregate(part)]
        if len(within) > 1:
            raise InvalidSQLError(
                f"An aggregate may not contain another one: {as_written(expression)}. Use a subquery.", at=expression
            )
        return [expression]
    return [call for child in expression.iter_expressions() for call in calls_in(child)]
