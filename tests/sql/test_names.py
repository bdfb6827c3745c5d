"""Which column a name means: the plans of queries in which it could mean two things give the rows that Spark gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.fuzz.case import Case
from tests.fuzz.check import check
from tests.fuzz.duck import Database
from tests.fuzz.on_spark import SparkDatabase
from tests.sql.names import NAMES, ROWS, SCHEMA

FIELD = "SELECT NAMED_STRUCT('x', a) AS c, c.x AS d FROM t ORDER BY c.x, d LIMIT 2"
"""A field of an alias; DuckDB has no NAMED_STRUCT."""


@pytest.mark.parametrize("sql", NAMES)
def test_a_name_means_what_it_means_to_spark(sql: str) -> None:
    database = Database({"t": SCHEMA})
    database.replace("t", Counter(ROWS))
    assert database.evaluate(database.bind(sql)) == Counter(NAMES[sql])
    database.close()


def test_the_rows_are_those_of_spark(spark: Any) -> None:
    database = SparkDatabase(spark, {"t": SCHEMA})
    database.replace("t", Counter(ROWS))
    assert {sql: rows for sql, rows in NAMES.items() if database.query(sql) != Counter(rows)} == {}
    check(Case({"t": SCHEMA}, FIELD, {"t": ROWS}, ()), database)
