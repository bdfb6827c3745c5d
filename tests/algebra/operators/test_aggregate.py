"""γ: the rows of the touched groups are read again, for any aggregate."""

from __future__ import annotations

from deferred.algebra.notation import Labels
from deferred.algebra.operators import Aggregate, Scan
from deferred.sql.dialect import parse_scalar
from tests.algebra.operators.cases import OperatorCases, follows_on_reference

TOTAL = Aggregate(Scan("t", ("a", "b"), ("a", "b")), (), (("n", parse_scalar("count(DISTINCT b)")),))
"""A total of which nothing is kept."""


class TestAggregate(OperatorCases):
    operator = Aggregate
    views = {
        "distinct values": "SELECT a, COUNT(DISTINCT b) AS n FROM t GROUP BY a",
        "a median": "SELECT a, MEDIAN(b) AS m FROM t GROUP BY a",
        "two keys": "SELECT a, b, COUNT(DISTINCT b) AS n FROM t GROUP BY a, b",
        "a condition on groups": "SELECT b FROM t GROUP BY b HAVING COUNT(DISTINCT a) > 1",
        "over a join": "SELECT a, COUNT(DISTINCT c) AS n FROM t JOIN u ON t.b = u.b GROUP BY a",
        "over an outer join": "SELECT a, MEDIAN(c) AS m FROM t LEFT JOIN u ON t.b = u.b GROUP BY a",
        "of groups": "SELECT n, MEDIAN(a) AS m FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) GROUP BY n",
    }
    correlated = {
        "groups within each value": "SELECT a, (SELECT COUNT(*) FROM (SELECT c, COUNT(DISTINCT b) AS n FROM u "
        "WHERE u.b < t.b GROUP BY c) AS q) AS n FROM t",
        "a total keeps its row over nothing": "SELECT a, (SELECT COUNT(DISTINCT c) FROM u WHERE u.b < t.b) AS n FROM t",
    }
    notation = {
        "distinct values": "Π[a, COUNT(DISTINCT b)](γ[a; COUNT(DISTINCT b)](t))",
        "a condition on groups": "Π[b](σ[COUNT(DISTINCT a) > 1](γ[b; COUNT(DISTINCT a)](t)))",
    }
    reads = {
        "distinct values": "touched groups: the changed rows, and in t all rows of their groups (a)",
        "over a join": "touched groups: the changed rows, and in t, u all rows of their groups (a)",
    }
    pushed = {
        ("distinct values", "a"): "γ[a; COUNT(DISTINCT b)](t ⋉[a] K)",
        ("distinct values", "COUNT(DISTINCT b)"): "γ[a; COUNT(DISTINCT b)](t) ⋉[COUNT(DISTINCT b)] K",
        ("distinct values", "a & COUNT(DISTINCT b)"): "γ[a; COUNT(DISTINCT b)](t ⋉[a] K) ⋉[a, COUNT(DISTINCT b)] K",
        ("over a join", "a"): "γ[a; COUNT(DISTINCT c)]((t ⋉[a] K) ⋈[t.b = u.b] u)",
    }
    pruned = {
        ("distinct values", "a"): "t(a)",
        ("distinct values", "COUNT(DISTINCT b)"): "t(a, b)",
        ("over a join", "a"): "t(a, b), u(b)",
    }
    unique_keys = {"distinct values": "a", "two keys": "a, b"}


def test_a_total_that_is_not_kept_reads_its_whole_input() -> None:
    assert TOTAL.strategy.name == "recomputed"
    assert TOTAL.reads(Labels(TOTAL)) == "its whole input: t"
    assert TOTAL.unique_key == ()
    follows_on_reference(TOTAL)
