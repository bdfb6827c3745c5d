"""σ: linear, and keys go below it."""

from __future__ import annotations

from deferred.algebra.operators import Filter
from tests.algebra.operators.cases import OperatorCases


class TestFilter(OperatorCases):
    operator = Filter
    views = {
        "a comparison": "SELECT a, b FROM t WHERE a > 1",
        "true or unknown": "SELECT a, b FROM t WHERE a = 1 OR b = 2",
        "unknown is not true": "SELECT a, b FROM t WHERE NOT (a = 1)",
        "of NULL": "SELECT b FROM t WHERE a IS NULL",
        "never": "SELECT a FROM t WHERE a <> a",
        "over a key": "SELECT a, n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) WHERE n > 1",
    }
    correlated = {
        "a condition on an outer column": "SELECT a, (SELECT MAX(c) FROM u WHERE u.b < t.b) AS m FROM t",
        "below a group": "SELECT a FROM t WHERE EXISTS (SELECT b FROM u WHERE u.c > t.a GROUP BY b HAVING COUNT(*) > 1)",
    }
    notation = {
        "a comparison": "Π[a, b](σ[a > 1](t))",
        "true or unknown": "Π[a, b](σ[a = 1 OR b = 2](t))",
    }
    reads = {"a comparison": "linear: the changed rows"}
    pushed = {
        ("a comparison", "a"): "σ[a > 1](t ⋉[a] K)",
        ("a comparison", "a & b"): "σ[a > 1](t ⋉[a, b] K)",
    }
    pruned = {
        ("a comparison", "b"): "t(a, b)",
        ("a comparison", "a"): "t(a)",
        ("of NULL", "b"): "t(a, b)",
    }
    unique_keys = {"a comparison": None, "over a key": "a"}
