"""What the rules must know about SQL types; anything else about types is determined by the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Columns = Sequence[tuple[str, str]]
"""The columns of a table or a query in order: (name, type as DDL)."""

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""How many bits the integers of each type have."""

INTEGRAL = frozenset(BITS)
FLOATING = frozenset({"float", "double"})


STRUCT, ARRAY, MAP = "struct", "array", "map"


@dataclass(frozen=True)
class Type:
    """A type as a tree: struct, array or map with the types of its parts, or the name of any other type."""

    kind: str
    parts: tuple[tuple[str, Type], ...] = ()

    def kinds(self) -> Iterator[str]:
        """The kinds of this type and of all types inside it; map as `map<`, as it is written in DDL."""
        yield f"{self.kind}<" if self.parts else self.kind
        for _, part in self.parts:
            yield from part.kinds()


def parsed(type_: str) -> Type:
    """The tree of a type that is written as DDL, with the names of fields quoted.

    >>> parsed("map<string, struct<`a:b`: decimal(10,2)>>").parts[1]
    ('value', Type(kind='struct', parts=(('a:b', Type(kind='decimal(10,2)', parts=())),)))
    """
    kind, bracket, rest = type_.strip().partition("<")
    kind = kind.strip().lower()
    if not bracket or kind not in (STRUCT, ARRAY, MAP):
        return Type(type_.strip())
    inner = _pieces(rest.strip()[:-1], ",")
    if kind == STRUCT:
        fields = [_pieces(piece, ":", once=True) for piece in inner if piece.strip()]
        return Type(kind, tuple((_unquoted(name), parsed(part)) for name, part in fields))
    names = ("element",) if kind == ARRAY else ("key", "value")
    return Type(kind, tuple((name, parsed(piece)) for name, piece in zip(names, inner, strict=True)))


def _pieces(text: str, separator: str, once: bool = False) -> list[str]:
    """A text, split where a separator is outside of quotes and brackets."""
    pieces, depth, in_quotes, start = [], 0, False, 0
    for place, character in enumerate(text):
        if character == "`":
            in_quotes = not in_quotes
        elif in_quotes:
            continue
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == separator and not depth:
            pieces.append(text[start:place])
            start = place + 1
            if once:
                break
    return [*pieces, text[start:]]


def _unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def as_read(type_: str) -> str:
    """The type that the values of a column have: VARCHAR only limits what may be written.

    >>> as_read("varchar(5)"), as_read("char(5)")
    ('string', 'char(5)')
    """
    return "string" if type_.lower().startswith("varchar(") else type_


def is_padded(type_: str) -> bool:
    """Whether Spark pads the values of a type with blanks before it compares them, wherever it sees the column."""
    return type_.lower().startswith("char(")


def compared_exactly(left: str, right: str) -> bool:
    """Whether values of two types are compared without a conversion that loses differences.

    >>> compared_exactly("int", "bigint"), compared_exactly("int", "string")
    (True, False)
    """
    kinds = [kind.lower() for kind in (left, right)]
    return kinds[0] == kinds[1] or all(kind in INTEGRAL for kind in kinds)


def equality_is_coarser(type_: str) -> bool:
    """Whether SQL equates different values of a type.

    It does for floating point (0.0 and −0.0), collated strings, and maps, whose entries have an order that map_keys
    shows.

    >>> equality_is_coarser("array<double>"), equality_is_coarser("bigint")
    (True, False)
    """
    return any(kind in type_.lower() for kind in ("float", "double", "collate", "map<"))


def is_collated(type_: str) -> bool:
    """Whether SQL equates or orders texts of a type, alone or inside another, otherwise than by their bytes.

    >>> is_collated("array<string collate UTF8_LCASE>"), is_collated("string")
    (True, False)
    """
    return "collate" in type_.lower()


def has_no_order(type_: str) -> bool:
    """Whether values of a type have no order, so that there is no maximum of them and no grouping by them.

    >>> has_no_order("map<string, int>"), has_no_order("int")
    (True, False)
    """
    return any(kind in type_.lower() for kind in ("map<", "variant"))


def is_not_stored(type_: str) -> bool:
    """Whether Delta has no such type, alone or inside another: intervals, and that of NULL alone.

    >>> is_not_stored("interval day to second"), is_not_stored("array<void>"), is_not_stored("int")
    (True, True, False)
    """
    return any(kind in type_.lower() for kind in ("interval", "void"))
