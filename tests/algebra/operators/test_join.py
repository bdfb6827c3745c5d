"""⋈: one term per changed input, and keys go to the inputs that have them or an equal of them."""

from __future__ import annotations

from deferred.algebra.operators import Join
from tests.algebra.operators.cases import OperatorCases


class TestJoin(OperatorCases):
    operator = Join
    views = {
        "on a key": "SELECT a, t.b, c FROM t JOIN u ON t.b = u.b",
        "null-safe": "SELECT a, c FROM t JOIN u ON t.b <=> u.b",
        "with itself": "SELECT x.a, x.b, y.b AS z FROM t AS x JOIN t AS y ON x.a = y.b",
        "three inputs": "SELECT t.a, u.c, z.b FROM t JOIN u ON t.b = u.b JOIN t AS z ON z.a = u.c",
        "without an equality": "SELECT a, c FROM t JOIN u ON t.b < u.b",
        "on computed values": "SELECT a, c FROM t JOIN u ON t.b + 1 = u.b AND a <> c",
        "a product": "SELECT a, c FROM t CROSS JOIN u",
        "with groups": "SELECT a, n FROM t JOIN (SELECT b, COUNT(*) AS n FROM u GROUP BY b) AS q ON t.b = q.b",
    }
    correlated = {
        "its condition reads an outer column": "SELECT a, (SELECT MAX(v.c) FROM u JOIN u AS v "
        "ON v.b = u.c AND v.b < t.b) AS m FROM t",
        "two inputs read an outer column": "SELECT a, (SELECT COUNT(*) FROM (SELECT c FROM u WHERE u.b < t.b) AS q, "
        "(SELECT c FROM u WHERE u.c > t.b) AS r) AS n FROM t",
    }
    notation = {
        "on a key": "Π[a, t.b, c](t ⋈[t.b = u.b] u)",
        "with itself": "Π[a, t.b, t′.b](t ⋈[a = t′.b] t′)",
        "three inputs": "Π[t.a, c, t′.b](σ[t.b = u.b AND t′.a = c](t × u × t′))",
        "a product": "Π[a, c](t × u)",
    }
    reads = {
        "on a key": "linear: the changed rows of each input, and the other inputs at their keys (t.b = u.b)",
        "three inputs": "linear: the changed rows of each input, and the other inputs at their keys "
        "(t.b = u.b AND t′.a = c)",
        "without an equality": "linear: the changed rows of each input, and the other inputs whole: "
        "no equality links them",
    }
    pushed = {
        ("on a key", "a"): "(t ⋉[a] K) ⋈[t.b = u.b] u",
        ("on a key", "t.b"): "(t ⋉[t.b] K) ⋈[t.b = u.b] (u ⋉[u.b] K)",
        ("on a key", "a & c"): "((t ⋉[a] K) ⋈[t.b = u.b] (u ⋉[c] K)) ⋉[a, c] K",
        ("without an equality", "t.b"): "(t ⋉[t.b] K) ⋈[t.b < u.b] u",
    }
    pruned = {
        ("on a key", "a"): "t(a, b), u(b)",
        ("on a key", "c"): "t(b), u(b, c)",
        ("a product", "a"): "t(a), u(c)",
    }
    unique_keys = {"on a key": None, "with groups": None}
