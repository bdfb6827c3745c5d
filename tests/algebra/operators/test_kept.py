"""E, kept: every row once with its count; and what any node keeps is read in the place of its base tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deferred.algebra.delta import differentiate
from deferred.algebra.operators import Filter, Kept, KeptValues, Scan
from deferred.algebra.scalar import Fresh
from deferred.algebra.unnest import unnested
from deferred.errors import UnsupportedSQLError
from deferred.sql.dialect import parse_scalar
from tests.algebra.operators.cases import OperatorCases
from tests.fuzz.case import Case, Change
from tests.fuzz.check import check
from tests.fuzz.duck import Database

SCHEMAS = {"t": (("a", "int"), ("b", "int"), ("x", "double")), "u": (("b", "int"), ("c", "int"))}
INITIAL = {"t": ((1, 1, 0.5), (1, 1, 0.5), (2, None, None), (None, 3, 2.0)), "u": ((1, 1), (1, 2), (3, None))}
STEPS = (
    {"t": Change(((1, 1, 0.5),), ((3, 3, 9.0), (2, 2, 0.0)))},
    {"u": Change(((3, None),), ((2, 5),))},
    {"t": Change(((1, 1, 0.5),), ((1, 1, 0.25),)), "u": Change(((1, 1), (1, 2)), ((7, 0),))},
    {"t": Change(((2, None, None), (None, 3, 2.0), (3, 3, 9.0), (2, 2, 0.0), (1, 1, 0.25)), ())},
    {"t": Change((), ((1, 7, 1.0),))},
)

READS = {
    # query, the table that changes: the tables that are read beside the changes
    ("SELECT a FROM t WHERE a > (SELECT SUM(c) FROM u)", "t"): set(),
    ("SELECT a FROM t WHERE a > (SELECT SUM(c) FROM u)", "u"): {"t"},
    ("SELECT t.a, n FROM t JOIN (SELECT b, COUNT(*) AS n FROM u GROUP BY b) q ON t.b = q.b", "t"): set(),
    ("SELECT t.a, n FROM t LEFT JOIN (SELECT b, SUM(c) AS n FROM u GROUP BY b) q ON t.b = q.b", "t"): set(),
    ("SELECT t.a, q.c FROM t JOIN (SELECT b, c FROM u ORDER BY c, b LIMIT 2) q ON t.b = q.b", "t"): set(),
    (
        "SELECT b, n, RANK() OVER (PARTITION BY n ORDER BY b) AS r FROM (SELECT b, COUNT(*) AS n FROM u GROUP BY b)",
        "u",
    ): set(),
    ("SELECT n, MEDIAN(b) AS m FROM (SELECT b, COUNT(*) AS n FROM u GROUP BY b) GROUP BY n", "u"): set(),
    ("SELECT MEDIAN(a) AS m, MAX(x) AS most, COUNT(*) AS n FROM t", "t"): set(),
    ("SELECT BIT_XOR(c) AS bits FROM u", "u"): set(),
    ("SELECT MIN(x) AS least, MEDIAN(c) AS m FROM t JOIN u ON t.b = u.b", "u"): {"t"},
    ("SELECT a FROM t WHERE x > (SELECT MEDIAN(x) FROM t)", "t"): {"t"},
    ("SELECT t.a, q.m FROM t CROSS JOIN (SELECT MEDIAN(c) AS m FROM u) q", "t"): set(),
    ("SELECT a, RANK() OVER (ORDER BY a) AS r FROM t", "t"): set(),
    ("SELECT x, COUNT(*) OVER () AS n FROM t", "t"): set(),
    ("SELECT a, SUM(c) OVER (ORDER BY a, c) AS n FROM t JOIN u ON t.b = u.b", "u"): {"t"},
    ("SELECT b, RANK() OVER (ORDER BY COUNT(*)) AS r FROM u GROUP BY b", "u"): set(),
    ("SELECT b, MEDIAN(c) AS m, COUNT(*) OVER () AS n FROM u GROUP BY b", "u"): {"u"},
    ("SELECT a, x FROM t ORDER BY a, x OFFSET 2", "t"): set(),
    ("SELECT b, COUNT(*) AS n FROM u GROUP BY b ORDER BY n, b OFFSET 1", "u"): set(),
}


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    opened = Database(SCHEMAS)
    yield opened
    opened.close()


class TestKept(OperatorCases):
    operator = Kept
    views = {
        "a median": "SELECT MEDIAN(b) AS m FROM t",
        "two medians": "SELECT MEDIAN(a) AS n, MEDIAN(b) AS m FROM t",
        "of computed values": "SELECT MEDIAN(a + b) AS m FROM t WHERE a > 0",
        "over a join": "SELECT MEDIAN(c) AS m, COUNT(DISTINCT a) AS n FROM t JOIN u ON t.b = u.b",
        "of groups": "SELECT MEDIAN(n) AS m FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a)",
    }
    notation = {
        "a median": "Π[MEDIAN(b)](γ[; MEDIAN(b)](Π[b](t)))",
        "two medians": "Π[MEDIAN(a), MEDIAN(b)](γ[; MEDIAN(a), MEDIAN(b)](Π[a, b](t)))",
    }
    reads = {
        "a median": "kept values: the changed rows, and the kept counts of their values (b)",
        "two medians": "kept values: the changed rows, and the kept counts of their values (a, b)",
    }
    pushed = {("two medians", "a"): "Π[a, b](t) ⋉[a] K"}
    pruned = {("two medians", "a"): "t(a, b)"}
    unique_keys = {"a median": None}


def test_it_is_made_after_subqueries_are_unnested() -> None:
    kept = Kept(Filter(Scan("t", ("a",), ("x",)), parse_scalar("x > y")), KeptValues("support1"))
    outer = Scan("u", ("b",), ("y",))
    with pytest.raises(UnsupportedSQLError, match="may not read outer columns in kept values"):
        unnested(outer, kept, Fresh())


@pytest.mark.parametrize(("query", "changed"), READS)
def test_no_table_is_read_for_what_is_kept(query: str, changed: str, database: Database) -> None:
    bound = database.bind(query)
    assert "recomputed" not in {node.strategy.name for node in bound.plan.walk()}
    program = differentiate(bound.plan, {changed}, bound.types)
    assert program.result is not None
    plans = [*(step.plan for step in program.steps), program.result]
    read = {node.table for plan in plans for node in plan.walk() if isinstance(node, Scan)}
    assert read == READS[query, changed]


@pytest.mark.parametrize("query", sorted({query for query, _ in READS}))
def test_a_view_with_kept_rows_follows_its_query(query: str) -> None:
    check(Case(SCHEMAS, query, INITIAL, STEPS))
