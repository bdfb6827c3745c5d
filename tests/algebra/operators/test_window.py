"""ω: decided within the touched partitions."""

from __future__ import annotations

import pytest

from deferred.algebra.operators import Window
from tests.algebra.operators.cases import OperatorCases, bound, follows_on_reference

OVER = "SELECT a, b, {} AS x FROM t"


class TestWindow(OperatorCases):
    operator = Window
    views = {
        "numbered": OVER.format("ROW_NUMBER() OVER (PARTITION BY a ORDER BY b)"),
        "ranks with ties": OVER.format("RANK() OVER (PARTITION BY a ORDER BY b DESC)"),
        "the row before": OVER.format("LAG(b) OVER (PARTITION BY a ORDER BY b)"),
        "a running sum": OVER.format("SUM(b) OVER (PARTITION BY a ORDER BY b)"),
        "a frame": OVER.format("MAX(b) OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"),
        "a whole partition": OVER.format("COUNT(*) OVER (PARTITION BY b)"),
        "one partition": OVER.format("COUNT(*) OVER ()"),
        "one partition of groups": "SELECT a, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM t GROUP BY a",
        "one partition, twice": OVER.format("RANK() OVER (ORDER BY b) + COUNT(*) OVER (PARTITION BY a)"),
        "two partitions": OVER.format("COUNT(*) OVER (PARTITION BY a) + MAX(a) OVER (PARTITION BY b)"),
        "over groups": "SELECT a, n, RANK() OVER (PARTITION BY n ORDER BY a) AS r "
        "FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a)",
        "the first of each": "SELECT a, b FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) = 1",
    }
    correlated = {
        "within each value": "SELECT a, (SELECT MAX(n) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY c ORDER BY b) AS n "
        "FROM u WHERE u.b < t.b) AS q) AS n FROM t",
    }
    notation = {
        "a whole partition": "Π[a, b, COUNT(*) OVER (PARTITION BY b)](ω[COUNT(*) OVER (PARTITION BY b)](t))",
        "one partition": "Π[a, b, COUNT(*) OVER ()](ω[COUNT(*) OVER ()](t))",
    }
    reads = {
        "numbered": "touched partitions: the changed rows, and in t all rows of their partitions (a)",
        "one partition": "kept values: all kept rows, and no table",
    }
    pushed = {
        ("a whole partition", "b"): "ω[COUNT(*) OVER (PARTITION BY b)](t ⋉[b] K)",
        ("a whole partition", "a"): "ω[COUNT(*) OVER (PARTITION BY b)](t) ⋉[a] K",
        ("a whole partition", "a & b"): "ω[COUNT(*) OVER (PARTITION BY b)](t ⋉[b] K) ⋉[a, b] K",
    }
    pruned = {
        ("a whole partition", "a"): "t(a, b)",
        ("a whole partition", "b"): "t(b)",
        ("a whole partition", "COUNT(*) OVER (PARTITION BY b)"): "t(b)",
    }
    unique_keys = {"numbered": None}


@pytest.mark.parametrize("function", ["ROW_NUMBER()", "LAG(b)", "FIRST_VALUE(b)"])
@pytest.mark.parametrize("partition", ["", "PARTITION BY a"])
def test_ties_are_broken_by_the_rows_own_values(function: str, partition: str) -> None:
    """An engine may break them otherwise when the author's query runs, so the reference is asked."""
    follows_on_reference(bound(OVER.format(f"{function} OVER ({partition} ORDER BY a)")))
