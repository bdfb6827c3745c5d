"""Random views on Spark: its result for the query against the delta programs that it runs.

Every other view is one that DuckDB runs as well, the others are in Spark's own words.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from tests.fuzz.case import random_schemas
from tests.fuzz.check import Failure, Skipped, check, report
from tests.fuzz.on_spark import SparkDatabase
from tests.fuzz.run import SHARED, case_of
from tests.fuzz.spark_generator import spark_case_of

pytestmark = pytest.mark.slow

FIRST = int(os.environ.get("DEFERRED_FUZZ_SEED", "5000"))
WANTED = int(os.environ.get("DEFERRED_FUZZ_VIEWS", "25"))
LONGEST = 1_000
"""Characters of a query: Spark plans the longer ones for many seconds."""


def test_views_equal_their_recomputation(spark: Any) -> None:
    checked, skipped, seed = 0, 0, FIRST
    while checked < WANTED:
        database = SparkDatabase(spark, random_schemas(seed // SHARED))
        case, _ = (spark_case_of if seed % 2 else case_of)(seed)
        seed += 1
        if len(case.query) > LONGEST:
            continue
        case = replace(case, steps=case.steps[:1])
        try:
            check(case, database)
            checked += 1
        except Skipped:
            skipped += 1
            assert skipped < WANTED / 4, "too many views that Spark cannot run"
        except Failure as failure:
            pytest.fail(report(case, failure, 120, database))
    print(f"seeds {FIRST} to {seed - 1}: {checked} views, {skipped} that Spark cannot run")
