"""Subqueries as joins: EXISTS and IN become semi and anti joins, scalar subqueries become joins with one row per value.

A subquery that reads columns of the query around it has *free* columns in its plan. Either its conditions on them are
pulled up into the join, or the subquery is computed for all their values at once and joined on those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from deferred.algebra.aggregates.calls import over_nothing
from deferred.algebra.operators import (
    ANTI,
    LEFT,
    SEMI,
    Aggregate,
    Distinct,
    OuterJoin,
    Project,
)
from deferred.algebra.operators.join import product_of
from deferred.algebra.plan import Plan, free, used
from deferred.algebra.scalar import (
    Scalar,
    all_true,
    column,
    columns_of,
    conjunction,
    conjuncts,
    equated_columns,
    substitute,
)
from deferred.algebra.unnest import NewColumn, unnested
from deferred.sql.templates import fill


def semi(plan: Plan, subquery: Plan, condition: Scalar | None, anti: bool, new: NewColumn) -> Plan:
    """plan ⋉ subquery or plan ▷ subquery, on a condition between them."""
    inner, parts = subquery.pulled_up()
    if free(inner) & set(plan.columns):
        inner, links = unnested(plan, subquery, new)
        parts = links
    return OuterJoin(plan, inner, ANTI if anti else SEMI, all_true([*parts, *conjuncts(condition)]))


Exactly = Callable[[str, str], bool]
"""Whether two columns are compared without a conversion that equates different values."""


def scalar(plan: Plan, subquery: Plan, new: NewColumn, exactly: Exactly) -> tuple[Plan, Scalar]:
    """The plan joined with a one-column subquery, one row of it per row of the plan; and the value's expression."""
    (value,) = subquery.columns
    if not free(subquery) & set(plan.columns):
        return product_of(plan, subquery, []), column(value)
    simple = _grouped_by_links(subquery, exactly)
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


@dataclass(frozen=True)
class Member:
    """x IN (subquery) as a value, where the subquery reads no column of the query around it.

    `template` is SQL over `found` (a value equals x) and `unknown` (none does, but x or one of the values is NULL).
    """

    x: Scalar
    type: str
    values: Plan
    template: str


def reads(asked: Plan | Member) -> frozenset[str]:
    """The columns of the query around it that a subquery as a value reads."""
    return columns_of(asked.x) if isinstance(asked, Member) else free(asked)


def member(plan: Plan, asked: Member, new: NewColumn, exactly: Exactly) -> tuple[Plan, Scalar]:
    """The plan joined with the values that its x equals, by an equality; and the value of IN for each row.

    A row must meet one value at most. The values of the subquery, each once, are such values where types agree.
    Otherwise x may equal several of them, 1 both '1' and '01'; then they are those values of x itself that equal any.
    """
    (theirs,) = asked.values.columns
    mine, value, marker = new(asked.type), new(asked.type), new("boolean")
    plan = Project(plan, (*((c, column(c)) for c in plan.columns), (mine, asked.x)))
    if exactly(mine, theirs):
        members: Plan = Distinct(Project(asked.values, ((value, column(theirs)),)))
    else:
        domain = Distinct(Project(plan, ((value, column(mine)),)))
        equal = exp.EQ(this=exp.Paren(this=column(value)), expression=column(theirs))
        members = OuterJoin(domain, asked.values, SEMI, equal)
    marked = Project(members, ((value, column(value)), (marker, exp.true())))
    joined = OuterJoin(plan, marked, LEFT, exp.EQ(this=column(mine), expression=column(value)))
    rows, known = new("bigint"), new("bigint")
    counts = Aggregate(asked.values, (), ((rows, _count(exp.Star())), (known, _count(column(theirs)))))
    found = fill("marker IS NOT NULL", marker=column(marker))
    unknown = fill("rows > 0 AND (x IS NULL OR known < rows)", x=column(mine), rows=column(rows), known=column(known))
    return product_of(joined, counts, []), fill(
        asked.template, found=exp.Paren(this=found), unknown=exp.Paren(this=unknown)
    )


def _count(argument: exp.Expr) -> Scalar:
    return exp.Anonymous(this="COUNT", expressions=[argument])


def lateral(plan: Plan, subquery: Plan, condition: Scalar | None, outer: bool, new: NewColumn) -> Plan:
    """plan joined with a subquery that reads its columns."""
    inner, links = subquery.pulled_up()
    if free(inner) & set(plan.columns):
        inner, links = unnested(plan, subquery, new)
    parts = [*links, *conjuncts(condition)]
    if outer:
        return OuterJoin(plan, inner, LEFT, all_true(parts))
    return product_of(plan, inner, parts)


def _grouped_by_links(subquery: Plan, exactly: Exactly) -> tuple[Plan, list[Scalar], Scalar, Scalar] | None:
    """A correlated aggregate whose free columns occur only in equalities, as a GROUP BY on their inner sides.

    A row must meet one group at most, and across types it may meet several: 1 = '1' and 1 = '01'. So the equalities
    must compare values exactly. Returns the grouped plan, the equalities, the value of a group, and the value where
    there is no group; None for any other subquery, which is computed for all values of its free columns.
    """
    if not isinstance(subquery, Project) or not isinstance(subquery.child, Aggregate) or subquery.child.keys:
        return None
    aggregate = subquery.child
    below, parts = aggregate.child.pulled_up()
    outputs = [e for _, e in (*subquery.outputs, *aggregate.outputs)]
    if free(below) or not parts or used(*outputs) - set(aggregate.columns) - set(below.columns):
        return None
    keys = []
    for part in parts:
        equated = equated_columns(part)
        mine = [c for c in equated or () if c in below.columns]
        if equated is None or not isinstance(part, exp.EQ) or len(mine) != 1 or not exactly(*equated):
            return None
        keys.append(mine[0])
    grouped = Aggregate(below, tuple(dict.fromkeys(keys)), aggregate.outputs)
    ((_, result),) = subquery.outputs
    otherwise = substitute(result, {name: over_nothing(e) for name, e in aggregate.outputs})
    return grouped, parts, result, otherwise
