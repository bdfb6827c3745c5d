"""A case: a view over tables, their rows, and a history of changes; and what random ones are drawn from."""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

Row = tuple[Any, ...]
Schema = tuple[tuple[str, str], ...]

INT, STRING, DECIMAL, DATE, BOOLEAN, DOUBLE = "int", "string", "decimal(10,2)", "date", "boolean", "double"

NUMERAL = "STRING"
"""Texts that are numbers, which are compared with numbers: '1' and '01' are both 1. The same type as STRING to SQL."""

COLUMNS = {
    "a": INT,
    "b": INT,
    "c": INT,
    "s": STRING,
    "r": STRING,
    "p": DECIMAL,
    "d": DATE,
    "f": BOOLEAN,
    "z": NUMERAL,
}
"""The names that tables draw their columns from. A name has one type, so NATURAL and USING joins always fit."""

DOMAINS: dict[str, list[Any]] = {
    INT: [None, 0, 1, 2, 3],
    STRING: [None, "", "x", "y", "xy"],
    DECIMAL: [None, Decimal("0.00"), Decimal("1.50"), Decimal("2.25"), Decimal("-1.00")],
    DATE: [None, datetime.date(2024, 2, 29), datetime.date(2024, 3, 1), datetime.date(2023, 12, 31)],
    BOOLEAN: [None, True, False],
    NUMERAL: [None, "1", "01", "2", "002", "0"],
}
"""Few values, so that rows repeat, keys meet, and groups appear and vanish."""

FAMILIES = {
    "joins": (
        "inner join",
        "cross join",
        "comma join",
        "left join",
        "right join",
        "full join",
        "semi join",
        "anti join",
        "natural join",
        "join using",
        "theta join",
        "self-join",
        "join chain",
        "lateral join",
        "left lateral join",
        "null-safe join",
        "expression as join key",
        "unlike types compared",
    ),
    "subqueries": (
        "exists",
        "not exists",
        "in",
        "not in",
        "correlated",
        "uncorrelated",
        "subquery under or",
        "scalar subquery in select",
        "scalar subquery in where",
        "scalar subquery in having",
        "in subquery in having",
        "limit in subquery",
        "nested correlation",
    ),
    "aggregates": (
        "count(*)",
        "count",
        "count(distinct)",
        "sum",
        "sum(distinct)",
        "avg",
        "avg(distinct)",
        "min",
        "max",
        "bool_and",
        "bool_or",
        "bit_and",
        "bit_or",
        "bit_xor",
        "median",
        "filter",
        "subquery in aggregate",
        "having",
        "group by expression",
        "group by ordinal",
        "group by alias",
        "group by all",
        "rollup",
        "cube",
        "grouping sets",
        "grouping()",
        "global aggregate",
        "aggregate of aggregate",
        "aggregate over outer join",
        "aggregate over semi or anti join",
    ),
    "windows": (
        "row_number",
        "rank",
        "dense_rank",
        "ntile",
        "lag",
        "lead",
        "first_value",
        "last_value",
        "nth_value",
        "percent_rank",
        "cume_dist",
        "range of values",
        "framed sum",
        "running sum",
        "whole partition",
        "several windows",
        "window without partition",
        "named window",
        "window over aggregate",
        "window without partition over aggregate",
        "share of total",
        "qualify",
        "top-k a group",
    ),
    "order and limit": ("limit", "offset", "offset without limit", "order by hidden column", "plain order by"),
    "sets": (
        "union",
        "union all",
        "except",
        "except all",
        "intersect",
        "intersect all",
        "nested set operation",
        "distinct",
        "values",
        "no from",
    ),
    "rows to rows": (
        "case",
        "coalesce",
        "cast",
        "nullif",
        "arithmetic",
        "string function",
        "between",
        "in list",
        "like",
        "like with escape",
        "conditions compared",
        "is null",
        "three-valued or",
        "not",
        "date part",
        "interval",
        "if",
    ),
    "structure": (
        "bare names",
        "alias that shadows a column",
        "lateral alias",
        "cte",
        "cte used twice",
        "derived table",
        "table alias with columns",
        "same table many times",
    ),
    "changes": (
        "insert",
        "delete",
        "update",
        "delete everything",
        "inserted and deleted",
        "all tables at once",
        "empty table",
        "no change in a logged table",
        "many copies",
    ),
}
"""Every construct, by family: each must occur in a long enough run."""


@dataclass(frozen=True)
class Change:
    """What one step does to one table: rows deleted, rows inserted, both as they come, not netted."""

    deleted: tuple[Row, ...]
    inserted: tuple[Row, ...]


@dataclass(frozen=True)
class Case:
    """A view over tables with a history: each step changes some of the tables."""

    schemas: dict[str, Schema]
    query: str
    initial: dict[str, tuple[Row, ...]]
    steps: tuple[dict[str, Change], ...]
    seed: int = 0
    maintain: str = "auto"

    @property
    def final(self) -> dict[str, tuple[Row, ...]]:
        """The rows after all steps."""
        state = {name: Counter(rows) for name, rows in self.initial.items()}
        for step in self.steps:
            for name, change in step.items():
                state[name] = state[name] - Counter(change.deleted) + Counter(change.inserted)
        return {name: tuple(rows.elements()) for name, rows in state.items()}


def random_schemas(seed: int) -> dict[str, Schema]:
    """Three or four tables; every one has a number, and neighbours share columns by name."""
    random = Random(seed)
    schemas: dict[str, Schema] = {}
    for name in ("t", "u", "v", "w")[: random.choice((3, 3, 4))]:
        chosen = {random.choice("abc"), *random.sample(sorted(COLUMNS), random.choice((1, 2, 3)))}
        schemas[name] = tuple((column, COLUMNS[column]) for column in sorted(chosen))
    return schemas
