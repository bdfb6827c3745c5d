"""Random recursive views over random graphs, kept up to date through random changes, against a plain fixpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from deferred.algebra.delta import differentiate
from deferred.algebra.paper.evaluate import Table, evaluate, outcome
from deferred.algebra.strategy import support_tables
from tests.algebra.strategies import signed
from tests.fuzz.check import Failure, check, script, shrink
from tests.fuzz.duck import Database
from tests.fuzz.recursive import ABOVE, BAG_STEPS, GRAPHS, SCHEMAS, SET_STEPS, STARTS, STEPS, RecursiveGenerator

SEEDS = range(300)
PART = 100
"""Seeds a test; `make check` takes the first part, `make test` all of them."""

ON_DUCKDB = range(300, 340)
"""On DuckDB every step is a statement, so that a view takes some ten times as long as on the reference evaluator."""


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    opened = Database(SCHEMAS)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=pytest.mark.slow if first else ()) for first in SEEDS[::PART]]
)
def test_views_equal_their_fixpoint(first: int, database: Database) -> None:
    """Delta programs on the reference evaluator, whose recursion is the definition: rows until there are no new ones."""
    for seed in SEEDS[first : first + PART]:
        case = RecursiveGenerator(seed).case()
        bound = database.bind(case.query)
        state = {name: Table(tuple(c for c, _ in SCHEMAS[name]), Counter(rows)) for name, rows in case.initial.items()}
        kept = {name: Table(plan.columns, evaluate(plan, state)) for name, plan in support_tables(bound.plan).items()}
        for number, step in enumerate(case.steps, start=1):
            before, changes = evaluate(bound.plan, state), {}
            for name, change in step.items():
                columns, rows = state[name]
                state[name] = Table(columns, rows - Counter(change.deleted) + Counter(change.inserted))
                changes[name] = Table(columns, signed(state[name].rows, rows))
            found = outcome(differentiate(bound.plan, step, bound.types), state, changes, kept)
            what = f"seed {seed}, step {number}: {case.query}"
            assert found.change == signed(evaluate(bound.plan, state), before), what
            kept = dict(found.supports)
            for name, plan in support_tables(bound.plan).items():
                assert kept[name].rows == evaluate(plan, state), f"{what}: {name}"


@pytest.mark.slow
def test_views_equal_their_fixpoint_on_duckdb(database: Database) -> None:
    """The same as SQL; what the text means is computed by statements that know nothing of plans."""
    for seed in ON_DUCKDB:
        case = RecursiveGenerator(seed).case()
        try:
            check(case, database)
        except Failure as failure:
            small = shrink(case, failure.kind, 60, database)
            pytest.fail(f"seed {seed}: {failure}\n\n{script(small, failure)}")


def test_every_construct_occurs() -> None:
    occurring: Counter[str] = Counter()
    for seed in SEEDS:
        generator = RecursiveGenerator(seed)
        generator.case()
        occurring += generator.constructs
    wanted = {*STARTS, *STEPS, *SET_STEPS, *BAG_STEPS, *ABOVE, *GRAPHS}
    wanted |= {"duplicates", "nulls", "moved", "several branches", "two recursions", "a recursion over a recursion"}
    assert wanted - occurring.keys() == set()
