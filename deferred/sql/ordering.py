"""Binding of ORDER BY: its keys as columns of the result, visible or hidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.aggregates.calls import is_aggregate
from deferred.algebra.operators import Project
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Scalar, column, is_bound, rewrite
from deferred.errors import InvalidSQLError, UnsupportedSQLError
from deferred.sql.dialect import text
from deferred.sql.scope import Aliases, Field, Scope, alias_of

if TYPE_CHECKING:
    from deferred.sql.bind import Binder, Relation

Items = Sequence[tuple[str, exp.Expr]]
"""The outputs of a query: (name, expression as written)."""

HIDDEN = ""
"""The name of an item that only ORDER BY reads."""


def keys_of(node: exp.Expr, items: Items) -> list[exp.Ordered]:
    """The keys of ORDER BY; ORDER BY ALL has one key per output."""
    clause = node.args.get("order")
    if clause is None:
        return []
    keys = list(clause.expressions)
    alone = keys[0].this if len(keys) == 1 else None
    if alone is not None and text(alone).casefold() == "all" and all(name.casefold() != "all" for name, _ in items):
        return [_with(keys[0], exp.Literal.number(i + 1)) for i in range(len(items))]
    return keys


def position(key: exp.Expr, items: Items) -> int | None:
    """The place of the output that an ORDER BY key is: by number, by name, or written as the item is.

    An expression in which a name now means the alias of another item is not the one that the item has:
    SELECT -a AS a … ORDER BY -a orders by the source's a.
    """
    if isinstance(key, exp.Literal) and key.is_int:
        return int(key.this) - 1
    if isinstance(key, exp.Column) and len(key.parts) == 1:
        places = [i for i, (name, _) in enumerate(items) if name.casefold() == key.name.casefold()]
        if len({items[i][1] for i in places}) > 1:
            raise UnsupportedSQLError(
                f"ORDER BY {text(key)} is ambiguous: several items of SELECT have this name.", at=key
            )
        if places:
            return places[0]
    if any(_names_alias(part, items) for part in key.find_all(exp.Column)):
        return None
    return next((i for i, (_, e) in enumerate(items) if e == key), None)


def _names_alias(part: exp.Column, items: Items) -> bool:
    """Whether a name is that of an item which is not the column itself."""
    if is_bound(part):
        return False
    named = [e for name, e in items if name.casefold() == part.parts[0].name.casefold()]
    return any(not isinstance(e, exp.Column) or e.name.casefold() != part.parts[0].name.casefold() for e in named)


def with_aliases(key: exp.Expr, aliases: Aliases) -> exp.Expr:
    """An ORDER BY key in which every name that is an alias is replaced by what it means.

    Inside an aggregate, and inside a subquery, names are those of FROM.
    """

    def replace(part: Scalar) -> Scalar | None:
        if isinstance(part, exp.Query) or is_aggregate(part):
            return part
        return alias_of(part, aliases) if isinstance(part, exp.Column) and not is_bound(part) else None

    return rewrite(key, replace)


def ordered(keys: Sequence[exp.Ordered], items: Items, ids: Sequence[str]) -> list[exp.Ordered]:
    """ORDER BY keys as columns of a result whose hidden columns follow the visible ones, in the order of the keys."""
    extra = iter(range(len(items), len(ids)))
    return [_with(key, column(ids[_place(key, items, extra)])) for key in keys]


def over_outputs(
    binder: Binder, result: Relation, keys: Sequence[exp.Ordered], items: Items
) -> tuple[Plan, list[exp.Ordered]]:
    """ORDER BY keys over the columns of a result, which are all that they can read; computed ones are added to it."""
    fields = result.scope.visible
    scope = Scope(tuple(Field(f.name, f.id) for f in fields))
    computed = [binder.scalar(key.this, scope, "ORDER BY") for key in keys if position(key.this, items) is None]
    types = binder.types.of(computed, binder.column_types)
    extra = [(binder.new_column(type_), e) for type_, e in zip(types, computed, strict=True)]
    visible = [f.id for f in fields]
    plan = result.plan
    if extra:
        plan = Project(plan, (*((i, column(i)) for i in visible), *extra))
    return plan, ordered(keys, items, [*visible, *(name for name, _ in extra)])


def _place(key: exp.Ordered, items: Items, extra: Iterator[int]) -> int:
    found = position(key.this, items)
    if found is None:
        return next(extra)
    if not 0 <= found < len(items):
        raise InvalidSQLError(f"ORDER BY {text(key.this)}: the result has {len(items)} columns.", at=key.this)
    return found


def _with(key: exp.Ordered, value: exp.Expr) -> exp.Ordered:
    result = key.copy()
    result.set("this", value)
    return result
