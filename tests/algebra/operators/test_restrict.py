"""E ⋉ K: null-safe, and with the multiplicities of E."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.notation import notation
from deferred.algebra.operators import Restrict, Scan, Values
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.scalar import column
from deferred.sql.dialect import parse_scalar
from tests.algebra.operators.cases import same_on_duckdb

T, U = Scan("t", ("a", "b"), ("a", "b")), Scan("u", ("b", "c"), ("x", "y"))
NOTHING = Values(("x",), ())

RESTRICTED: dict[str, tuple[Plan, dict[tuple[int | None, ...], int]]] = {
    "t ⋉[a] u": (Restrict(T, Keys.of(U, [("a", "x")])), {(1, 1): 2, (1, 2): 1, (2, 2): 1, (None, 3): 1, (3, None): 1}),
    "t ⋉[a, t.b] u": (Restrict(T, Keys.of(U, [("a", "x"), ("b", "y")])), {(1, 1): 2, (None, 3): 1, (3, None): 1}),
    "t ⋉[a + t.b] u": (
        Restrict(T, Keys(U, ((parse_scalar("a + b"), column("x")),))),
        {(1, 1): 2, (1, 2): 1, (None, 3): 1, (3, None): 1},
    ),
    "t ⋉[a] φ": (Restrict(T, Keys.of(NOTHING, [("a", "x")])), {}),
    "t ⋉[a] t": (Restrict(T, Keys.same(T, ["a"])), {(1, 1): 2, (1, 2): 1, (2, 2): 1, (None, 3): 1, (3, None): 1}),
}


@pytest.mark.parametrize("written", RESTRICTED)
def test_it_keeps_the_rows_whose_key_occurs(written: str) -> None:
    plan, expected = RESTRICTED[written]
    assert notation(plan) == written
    assert same_on_duckdb(plan) == Counter(expected)


def test_restricted_again_it_holds_both_keys() -> None:
    plan = Restrict(T, Keys.of(U, [("a", "x")])).restricted(Keys.of(U, [("b", "y")]))
    assert same_on_duckdb(plan) == Counter({(1, 1): 2, (None, 3): 1, (3, None): 1})
