"""Values of nested types: what tells two of them apart, and what is left of one with fewer fields, as SQL."""

from __future__ import annotations

import pytest
from sqlglot import exp

from deferred.algebra.nested import extends, identity, narrowed

IDENTITIES = {
    "int": "x",
    "array<string>": "x",
    "double": "CAST(x AS STRING)",
    "array<double>": "TRANSFORM(x, `_deferred_e1` -> CAST(`_deferred_e1` AS STRING))",
    "struct<`a`: double, `b`: int>": "CASE WHEN NOT x IS NULL THEN STRUCT(CAST((x).`a` AS STRING), (x).`b`) END",
    "array<array<float>>": (
        "TRANSFORM(x, `_deferred_e1` -> TRANSFORM(`_deferred_e1`, `_deferred_e2` -> CAST(`_deferred_e2` AS STRING)))"
    ),
}


@pytest.mark.parametrize("type_", IDENTITIES)
def test_what_tells_two_values_apart(type_: str) -> None:
    assert identity(exp.column("x"), type_).sql(dialect="spark") == IDENTITIES[type_]


@pytest.mark.parametrize(
    ("now", "then", "is_extended"),
    [
        ("struct<`a`: int, `b`: int>", "struct<`A`: int>", True),
        ("struct<`a`: int>", "struct<`a`: int, `b`: int>", False),
        ("map<string, struct<`a`: int, `b`: int>>", "map<string, struct<`a`: int>>", True),
        ("map<struct<`a`: int, `b`: int>, int>", "map<struct<`a`: int>, int>", False),  # two keys may become one
        ("array<int>", "int", False),
    ],
)
def test_a_type_with_more_fields(now: str, then: str, is_extended: bool) -> None:
    assert extends(now, then) is is_extended


NARROWED = {
    ("int", "int"): "x",
    ("array<struct<`a`: int, `b`: int>>", "array<struct<`a`: int>>"): (
        "TRANSFORM(x, `_deferred_e1` -> CASE WHEN NOT `_deferred_e1` IS NULL THEN "
        "NAMED_STRUCT('a', (`_deferred_e1`).`a`) END)"
    ),
    ("map<string, struct<`a`: int, `b`: int>>", "map<string, struct<`a`: int>>"): (
        "TRANSFORM_VALUES(x, (`_deferred_e1`, `_deferred_e2`) -> CASE WHEN NOT `_deferred_e2` IS NULL THEN "
        "NAMED_STRUCT('a', (`_deferred_e2`).`a`) END)"
    ),
}


@pytest.mark.parametrize(("now", "then"), NARROWED)
def test_a_value_without_the_fields_that_were_added(now: str, then: str) -> None:
    assert narrowed(exp.column("x"), now, then).sql(dialect="spark") == NARROWED[now, then]
