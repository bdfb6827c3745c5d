"""σ whose condition changes: what becomes true and what no longer is, and the change of the rows below."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.delta import differentiate
from deferred.algebra.notation import notation
from deferred.algebra.operators import Filter, Scan
from deferred.algebra.operators.edited import Edited
from deferred.algebra.paper.evaluate import Table, evaluate, run_program
from deferred.algebra.program import Step
from deferred.sql.dialect import parse_scalar
from tests.algebra.operators.cases import LOGS, STATE
from tests.algebra.strategies import signed

T = Scan("t", ("a", "b"), ("a", "b"))
NAMES, NOW = STATE["t"]
LOG = LOGS["t"].rows
WAS = Counter({row: NOW[row] - LOG[row] for row in {*NOW, *LOG} if NOW[row] != LOG[row]})
OLD = {**STATE, "t": Table(NAMES, WAS)}

# the condition of before, and that of now: what is read of t
CONDITIONS: dict[tuple[str, str], list[str]] = {
    ("a > 1", "a > 0"): ["σ[a > 0 AND (a <= 1 OR a IS NULL)](t)", "σ[a > 1 AND (a <= 0 OR a IS NULL)](t)"],
    ("a > 0", "a > 1"): ["σ[a > 0 AND (a <= 1 OR a IS NULL)](t)", "σ[a > 1 AND (a <= 0 OR a IS NULL)](t)"],
    ("a = 1", "a = 2"): [
        "σ[a = 2 AND (a <> 1 OR a IS NULL)](t)",
        "σ[a = 1 AND (a <> 2 OR a IS NULL)](t)",
    ],
    ("a = 1 AND b > 1", "a = 1 AND b > 0"): [
        "σ[a = 1 AND b > 0 AND (b <= 1 OR b IS NULL)](t)",
        "σ[a = 1 AND b > 1 AND (b <= 0 OR b IS NULL)](t)",
    ],
    ("TRUE", "a IS NULL"): ["σ[NOT COALESCE(a IS NULL, FALSE)](t)"],
    ("a < b", "TRUE"): ["σ[NOT COALESCE(a < b, FALSE)](t)"],
    ("FALSE", "a = 1"): ["σ[a = 1](t)"],
    ("a = 1", "a = 1"): [],
}


def edited(before: str, now: str) -> Edited:
    return Edited(T, parse_scalar(now), parse_scalar(before))


@pytest.mark.parametrize(("before", "now"), CONDITIONS)
@pytest.mark.parametrize("changed", [set(), {"t"}], ids=["t stays", "t changes"])
def test_it_leads_from_the_old_condition_to_the_new_one(before: str, now: str, changed: set[str]) -> None:
    plan = edited(before, now)
    found = run_program(differentiate(plan, changed), STATE, LOGS if changed else {})
    old = evaluate(Filter(T, plan.before), OLD if changed else STATE)
    assert found == signed(evaluate(plan, STATE), old)


@pytest.mark.parametrize(("before", "now"), CONDITIONS)
def test_only_what_one_of_the_conditions_lacks_is_read(before: str, now: str) -> None:
    program = differentiate(edited(before, now), set())
    plans = [step.plan for step in program.steps if isinstance(step, Step)]
    plans += [program.result] if program.result is not None else []
    read = [notation(node) for plan in plans for node in plan.walk() if isinstance(node, Filter)]
    assert sorted(read) == sorted(CONDITIONS[before, now])


def test_a_state_of_it_is_that_of_the_new_condition() -> None:
    plan = edited("a > 1", "a > 0")
    assert notation(plan) == "σ[a > 0](t)"
    assert evaluate(plan, STATE) == evaluate(Filter(T, plan.condition), STATE)
