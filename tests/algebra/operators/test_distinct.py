"""ε: decided at the touched rows."""

from __future__ import annotations

from deferred.algebra.operators import Distinct
from tests.algebra.operators.cases import OperatorCases


class TestDistinct(OperatorCases):
    operator = Distinct
    views = {
        "rows": "SELECT DISTINCT a, b FROM t",
        "one column": "SELECT DISTINCT b FROM t",
        "computed": "SELECT DISTINCT a + b AS x FROM t",
        "over a join": "SELECT DISTINCT a, c FROM t JOIN u ON t.b = u.b",
        "union": "SELECT a FROM t UNION SELECT b FROM u",
        "of groups": "SELECT DISTINCT n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a)",
    }
    correlated = {
        "below a count": "SELECT a, (SELECT COUNT(*) FROM (SELECT DISTINCT c FROM u WHERE u.b < t.b) AS q) AS n FROM t",
    }
    notation = {"rows": "ε(Π[a, b](t))", "union": "ε(Π[a](t) ⊎ Π[b](u))"}
    reads = {
        "rows": "touched rows: the changed rows, and the same rows in t",
        "over a join": "touched rows: the changed rows, and the same rows in t, u",
    }
    pushed = {
        ("rows", "a"): "ε(Π[a, b](t ⋉[a] K))",
        ("union", "a"): "ε(Π[a](t ⋉[a] K) ⊎ Π[b](u ⋉[b] K))",
    }
    pruned = {("rows", "a"): "t(a, b)", ("over a join", "c"): "t(a, b), u(b, c)"}
    unique_keys = {"rows": "a, b", "union": "a"}
