"""Random recursive views over random graphs, kept up to date through random changes, against a plain fixpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from deferred.algebra.paper.evaluate import evaluate
from tests.fuzz.check import Failure, check, report
from tests.fuzz.duck import Database
from tests.fuzz.on_evaluator import check_on_evaluator, tables
from tests.fuzz.recursive import ABOVE, BAG_STEPS, GRAPHS, SCHEMAS, SET_STEPS, STARTS, STEPS, RecursiveGenerator

SEEDS = range(300)
PART = 100
"""Seeds a test; `make check` takes the first part, `make test` all of them."""

ON_DUCKDB = range(300, 380)
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
    """Delta programs on the reference evaluator, whose recursion is the definition: rows until there are no new ones.

    That the plan means what the text says is seen before the first change and after the last one, on DuckDB.
    """
    for seed in SEEDS[first : first + PART]:
        case = RecursiveGenerator(seed).case()
        bound = database.bind(case.query)
        for state in (case.initial, case.final):
            for name, rows in state.items():
                database.replace(name, Counter(rows))
            planned = evaluate(bound.plan, tables(case.schemas, state))
            assert planned == database.query(case.query), f"seed {seed}: {case.query}\n{state}"
        check_on_evaluator(case, bound, bound.plan)


@pytest.mark.slow
def test_views_equal_their_fixpoint_on_duckdb(database: Database) -> None:
    """The same as SQL; what the text means is computed by statements that know nothing of plans."""
    for seed in ON_DUCKDB:
        case = RecursiveGenerator(seed).case()
        try:
            check(case, database)
        except Failure as failure:
            pytest.fail(report(case, failure, database=database))


def test_every_construct_occurs() -> None:
    occurring: Counter[str] = Counter()
    for seed in SEEDS:
        generator = RecursiveGenerator(seed)
        generator.case()
        occurring += generator.constructs
    wanted = {*STARTS, *STEPS, *SET_STEPS, *BAG_STEPS, *ABOVE, *GRAPHS}
    wanted |= {"duplicates", "nulls", "moved", "several branches", "two recursions", "a recursion over a recursion"}
    assert wanted - occurring.keys() == set()
