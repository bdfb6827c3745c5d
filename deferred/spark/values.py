"""Expressions over rows at the driver, with exactly the values that Spark would compute, or none at all.

Only what has one meaning, whatever the session's settings, is computed here: whole numbers and decimals are added,
subtracted and multiplied, values of one kind are compared and chosen among, and counted, summed or ranked within
groups. A result that its type cannot hold, a type that Spark would round to, and every other function are left to
Spark. Nothing here fails, so it does not matter that both branches of a CASE are computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.aggregates.calls import aggregate_of, name_of
from deferred.algebra.aggregates.registry import Exact, ExactType
from deferred.algebra.aggregates.sums import EXACT
from deferred.algebra.scalar import COMPARISONS, Scalar
from deferred.spark.driver import exact_type

if TYPE_CHECKING:
    import pyarrow as pa

MOST_DIGITS = 38
"""The digits of Spark's largest decimals."""

DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
"""A text that is a date in every session."""


class LeftToSpark(Exception):
    """Spark must compute it."""


@dataclass(frozen=True)
class Values:
    """The values of an expression, one for each row (or group), and their type in Arrow."""

    type: pa.DataType
    listed: Sequence[Any]

    def to_arrow(self) -> pa.Array:
        import pyarrow as pa

        stored = self.type
        if pa.types.is_string(stored):
            stored = pa.binary()
        elif pa.types.is_timestamp(stored):
            stored = pa.int64()
        return pa.array(self.listed, stored).cast(self.type)


def values(rows: pa.Table, expression: Scalar) -> pa.ChunkedArray | pa.Array:
    """The values of an expression for each row of a table."""
    if isinstance(expression, exp.Column):
        return rows.column(expression.name)
    return _Rows(rows).of(expression).to_arrow()


def holding(rows: pa.Table, condition: Scalar) -> pa.Table:
    """The rows for which a condition is true."""
    import pyarrow as pa

    found = _Rows(rows).of(condition)
    if not pa.types.is_boolean(found.type):
        raise LeftToSpark
    return rows.filter(pa.array(found.listed, pa.bool_()))


def totals(rows: pa.Table, keys: Sequence[str], outputs: Sequence[tuple[str, Scalar]]) -> pa.Table:
    """One row per group of the keys, with the values of expressions over aggregates; without keys exactly one row."""
    import pyarrow as pa

    own = _Rows(rows)
    numbers: dict[tuple[Any, ...], int] = {}
    groups: list[list[int]] = []
    if keys:
        for row, key in enumerate(zip(*(own.column(k).listed for k in keys), strict=True)):
            if key not in numbers:
                numbers[key] = len(groups)
                groups.append([])
            groups[numbers[key]].append(row)
    else:
        groups.append(list(range(rows.num_rows)))
    firsts = pa.array([group[0] for group in groups] if keys else [], pa.int64())
    found = {k: rows.column(k).take(firsts) for k in keys}
    grouped = _Groups(own, groups)
    return pa.table({**found, **{name: grouped.of(expression).to_arrow() for name, expression in outputs}})


class _Evaluation:
    """Evaluates expressions bottom up, each kind of node by its rule."""

    size: int

    def column(self, name: str) -> Values:
        raise LeftToSpark

    def aggregate(self, function: Exact, argument: Scalar) -> Values:
        raise LeftToSpark

    def of(self, node: Scalar) -> Values:
        if isinstance(node, exp.Column):
            return self.column(node.name)
        name, arguments = name_of(node), _arguments(node)
        function = aggregate_of(node)
        if function is not None and function.exact is not None and len(arguments) == 1:
            return self.aggregate(function.exact, arguments[0])
        if name is not None and name in _FUNCTIONS and arguments:
            found = [self.of(argument) for argument in arguments]
            type_ = _common([each.type for each in found])
            listed = zip(*(_as(type_, each) for each in found), strict=True)
            return Values(type_, [_FUNCTIONS[name](value for value in row if value is not None) for row in listed])
        rule = _RULES.get(type(node))
        if rule is None:
            raise LeftToSpark
        return rule(self, node)

    def constant(self, type_: pa.DataType, value: Any) -> Values:
        return Values(type_, [value] * self.size)


class _Rows(_Evaluation):
    def __init__(self, rows: pa.Table) -> None:
        self.rows, self.size = rows, rows.num_rows
        self._listed: dict[str, Values] = {}

    def column(self, name: str) -> Values:
        """Texts are compared by their bytes, as those of Spark need not be UTF-8; times by their microseconds."""
        import pyarrow as pa

        if name not in self._listed:
            found = self.rows.column(name)
            if pa.types.is_large_string(found.type):
                found = found.cast(pa.string())
            kinds = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_date)
            if pa.types.is_string(found.type):
                listed = found.cast(pa.binary()).to_pylist()
            elif pa.types.is_timestamp(found.type):
                listed = found.cast(pa.int64()).to_pylist()
            elif any(kind(found.type) for kind in (*kinds, pa.types.is_null)):
                listed = found.to_pylist()
            else:
                raise LeftToSpark
            self._listed[name] = Values(found.type, listed)
        return self._listed[name]


class _Groups(_Evaluation):
    """Expressions over the aggregates of groups; `groups` has the numbers of each group's rows."""

    def __init__(self, rows: _Rows, groups: Sequence[Sequence[int]]) -> None:
        self._rows, self._groups, self.size = rows, groups, len(groups)

    def aggregate(self, function: Exact, argument: Scalar) -> Values:
        import pyarrow as pa

        if isinstance(argument, exp.Star):
            return Values(pa.int64(), [len(group) for group in self._groups])
        found = self._rows.of(argument)
        known = ([v for i in group if (v := found.listed[i]) is not None] for group in self._groups)
        return _fitting(_exact_type(function.type, found.type), [function.value(group) for group in known])


def _exact_type(kind: ExactType, argument: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if kind is ExactType.ARGUMENT:
        return argument
    if kind is ExactType.COUNT or pa.types.is_integer(argument):
        return pa.int64()
    if pa.types.is_decimal(argument):
        return pa.decimal128(min(MOST_DIGITS, argument.precision + 10), argument.scale)
    raise LeftToSpark


_FUNCTIONS: Mapping[str, Callable[[Iterator[Any]], Any]] = {
    "coalesce": lambda known: next(known, None),
    "greatest": partial(max, default=None),
    "least": partial(min, default=None),
}
"""Functions that choose one of their arguments which are not NULL."""


def _arguments(node: Scalar) -> Sequence[Scalar]:
    """The arguments of a function, whether sqlglot has a class for it or not."""
    return node.expressions if isinstance(node, exp.Anonymous) else [node.this, *node.expressions]


def is_known(expression: Scalar) -> bool:
    """Whether nothing in an expression is certain to be left to Spark."""
    inner = (node for node in expression.walk() if not isinstance(node, (exp.Column, exp.Identifier, exp.DataType)))
    return all(
        type(node) in _RULES or name_of(node) in _FUNCTIONS or _is_exact(node) or isinstance(node, exp.Star)
        for node in inner
        if not isinstance(node, exp.DataTypeParam) and not isinstance(node.parent, exp.DataTypeParam)
    )


def _is_exact(node: Scalar) -> bool:
    function = aggregate_of(node)
    return function is not None and function.exact is not None


# ---- rules


def _fitting(type_: pa.DataType, listed: list[Any]) -> Values:
    """Values of a type, if it can hold them all."""
    import pyarrow as pa

    known = [value for value in listed if value is not None]
    if known and pa.types.is_integer(type_):
        limit = 1 << (type_.bit_width - 1)
        if max(known) >= limit or min(known) < -limit:
            raise LeftToSpark
    elif known and pa.types.is_decimal(type_):
        limit = Decimal(10) ** (type_.precision - type_.scale)
        if max(known) >= limit or min(known) <= -limit:
            raise LeftToSpark
    return Values(type_, listed)


def _number(type_: pa.DataType) -> tuple[int, int]:
    """The digits before and after the point that values of a number's type may have."""
    import pyarrow as pa

    if pa.types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    digits = {8: 3, 16: 5, 32: 10, 64: 20}
    if pa.types.is_integer(type_):
        return digits[type_.bit_width], 0
    raise LeftToSpark


def _common(found: Sequence[pa.DataType]) -> pa.DataType:
    """The type in which Spark compares values of some types, or chooses among them."""
    import pyarrow as pa

    types = [type_ for type_ in dict.fromkeys(found) if not pa.types.is_null(type_)]
    if not types:
        return pa.null()
    if len(types) == 1:
        return types[0]
    if all(pa.types.is_integer(type_) for type_ in types):
        return max(types, key=lambda type_: type_.bit_width)
    before, after = (max(part) for part in zip(*map(_number, types), strict=True))
    if before + after > MOST_DIGITS:
        raise LeftToSpark
    return pa.decimal128(before + after, after)


def _as(type_: pa.DataType, found: Values) -> list[Any]:
    """Values of a number's type in a wider one."""
    import pyarrow as pa

    if pa.types.is_decimal(type_) and pa.types.is_integer(found.type):
        return [None if value is None else Decimal(value) for value in found.listed]
    return list(found.listed)


def _arithmetic(e: _Evaluation, node: exp.Binary) -> Values:
    """Of whole numbers the wider type; of decimals the type that holds every result, unless Spark would round to it."""
    import pyarrow as pa

    left, right = e.of(node.this), e.of(node.expression)
    if pa.types.is_integer(left.type) and pa.types.is_integer(right.type):
        whole = {exp.Add: int.__add__, exp.Sub: int.__sub__, exp.Mul: int.__mul__}[type(node)]
        return _fitting(_common([left.type, right.type]), _both(whole, left.listed, right.listed))
    (before, after), (before2, after2) = _number(left.type), _number(right.type)
    if isinstance(node, exp.Mul):
        scale, precision = after + after2, before + after + before2 + after2 + 1
    else:
        scale = max(after, after2)
        precision = max(before, before2) + scale + 1
    if precision > MOST_DIGITS and scale > 6:  # Spark keeps 6 digits after the point at least, and may round the others
        raise LeftToSpark
    exact = {exp.Add: EXACT.add, exp.Sub: EXACT.subtract, exp.Mul: EXACT.multiply}[type(node)]
    one, other = (_as(pa.decimal128(38, 0), side) for side in (left, right))
    return _fitting(pa.decimal128(min(precision, MOST_DIGITS), scale), _both(exact, one, other))


def _both(compute: Callable[[Any, Any], Any], left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """NULL where one of two values is."""
    return [None if a is None or b is None else compute(a, b) for a, b in zip(left, right, strict=True)]


def _comparison(e: _Evaluation, node: exp.Binary) -> Values:
    import pyarrow as pa

    left, right = e.of(node.this), e.of(node.expression)
    _common([left.type, right.type])
    if isinstance(node, exp.NullSafeEQ):
        return Values(pa.bool_(), [a == b for a, b in zip(left.listed, right.listed, strict=True)])
    return Values(pa.bool_(), _both(COMPARISONS[type(node)], left.listed, right.listed))


def _between(e: _Evaluation, node: exp.Between) -> Values:
    if node.args.get("symmetric"):
        raise LeftToSpark
    low = exp.GTE(this=node.this, expression=node.args["low"])
    return e.of(exp.And(this=low, expression=exp.LTE(this=node.this, expression=node.args["high"])))


def _in(e: _Evaluation, node: exp.In) -> Values:
    if not node.expressions or any(node.args.get(name) for name in ("query", "unnest", "field")):
        raise LeftToSpark
    parts: list[exp.Expr] = [exp.EQ(this=node.this, expression=value) for value in node.expressions]
    return e.of(reduce(lambda a, b: exp.Or(this=a, expression=b), parts))


def _and(e: _Evaluation, node: exp.And) -> Values:
    return _connected(e, node, lambda a, b: False if a is False or b is False else (a if b is True else b))


def _or(e: _Evaluation, node: exp.Or) -> Values:
    return _connected(e, node, lambda a, b: True if a is True or b is True else (a if b is False else b))


def _connected(e: _Evaluation, node: exp.Connector, connect: Callable[[Any, Any], Any]) -> Values:
    import pyarrow as pa

    left, right = e.of(node.this), e.of(node.expression)
    if not all(pa.types.is_boolean(side.type) or pa.types.is_null(side.type) for side in (left, right)):
        raise LeftToSpark
    return Values(pa.bool_(), [connect(a, b) for a, b in zip(left.listed, right.listed, strict=True)])


def _not(e: _Evaluation, node: exp.Not) -> Values:
    import pyarrow as pa

    inner = e.of(node.this)
    if not pa.types.is_boolean(inner.type):
        raise LeftToSpark
    return Values(inner.type, [None if value is None else not value for value in inner.listed])


def _is(e: _Evaluation, node: exp.Is) -> Values:
    import pyarrow as pa

    if not isinstance(node.expression, exp.Null):
        raise LeftToSpark
    return Values(pa.bool_(), [value is None for value in e.of(node.this).listed])


def _case(e: _Evaluation, node: exp.Case) -> Values:
    branches = [(if_.this, if_.args["true"]) for if_ in node.args["ifs"]]
    if node.this is not None:
        branches = [(exp.EQ(this=node.this, expression=value), then) for value, then in branches]
    return _first_true(e, branches, node.args.get("default") or exp.Null())


def _if(e: _Evaluation, node: exp.If) -> Values:
    return _first_true(e, [(node.this, node.args["true"])], node.args.get("false") or exp.Null())


def _first_true(e: _Evaluation, branches: Sequence[tuple[Scalar, Scalar]], default: Scalar) -> Values:
    conditions = [e.of(condition) for condition, _ in branches]
    found = [*(e.of(then) for _, then in branches), e.of(default)]
    type_ = _common([each.type for each in found])
    result = _as(type_, found[-1])
    for condition, then in reversed(list(zip(conditions, found, strict=False))):
        chosen = _as(type_, then)
        result = [a if holds else b for holds, a, b in zip(condition.listed, chosen, result, strict=True)]
    return Values(type_, result)


def _cast(e: _Evaluation, node: exp.Cast) -> Values:
    """To the same type, or to a number's type with as many digits after the point; and the usual form of a date."""
    import pyarrow as pa

    type_ = exact_type(node.to.sql(dialect="spark").lower().replace(" ", ""))
    if type_ is None or node.args.get("format"):
        raise LeftToSpark
    if pa.types.is_date(type_) and isinstance(node.this, exp.Literal) and DATE.fullmatch(node.this.this):
        return e.constant(type_, date.fromisoformat(node.this.this))
    inner = e.of(node.this)
    if pa.types.is_null(inner.type) or type_ == inner.type:
        return Values(type_, inner.listed)
    if pa.types.is_integer(type_) and pa.types.is_integer(inner.type):
        return _fitting(type_, list(inner.listed))
    if pa.types.is_decimal(type_) and _number(inner.type)[1] <= type_.scale:
        return _fitting(type_, _as(type_, inner))
    raise LeftToSpark


def _negative(e: _Evaluation, node: exp.Neg) -> Values:
    inner = e.of(node.this)
    _number(inner.type)
    return _fitting(inner.type, [None if value is None else -value for value in inner.listed])


def _literal(e: _Evaluation, node: exp.Literal) -> Values:
    import pyarrow as pa

    if node.is_string:
        return e.constant(pa.string(), node.this.encode())
    whole, _, part = node.this.partition(".")
    if not (whole + part).isdigit() or not (whole + part).isascii():
        raise LeftToSpark
    if "." not in node.this:
        number = int(whole)
        if number >= 2**63:
            raise LeftToSpark
        return e.constant(pa.int32() if number < 2**31 else pa.int64(), number)
    digits = len(whole.lstrip("0")) + len(part)
    if digits > MOST_DIGITS:
        raise LeftToSpark
    return e.constant(pa.decimal128(max(digits, len(part), 1), len(part)), Decimal(node.this))


def _boolean(e: _Evaluation, node: exp.Boolean) -> Values:
    import pyarrow as pa

    return e.constant(pa.bool_(), bool(node.this))


def _null(e: _Evaluation, node: exp.Null) -> Values:
    import pyarrow as pa

    return e.constant(pa.null(), None)


_RULES: Mapping[type[exp.Expr], Callable[[Any, Any], Values]] = {
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), _arithmetic),
    **dict.fromkeys((*COMPARISONS, exp.NullSafeEQ), _comparison),
    exp.Between: _between,
    exp.In: _in,
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.Is: _is,
    exp.Case: _case,
    exp.If: _if,
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
    exp.Neg: _negative,
    exp.Paren: lambda e, node: e.of(node.this),
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
}
