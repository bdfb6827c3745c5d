"""Runs seeds: views of neighbouring seeds share their tables, so that a database is made once for many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.fuzz.case import Case, random_schemas
from tests.fuzz.check import Failure, Refused, Skipped, check
from tests.fuzz.duck import Database
from tests.fuzz.generator import Generator

SHARED = 25
"""How many views use one set of tables."""


@dataclass
class Result:
    """What a run has seen."""

    checked: int = 0
    refused: int = 0
    skipped: int = 0
    constructs: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


def run(seeds: Iterable[int], result: Result) -> Iterator[tuple[Case, Failure | None]]:
    """Every case with its failure, None for one that is right or could not be checked."""
    database: Database | None = None
    group = None
    for seed in seeds:
        if database is None or seed // SHARED != group:
            if database is not None:
                database.close()
            group = seed // SHARED
            database = Database(random_schemas(group))
        case, constructs = case_of(seed)
        failure = None
        try:
            check(case, database)
            result.checked += 1
            result.constructs += constructs
        except Skipped as skipped:
            result.refused += isinstance(skipped, Refused)
            result.skipped += not isinstance(skipped, Refused)
            result.reasons[str(skipped).splitlines()[0][:150]] += 1
        except Failure as found:
            failure = found
        yield case, failure
    if database is not None:
        database.close()


def case_of(seed: int) -> tuple[Case, Counter[str]]:
    """The case of a seed, and the constructs that it uses."""
    generator = Generator(seed, random_schemas(seed // SHARED))
    return generator.case(), generator.constructs
