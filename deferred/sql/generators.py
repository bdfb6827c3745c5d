"""Binding of generators: LATERAL VIEW explode(…), a generator as an item of SELECT, and one in FROM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.aggregates.calls import name_of
from deferred.algebra.bags import bigint
from deferred.algebra.bags import call as call_
from deferred.algebra.operators import Generate, Values
from deferred.algebra.operators.project import pick
from deferred.algebra.scalar import column
from deferred.errors import InvalidSQLError, UnsupportedSQLError
from deferred.sql.dialect import text
from deferred.sql.functions import GENERATORS
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


def table_function(binder: Binder, call: exp.Expr) -> Relation:
    """FROM explode(…) or FROM range(…): the rows that a generator makes of constants."""
    from deferred.sql.bind import Relation

    if name_of(call) == "range":
        call, names = _sequence(call), ["id"]
    elif name_of(call) in GENERATORS:
        names = []
    else:
        raise UnsupportedSQLError(f"FROM may not contain a table function: {text(call)[:80]}.", at=call)
    one = Values((binder.new_column("int"),), ((exp.Literal.number(1),),))
    plan, fields = generated(binder, Relation(one, Scope(())), call, names, False)
    return Relation(pick(plan, [f.id for f in fields]), Scope(tuple(fields)))


def _sequence(call: exp.Expr) -> exp.Expr:
    """RANGE([start,] end [, step]) as the elements of an array.

    >>> from deferred.sql.dialect import parse_scalar
    >>> text(_sequence(parse_scalar("RANGE(7)")))
    'EXPLODE(SEQUENCE(CAST(0 AS BIGINT), CAST(6 AS BIGINT), CAST(1 AS BIGINT)))'
    """
    arguments = call.expressions if isinstance(call, exp.Anonymous) else list(call.iter_expressions())
    given = [text(argument) for argument in arguments]
    if not 1 <= len(given) <= 3 or not all(number.removeprefix("-").isdigit() for number in given):
        raise UnsupportedSQLError(f"A table function takes only plain numbers in a view: {text(call)[:80]}.", at=call)
    start, end, step = ([0, int(given[0])] if len(given) == 1 else [int(number) for number in given[:2]]) + [
        int(given[2]) if len(given) == 3 else 1
    ]
    if not step:
        raise InvalidSQLError(f"The step of {text(call)[:80]} must not be zero.", at=call)
    numbers = range(start, end, step)
    if numbers:
        return call_("EXPLODE", call_("SEQUENCE", *map(_bigint, (start, numbers[-1], step))))
    nothing = call_("SLICE", call_("ARRAY", _bigint(0)), exp.Literal.number(1), exp.Literal.number(0))
    return call_("EXPLODE", nothing)


def _bigint(value: int) -> exp.Expr:
    """A number as it is written with an L behind it."""
    return bigint(value) if value >= 0 else exp.Neg(this=bigint(-value))


def expanded(
    binder: Binder, source: Relation, items: Sequence[tuple[str, exp.Expr]]
) -> tuple[Relation, list[tuple[str, exp.Expr]]]:
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


def generated(
    binder: Binder, source: Relation, call: exp.Expr, names: Sequence[str], outer: bool
) -> tuple[Generate, list[Field]]:
    """A generator over a relation, its output columns named and typed by the engine."""
    kind = name_of(call)
    if kind not in GENERATORS or not isinstance(call, (exp.Anonymous, exp.Func)):
        raise UnsupportedSQLError(f"A table function is not supported in a view: {text(call)[:80]}.", at=call)
    given = call.expressions or [call.this]
    if not isinstance(given[0], exp.Expr):
        raise InvalidSQLError(f"{text(call)} needs an argument.", at=call)
    arguments = [binder.scalar(e, source.scope, "LATERAL VIEW") for e in given]
    if kind.endswith("_outer"):
        kind, outer = kind.removesuffix("_outer"), True
    resolved = exp.Anonymous(this=kind.upper(), expressions=arguments)
    described = binder.types.generated(resolved, binder.column_types)
    if names and len(names) != len(described):
        raise InvalidSQLError(
            f"{text(call)[:80]} makes {len(described)} columns, but {len(names)} names are given.", at=call
        )
    fields = []
    for position, (default, type_) in enumerate(described):
        fields.append(Field(names[position] if names else default, binder.new_column(type_)))
    return Generate(source.plan, resolved, tuple(f.id for f in fields), outer), fields
