"""What is kept of a node is read in the place of its base tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deferred.algebra.delta import differentiate
from deferred.algebra.plan import Scan
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
    ("SELECT b, n, RANK() OVER (PARTITION BY n ORDER BY b) AS r FROM (SELECT b, COUNT(*) AS n FROM u GROUP BY b)",
     "u"): set(),
    ("SELECT n, MEDIAN(b) AS m FROM (SELECT b, COUNT(*) AS n FROM u GROUP BY b) GROUP BY n", "u"): set(),
    ("SELECT MEDIAN(a) AS m, MAX(x) AS most, COUNT(*) AS n FROM t", "t"): set(),
    ("SELECT BIT_XOR(c) AS bits FROM u", "u"): set(),
    ("SELECT MIN(x) AS least, MEDIAN(c) AS m FROM t JOIN u ON t.b = u.b", "u"): {"t"},
    ("SELECT a FROM t WHERE x > (SELECT MEDIAN(x) FROM t)", "t"): {"t"},
    ("SELECT t.a, q.m FROM t CROSS JOIN (SELECT MEDIAN(c) AS m FROM u) q", "t"): set(),
}


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    opened = Database(SCHEMAS)
    yield opened
    opened.close()


@pytest.mark.parametrize(("query", "changed"), READS)
def test_no_table_is_read_for_what_is_kept(query: str, changed: str, database: Database) -> None:
    bound = database.bind(query)
    assert "recomputed" not in {node.maintained for node in bound.plan.walk()}
    program = differentiate(bound.plan, {changed}, bound.types)
    assert program.result is not None
    plans = [*(step.plan for step in program.steps), program.result]
    read = {node.table for plan in plans for node in plan.walk() if isinstance(node, Scan)}
    assert read == READS[query, changed]


@pytest.mark.parametrize("query", sorted({query for query, _ in READS}))
def test_it_is_right(query: str) -> None:
    check(Case(SCHEMAS, query, INITIAL, STEPS))
