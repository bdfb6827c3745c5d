"""Binding of generators: LATERAL VIEW explode(…) and a generator as an item of SELECT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.generate import Generate
from deferred.algebra.scalar import column
from deferred.errors import InvalidSQLError, UnsupportedSQLError
from deferred.sql.dialect import text
from deferred.sql.functions import GENERATORS, name_of
from deferred.sql.scope import Field, Scope

if TYPE_CHECKING:
    from deferred.sql.bind import Binder, Relation


def lateral_view(binder: Binder, source: Relation, node: exp.Lateral) -> Relation:
    """FROM … LATERAL VIEW [OUTER] generator(…) t AS a, b."""
    from deferred.sql.bind import Relation

    call = node.this
    alias = node.args.get("alias")
    names = [c.name for c in alias.args.get("columns") or []] if alias is not None else []
    qualifier = (alias.name,) if alias is not None and alias.name else ()
    plan, fields = generated(binder, source, call, names, bool(node.args.get("outer")))
    return Relation(plan, source.scope + Scope(tuple(Field(f.name, f.id, qualifier) for f in fields)))


def expanded(binder: Binder, source: Relation,
             items: Sequence[tuple[str, exp.Expr]]) -> tuple[Relation, list[tuple[str, exp.Expr]]]:
    """SELECT …, explode(…) AS x: the generator below the SELECT, its columns in its place."""
    from deferred.sql.bind import Relation

    result: list[tuple[str, exp.Expr]] = []
    for name, item in items:
        call = item.this if isinstance(item, exp.Aliases) else item
        if name_of(call) not in GENERATORS:
            result.append((name, item))
            continue
        names = [a.name for a in item.args["expressions"]] if isinstance(item, exp.Aliases) else []
        if not names and name != text(item):
            names = [name]
        plan, fields = generated(binder, source, call, names, False)
        source = Relation(plan, source.scope)
        result.extend((f.name, column(f.id)) for f in fields)
    return source, result


def generated(binder: Binder, source: Relation, call: exp.Expr, names: Sequence[str],
              outer: bool) -> tuple[Generate, list[Field]]:
    """A generator over a relation, its output columns named and typed by the engine."""
    kind = name_of(call)
    if kind not in GENERATORS or not isinstance(call, (exp.Anonymous, exp.Func)):
        raise UnsupportedSQLError(f"A table function is not supported in a view: {text(call)[:80]}")
    arguments = [binder.scalar(e, source.scope, "LATERAL VIEW") for e in call.expressions or [call.this]]
    if kind.endswith("_outer"):
        kind, outer = kind.removesuffix("_outer"), True
    resolved = exp.Anonymous(this=kind.upper(), expressions=arguments)
    described = binder.types.generated(resolved, binder.column_types)
    if names and len(names) != len(described):
        raise InvalidSQLError(f"{text(call)[:80]} makes {len(described)} columns, {len(names)} names are given.")
    fields = []
    for position, (default, type_) in enumerate(described):
        fields.append(Field(names[position] if names else default, binder.typed(type_)))
    return Generate(source.plan, resolved, tuple(f.id for f in fields), outer), fields
