"""Which nodes of a bound plan are given a support table: aggregates that can be counted, and first rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from deferred.algebra.delta import INTEGRAL, coarse
from deferred.algebra.group import Aggregate
from deferred.algebra.plan import COUNT, Plan, Project, used
from deferred.algebra.scalar import Fresh, Scalar, column, columns_of, integer, is_bound, rewrite
from deferred.algebra.support import Kept, Part, Support, parts_of
from deferred.algebra.window import Limit
from deferred.sql.dialect import parse_scalar
from deferred.sql.functions import is_aggregate, name_of
from deferred.sql.grouping import calls_in
from deferred.sql.types import Types, unordered

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)$")
_ORDERED = ("int", "bigint", "smallint", "tinyint", "date", "timestamp", "timestamp_ntz", "string", "boolean")
LOGICAL = {"bool_and": "min", "every": "min", "bool_or": "max", "some": "max", "any": "max"}
"""false < true: all are when the least is, one is when the greatest is."""

WIDEST, SCALE_KEPT = 28, 6
"""Decimals up to this many digits can be multiplied by a count and summed without losing any; of wider ones Spark keeps
up to this many digits after the point, whatever it must give up before it."""

WIDEST_AVERAGED = 20
"""Decimals up to this many digits can be averaged and multiplied back without losing any."""


def supported(plan: Plan, types: Types, column_types: Mapping[str, str]) -> tuple[Plan, dict[str, str]]:
    """The plan with support on every node that can use it, and the types of all its columns."""
    planner = _Planner(types, dict(column_types))
    return planner.visit(plan), planner.column_types


def contents(plan: Plan) -> dict[str, Plan]:
    """What each support table holds, as a plan over the base tables."""
    found: dict[str, Plan] = {}
    for node in plan.walk():
        if isinstance(node, Aggregate) and node.support is not None:
            found[node.support.name] = parts_of(node)
        elif isinstance(node, Kept):
            found[node.name] = node.contents
        elif isinstance(node, Limit) and node.support is not None and node.count is not None:
            found[node.support] = replace(node, count=node.count + node.offset, offset=0, support=None)
    return found


@dataclass
class _Planner:
    types: Types
    column_types: dict[str, str]
    fresh: Fresh = field(default_factory=lambda: Fresh("p_"))
    names: Fresh = field(default_factory=lambda: Fresh("support"))
    done: dict[Plan, Plan] = field(default_factory=dict)

    def visit(self, node: Plan) -> Plan:
        if node not in self.done:
            rebuilt = node.with_children([self.visit(child) for child in node.children])
            if isinstance(rebuilt, Aggregate):
                rebuilt = self.aggregate(rebuilt)
            elif isinstance(rebuilt, Limit) and rebuilt.count is not None:
                rebuilt = replace(rebuilt, support=self.names())
            self.done[node] = rebuilt
        return self.done[node]

    def aggregate(self, node: Aggregate) -> Plan:
        """An aggregate whose outputs are made of counts, exact sums and extremes keeps those; any other stays."""
        extra: list[tuple[str, Scalar]] = []
        parts: dict[tuple[str, str | None], Part] = {}

        def part(kind: str, type_: str, argument: str | None = None) -> Part:
            if (kind, argument) not in parts:
                name = self.fresh()
                self.column_types[name] = type_
                parts[kind, argument] = Part(name, kind, type_, argument)
            return parts[kind, argument]

        part("rows", "bigint")
        finals = []
        for name, expression in node.outputs:
            made: dict[Scalar, Scalar] = {}
            for call in calls_in(expression):
                value = self.of_parts(call, part, extra)
                if value is None:
                    return node if node.keys else self.over_everything(node)
                made[call] = value
            final = rewrite(expression, made.get)
            finals.append((name, exp.cast(final, self.column_types[name], dialect="spark")))
        child = node.child
        if extra:
            child = Project(child, (*((c, column(c)) for c in child.columns), *extra))
        support = Support(self.names(), tuple(parts.values()), tuple(finals))
        return replace(node, child=child, support=support)

    def over_everything(self, node: Aggregate) -> Plan:
        """A total that is not made of parts, over the kept values of its arguments, which are computed below it.

        Beside a value that SQL equates with others stands its text: rows are told apart by that.
        """
        extra: list[tuple[str, Scalar]] = []
        outputs = tuple((name, rewrite(e, lambda part: self.over_arguments(part, extra))) for name, e in node.outputs)
        read = sorted(used(*(e for _, e in outputs)))
        if any(unordered(self.column_types[c]) for c in read):
            return node
        computed = dict(extra)
        values: Plan = Project(node.child, tuple((c, computed.get(c, column(c))) for c in read))
        coarse_ones = {c: self.column_types[c] for c in read if coarse(self.column_types[c])}
        if coarse_ones:
            texts = tuple((self.fresh(), exp.cast(column(c), "string", dialect="spark")) for c in coarse_ones)
            self.column_types.update({name: "string" for name, _ in texts})
            values = Project(values, (*((c, column(c)) for c in read), *texts))
        self.column_types[COUNT] = "bigint"
        return replace(node, child=Kept(values, self.names(), coarse_ones), outputs=outputs)

    def over_arguments(self, part: Scalar, extra: list[tuple[str, Scalar]]) -> Scalar | None:
        """An aggregate call over columns that hold its arguments, None for what is no call."""

        def held(value: Scalar) -> Scalar:
            if isinstance(value, exp.Distinct):
                return exp.Distinct(expressions=[held(e) for e in value.expressions])
            return column(self.argument(value, extra)[0]) if columns_of(value) else value.copy()

        if isinstance(part, exp.Filter):
            inner = self.over_arguments(part.this, extra)
            return exp.Filter(this=inner or part.this.copy(), expression=exp.Where(this=held(part.expression.this)))
        if isinstance(part, exp.Anonymous) and is_aggregate(part):
            return exp.Anonymous(this=part.this, expressions=[held(argument) for argument in part.expressions])
        return None

    def of_parts(self, call: Scalar, part: Callable[..., Part], extra: list[tuple[str, Scalar]]) -> Scalar | None:
        """An aggregate call made of parts, None where it cannot be."""
        inner = call.this if isinstance(call, exp.Filter) else call
        name = name_of(inner)
        arguments = inner.expressions if isinstance(inner, exp.Anonymous) else []
        name = LOGICAL.get(name or "", name)
        if name not in ("count", "count_if", "sum", "avg", "mean", "min", "max") or len(arguments) != 1 or \
                isinstance(arguments[0], exp.Distinct):
            return None
        value = arguments[0]
        if name == "count_if":
            value = _when(value, integer(1))
        elif isinstance(value, exp.Star):
            if not isinstance(call, exp.Filter):
                return column(part("rows", "bigint").id)
            value = integer(1)
        if isinstance(call, exp.Filter):
            value = _when(call.expression.this, value)
        argument, type_ = self.argument(value, extra)
        count = part("count", "bigint", argument)
        if name in ("count", "count_if"):
            return column(count.id)
        if name in ("sum", "avg", "mean"):
            return self.total(name, argument, type_, count, part)
        if type_ not in _ORDERED and not _DECIMAL.match(type_):
            return None
        return column(part(name, type_, argument).id)

    def total(self, name: str, argument: str, type_: str, count: Part, part: Callable[..., Part]) -> Scalar | None:
        """An exact sum, or a decimal average, of a kept sum and count; NULL over no values."""
        found = _DECIMAL.match(type_)
        digits, scale = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
        result = self.types.of([exp.Anonymous(this=name.upper(), expressions=[column(argument)])], self.column_types)[0]
        average = _DECIMAL.match(result) if name != "sum" else None
        if (not found and type_ not in INTEGRAL) or (digits > WIDEST and scale > SCALE_KEPT):
            return None
        if name != "sum" and (average is None or not found or digits > WIDEST_AVERAGED):
            return None
        total = part("sum", f"decimal(38,{scale})", argument)
        value = exp.cast(column(total.id), result, dialect="spark") if average is None else \
            _average(column(total.id), column(count.id), result, int(average.group(2)))
        return _when(exp.GT(this=column(count.id), expression=integer(0)), value)

    def argument(self, value: Scalar, extra: list[tuple[str, Scalar]]) -> tuple[str, str]:
        """The column of an argument, computed below the aggregate where it is more than a column."""
        if isinstance(value, exp.Column):
            return value.name, self.column_types[value.name].lower()
        for name, known in extra:
            if known == value:
                return name, self.column_types[name].lower()
        name = self.fresh()
        self.column_types[name] = self.types.of([value], self.column_types)[0]
        extra.append((name, value))
        return name, self.column_types[name].lower()


def _average(total: Scalar, count: Scalar, type_: str, scale: int) -> Scalar:
    """total / count rounded half up to the scale of AVG's result, exactly: SQL's own division rounds once before.

    The quotient is tried, and moved by one in the last place where what it leaves over says so.
    """
    zeros = "0" * scale
    unit = f"CAST('0.{zeros[1:]}1' AS DECIMAL({scale + 1}, {scale}))"
    # Every type is just wide enough that Spark neither rounds nor overflows on the way.
    size, number = f"CAST(ABS(total) AS DECIMAL(36, {scale}))", "CAST(amount AS DECIMAL(12, 0))"
    tried = f"CAST({size} / {number} AS {type_})"
    left = f"CAST({size} - {tried} * {number} AS DECIMAL({scale + 14}, {scale}))"
    half = f"({number} * CAST('0.{zeros}5' AS DECIMAL({scale + 2}, {scale + 1})))"
    moved = f"CASE WHEN {left} >= {half} THEN {unit} WHEN {left} < -{half} THEN -{unit} ELSE 0 END"
    template = parse_scalar(f"CAST(CASE WHEN total < 0 THEN -1 ELSE 1 END * ({tried} + {moved}) AS {type_})")
    return rewrite(template, lambda p: {"total": total, "amount": count}.get(p.name)
                   if isinstance(p, exp.Column) and not is_bound(p) else None)


def _when(condition: Scalar, value: Scalar) -> Scalar:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])
