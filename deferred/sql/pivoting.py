"""PIVOT and UNPIVOT, rewritten as the queries that they abbreviate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.bags import call, column, union_all
from deferred.algebra.scalar import all_true, same
from deferred.errors import UnsupportedSQLError
from deferred.sql.dialect import text

if TYPE_CHECKING:
    from deferred.sql.bind import Binder, Relation

INPUT = "_deferred_pivoted"


def pivoted(binder: Binder, source: Relation, pivot: exp.Pivot, ctes: Mapping[str, Relation]) -> Relation:
    """source PIVOT (…) or source UNPIVOT (…), bound as a query over the source."""
    from deferred.sql.bind import Relation
    from deferred.sql.from_clause import aliased

    names = [f.name for f in source.scope.visible]
    query = unpivoting(pivot, names) if pivot.args.get("unpivot") else pivoting(pivot, names)
    result = binder.query(query, {**ctes, INPUT: Relation(source.plan, source.scope.named(()))})
    return Relation(result.plan, aliased(result.scope, pivot.args.get("alias")))


def pivoting(pivot: exp.Pivot, names: Sequence[str]) -> exp.Query:
    """PIVOT as two aggregations: one row per group and value, then one column per value.

    A group without rows of a value has NULL there, also for a count.

    >>> from deferred.sql.dialect import parse_query
    >>> found = parse_query("SELECT * FROM t PIVOT (SUM(n) FOR k IN (1 AS one))").find(exp.Pivot)
    >>> above, below = text(pivoting(found, ["g", "k", "n"])).split(" FROM (")
    >>> above
    'SELECT `g`, MAX(`_a0`) FILTER(WHERE `_k0` IS NOT DISTINCT FROM 1) AS `one`'
    >>> below
    'SELECT `g`, k AS `_k0`, SUM(n) AS `_a0` FROM _deferred_pivoted GROUP BY `g`, k) GROUP BY `g`'
    """
    field = _field(pivot)
    axes = list(field.this.expressions) if isinstance(field.this, exp.Tuple) else [field.this]
    calls = [made.this if isinstance(made, exp.Alias) else made for made in pivot.expressions]
    suffixes = [made.alias if isinstance(made, exp.Alias) else None for made in pivot.expressions]
    if len(calls) > 1 and None in suffixes:
        raise UnsupportedSQLError(
            "Several aggregates of PIVOT need names: PIVOT (SUM(a) AS total, COUNT(*) AS n …).", at=pivot
        )
    mentioned = {c.name.casefold() for part in (*axes, *calls) for c in part.find_all(exp.Column)}
    keys = [name for name in names if name.casefold() not in mentioned]
    below = exp.Select(
        expressions=[
            *map(column, keys),
            *(_named(axis.copy(), f"_k{i}") for i, axis in enumerate(axes)),
            *(_named(made.copy(), f"_a{i}") for i, made in enumerate(calls)),
        ],
        from_=_input(),
        group=exp.Group(expressions=[*map(column, keys), *(axis.copy() for axis in axes)]),
    )
    outputs: list[exp.Expr] = [*map(column, keys)]
    for value, name in _values(field):
        for i, suffix in enumerate(suffixes):
            is_value = (same(column(f"_k{k}"), part.copy()) for k, part in enumerate(value))
            of_value = exp.Filter(this=call("MAX", column(f"_a{i}")), expression=exp.Where(this=all_true(is_value)))
            outputs.append(_named(of_value, name if len(calls) == 1 else f"{name}_{suffix}"))
    result = exp.Select(expressions=outputs, from_=exp.From(this=exp.Subquery(this=below)))
    if keys:
        result.set("group", exp.Group(expressions=[*map(column, keys)]))
    return result


def _values(field: exp.In) -> Iterator[tuple[list[exp.Expr], str]]:
    """The values of PIVOT's IN, each with the name of its column."""
    for item in field.expressions:
        value = item.this if isinstance(item, exp.PivotAlias) else item
        parts = list(value.expressions) if isinstance(value, exp.Tuple) else [value]
        names = [part.name if isinstance(part, exp.Literal) else text(part) for part in parts]
        default = names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"
        yield parts, item.args["alias"].name if isinstance(item, exp.PivotAlias) else default


def unpivoting(pivot: exp.Pivot, names: Sequence[str]) -> exp.Query:
    """UNPIVOT as a UNION ALL, one branch per column; rows whose values are all NULL only with INCLUDE NULLS.

    >>> from deferred.sql.dialect import parse_query
    >>> found = parse_query("SELECT * FROM t UNPIVOT (v FOR k IN (a AS 'x'))").find(exp.Pivot)
    >>> text(unpivoting(found, ["g", "a"]))
    "SELECT `g`, 'x' AS `k`, `a` AS `v` FROM _deferred_pivoted WHERE NOT (`a` IS NULL)"
    """
    field = _field(pivot)
    (made,) = pivot.expressions
    values = [e.name for e in made.expressions] if isinstance(made, exp.Tuple) else [made.name]
    branches = []
    folded: set[str] = set()
    for item in field.expressions:
        columns = item.this if isinstance(item, exp.PivotAlias) else item
        listed = [c.name for c in (columns.expressions if isinstance(columns, exp.Tuple) else [columns])]
        folded.update(name.casefold() for name in listed)
        branches.append((listed, item.args["alias"].name if isinstance(item, exp.PivotAlias) else "_".join(listed)))
    others = [name for name in names if name.casefold() not in folded]
    queries = []
    for listed, label in branches:
        outputs = [
            *map(column, others),
            _named(exp.Literal.string(label), field.this.name),
            *(_named(column(c), v) for c, v in zip(listed, values, strict=True)),
        ]
        query = exp.Select(expressions=outputs, from_=_input())
        if not pivot.args.get("include_nulls"):
            all_null = all_true(exp.Is(this=column(c), expression=exp.Null()) for c in listed)
            query.where(exp.Not(this=exp.Paren(this=all_null)), copy=False)
        queries.append(query)
    return union_all(queries)


def _input() -> exp.From:
    return exp.From(this=exp.Table(this=exp.to_identifier(INPUT)))


def _named(expression: exp.Expr, name: str) -> exp.Expr:
    return exp.alias_(expression, exp.to_identifier(name, quoted=True), copy=False)


def _field(pivot: exp.Pivot) -> exp.In:
    fields = pivot.args.get("fields") or []
    if len(fields) != 1 or not isinstance(fields[0], exp.In) or not fields[0].expressions:
        raise UnsupportedSQLError(f"PIVOT needs its values listed in IN (…): {text(pivot)[:80]}.", at=pivot)
    return fields[0]
