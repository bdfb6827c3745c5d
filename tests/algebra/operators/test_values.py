"""φ and {x}: constants, which never change."""

from __future__ import annotations

import pytest

from deferred.algebra.delta import differentiate
from deferred.algebra.notation import notation
from deferred.algebra.operators import Values
from deferred.errors import UnsupportedSQLError
from tests.algebra.operators.cases import OperatorCases, bound, same_on_duckdb


class TestValues(OperatorCases):
    operator = Values
    views = {
        "one row": "SELECT 1 AS x, CAST(NULL AS INT) AS y",
        "rows beside each other row": "SELECT a, x FROM t, VALUES (1), (NULL), (1) AS v(x)",
        "rows beside a table's": "SELECT a FROM t UNION ALL VALUES (1), (1)",
        "an outer row": "SELECT x, a FROM VALUES (1), (7) AS v(x) LEFT JOIN t ON x = a",
    }
    notation = {
        "one row": "Π[1, CAST(NULL AS INT)]({(1)})",
        "rows beside a table's": "Π[a](t) ⊎ Π[c_4]({(CAST(1 AS INT)), (CAST(1 AS INT))})",
    }
    reads = {"one row": "linear: nothing"}
    pushed = {
        ("rows beside each other row", "c_3"): "{(CAST(1 AS INT)), (CAST(NULL AS INT)), (CAST(1 AS INT))} ⋉[c_3] K"
    }
    pruned = {("rows beside each other row", "c_3"): ""}
    unique_keys = {"one row": None}


def test_nothing_is_phi() -> None:
    phi = Values(("x", "y"), ())
    assert notation(phi) == "φ"
    assert not same_on_duckdb(phi)


def test_constants_have_no_delta() -> None:
    assert differentiate(bound("SELECT 1 AS x"), {"t"}).result is None


def test_outer_columns_in_values_are_refused() -> None:
    with pytest.raises(UnsupportedSQLError, match="may not read outer columns in VALUES"):
        bound("SELECT a, (SELECT MAX(x) FROM VALUES (t.b) AS v(x)) AS m FROM t")
