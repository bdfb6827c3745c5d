"""γ, counted: the parts of a group are kept, and its rows read again only where an extreme was deleted."""

from __future__ import annotations

import pytest

from deferred.algebra.operators import Aggregate, Counted
from deferred.algebra.strategy import support_tables
from tests.algebra.operators.cases import OperatorCases, bound, scanned


class TestCounted(OperatorCases):
    operator = Aggregate
    views = {
        "counts": "SELECT a, COUNT(*) AS n, COUNT(b) AS m FROM t GROUP BY a",
        "a sum that is NULL over NULLs": "SELECT a, SUM(b) AS s FROM t GROUP BY a",
        "extremes": "SELECT a, MIN(b) AS least, MAX(b) AS most FROM t GROUP BY a",
        "of computed values": "SELECT a, SUM(a + b) AS s, MAX(b - a) AS most FROM t GROUP BY a",
        "a total": "SELECT COUNT(*) AS n, SUM(b) AS s FROM t",
        "a total with extremes": "SELECT MIN(a) AS least, MAX(b) AS most FROM t",
        "over a join": "SELECT a, COUNT(*) AS n, MAX(c) AS most FROM t JOIN u ON t.b = u.b GROUP BY a",
        "over an outer join": "SELECT a, COUNT(c) AS n FROM t LEFT JOIN u ON t.b = u.b GROUP BY a",
        "of counted groups": "SELECT n, COUNT(*) AS m FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) GROUP BY n",
    }
    correlated = {
        "a total keeps its row over nothing": "SELECT a, (SELECT COUNT(*) FROM u WHERE u.b < t.b) AS n FROM t",
        "extremes for each value": "SELECT a, (SELECT MIN(c) FROM u WHERE u.b < t.b) AS least FROM t",
    }
    notation = {
        "counts": "Π[a, COUNT(*), COUNT(b)](γ[a; COUNT(*), COUNT(b)](t))",
        "a total": "Π[COUNT(*), SUM(b)](γ[; COUNT(*), SUM(b)](t))",
    }
    reads = {
        "counts": "counted: the changed rows, and the kept parts of their groups (a)",
        "extremes": "counted: the changed rows, and the kept parts of their groups (a); "
        "t only where a least or greatest value was deleted",
        "a total": "counted: the changed rows, and the kept parts of the total",
    }
    pushed = {
        ("counts", "a"): "γ[a; COUNT(*), COUNT(b)](t) ⋉[a] K",
        ("over a join", "a"): "γ[a; COUNT(*), MAX(c)](t ⋈[t.b = u.b] u) ⋉[a] K",
    }
    pruned = {("counts", "a"): "t(a)", ("counts", "COUNT(b)"): "t(a, b)", ("over a join", "COUNT(*)"): "t(a, b), u(b)"}
    unique_keys = {"counts": "a", "a total": ""}


KEPT = {
    "SELECT a, COUNT(*) AS n FROM t GROUP BY a": ["rows"],
    "SELECT a, COUNT(b) AS n, COUNT(b) + 1 AS m FROM t GROUP BY a": ["rows", "count"],
    "SELECT a, SUM(b) AS s FROM t GROUP BY a": ["rows", "count", "sum"],
    "SELECT a, MIN(b) AS least, MAX(b) AS most FROM t GROUP BY a": ["rows", "count", "min", "max"],
}


@pytest.mark.parametrize("query", KEPT)
def test_which_parts_are_kept(query: str) -> None:
    (strategy,) = (node.strategy for node in bound(query).walk() if isinstance(node, Aggregate))
    assert isinstance(strategy, Counted)
    assert sorted(part.kind for part in strategy.parts) == sorted(KEPT[query])
    (contents,) = support_tables(bound(query)).values()
    assert contents.columns == (contents.columns[0], *(part.id for part in strategy.parts))


@pytest.mark.parametrize("view", ["counts", "a sum that is NULL over NULLs", "a total"])
def test_counts_and_sums_read_no_table(view: str) -> None:
    assert not scanned(TestCounted.views[view], "t")


@pytest.mark.parametrize("view", ["extremes", "a total with extremes"])
def test_extremes_read_their_table_only_when_a_group_asks(view: str) -> None:
    """The step that reads it waits for another one, and is skipped while that is empty."""
    assert scanned(TestCounted.views[view], "t") == {"t"}
    assert not scanned(TestCounted.views[view], "t", asked=False)
