"""Random tree joins and cyclic ones, their good rows kept, through random changes: against a recomputation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.fuzz.check import Failure, check, report
from tests.fuzz.duck import Database
from tests.fuzz.on_evaluator import check_on_evaluator
from tests.fuzz.on_spark import SparkDatabase
from tests.fuzz.trees import CONSTRUCTS, SCHEMAS, TreeGenerator

SEEDS = range(300)
PART = 75
ON_DUCKDB = range(300, 320)
ON_SPARK = range(350, 355)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    opened = Database(SCHEMAS)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=pytest.mark.slow if first else ()) for first in SEEDS[::PART]]
)
def test_views_equal_their_recomputation(first: int, database: Database) -> None:
    """On the reference evaluator; what is right is said by the plan without any tree."""
    for seed in SEEDS[first : first + PART]:
        case = TreeGenerator(seed).case()
        plain = database.bind(case.query).plan
        check_on_evaluator(case, database.bind(case.query, case.maintain), plain)


def test_views_equal_their_recomputation_on_duckdb(database: Database) -> None:
    """The same as SQL, and what is right is said by DuckDB."""
    for seed in ON_DUCKDB:
        case = TreeGenerator(seed).case()
        try:
            check(case, database)
        except Failure as failure:
            pytest.fail(report(case, failure, database=database))


@pytest.mark.slow
def test_views_equal_their_recomputation_on_spark(spark: Any) -> None:
    database = SparkDatabase(spark, SCHEMAS)
    for seed in ON_SPARK:
        case = TreeGenerator(seed).case()
        check(replace(case, steps=case.steps[:1]), database)


def test_every_construct_occurs(database: Database) -> None:
    occurring, notes = Counter[str](), Counter[str]()
    for seed in SEEDS[:120]:
        generator = TreeGenerator(seed)
        bound = database.bind(generator.query(), "tree")
        occurring += generator.constructs
        notes.update(note.partition(":")[0] for note in bound.notes)
    assert [construct for construct in CONSTRUCTS if not occurring[construct]] == []
    assert notes["The join is a tree"] > 40
    assert notes["The join is cyclic, and a tree with templates, in brackets"] > 5
