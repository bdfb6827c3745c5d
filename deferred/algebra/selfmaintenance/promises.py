"""Promises about base tables: keys that no two rows share, and references that lead to exactly one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

        Columns that refer to the columns of one key are one reference; one that refers to other columns is none.

        >>> promises = Promises.of({"customer": ["id"]}, {"sales": {"custId": "Customer.ID", "day": "days.day"}})
        >>> promises.references["sales"]
        (Reference(columns=('custId',), table='customer', key=('id',)),)
        """
        known = {table.casefold(): table for table in keys}
        found: dict[str, list[Reference]] = {}
        for table, columns in references.items():
            targets: dict[str, dict[str, str]] = {}
            for column, target in columns.items():
                other, _, theirs = target.rpartition(".")
                targets.setdefault(other.casefold(), {})[theirs.casefold()] = column
            for other, by_key in targets.items():
                key = tuple(keys[known[other]]) if other in known else ()
                if key and {name.casefold() for name in key} == by_key.keys():
                    mine = tuple(by_key[name.casefold()] for name in key)
                    found.setdefault(table, []).append(Reference(mine, known[other], key))
        return cls({t: tuple(key) for t, key in keys.items() if key}, {t: tuple(r) for t, r in found.items()})

    def refers(self, table: str, columns: Iterable[str], other: str) -> bool:
        """Whether the columns of a table, in the order of the other's key, are a reference to it."""
        given = tuple(name.casefold() for name in columns)
        return any(
            reference.table == other and tuple(name.casefold() for name in reference.columns) == given
            for reference in self.references.get(table, ())
        )
