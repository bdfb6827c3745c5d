"""PIVOT and UNPIVOT, rewritten as the queries that they abbreviate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.errors import UnsupportedSQLError
from deferred.sql.dialect import literal, parse_query, quoted, text

if TYPE_CHECKING:
    from deferred.sql.bind import Binder, Relation

INPUT = "_deferred_pivoted"


def pivoted(binder: Binder, source: Relation, pivot: exp.Pivot, ctes: Mapping[str, Relation]) -> Relation:
    """source PIVOT (…) or source UNPIVOT (…), bound as a query over the source."""
    from deferred.sql.bind import Relation
    from deferred.sql.sources import aliased

    names = [f.name for f in source.scope.visible]
    sql = unpivoting(pivot, names) if pivot.args.get("unpivot") else pivoting(pivot, names)
    result = binder.query(parse_query(sql), {**ctes, INPUT: Relation(source.plan, source.scope.named(()))})
    return Relation(result.plan, aliased(result.scope, pivot.args.get("alias")))


def pivoting(pivot: exp.Pivot, names: Sequence[str]) -> str:
    """PIVOT as two aggregations: one row per group and value, then one column per value.

    A group without rows of a value has NULL there, also for a count.

    >>> found = parse_query("SELECT * FROM t PIVOT (SUM(n) FOR k IN (1 AS one))").find(exp.Pivot)
    >>> above, below = pivoting(found, ["g", "k", "n"]).split(" FROM ", 1)
    >>> above
    'SELECT `g`, MAX(`_a0`) FILTER (WHERE `_k0` <=> 1) AS `one`'
    >>> below
    '(SELECT `g`, k AS `_k0`, SUM(n) AS `_a0` FROM _deferred_pivoted GROUP BY `g`, k) GROUP BY `g`'
    """
    field = _field(pivot)
    axes = list(field.this.expressions) if isinstance(field.this, exp.Tuple) else [field.this]
    calls = [call.this if isinstance(call, exp.Alias) else call for call in pivot.expressions]
    suffixes = [call.alias if isinstance(call, exp.Alias) else None for call in pivot.expressions]
    if len(calls) > 1 and None in suffixes:
        raise UnsupportedSQLError("Several aggregates of PIVOT need names: PIVOT (SUM(a) AS total, COUNT(*) AS n …).")
    mentioned = {c.name.casefold() for part in (*axes, *calls) for c in part.find_all(exp.Column)}
    keys = [quoted(name) for name in names if name.casefold() not in mentioned]
    inner = [
        *keys,
        *(f"{text(axis)} AS `_k{i}`" for i, axis in enumerate(axes)),
        *(f"{text(call)} AS `_a{i}`" for i, call in enumerate(calls)),
    ]
    outer = list(keys)
    for value, name in _values(field):
        tests = " AND ".join(f"`_k{i}` <=> {text(part)}" for i, part in enumerate(value))
        for i, suffix in enumerate(suffixes):
            shown = name if len(calls) == 1 else f"{name}_{suffix}"
            outer.append(f"MAX(`_a{i}`) FILTER (WHERE {tests}) AS {quoted(shown)}")
    below = f"SELECT {', '.join(inner)} FROM {INPUT} GROUP BY {', '.join([*keys, *map(text, axes)])}"
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join(outer)} FROM ({below}){grouping}"


def _values(field: exp.In) -> Iterator[tuple[list[exp.Expr], str]]:
    """The values of PIVOT's IN, each with the name of its column."""
    for item in field.expressions:
        value = item.this if isinstance(item, exp.PivotAlias) else item
        parts = list(value.expressions) if isinstance(value, exp.Tuple) else [value]
        shown = [part.name if isinstance(part, exp.Literal) else text(part) for part in parts]
        default = shown[0] if len(shown) == 1 else "{" + ", ".join(shown) + "}"
        yield parts, item.args["alias"].name if isinstance(item, exp.PivotAlias) else default


def unpivoting(pivot: exp.Pivot, names: Sequence[str]) -> str:
    """UNPIVOT as a UNION ALL, one branch per column; rows whose values are all NULL only with INCLUDE NULLS.

    >>> found = parse_query("SELECT * FROM t UNPIVOT (v FOR k IN (a AS 'x'))").find(exp.Pivot)
    >>> unpivoting(found, ["g", "a"])
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
    kept = [quoted(name) for name in names if name.casefold() not in folded]
    texts = []
    for listed, label in branches:
        outputs = [
            *kept,
            f"{literal(label)} AS {quoted(field.this.name)}",
            *(f"{quoted(c)} AS {quoted(v)}" for c, v in zip(listed, values, strict=True)),
        ]
        nothing = " AND ".join(f"{quoted(c)} IS NULL" for c in listed)
        where = "" if pivot.args.get("include_nulls") else f" WHERE NOT ({nothing})"
        texts.append(f"SELECT {', '.join(outputs)} FROM {INPUT}{where}")
    return " UNION ALL ".join(texts)


def _field(pivot: exp.Pivot) -> exp.In:
    fields = pivot.args.get("fields") or []
    if len(fields) != 1 or not isinstance(fields[0], exp.In) or not fields[0].expressions:
        raise UnsupportedSQLError(f"PIVOT needs its values listed in IN (…): {text(pivot)[:80]}.")
    return fields[0]
