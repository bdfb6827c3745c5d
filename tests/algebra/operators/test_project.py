"""Π: linear, and keys go below it together with what it computes."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.bags import COUNT
from deferred.algebra.operators import Project, Scan
from deferred.algebra.operators.project import minus, pick, renamed, signed
from tests.algebra.operators.cases import OperatorCases, same_on_duckdb

T = Scan("t", ("a", "b"), ("x", "y"))


class TestProject(OperatorCases):
    operator = Project
    views = {
        "columns": "SELECT b, a FROM t",
        "a column that hides duplicates": "SELECT a FROM t",
        "computed": "SELECT a + 1 AS x, b FROM t",
        "rows that become one": "SELECT CASE WHEN a IS NULL THEN 0 ELSE 1 END AS x FROM t",
        "a constant": "SELECT 1 AS one FROM t",
        "a key that passes": "SELECT n, a FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a)",
        "a key that is computed with": "SELECT a + 1 AS x, n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a)",
    }
    correlated = {
        "computed with an outer column": "SELECT a, (SELECT MAX(x) FROM (SELECT c + t.a AS x FROM u) AS q) AS m FROM t",
        "an outer column alone": "SELECT a, x FROM t, LATERAL (SELECT t.b AS x, c FROM u)",
    }
    notation = {"columns": "Π[b, a](t)", "computed": "Π[a + 1, b](t)", "a constant": "Π[1](t)"}
    reads = {"computed": "linear: the changed rows"}
    pushed = {
        ("columns", "a"): "Π[b, a](t ⋉[a] K)",
        ("computed", "(a + 1)"): "Π[a + 1, b](t ⋉[a + 1] K)",
        ("computed", "(a + 1) & b"): "Π[a + 1, b](t ⋉[a + 1, b] K)",
    }
    pruned = {("columns", "a"): "t(a)", ("computed", "b"): "t(b)", ("computed", "(a + 1)"): "t(a)"}
    unique_keys = {"columns": None, "a key that passes": "a", "a key that is computed with": None}


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (pick(T, ["y"]), {(1,): 2, (2,): 2, (3,): 1, (None,): 1}),
        (renamed(T, {"y": "z"}), {(1,): 2, (2,): 2, (3,): 1, (None,): 1}),
        (signed(pick(T, ["x"]), 2), {(1, 2): 3, (2, 2): 1, (None, 2): 1, (3, 2): 1}),
        (minus(signed(pick(T, ["x"]))), {(1, -1): 3, (2, -1): 1, (None, -1): 1, (3, -1): 1}),
    ],
)
def test_pieces_of_rules(plan: Project, expected: dict[tuple[int | None, ...], int]) -> None:
    assert same_on_duckdb(plan) == Counter(expected)


def test_a_pick_of_all_columns_is_the_plan_itself() -> None:
    assert pick(T, T.columns) is T
    assert signed(T).columns == ("x", "y", COUNT)
