"""The laws of φ, on every operator that can meet it."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.equations.simplify import simplify
from deferred.algebra.operators import Scan, SetOperation, UnionAll, Values
from deferred.algebra.paper.evaluate import Table, evaluate
from deferred.algebra.plan import Plan

R = Scan("R", ("a",), ("x",))
PHI = Values(("y",), ())
STATE = {"R": Table(("a",), Counter({(1,): 2, (None,): 1}))}


def met(left: Plan, right: Plan) -> list[Plan]:
    operations = [
        SetOperation(left, right, kind, every, ("z",)) for kind in ("EXCEPT", "INTERSECT") for every in (True, False)
    ]
    return [*operations, UnionAll((left, right), ("z",))]


@pytest.mark.parametrize("plan", [*met(R, PHI), *met(PHI, R), *met(PHI, PHI), *met(R, R)])
def test_a_simpler_plan_has_the_same_value_and_columns(plan):
    simple = simplify(plan)
    assert evaluate(simple, STATE) == evaluate(plan, STATE)
    assert simple.columns == plan.columns
    assert not any(isinstance(node, Values) for node in simple.walk() if node is not simple)
