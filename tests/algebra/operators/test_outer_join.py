"""⟕ ⟗ ⋉ ▷: linear in the left side while the right one stays, else at the touched keys."""

from __future__ import annotations

import pytest

from deferred.algebra.operators import OuterJoin
from deferred.algebra.outline import outline
from deferred.errors import UnsupportedSQLError
from tests.algebra.operators.cases import OperatorCases, bound


class TestOuterJoin(OperatorCases):
    operator = OuterJoin
    views = {
        "left": "SELECT a, t.b, c FROM t LEFT JOIN u ON t.b = u.b",
        "right": "SELECT a, c FROM t RIGHT JOIN u ON t.b = u.b",
        "full": "SELECT a, c FROM t FULL JOIN u ON t.b = u.b",
        "semi": "SELECT a, b FROM t LEFT SEMI JOIN u ON t.b = u.b",
        "anti": "SELECT a, b FROM t LEFT ANTI JOIN u ON t.b = u.b",
        "null-safe": "SELECT a, c FROM t LEFT JOIN u ON t.b <=> u.b",
        "with one more condition": "SELECT a, c FROM t LEFT JOIN u ON t.b = u.b AND a < c AND a > 0",
        "left, without an equality": "SELECT a, t.b, c FROM t LEFT JOIN u ON t.b < u.b",
        "full, without an equality": "SELECT a, c FROM t FULL JOIN u ON t.b < u.b",
        "in": "SELECT a, b FROM t WHERE b IN (SELECT b FROM u)",
        "not in, unknown with a NULL": "SELECT a FROM t WHERE a NOT IN (SELECT c FROM u)",
        "with groups": "SELECT a, n FROM t LEFT JOIN (SELECT b, COUNT(*) AS n FROM u GROUP BY b) AS q ON t.b = q.b",
        "with itself": "SELECT x.a, y.b FROM t AS x LEFT JOIN t AS y ON x.a = y.b",
        "exists in itself": "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM t AS y WHERE y.b = t.b)",
        "not in itself": "SELECT a FROM t WHERE b NOT IN (SELECT b FROM t)",
        "with the greatest of itself": "SELECT a, (SELECT MAX(y.b) FROM t AS y WHERE y.a = t.b) AS most FROM t",
    }
    correlated = {
        "its condition reads an outer column": "SELECT a, (SELECT COUNT(v.c) FROM u LEFT JOIN u AS v "
        "ON v.b = u.c AND v.c > t.a) AS n FROM t",
        "both sides read an outer column": "SELECT a, (SELECT COUNT(r.b) FROM (SELECT b FROM u WHERE c > t.a) AS q "
        "LEFT JOIN (SELECT b FROM u WHERE c < t.a) AS r ON q.b = r.b) AS n FROM t",
    }
    notation = {
        "left": "Π[a, t.b, c](t ⟕[t.b = u.b] u)",
        "right": "Π[a, c](u ⟕[t.b = u.b] t)",
        "full": "Π[a, c](t ⟗[t.b = u.b] u)",
        "semi": "Π[a, t.b](t ⋉[t.b = u.b] u)",
        "anti": "Π[a, t.b](t ▷[t.b = u.b] u)",
        "not in, unknown with a NULL": "Π[a](t ▷[(a = c) OR (a = c) IS NULL] Π[c](u))",
        "exists in itself": "Π[a](t ⋉[t′.b = t.b] Π[t′.b](t′))",
        "not in itself": "Π[a](t ▷[(t.b = t′.b) OR (t.b = t′.b) IS NULL] Π[t′.b](t′))",
        "with the greatest of itself": "Π[t.a, c_7](Π[t.a, CASE WHEN (TRUE) IS NULL THEN NULL ELSE MAX(t′.b) END → c_7]"
        "(t ⟕[t′.a = t.b] Π[t′.a, MAX(t′.b), TRUE](γ[t′.a; MAX(t′.b)](t′))))",
    }
    reads = {
        "left": "touched keys: the changed rows, and both sides at their keys (t.b = u.b)",
        "with one more condition": "touched keys: the changed rows, and both sides at their keys (t.b = u.b)",
        "left, without an equality": "touched rows: the changed rows, the rows of the other side that match them, "
        "and the partners of these",
    }
    pushed = {
        ("left", "a"): "(t ⋉[a] K) ⟕[t.b = u.b] u",
        ("left", "t.b"): "(t ⋉[t.b] K) ⟕[t.b = u.b] (u ⋉[u.b] K)",
        ("left", "c"): "(t ⟕[t.b = u.b] u) ⋉[c] K",
        ("left", "a & c"): "((t ⋉[a] K) ⟕[t.b = u.b] u) ⋉[a, c] K",
        ("full", "a"): "(t ⟗[t.b = u.b] u) ⋉[a] K",
        ("anti", "t.b"): "(t ⋉[t.b] K) ▷[t.b = u.b] (u ⋉[u.b] K)",
        ("left, without an equality", "t.b"): "(t ⋉[t.b] K) ⟕[t.b < u.b] u",
    }
    pruned = {("left", "a"): "t(a, b), u(b)", ("left", "c"): "t(b), u(b, c)", ("anti", "a"): "t(a, b), u(b)"}
    unique_keys = {"left": None, "semi": None}


def test_a_plan_says_what_was_written() -> None:
    """One class is several operators: each has its own name."""
    plans = {
        "t LEFT JOIN u ON t.b = u.b": "LEFT JOIN",
        "t FULL JOIN u ON t.b = u.b": "FULL JOIN",
        "t WHERE EXISTS (SELECT 1 FROM u WHERE u.b = t.b)": "EXISTS or IN",
        "t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.b = t.b)": "NOT EXISTS or NOT IN",
    }
    for text, called in plans.items():
        lines = [line.strip().split(" ·")[0] for line in outline(bound(f"SELECT a FROM {text}"))]
        assert lines[:3] == ["projection", called, "table t (a, t.b)"]


def test_a_full_join_with_outer_columns_is_refused() -> None:
    with pytest.raises(UnsupportedSQLError, match="may not contain FULL OUTER JOIN"):
        bound("SELECT a, (SELECT COUNT(*) FROM u FULL JOIN u AS v ON v.b = u.c AND v.c > t.a) AS n FROM t")
