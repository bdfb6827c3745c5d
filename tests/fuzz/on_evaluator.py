"""Views on the reference evaluator: each delta and each support table, against what is computed from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from deferred.algebra.delta import differentiate
from deferred.algebra.paper.evaluate import Table, evaluate, outcome
from deferred.algebra.plan import Plan
from deferred.algebra.strategy import support_tables
from deferred.sql.bind import Bound
from tests.algebra.strategies import signed
from tests.fuzz.case import Case, Change, Row, Schema


def tables(schemas: Mapping[str, Schema], rows: Mapping[str, Iterable[Row]]) -> dict[str, Table]:
    return {name: Table(tuple(c for c, _ in schemas[name]), Counter(bag)) for name, bag in rows.items()}


def check_on_evaluator(case: Case, bound: Bound, meaning: Plan) -> None:
    """A case through its steps; `meaning` is the plan whose rows are right, which may be the view's own."""
    what = f"seed {case.seed}: {case.query}"
    state = tables(case.schemas, case.initial)
    assert evaluate(bound.plan, state) == evaluate(meaning, state), what
    follows(bound.plan, meaning, state, case.steps, bound.types, what)


def follows(
    plan: Plan,
    meaning: Plan,
    initial: Mapping[str, Table],
    steps: Iterable[Mapping[str, Change]],
    types: Mapping[str, str] | None = None,
    what: str = "",
) -> None:
    """Runs the delta program of each step: its result is the change of `meaning`, and support tables move with it."""
    state = dict(initial)
    kept = kept_at(plan, state)
    for number, step in enumerate(steps, start=1):
        before, changes = evaluate(meaning, state), {}
        for name, change in step.items():
            columns, rows = state[name]
            state[name] = Table(columns, rows - Counter(change.deleted) + Counter(change.inserted))
            changes[name] = Table(columns, signed(state[name].rows, rows))
        found = outcome(differentiate(plan, step, types), state, changes, kept)
        assert found.change == signed(evaluate(meaning, state), before), f"step {number} of {what}"
        kept = dict(found.supports)
        assert kept == kept_at(plan, state), f"step {number} of {what}"


def kept_at(plan: Plan, state: Mapping[str, Table]) -> dict[str, Table]:
    """What the support tables of a plan hold in a state, computed from scratch."""
    return {name: Table(rows.columns, evaluate(rows, state)) for name, rows in support_tables(plan).items()}
