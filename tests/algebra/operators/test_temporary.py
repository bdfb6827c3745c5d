"""What earlier steps have computed, and what support tables hold."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.notation import notation
from deferred.algebra.operators import Stored, Temporary
from deferred.algebra.paper.evaluate import Table
from deferred.algebra.plan import Keys, Plan
from tests.algebra.operators.cases import same_on_duckdb

KEPT = Table(("x", "y"), Counter({(1, 1): 2, (None, 3): 1, (2, None): 1}))
KEYS = Keys.of(Temporary("step2", ("k",)), [("x", "k")])
TOUCHED = Table(("k",), Counter({(1,): 1, (None,): 3}))


@pytest.mark.parametrize("leaf", [Temporary("step1", ("x", "y")), Stored("support1", ("x", "y"), ())])
def test_they_are_read_as_they_are(leaf: Plan) -> None:
    tables = {notation(leaf): KEPT, "step2": TOUCHED}
    assert same_on_duckdb(leaf, **tables) == KEPT.rows
    at_keys = leaf.restricted(KEYS)
    assert notation(at_keys) == f"{notation(leaf)} ⋉[x] step2"
    assert same_on_duckdb(at_keys, **tables) == Counter({(1, 1): 2, (None, 3): 1})


def test_a_support_table_has_columns_by_name() -> None:
    """A temporary result has those of its step, in their order."""
    assert same_on_duckdb(Stored("support1", ("y",), ()), support1=KEPT) == Counter({(1,): 2, (3,): 1, (None,): 1})
