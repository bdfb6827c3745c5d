"""ω: decided within the touched partitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from sqlglot import exp

from deferred.algebra.operators import Scan, Window
from deferred.algebra.paper.evaluate import Table, evaluate
from deferred.algebra.window_functions import REGISTRY, register
from deferred.sql.dialect import parse_scalar
from tests.algebra.operators.cases import OperatorCases, bound, follows_on_reference

OVER = "SELECT a, b, {} AS x FROM t"

PARTITION = ((1, 5), (2, None), (2, 3), (4, 8))
"""The rows (k, v) of a partition in the order of k; the two that it leaves equal, in the order of their own values."""

NEAR = "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING"

# the names of a function: windows over {}, which stands for an order by k, and the value at each row of the partition
FUNCTIONS: dict[tuple[str, ...], dict[str, list[Any]]] = {
    ("row_number",): {"ROW_NUMBER() OVER ({})": [1, 2, 3, 4]},
    ("rank",): {"RANK() OVER ({})": [1, 2, 2, 4]},
    ("dense_rank",): {"DENSE_RANK() OVER ({})": [1, 2, 2, 3]},
    ("percent_rank",): {"PERCENT_RANK() OVER ({})": [0, 1 / 3, 1 / 3, 1]},
    ("cume_dist",): {"CUME_DIST() OVER ({})": [0.25, 0.75, 0.75, 1]},
    ("ntile",): {
        "NTILE(3) OVER ({})": [1, 1, 2, 3],
        "NTILE(2) OVER ({})": [1, 1, 2, 2],
        "NTILE(9) OVER ({})": [1, 2, 3, 4],
    },
    ("lag",): {
        "LAG(v) OVER ({})": [None, 5, None, 3],
        "LAG(v) IGNORE NULLS OVER ({})": [None, 5, 5, 3],
        "LAG(v, 2, 0) OVER ({})": [0, 0, 5, None],
        "LAG(v, 0) OVER ({})": [5, None, 3, 8],
        "LAG(v, -1) OVER ({})": [None, 3, 8, None],
    },
    ("lead",): {
        "LEAD(v, 2) OVER ({})": [3, 8, None, None],
        "LEAD(v, 2) IGNORE NULLS OVER ({})": [8, 8, None, None],
    },
    ("first_value", "first"): {
        "FIRST_VALUE(v) OVER ({})": [5, 5, 5, 5],
        f"FIRST_VALUE(v) OVER ({{}} {NEAR})": [5, 5, None, 3],
        f"FIRST_VALUE(v) IGNORE NULLS OVER ({{}} {NEAR})": [5, 5, 3, 3],
        f"FIRST_VALUE(v, true) OVER ({{}} {NEAR})": [5, 5, 3, 3],
        "FIRST_VALUE(v) OVER ({} ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING)": [3, 8, None, None],
    },
    ("last_value", "last"): {
        f"LAST_VALUE(v) OVER ({{}} {NEAR})": [None, 3, 8, 8],
        f"LAST_VALUE(v) IGNORE NULLS OVER ({{}} {NEAR})": [5, 3, 8, 8],
    },
    ("nth_value",): {
        f"NTH_VALUE(v, 2) OVER ({{}} {NEAR})": [None, None, 3, 8],
        f"NTH_VALUE(v, 2) IGNORE NULLS OVER ({{}} {NEAR})": [None, 3, 8, 8],
    },
}
FRAMES: dict[str, list[Any]] = {
    "COUNT(*) OVER ({})": [1, 3, 3, 4],
    "COUNT(*) OVER ({} ROWS 1 PRECEDING)": [1, 2, 2, 2],
    "COUNT(*) OVER ({} RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)": [1, 3, 3, 1],
    "COUNT(*) OVER ({} RANGE BETWEEN 1 FOLLOWING AND 2 FOLLOWING)": [2, 1, 1, 0],
    "COUNT(*) OVER ({} RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)": [4, 3, 3, 1],
    "SUM(v) FILTER (WHERE v > 3) OVER ({} RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)": [13] * 4,
}
WINDOWS = {window: values for windows in (*FUNCTIONS.values(), FRAMES) for window, values in windows.items()}
ROWS = "SELECT k, v, {} AS x FROM (SELECT t.a AS p, t.b AS k, u.c AS v FROM t JOIN u ON t.b = u.b)"
PER_PARTITION = {
    window: ROWS.format(window.format(f"PARTITION BY p ORDER BY {'k' if 'RANGE' in window else 'k, v'}"))
    for window in WINDOWS
    if ", true)" not in window
}
"""Views of each window; of first(v, true) there is none, which DuckDB does not know."""


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
        **PER_PARTITION,
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


def test_the_table_has_every_function() -> None:
    assert sorted(name for names in FUNCTIONS for name in names) == sorted(REGISTRY)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_by_its_definition(window: str) -> None:
    function = parse_scalar(window.format("ORDER BY k"))
    assert isinstance(function, exp.Window)
    plan = Window(Scan("r", ("k", "v"), ("k", "v")), (), (("x", function),))
    found = evaluate(plan, {"r": Table(("k", "v"), Counter(PARTITION))})
    assert found == Counter((*row, value) for row, value in zip(PARTITION, WINDOWS[window], strict=True))


@pytest.mark.parametrize(
    ("window", "values"),
    [
        ("COUNT(*) OVER (ORDER BY k RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING)", [2, 2, 2, 2]),
        ("COUNT(*) OVER (ORDER BY k RANGE BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)", [2, 2, 4, 4]),
        ("COUNT(*) OVER (ORDER BY k DESC RANGE BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING)", [2, 2, 4, 4]),
        ("COUNT(*) OVER (ORDER BY k DESC RANGE BETWEEN CURRENT ROW AND 1 FOLLOWING)", [2, 2, 1, 2]),
    ],
)
def test_rows_without_a_value_are_near_each_other_alone(window: str, values: list[int]) -> None:
    rows = [(None, 1), (None, 2), (1, 3), (2, 4)]
    function = parse_scalar(window)
    assert isinstance(function, exp.Window)
    plan = Window(Scan("r", ("k", "v"), ("k", "v")), (), (("x", function),))
    found = evaluate(plan, {"r": Table(("k", "v"), Counter(rows))})
    assert found == Counter((*row, value) for row, value in zip(rows, values, strict=True))


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="rank is registered twice"):
        register(REGISTRY["rank"])


@pytest.mark.parametrize("function", ["ROW_NUMBER()", "LAG(b)", "FIRST_VALUE(b)"])
@pytest.mark.parametrize("partition", ["", "PARTITION BY a"])
def test_ties_are_broken_by_the_rows_own_values(function: str, partition: str) -> None:
    """An engine may break them otherwise when the author's query runs, so the reference is asked."""
    follows_on_reference(bound(OVER.format(f"{function} OVER ({partition} ORDER BY a)")))


@pytest.mark.parametrize(
    "function", ["FIRST_VALUE(b) OVER ({})", "LAST_VALUE(b) OVER ({})", "SUM(b) OVER ({} ROWS 1 PRECEDING)"]
)
@pytest.mark.parametrize("partition", ["", "PARTITION BY a"])
def test_rows_without_an_order_are_taken_in_that_of_their_values(function: str, partition: str) -> None:
    follows_on_reference(bound(OVER.format(function.format(partition))))


def test_an_aggregate_of_all_rows_needs_no_order() -> None:
    """A column whose values have no order, such as a map, may be beside it."""
    frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    plan = bound(OVER.format(f"COUNT(*) OVER (PARTITION BY a {frame}) + SUM(b) OVER (PARTITION BY a ROWS 1 PRECEDING)"))
    (node,) = (node for node in plan.walk() if isinstance(node, Window))
    (_, whole), (_, near) = node.with_ties_broken
    assert whole.args.get("order") is None
    assert near.args["order"] is not None
