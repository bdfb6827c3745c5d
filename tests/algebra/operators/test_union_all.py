"""⊎: linear, each side by itself."""

from __future__ import annotations

from deferred.algebra.operators import Scan, UnionAll
from deferred.algebra.operators.union_all import union, united
from tests.algebra.operators.cases import OperatorCases


class TestUnionAll(OperatorCases):
    operator = UnionAll
    views = {
        "two tables": "SELECT a, b FROM t UNION ALL SELECT b, c FROM u",
        "one table twice": "SELECT a FROM t UNION ALL SELECT b FROM t",
        "three sides": "SELECT a FROM t UNION ALL SELECT b FROM u UNION ALL SELECT c FROM u WHERE c > 1",
        "below a join": "SELECT x, c FROM (SELECT a AS x FROM t UNION ALL SELECT b FROM t) AS q JOIN u ON x = b",
    }
    correlated = {
        "a side reads an outer column": "SELECT a, (SELECT MAX(x) FROM (SELECT c AS x FROM u WHERE u.b < t.b "
        "UNION ALL SELECT b FROM u) AS q) AS m FROM t",
    }
    notation = {
        "two tables": "Π[a, t.b](t) ⊎ Π[u.b, c](u)",
        "three sides": "(Π[a](t) ⊎ Π[b](u)) ⊎ Π[c](σ[c > 1](u))",
    }
    reads = {"two tables": "linear: the changed rows"}
    pushed = {
        ("two tables", "a"): "Π[a, t.b](t ⋉[a] K) ⊎ Π[u.b, c](u ⋉[u.b] K)",
        ("two tables", "a & t.b"): "Π[a, t.b](t ⋉[a, t.b] K) ⊎ Π[u.b, c](u ⋉[u.b, c] K)",
    }
    pruned = {("two tables", "a"): "t(a), u(b)", ("two tables", "t.b"): "t(b), u(c)"}
    unique_keys = {"two tables": None}


def test_a_union_of_one_is_that_one() -> None:
    scan = Scan("t", ("a",), ("x",))
    assert union([], ("x",)) is None
    assert united([scan], ("x",)) is scan
    assert united([scan], ("y",)).columns == ("y",)
