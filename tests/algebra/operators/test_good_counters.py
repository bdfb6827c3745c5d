"""ε with its counts kept: what it holds, what it reads, and when its table does not move."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.delta import differentiate
from deferred.algebra.notation import Labels, notation
from deferred.algebra.operators import Distinct, Scan
from deferred.algebra.operators.good_counters import GoodCounters
from deferred.algebra.plan import Plan
from deferred.algebra.program import Step, run
from deferred.algebra.strategy import support_tables
from tests.algebra.operators.cases import ROWS, SCHEMAS, TELLING, database
from tests.fuzz.case import Case, Change
from tests.fuzz.check import apply, check

VIEWS = {
    "rows": "SELECT DISTINCT a, b FROM t",
    "over a join": "SELECT DISTINCT a FROM t JOIN u ON t.b = u.b",
    "columns of both": "SELECT DISTINCT a, c FROM t JOIN u ON t.b = u.b",
    "union": "SELECT a FROM t UNION SELECT b FROM u",
    "of groups": "SELECT DISTINCT n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a)",
    "below groups": "SELECT a, COUNT(*) AS n FROM (SELECT DISTINCT a, c FROM t JOIN u ON t.b = u.b) GROUP BY a",
    "exists": "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.b = t.b)",
    "exists of anything": "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u)",
    "in": "SELECT a FROM t WHERE b IN (SELECT b FROM u WHERE c > 0)",
    "not exists": "SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.b = t.b AND u.c > t.a)",
    "not in": "SELECT a FROM t WHERE a NOT IN (SELECT c FROM u)",
    "used twice": "WITH q AS (SELECT DISTINCT b FROM u) SELECT DISTINCT a FROM t, q, q AS p WHERE t.b = q.b AND t.a = p.b",
}


def counted(sql: str) -> Plan:
    return database().bind(sql, "tree").plan


@pytest.mark.parametrize("view", VIEWS)
def test_it_follows_changes(view: str) -> None:
    assert any(isinstance(node.strategy, GoodCounters) for node in counted(VIEWS[view]).walk())
    check(Case(SCHEMAS, VIEWS[view], ROWS, tuple(TELLING.values()), maintain="tree"), database())


def test_what_it_holds_and_reads() -> None:
    plan = counted(VIEWS["rows"])
    assert isinstance(plan, Distinct)
    (contents,) = support_tables(plan).values()
    assert notation(contents) == "net(Π[a, b, CAST(1 AS BIGINT)](Π[a, b](t)))"
    labels = Labels(plan)
    assert f"{plan.strategy.name}: {plan.reads(labels)}" == (
        "good-counters: the changed rows, and their kept counts (a, b)"
    )
    program = differentiate(plan, {"t"})
    assert program.result is not None
    plans = [*(step.plan for step in program.steps if isinstance(step, Step)), program.result]
    assert not [node for each in plans for node in each.walk() if isinstance(node, Scan)]


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        (Change((), ((9, 9),)), {"good1"}),  # a value that no row of t has
        (Change((), ((1, 7),)), {"good1"}),  # one that is there already: its count changes, and nothing above
        (Change((), ((3, 0),)), {"good1", "good2"}),  # b = 3 becomes good
    ],
)
def test_a_table_moves_only_where_a_count_changes(change: Change, moved: set[str]) -> None:
    db = database()
    bound = db.bind("SELECT DISTINCT t.b FROM t JOIN u ON t.b = u.b", "tree")
    for name, rows in {**ROWS, "u": ((1, 1), (2, 0))}.items():
        db.replace(name, Counter(rows))
    db.keep(bound)
    changed = apply(db, {"u": change})
    program = differentiate(bound.plan, changed, bound.types)
    assert set(program.supports) == {"good1", "good2"}
    assert set(run(program.steps, db).moves(program)) == moved
