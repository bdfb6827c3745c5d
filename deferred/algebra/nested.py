"""Values of nested types in SQL: what tells two of them apart exactly, and what is left of one with fewer fields."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from sqlglot import exp

from deferred.algebra.types import ARRAY, MAP, STRUCT, Type, equality_is_coarser, parsed

Transformation = Callable[[exp.Expr], exp.Expr]


def identity(value: exp.Expr, type_: str) -> exp.Expr:
    """A value that is equal for two values of a type only if they are the same, to the last bit.

    SQL equates 0.0 and −0.0 and some collated strings, so these are compared as texts; it does not compare maps, so
    these are compared as arrays of their entries, in the order that they have. Everything else stays as it is: the text
    of a whole struct or map would not tell NULL from 'null'.

    >>> print(identity(exp.column("x"), "map<string, double>").sql(dialect="spark"))
    TRANSFORM(MAP_ENTRIES(x), `_deferred_e1` -> STRUCT((`_deferred_e1`).`key`, \
CAST((`_deferred_e1`).`value` AS STRING)))
    """
    return _identity(value, parsed(type_), count(1))


def _identity(value: exp.Expr, type_: Type, numbers: count[int]) -> exp.Expr:
    if not any(equality_is_coarser(kind) for kind in type_.kinds()):
        return value.copy()
    if type_.kind == STRUCT:
        fields = [_identity(_field(value, name), part, numbers) for name, part in type_.parts]
        return _unless_null(value, _call("STRUCT", *fields))
    if type_.kind == ARRAY:
        return _transformed(value, numbers, lambda element: _identity(element, type_.parts[0][1], numbers))
    if type_.kind == MAP:
        entry = Type(STRUCT, type_.parts)
        parts = entry.parts

        def both(element: exp.Expr) -> exp.Expr:
            return _call("STRUCT", *(_identity(_field(element, name), part, numbers) for name, part in parts))

        return _transformed(_call("MAP_ENTRIES", value.copy()), numbers, both)
    return exp.Cast(this=value.copy(), to=exp.DataType.build("STRING", dialect="spark"))


def extends(now: str, then: str) -> bool:
    """Whether a type is another one, or has become so by fields that were added to structs in it.

    >>> extends("array<struct<`a`: int, `b`: int>>", "array<struct<`a`: int>>"), extends("bigint", "int")
    (True, False)
    """
    return _extends(parsed(now), parsed(then))


def _extends(now: Type, then: Type) -> bool:
    if now.kind != then.kind:
        return False
    if now.kind == MAP and now.parts[0] != then.parts[0]:
        return False  # with fewer fields two keys may become one
    fields = {name.casefold(): part for name, part in now.parts}
    return all(name.casefold() in fields and _extends(fields[name.casefold()], part) for name, part in then.parts)


def narrowed(value: exp.Expr, now: str, then: str) -> exp.Expr:
    """A value of a type without the fields that its structs did not have then.

    >>> print(narrowed(exp.column("s"), "struct<`a`: int, `b`: int>", "struct<`a`: int>").sql(dialect="spark"))
    CASE WHEN NOT s IS NULL THEN NAMED_STRUCT('a', (s).`a`) END
    """
    return _narrowed(value, parsed(now), parsed(then), count(1))


def _narrowed(value: exp.Expr, now: Type, then: Type, numbers: count[int]) -> exp.Expr:
    if now == then:
        return value.copy()
    if now.kind == STRUCT:
        fields = {name.casefold(): (name, part) for name, part in now.parts}
        arguments: list[exp.Expr] = []
        for name, part in then.parts:
            held, type_ = fields[name.casefold()]
            arguments += [exp.Literal.string(name), _narrowed(_field(value, held), type_, part, numbers)]
        return _unless_null(value, _call("NAMED_STRUCT", *arguments))
    if now.kind == ARRAY:
        pair = now.parts[0][1], then.parts[0][1]
        return _transformed(value, numbers, lambda element: _narrowed(element, *pair, numbers))
    variables = [exp.to_identifier(f"_deferred_e{next(numbers)}", quoted=True) for _ in range(2)]
    body = _narrowed(variables[1].copy(), now.parts[1][1], then.parts[1][1], numbers)
    return _call("TRANSFORM_VALUES", value.copy(), exp.Lambda(this=body, expressions=variables))


def _transformed(array: exp.Expr, numbers: count[int], function: Transformation) -> exp.Expr:
    variable = exp.to_identifier(f"_deferred_e{next(numbers)}", quoted=True)
    body = function(variable.copy())
    return exp.Transform(this=array.copy(), expression=exp.Lambda(this=body, expressions=[variable]))


def _field(value: exp.Expr, name: str) -> exp.Expr:
    # In parentheses, so that no table of the name of a column is meant.
    return exp.Dot(this=exp.Paren(this=value.copy()), expression=exp.to_identifier(name, quoted=True))


def _unless_null(value: exp.Expr, result: exp.Expr) -> exp.Expr:
    present = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
    return exp.Case(ifs=[exp.If(this=present, true=result)])


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))
