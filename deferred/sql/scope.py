"""Names in scope: which column a name in the SQL text means, as Spark resolves it.

A name may be a column of FROM or the alias of an item of SELECT, and both may have the same name:

| where the name is used | first | then |
|---|---|---|
| ON, WHERE, inside an aggregate or a window | a column of FROM | a column of the query around it |
| SELECT | a column of FROM | an alias further left, then a column of the query around it |
| GROUP BY | a column of FROM | the first item with this alias |
| HAVING | a column of FROM that is grouped | an alias |
| QUALIFY | a column of FROM | an alias |
| ORDER BY, alone or inside an expression | an alias | a column of FROM |
| ORDER BY after DISTINCT or a set operation | a column of the result | – |

A name with its table, t.a, is never an alias. A dotted name may be a field of a struct: of a column, or of an alias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from deferred.algebra.scalar import Scalar, column
from deferred.algebra.types import STRUCT, Type, parsed
from deferred.errors import InvalidSQLError, UnknownObjectError, UnsupportedSQLError, located, nearest
from deferred.sql.dialect import WRITTEN, text


@dataclass(frozen=True)
class Field:
    """A column that a FROM clause offers: its name, its id in the plan, and the names of its table."""

    name: str
    id: str
    qualifier: tuple[str, ...] = ()
    hidden: bool = False  # reachable by its qualified name only: the second column of a USING pair

    def matches(self, qualifier: Sequence[str], name: str) -> bool:
        """Whether a name in the text, with or without its table's name, means this column."""
        if self.name.casefold() != name.casefold():
            return False
        if not qualifier:
            return not self.hidden
        mine = [part.casefold() for part in self.qualifier]
        return [part.casefold() for part in qualifier] == mine[len(mine) - len(qualifier) :]


@dataclass(frozen=True)
class Scope:
    """The columns of a FROM clause, in the order of `*`."""

    fields: tuple[Field, ...]

    def __add__(self, other: Scope) -> Scope:
        return Scope(self.fields + other.fields)

    @property
    def visible(self) -> tuple[Field, ...]:
        return tuple(f for f in self.fields if not f.hidden)

    def named(self, qualifier: tuple[str, ...], names: Sequence[str] | None = None) -> Scope:
        """The same columns under an alias, and under other names where the alias lists them."""
        fields = self.visible
        if names:
            if len(names) != len(fields):
                what = ".".join(qualifier)
                raise InvalidSQLError(f"{what} lists {len(names)} column names for {len(fields)} columns.")
            fields = tuple(replace(f, name=n) for f, n in zip(fields, names, strict=True))
        return Scope(tuple(replace(f, qualifier=qualifier) for f in fields))

    def star(self, qualifier: Sequence[str], types: Mapping[str, str]) -> list[tuple[str, Scalar]]:
        """The columns of `*` or of `t.*`, or the fields of a struct `s.*`, by their names."""
        columns = self.visible if not qualifier else [f for f in self.fields if f.matches(qualifier, f.name)]
        found: list[tuple[str, Scalar]] = [(f.name, column(f.id)) for f in columns]
        if not found and (struct := self.find(qualifier)) is not None:
            field, path = struct
            type_ = parsed(types[field.id])
            for step in path:
                type_ = next((part for name, part in type_.parts if name.casefold() == step.casefold()), Type("none"))
            fields = type_.parts if type_.kind == STRUCT else ()
            found = [(name, field_of(column(field.id), [*path, name])) for name, _ in fields]
        if qualifier and not found:
            tables = {".".join(f.qualifier) for f in self.fields}
            wanted = ".".join(qualifier)
            raise UnknownObjectError(f"{wanted}.*: FROM has no table {wanted}{nearest(wanted, tables)}")
        return found

    def find(self, parts: Sequence[str]) -> tuple[Field, Sequence[str]] | None:
        """The column that a dotted name means, and the struct fields that follow it in the name.

        A longer table name wins over a shorter one, and a table's name over a column's, as in Spark.
        """
        for length in range(min(len(parts) - 1, 3), -1, -1):
            found = [f for f in self.fields if f.matches(parts[:length], parts[length])]
            if len({f.id for f in found}) > 1:
                tables = sorted({".".join(f.qualifier) or "a subquery" for f in found})
                if len(tables) == 1:
                    raise InvalidSQLError(
                        f"Column {'.'.join(parts)} is ambiguous: {tables[0]} stands for more than one column of that "
                        f"name. Give every table of FROM an alias of its own, and every column of {tables[0]} a name."
                    )
                raise InvalidSQLError(
                    f"Column {'.'.join(parts)} is ambiguous: it is in {' and '.join(tables)}. "
                    f"Write it with its table, as in {tables[0]}.{parts[length]}."
                )
            if found:
                return found[0], parts[length + 1 :]
        return None

    def resolve(self, node: exp.Column) -> exp.Expr | None:
        """The plan's expression for a column of the text, None where no table has it."""
        with located(node):
            found = self.find([part.name for part in node.parts])
        if found is None:
            return None
        field, path = found
        meant = column(field.id)
        meant.meta.update(node.parts[-1].meta)  # so that a later error can still show the place in the text, …
        meant.meta[WRITTEN] = text(node)  # … and the name that it has there
        return field_of(meant, path)

    def unknown(self, node: exp.Column) -> UnknownObjectError:
        names = {f.name for f in self.fields}
        hint = nearest(node.parts[-1].name, names)
        return UnknownObjectError(f"The tables of FROM have no column {text(node)}{hint}", at=node)


Aliases = Mapping[str, Sequence[Scalar]]
"""What each alias of a SELECT list means, by its name in lower case: more than one where items share it."""


def alias_of(node: exp.Column, aliases: Aliases) -> Scalar | None:
    """The expression that a name means as an alias, or as a field of one; None where no item has it."""
    first, *path = [part.name for part in node.parts]
    found = aliases.get(first.casefold(), ())
    if not found:
        return None
    if any(other != found[0] for other in found):
        raise UnsupportedSQLError(f"{text(node)} is ambiguous: several items of SELECT have this name.", at=node)
    value = found[0] if isinstance(found[0], (exp.Column, exp.Literal)) else exp.Paren(this=found[0].copy())
    return field_of(value, path)


def field_of(value: Scalar, path: Sequence[str]) -> Scalar:
    """A field of a struct, of a struct in it, and so on."""
    for name in path:
        value = exp.Dot(this=value, expression=exp.to_identifier(name, quoted=True))
    return value
