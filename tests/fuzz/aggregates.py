"""The aggregates that random views draw from: all of the registry that DuckDB computes as well, to the last bit."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import duckdb

from deferred.algebra.aggregates.registry import REGISTRY, AggregateFunction, RowOrder, WindowOrder
from tests.fuzz.case import BOOLEAN, DATE, DECIMAL, INT, STRING
from tests.fuzz.duck import translated

ANYTHING, NUMBERS = (INT, STRING, DECIMAL, DATE), (INT, DECIMAL)
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "count": (*ANYTHING, BOOLEAN),
    "count_if": (),  # NULL over no rows in DuckDB, 0 in Spark
    "sum": NUMBERS,
    "try_sum": (),
    "avg": (INT,),
    "try_avg": (),
    "min": ANYTHING,
    "max": ANYTHING,
    "bool_and": (BOOLEAN,),
    "bool_or": (BOOLEAN,),
    "bit_and": (INT,),
    "bit_or": (INT,),
    "bit_xor": (INT,),
    "median": (INT,),
}
"""The types of a function's argument, which Spark and DuckDB agree about; none where DuckDB has no such function."""


def exact() -> set[str]:
    """The functions of one argument that give the same value in whatever order two engines take the rows."""
    found = {function for function in REGISTRY.values() if isinstance(function, AggregateFunction)}
    return {
        function.names[0]
        for function in found
        if 1 in function.arity
        and function.row_order is RowOrder.UNSEEN
        and function.window_order is not WindowOrder.ONE
        and function.reference is not None
    }


@functools.cache
def calls() -> Mapping[str, list[tuple[str, str]]]:
    """Type of a result → the functions that have it, each with the type of its argument."""
    found: dict[str, list[tuple[str, str]]] = {}
    with duckdb.connect() as connection:
        for name, types in ARGUMENTS.items():
            for type_ in types:
                described = f"DESCRIBE {translated(f'SELECT {name}(CAST(NULL AS {type_})) AS x')}"
                result = _family(connection.execute(described).fetchall()[0][1])
                found.setdefault(result, []).append((name, type_))
    return found


def _family(type_: str) -> str:
    """The type of the generator that a type of DuckDB's belongs to: integers and decimals of any width are one."""
    if type_ in ("INTEGER", "BIGINT", "HUGEINT"):
        return INT
    return DECIMAL if type_.startswith("DECIMAL") else {"VARCHAR": STRING}.get(type_, type_.lower())
