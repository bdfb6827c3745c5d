"""∸, min, EXCEPT and INTERSECT: decided at the touched rows."""

from __future__ import annotations

from deferred.algebra.operators import SetOperation
from tests.algebra.operators.cases import OperatorCases

SIDES = "SELECT a, b FROM t {} SELECT b, c FROM u"


class TestSetOperation(OperatorCases):
    operator = SetOperation
    views = {
        "EXCEPT ALL": SIDES.format("EXCEPT ALL"),
        "EXCEPT": SIDES.format("EXCEPT"),
        "INTERSECT ALL": SIDES.format("INTERSECT ALL"),
        "INTERSECT": SIDES.format("INTERSECT"),
        "with itself": "SELECT a FROM t EXCEPT ALL SELECT b FROM t",
        "nested": "SELECT a FROM t EXCEPT ALL (SELECT b FROM u INTERSECT ALL SELECT c FROM u)",
        "of groups": "SELECT a, COUNT(*) AS n FROM t GROUP BY a EXCEPT SELECT b, COUNT(*) AS n FROM u GROUP BY b",
    }
    correlated = {
        "a side reads an outer column": "SELECT a, (SELECT COUNT(*) FROM (SELECT c FROM u WHERE u.b < t.b "
        "EXCEPT ALL SELECT b FROM u) AS q) AS n FROM t",
        "below EXISTS": "SELECT a FROM t WHERE EXISTS (SELECT b FROM u WHERE u.c > t.b INTERSECT SELECT c FROM u)",
    }
    notation = {
        "EXCEPT ALL": "Π[a, t.b](t) ∸ Π[u.b, c](u)",
        "EXCEPT": "Π[a, t.b](t) EXCEPT Π[u.b, c](u)",
        "INTERSECT ALL": "Π[a, t.b](t) min Π[u.b, c](u)",
        "INTERSECT": "Π[a, t.b](t) INTERSECT Π[u.b, c](u)",
        "nested": "Π[a](t) ∸ (Π[b](u) min Π[c](u))",
    }
    reads = {"EXCEPT ALL": "touched rows: the changed rows, and the same rows of both sides in t, u"}
    pushed = {
        ("EXCEPT ALL", "a"): "Π[a, t.b](t ⋉[a] K) ∸ Π[u.b, c](u ⋉[u.b] K)",
        ("INTERSECT", "a & t.b"): "Π[a, t.b](t ⋉[a, t.b] K) INTERSECT Π[u.b, c](u ⋉[u.b, c] K)",
    }
    pruned = {("EXCEPT ALL", "a"): "t(a, b), u(b, c)"}
    unique_keys = {"EXCEPT ALL": None, "EXCEPT": None}
