"""Steps at the driver: plans that put rows together, compare and count them, over rows that have come to the driver.

A query of Spark takes a few hundred milliseconds however few rows it has, and the rounds of a recursion are many. What
is computed here never looks into a value: columns pass through, and rows are the same or not. Everything else, and
every type in which SQL and Arrow might tell values apart differently, is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.bags import COUNT
from deferred.algebra.operators import (
    ANTI,
    SEMI,
    Change,
    Distinct,
    Filter,
    Join,
    Net,
    OuterJoin,
    Project,
    Restrict,
    Stored,
    Temporary,
    UnionAll,
)
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Scalar, columns_of, conjuncts, is_column

if TYPE_CHECKING:
    import pyarrow as pa


class LeftToSpark(Exception):
    """A part of a plan is not for the driver."""


@dataclass(frozen=True)
class Driver:
    """What a plan is evaluated with: the rows that are at the driver, and the types of its columns."""

    held: Callable[[Temporary | Change], pa.Table | None]
    """The rows of a leaf, None where they are not at the driver."""
    looked_up: Callable[[Restrict], pa.Table | None]
    """The rows of a support table for few keys, by one query; None where they are too many for the driver."""
    types: Mapping[str, str]
    asks: bool = False
    """Whether a support table may be asked: everything else of the plan can be computed here."""

    def evaluated(self, plan: Plan) -> pa.Table | None:
        """The rows of a plan, under its columns; None where Spark must compute them."""
        try:
            return replace(self, asks=self._is_simple(plan)).rows(plan)
        except LeftToSpark:
            return None

    def _is_simple(self, plan: Plan) -> bool:
        """Whether nothing in a plan looks into a value, and all rows but those of support tables are here."""
        if isinstance(plan, (Temporary, Change)):
            return self.held(plan) is not None
        if isinstance(plan, Restrict) and isinstance(plan.child, Stored):
            return self._is_simple(plan.keys.plan)
        if isinstance(plan, Project) and not all(_is_simple_value(e) for _, e in plan.outputs):
            return False
        return type(plan) in _RULES and type(plan) is not Join and all(map(self._is_simple, plan.children))

    def rows(self, plan: Plan) -> pa.Table:
        """Every kind of node that is known here; where its inputs are empty, most others have no rows either."""
        found = _RULES.get(type(plan))
        if found is None:
            raise LeftToSpark
        return found(self, plan)

    def leaf(self, plan: Temporary | Change) -> pa.Table:
        return self._sound(self.held(plan))

    def _sound(self, rows: pa.Table | None) -> pa.Table:
        if rows is None or not all(_is_compared_as_in_sql(field.type) for field in rows.schema):
            raise LeftToSpark
        return rows

    def project(self, plan: Project) -> pa.Table:
        import pyarrow as pa

        rows = self.rows(plan.child)
        if not rows.num_rows:
            return self.nothing(plan)
        return pa.table({name: _value(rows, expression) for name, expression in plan.outputs})

    def filter(self, plan: Filter) -> pa.Table:
        """By the sign of the count."""
        from pyarrow import compute

        rows, condition = self.rows(plan.child), plan.condition
        if not rows.num_rows:
            return rows
        if not isinstance(condition, (exp.GT, exp.LT)) or not is_column(condition.this) or condition.this.name != COUNT:
            raise LeftToSpark
        compare = compute.greater if isinstance(condition, exp.GT) else compute.less
        return rows.filter(compare(rows.column(COUNT), _number(condition.expression)))

    def union(self, plan: UnionAll) -> pa.Table:
        parts = [self.rows(side).rename_columns(list(plan.columns)) for side in plan.inputs]
        return joined([part for part in parts if part.num_rows] or parts[:1])

    def distinct(self, plan: Distinct) -> pa.Table:
        rows = self.rows(plan.child)
        return rows.group_by(list(plan.columns)).aggregate([]).select(list(plan.columns)) if rows.num_rows else rows

    def net(self, plan: Net) -> pa.Table:
        from pyarrow import compute

        rows = self.rows(plan.child)
        if not rows.num_rows:
            return rows
        summed = rows.group_by(list(plan.columns[:-1])).aggregate([(COUNT, "sum")])
        summed = summed.rename_columns([COUNT if c == f"{COUNT}_sum" else c for c in summed.column_names])
        return summed.filter(compute.not_equal(summed.column(COUNT), 0)).select(list(plan.columns))

    def restrict(self, plan: Restrict) -> pa.Table:
        """No key, no row: then the restricted rows need not be here."""
        keys = self.rows(plan.keys.plan)
        if not keys.num_rows:
            return self.nothing(plan)
        if isinstance(plan.child, Stored):
            return self._sound(self.looked_up(plan) if self.asks else None)
        rows = self.rows(plan.child)
        if not all(is_column(value) for pair in plan.keys.on for value in pair):
            raise LeftToSpark
        return _matching(rows, keys, [(mine.name, theirs.name) for mine, theirs in plan.keys.on], True)

    def semi_or_anti(self, plan: OuterJoin) -> pa.Table:
        if plan.kind not in (SEMI, ANTI):
            raise LeftToSpark
        left = self.rows(plan.left)
        if not left.num_rows:
            return left
        right = self.rows(plan.right)
        if not right.num_rows:
            return left if plan.kind == ANTI else left.slice(0, 0)
        if isinstance(plan.condition, exp.Boolean) and plan.condition.this:
            return left if plan.kind == SEMI else left.slice(0, 0)
        pairs = []
        for part in conjuncts(plan.condition):
            if not isinstance(part, exp.NullSafeEQ) or not is_column(part.this) or not is_column(part.expression):
                raise LeftToSpark
            names = part.this.name, part.expression.name
            pairs.append(names if names[0] in plan.left.columns else names[::-1])
        return _matching(left, right, pairs, plan.kind == SEMI)

    def join(self, plan: Join) -> pa.Table:
        """Only that it is empty, as one of its inputs is."""
        if COUNT in plan.inputs[0].columns and not self.rows(plan.inputs[0]).num_rows:
            return self.nothing(plan)
        raise LeftToSpark

    def nothing(self, plan: Plan) -> pa.Table:
        """No rows; of columns whose types are known, so that Spark can read them."""
        import pyarrow as pa

        if not all(c in self.types for c in plan.columns):
            raise LeftToSpark
        return pa.table({c: pa.array([], pa.null()) for c in plan.columns})


_RULES: Mapping[type[Plan], Callable[[Driver, Any], Any]] = {
    Temporary: Driver.leaf,
    Change: Driver.leaf,
    Project: Driver.project,
    Filter: Driver.filter,
    UnionAll: Driver.union,
    Distinct: Driver.distinct,
    Net: Driver.net,
    Restrict: Driver.restrict,
    OuterJoin: Driver.semi_or_anti,
    Join: Driver.join,
}


def joined(parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of several tables, of which one may have NULLs in a column where another has none."""
    import pyarrow as pa

    names = parts[0].column_names
    types = zip(*(part.schema.types for part in parts), strict=True)
    known = [next((t for t in found if not pa.types.is_null(t)), pa.null()) for found in types]
    schema = pa.schema([pa.field(name, type_) for name, type_ in zip(names, known, strict=True)])
    return pa.concat_tables([part.rename_columns(names).cast(schema) for part in parts])


def _value(rows: pa.Table, expression: Scalar) -> Any:
    """A column, or a count that is the same for all rows or the negative of a column."""
    import pyarrow as pa
    from pyarrow import compute

    if is_column(expression):
        return rows.column(expression.name)
    if isinstance(expression, exp.Neg) and is_column(expression.this) and expression.this.name == COUNT:
        return compute.negate(rows.column(COUNT))
    return pa.repeat(pa.scalar(_number(expression), pa.int64()), rows.num_rows)


def _is_simple_value(expression: Scalar) -> bool:
    return is_column(expression) or not columns_of(expression) or isinstance(expression, exp.Neg)


def _number(expression: Scalar) -> int:
    """The value of CAST(… AS BIGINT) of a number."""
    inner = expression.this if isinstance(expression, exp.Cast) and expression.to.is_type("BIGINT") else None
    negative = isinstance(inner, exp.Neg)
    literal = inner.this if isinstance(inner, exp.Neg) else inner
    if not isinstance(literal, exp.Literal) or literal.is_string or not literal.this.isdigit():
        raise LeftToSpark
    return -int(literal.this) if negative else int(literal.this)


def _matching(rows: pa.Table, others: pa.Table, pairs: Sequence[tuple[str, str]], wanted: bool) -> pa.Table:
    """The rows whose values occur together in another table, or those whose values do not; NULL is NULL."""
    import pyarrow as pa

    for mine, theirs in pairs:
        if rows.schema.field(mine).type != others.schema.field(theirs).type:
            raise LeftToSpark
    known = set(_tuples(others, [theirs for _, theirs in pairs]))
    found = [(key in known) is wanted for key in _tuples(rows, [mine for mine, _ in pairs])]
    return rows.filter(pa.array(found, pa.bool_()))


def _tuples(rows: pa.Table, names: Sequence[str]) -> zip[tuple[Any, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in names), strict=True)


def _is_compared_as_in_sql(type_: pa.DataType) -> bool:
    """Whether two values of a type are the same in Arrow and in Python exactly if they are in SQL."""
    import pyarrow as pa

    kinds = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_binary, pa.types.is_date)
    return any(kind(type_) for kind in (*kinds, pa.types.is_decimal, pa.types.is_null))
