"""Steps at the driver: plans over rows that have come to the driver, computed without Spark.

A query of Spark takes a few hundred milliseconds however few rows it has, and a program has many steps. Here rows are
put together, compared, counted and joined, and expressions computed as far as deferred.spark.values knows them.
Everything else, and every type in which SQL and Arrow might tell values apart differently, is left to Spark.

Base and support tables are met only by keys that are at the driver (`lookups`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.bags import BATCH, GONE
from deferred.algebra.operators import (
    Aggregate,
    Change,
    Distinct,
    Filter,
    Join,
    Net,
    OuterJoin,
    Project,
    Restrict,
    Scan,
    Stored,
    Temporary,
    UnionAll,
)
from deferred.algebra.operators.project import below_renaming, only_renames
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Scalar, conjuncts, is_column
from deferred.spark.local_bags import comparable, is_compared_as_in_sql, summed
from deferred.spark.values import LeftToSpark, holding, is_known, totals, values

if TYPE_CHECKING:
    import pyarrow as pa


Stores = Callable[[Stored, Mapping[str, str], "pa.Table | None"], "pa.Table | None"]
"""Finds the current rows of a support table without Spark: those with some keys, or all; None where it cannot."""


Candidates = Callable[[Scan | Stored, "pa.Table", Mapping[str, str]], "pa.Table | None"]
"""Finds at least the rows of a table whose columns have the values of some key; None where Spark must look."""

JOINED_ROWS = 50_000
"""A join with more rows is left to Spark."""

LISTED_ROWS = 20_000
"""So are steps that look at the values of more rows one by one; others only move columns of them."""


def asks_nothing(stored: Stored, on: Mapping[str, str], keys: pa.Table | None) -> None:
    """What is found where no support table can be asked."""


def finds_nothing(table: Scan | Stored, keys: pa.Table, on: Mapping[str, str]) -> None:
    """What is found where no table is met at the driver."""


@dataclass(frozen=True)
class Driver:
    """What a plan is evaluated with: the rows that are at the driver, and the types of its columns."""

    held: Callable[[Temporary | Change], pa.Table | None]
    """The rows of a leaf, None where they are not at the driver."""
    looked_up: Callable[[Restrict], pa.Table | None]
    """The rows of a support table for few keys, by one query; None where they are too many for the driver."""
    types: Mapping[str, str]
    stored: Stores = asks_nothing
    candidates: Candidates = finds_nothing
    asks: bool = False
    """Whether a support table may be asked: everything else of the plan can be computed here."""

    def evaluated(self, plan: Plan) -> pa.Table | None:
        """The rows of a plan, under its columns; None where Spark must compute them."""
        import pyarrow as pa

        try:
            rows = replace(self, asks=self._is_simple(plan)).rows(plan)
        except (LeftToSpark, ValueError, OverflowError, pa.ArrowException):  # a value that Python or Arrow cannot hold
            return None
        return rows if rows.num_rows else self.nothing_of(plan)

    def nothing_of(self, plan: Plan) -> pa.Table | None:
        """No rows of a plan; None where the types of its columns are not known, by which Spark reads them."""
        return self.nothing(plan) if all(c in self.types for c in plan.columns) else None

    def _is_simple(self, plan: Plan) -> bool:
        """Whether every node and expression of a plan is known, and all rows but those of support tables are here."""
        if isinstance(plan, (Temporary, Change)):
            return self.held(plan) is not None
        if isinstance(plan, Restrict) and isinstance(plan.child, Stored):
            return self._is_simple(plan.keys.plan)
        if not all(map(is_known, plan.expressions)):
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
        if rows is None or not all(is_compared_as_in_sql(field.type) for field in rows.schema):
            raise LeftToSpark
        return rows

    def project(self, plan: Project) -> pa.Table:
        import pyarrow as pa

        rows = self.rows(plan.child)
        if not rows.num_rows:
            return self.nothing(plan)
        if not all(is_column(expression) for _, expression in plan.outputs):
            _refuse_many(rows)
        return pa.table({name: values(rows, expression) for name, expression in plan.outputs})

    def filter(self, plan: Filter) -> pa.Table:
        rows = self.rows(plan.child)
        return holding(_refuse_many(rows), plan.condition) if rows.num_rows else rows

    def aggregate(self, plan: Aggregate) -> pa.Table:
        """Of no rows there is no group; the types of a total over nothing may not be known here."""
        rows = self.rows(plan.child)
        if rows.num_rows:
            return totals(_refuse_many(rows), plan.keys, plan.outputs)
        if not plan.keys:
            raise LeftToSpark
        return self.nothing(plan)

    def kept(self, plan: Stored) -> pa.Table:
        return self._sound(self.stored(plan, {}, None) if self.asks else None)

    def union(self, plan: UnionAll) -> pa.Table:
        parts = [self.rows(side).rename_columns(list(plan.columns)) for side in plan.inputs]
        return joined([part for part in parts if part.num_rows] or parts[:1])

    def distinct(self, plan: Distinct) -> pa.Table:
        rows = self.rows(plan.child)
        return rows.group_by(list(plan.columns)).aggregate([]).select(list(plan.columns)) if rows.num_rows else rows

    def net(self, plan: Net) -> pa.Table:
        rows = self.rows(plan.child)
        return summed(rows.select(list(plan.columns))) if rows.num_rows else rows

    def restrict(self, plan: Restrict) -> pa.Table:
        """No key, no row: then the restricted rows need not be here."""
        keys = self.rows(plan.keys.plan)
        if not keys.num_rows:
            return self.nothing(plan)
        pairs = [(mine.name, theirs.name) for mine, theirs in plan.keys.on if is_column(mine) and is_column(theirs)]
        simple = len(pairs) == len(plan.keys.on)
        rows = self.matching(plan.child, keys, dict(pairs)) if simple else None
        if rows is None and isinstance(plan.child, Stored):
            if not self.asks:
                raise LeftToSpark
            found = self.stored(plan.child, dict(pairs), keys) if simple else None
            return self._sound(self.looked_up(plan) if found is None else found)
        if not simple:
            raise LeftToSpark
        return _matching(self.rows(plan.child) if rows is None else rows, keys, pairs, True)

    def matching(self, plan: Plan, keys: pa.Table, on: Mapping[str, str]) -> pa.Table | None:
        """At least the rows of a table, perhaps under other names, that have some key; None for any other plan."""
        if isinstance(plan, (Scan, Stored)):
            found = self.candidates(plan, keys, on)
            return None if found is None else self._sound(found)
        if not only_renames(plan):
            return None
        below = {name: value.name for name, value in plan.outputs}
        rows = self.matching(plan.child, keys, {below[mine]: theirs for mine, theirs in on.items()})
        return None if rows is None else rows.select(list(below.values())).rename_columns(list(below))

    def outer_join(self, plan: OuterJoin) -> pa.Table:
        """By values that are the same; of the joins that add columns only the left one."""
        if plan.kind.unmatched_right:
            raise LeftToSpark
        left = self.rows(plan.left)
        if not left.num_rows:
            return left if plan.kind.selects else self.nothing(plan)
        right = self.rows(plan.right)
        if not plan.kind.selects:
            return _with_partners(left, right, self._pairs(plan))
        if not right.num_rows:
            return left if plan.kind.unmatched else left.slice(0, 0)
        if isinstance(plan.condition, exp.Boolean) and plan.condition.this:
            return left if plan.kind.matched else left.slice(0, 0)
        return _matching(left, right, self._pairs(plan), plan.kind.matched)

    def _pairs(self, plan: OuterJoin) -> list[tuple[str, str]]:
        """The columns, (left, right), that a condition says to be the same."""
        pairs = []
        for part in conjuncts(plan.condition):
            if not isinstance(part, exp.NullSafeEQ) or not is_column(part.this) or not is_column(part.expression):
                raise LeftToSpark
            names = part.this.name, part.expression.name
            pairs.append(names if names[0] in plan.left.columns else names[::-1])
        return pairs

    def join(self, plan: Join) -> pa.Table:
        """By equality of columns, beginning with an input whose rows are here; without these there is no row."""
        first, *left = sorted(plan.inputs, key=_is_table)
        result = self.rows(first)
        pairs = [_equal_columns(part) for part in conjuncts(plan.condition)] if result.num_rows else []
        while left and result.num_rows:
            linked = ((side, _linking(pairs, result.column_names, side.columns)) for side in left)
            side, on = next(((side, on) for side, on in linked if on), (None, {}))
            if side is None:
                raise LeftToSpark
            left.remove(side)
            pairs = [pair for pair in pairs if pair not in map(frozenset, on.items())]
            result = _without_nulls(result, on.values())
            found = self.matching(side, result, on) if result.num_rows else result
            result = _joined(result, self.rows(side) if found is None else found, on)
        if not result.num_rows:
            return self.nothing(plan)
        if pairs or result.num_rows > JOINED_ROWS:
            raise LeftToSpark
        return result.select(list(plan.columns))

    def nothing(self, plan: Plan) -> pa.Table:
        """No rows, of columns without types."""
        import pyarrow as pa

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
    OuterJoin: Driver.outer_join,
    Aggregate: Driver.aggregate,
    Stored: Driver.kept,
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


def appended_at_driver(rows: pa.Table, gone: pa.Table | None, batch: int) -> pa.Table:
    """What a batch appends to a table that keeps the rows of all batches: new rows, and keys that it takes away."""
    import pyarrow as pa

    tagged = []
    for part, is_gone in ((rows, False), (gone, True)):
        if part is None or (is_gone and not part.num_rows):
            continue
        columns = {
            name: part.column(name) if name in part.column_names else pa.nulls(part.num_rows)
            for name in rows.column_names
        }
        columns[BATCH] = pa.repeat(pa.scalar(batch, pa.int64()), part.num_rows)
        tagged.append(pa.table({**columns, GONE: pa.repeat(pa.scalar(is_gone), part.num_rows)}))
    return joined(tagged)


def _is_table(plan: Plan) -> bool:
    """Whether a plan is a table, perhaps under other names, of which rows are found by keys alone."""
    return isinstance(below_renaming(plan), (Scan, Stored))


def _equal_columns(condition: Scalar) -> frozenset[str]:
    """The two columns that a condition equates."""
    if not isinstance(condition, exp.EQ) or not is_column(condition.this) or not is_column(condition.expression):
        raise LeftToSpark
    return frozenset((condition.this.name, condition.expression.name))


def _linking(pairs: Iterable[frozenset[str]], have: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """For columns of one side those of the rows so far that they must be equal to."""
    found: dict[str, str] = {}
    for pair in pairs:
        mine, theirs = pair.intersection(columns), pair.intersection(have)
        if mine and theirs:
            found.setdefault(min(mine), min(theirs))
    return found


def _without_nulls(rows: pa.Table, names: Iterable[str]) -> pa.Table:
    """The rows in which no column is NULL: = is never true of it."""
    from pyarrow import compute

    for name in names:
        if rows.column(name).null_count:
            rows = rows.filter(compute.is_valid(rows.column(name)))
    return rows


def _joined(left: pa.Table, right: pa.Table, on: Mapping[str, str]) -> pa.Table:
    """left ⋈ right, where columns of the right side equal columns of the left one."""
    if not left.num_rows or not right.num_rows:
        return left.slice(0, 0)
    for mine, theirs in on.items():
        if right.schema.field(mine).type != left.schema.field(theirs).type:
            raise LeftToSpark
    return left.join(right, list(on.values()), list(on), "inner", coalesce_keys=False)


def _matching(rows: pa.Table, others: pa.Table, pairs: Sequence[tuple[str, str]], wanted: bool) -> pa.Table:
    """The rows whose values occur together in another table, or those whose values do not; NULL is NULL."""
    import pyarrow as pa

    if not rows.num_rows:
        return rows
    for mine, theirs in pairs:
        if rows.schema.field(mine).type != others.schema.field(theirs).type:
            raise LeftToSpark
    known = set(_tuples(others, [theirs for _, theirs in pairs]))
    found = [(key in known) is wanted for key in _tuples(rows, [mine for mine, _ in pairs])]
    return rows.filter(pa.array(found, pa.bool_()))


def _with_partners(left: pa.Table, right: pa.Table, pairs: Sequence[tuple[str, str]]) -> pa.Table:
    """Every row with each row of another table that has the same values, or with NULLs if none has."""
    import pyarrow as pa

    for mine, theirs in pairs if right.num_rows else ():
        if left.schema.field(mine).type != right.schema.field(theirs).type:
            raise LeftToSpark
    partners: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(_tuples(right, [theirs for _, theirs in pairs])):
        partners.setdefault(key, []).append(row)
    found = [
        (row, partner)
        for row, key in enumerate(_tuples(left, [mine for mine, _ in pairs]))
        for partner in partners.get(key, [None])
    ]
    of_left, of_right = (pa.array(numbers, pa.int64()) for numbers in zip(*found, strict=True))
    columns = {name: left.column(name).take(of_left) for name in left.column_names}
    return pa.table({**columns, **{name: right.column(name).take(of_right) for name in right.column_names}})


def _refuse_many(rows: pa.Table) -> pa.Table:
    if rows.num_rows > LISTED_ROWS:
        raise LeftToSpark
    return rows


def _tuples(rows: pa.Table, names: Sequence[str]) -> zip[tuple[Any, ...]]:
    _refuse_many(rows)
    return zip(*(comparable(rows.column(name)).to_pylist() for name in names), strict=True)
