"""Promises about base tables: keys that no two rows share, and references that lead to exactly one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reference:
    """Every row's values of `columns`, unless one is NULL, are those of `key` in one row of another table."""

    columns: tuple[str, ...]
    table: str
    key: tuple[str, ...]


@dataclass(frozen=True)
class Promises:
    """What the owners of base tables have declared: their keys and references, by table."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    references: Mapping[str, tuple[Reference, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, keys: Mapping[str, Iterable[str]], references: Mapping[str, Mapping[str, str]]) -> Promises:
        """From keys, and references as `track` takes them. Names are compared without regard to case.

        Columns that refer to the columns of one key are one reference; one that refers to other columns is none. Where
        several columns refer to each column of a key, the first of each are a reference, the second ones, and so on.

        >>> promises = Promises.of({"customer": ["id"]}, {"sales": {"custId": "Customer.ID", "day": "days.day"}})
        >>> promises.references["sales"]
        (Reference(columns=('custId',), table='customer', key=('id',)),)
        >>> promises = Promises.of({"address": ["id"]}, {"sales": {"ship": "address.id", "bill": "address.id"}})
        >>> [reference.columns for reference in promises.references["sales"]]
        [('ship',), ('bill',)]
        """
        known = {table.casefold(): table for table in keys}
        found: dict[str, list[Reference]] = {}
        for table, columns in references.items():
            for other, by_key in _targets(columns).items():
                key = tuple(keys[known[other]]) if other in known else ()
                if _is_key(key, by_key):
                    each = zip(*(by_key[name.casefold()] for name in key), strict=True)
                    found.setdefault(table, []).extend(Reference(mine, known[other], key) for mine in each)
        return cls({t: tuple(key) for t, key in keys.items() if key}, {t: tuple(r) for t, r in found.items()})

    def refers(self, table: str, columns: Iterable[str], other: str) -> bool:
        """Whether the columns of a table, in the order of the other's key, are a reference to it."""
        given = tuple(name.casefold() for name in columns)
        return any(
            reference.table == other and tuple(name.casefold() for name in reference.columns) == given
            for reference in self.references.get(table, ())
        )


def unused(
    keys: Mapping[str, Iterable[str]], references: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str, str]]:
    """Each declared reference that nothing relies on: (table, table that it leads to, why), by the keys of all tables.

    >>> [why for _, _, why in unused({"item": ["id"]}, {"line": {"item": "item.nr"}})]
    ['line(item) refers to item(nr), but the key of item is (id)']
    >>> [why for _, _, why in unused({"item": ["id"]}, {"line": {"item": "itme.id"}})]
    ['line(item) refers to itme(id), but no table itme is tracked']
    """
    known = {table.casefold(): table for table in keys}
    for table, columns in references.items():
        for other, by_key in _targets(columns).items():
            key = tuple(keys[known[other]]) if other in known else ()
            if _is_key(key, by_key):
                continue
            mine, theirs = ", ".join(name for listed in by_key.values() for name in listed), ", ".join(by_key)
            why = f"no table {other} is tracked" if other not in known else f"{known[other]} is tracked without a key"
            if key:
                why = f"the key of {known[other]} is ({', '.join(key)})"
                if {name.casefold() for name in key} == by_key.keys():
                    why += ", and not each part of it is referred to equally often"
            yield table, other, f"{table}({mine}) refers to {other}({theirs}), but {why}"


def _targets(columns: Mapping[str, str]) -> dict[str, dict[str, list[str]]]:
    """The tables to which columns refer, with those that refer to each of their columns, in order."""
    targets: dict[str, dict[str, list[str]]] = {}
    for column, target in columns.items():
        other, _, theirs = target.rpartition(".")
        targets.setdefault(other.casefold(), {}).setdefault(theirs.casefold(), []).append(column)
    return targets


def _is_key(key: Sequence[str], by_key: Mapping[str, Sequence[str]]) -> bool:
    """Whether columns refer to a whole key, and to each part of it equally often."""
    return bool(key) and {name.casefold() for name in key} == by_key.keys() and len({*map(len, by_key.values())}) == 1
