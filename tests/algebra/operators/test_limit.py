"""λ: the first rows are kept; without a last one all rows are."""

from __future__ import annotations

import pytest

from deferred.algebra.operators import Limit
from tests.algebra.operators.cases import OperatorCases, bound, follows_on_reference, scanned


class TestLimit(OperatorCases):
    operator = Limit
    views = {
        "first rows": "SELECT a, b FROM t ORDER BY a, b LIMIT 3",
        "the other way": "SELECT a, b FROM t ORDER BY a DESC NULLS FIRST, b LIMIT 2",
        "after an offset": "SELECT a, b FROM t ORDER BY b, a LIMIT 2 OFFSET 1",
        "more than there are": "SELECT a, b FROM t ORDER BY a, b LIMIT 100",
        "none": "SELECT a FROM t ORDER BY a LIMIT 0",
        "duplicates": "SELECT b FROM t ORDER BY b LIMIT 3",
        "an offset alone": "SELECT a FROM t ORDER BY a OFFSET 2",
        "over a join": "SELECT a, c FROM t JOIN u ON t.b = u.b ORDER BY c, a LIMIT 2",
        "over groups": "SELECT a, COUNT(*) AS n FROM t GROUP BY a ORDER BY n DESC, a LIMIT 2",
        "below a join": "SELECT a, c FROM t JOIN (SELECT b, c FROM u ORDER BY c, b LIMIT 2) AS q ON t.b = q.b",
    }
    correlated = {
        "the first for each value": "SELECT a, (SELECT c FROM u WHERE u.b < t.b ORDER BY c LIMIT 1) AS m FROM t",
        "after an offset, for each value": "SELECT a, x FROM t, LATERAL "
        "(SELECT c AS x FROM u WHERE u.b <= t.b ORDER BY c LIMIT 2 OFFSET 1)",
    }
    notation = {
        "first rows": "λ[a, b; 3](Π[a, b](t))",
        "the other way": "λ[a DESC NULLS FIRST, b; 2](Π[a, b](t))",
        "after an offset": "λ[b, a; 2 after 1](Π[a, b](t))",
        "an offset alone": "λ[a after 2](Π[a](t))",
    }
    reads = {
        "first rows": "kept rows: the changed rows, and the first 3 rows as kept; t only where one of them has gone",
        "after an offset": "kept rows: the changed rows, and the first 3 rows as kept; t only where one of them has gone",
        "an offset alone": "kept values: all kept rows, and no table",
    }
    pushed = {("first rows", "a"): "λ[a, b; 3](Π[a, b](t)) ⋉[a] K"}
    pruned = {("first rows", "b"): "t(a, b)"}
    unique_keys = {"first rows": None}


@pytest.mark.parametrize("clause", ["LIMIT 2", "LIMIT 2 OFFSET 1", "OFFSET 3"])
@pytest.mark.parametrize("order", ["a", "b DESC", "a + b"])
def test_ties_are_broken_by_the_rows_own_values(order: str, clause: str) -> None:
    """An engine may break them otherwise when the author's query runs, so the reference is asked."""
    follows_on_reference(bound(f"SELECT a, b FROM t ORDER BY {order} {clause}"))


def test_the_input_is_read_only_when_a_kept_row_has_gone() -> None:
    assert scanned(TestLimit.views["first rows"], "t") == {"t"}
    assert not scanned(TestLimit.views["first rows"], "t", asked=False)
