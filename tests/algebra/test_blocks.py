"""The top of a plan as one block: it has the plan's rows, and its inputs have no column in common."""

from __future__ import annotations

import pytest

from deferred.algebra.blocks import Block, block_of, distinct_block_of
from deferred.algebra.operators import Distinct, Filter, Join, Project
from deferred.algebra.paper.evaluate import evaluate
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import all_true
from tests.algebra.operators.cases import STATE, bound

TWICE = "WITH c AS (SELECT a, b FROM t) SELECT p.a AS x, q.a AS y FROM c AS p JOIN c AS q ON p.a >= q.b AND q.a >= p.b"

BAGS = {
    "a table": ("SELECT a, b FROM t", 1),
    "a filter below a projection": ("SELECT x + 1 AS y FROM (SELECT a + b AS x FROM t WHERE a > 0) WHERE x > 1", 1),
    "joins of joins": ("SELECT t.a FROM t JOIN (SELECT u.b, t.a FROM u JOIN t ON u.c = t.a) AS q ON q.b = t.b", 3),
    "a table twice": ("SELECT p.a FROM t AS p JOIN t AS q ON p.a = q.b", 2),
    "a query twice": (TWICE, 2),
    "a query three times": (
        "WITH c AS (SELECT a, b FROM t WHERE a > 0) SELECT p.a, r.b FROM c AS p, c AS q, c AS r WHERE p.a = q.b",
        3,
    ),
    "groups": ("SELECT q.n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) AS q JOIN u ON u.b = q.a", 2),
}
"""With the number of inputs."""

SETS = {
    **BAGS,
    "distinct below a join": ("SELECT t.a FROM t JOIN (SELECT DISTINCT b FROM u) AS q ON q.b = t.b", 2),
    "a semi join": ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.b = t.b AND u.c < t.a)", 2),
    "no anti join": ("SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.b = t.b)", 1),
}


def plan_of(block: Block) -> Plan:
    names = [c for plan in block.inputs for c in plan.columns]
    assert len(set(names)) == len(names)
    product = Join(block.inputs) if len(block.inputs) > 1 else block.inputs[0]
    return Project(Filter(product, all_true(block.conditions)), tuple(block.outputs.items()))


@pytest.mark.parametrize("name", BAGS)
def test_a_block_has_the_rows_of_its_plan(name: str) -> None:
    query, inputs = BAGS[name]
    plan, block = bound(query), block_of(bound(query))
    assert len(block.inputs) == inputs
    assert evaluate(plan_of(block), STATE) == evaluate(plan, STATE)


@pytest.mark.parametrize("name", SETS)
def test_below_an_epsilon_it_has_the_same_rows_however_often(name: str) -> None:
    query, inputs = SETS[name]
    plan, block = bound(query), distinct_block_of(bound(query))
    assert len(block.inputs) == inputs
    assert evaluate(Distinct(plan_of(block)), STATE) == evaluate(Distinct(plan), STATE)
