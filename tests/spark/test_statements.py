"""Spark's errors in our words: with the place in the user's own text, and without Spark's plans. No JVM."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException, QueryContextType

from deferred.errors import DeferredError, InvalidSQLError, SparkFailure
from deferred.spark.statements import translated

OWN = "SELECT s.a,\n  ab FROM sales s WHERE ab > 1"
MADE = "SELECT s.a,\n  ab FROM delta.`/tables/sales` s WHERE ab > 1"


class Context:
    """What Spark says of the part of a statement that an error is about."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end

    def contextType(self) -> QueryContextType:
        return QueryContextType.SQL

    def fragment(self) -> str:
        return MADE[self.start : self.end + 1]

    def startIndex(self) -> int:
        return self.start


def raised(error: PySparkException, own: str | None, made: str | None) -> DeferredError:
    with pytest.raises(DeferredError) as found, translated(own, made):
        raise error
    return found.value


def of_spark(message: str, *contexts: Any, kind: type[PySparkException] = AnalysisException) -> PySparkException:
    return kind(message=message, contexts=list(contexts))


def test_the_part_that_spark_names_is_marked_in_the_users_text() -> None:
    start = MADE.rindex("ab")
    error = raised(
        of_spark("[UNRESOLVED] No column ab; line 2 pos 39;\n'Project", Context(start, start + 1)), OWN, MADE
    )
    assert isinstance(error, InvalidSQLError)
    assert error.shown_place.splitlines() == [
        "line 2 |   ab FROM sales s WHERE ab > 1",
        "       |                         ^^",
    ]
    assert str(error) == "Spark refuses the SQL: No column ab (UNRESOLVED)."


def test_a_line_and_a_column_are_enough() -> None:
    message = f"[PARSE_SYNTAX_ERROR] Syntax error at 'WHERE'. (line 2, pos {MADE.splitlines()[1].index('WHERE')})"
    error = raised(of_spark(message, kind=ParseException), OWN, MADE)
    assert error.place is not None
    assert (error.place.line, error.place.text) == (2, "WHERE")


def test_an_error_while_rows_are_read() -> None:
    """Then the statement is not known any more: what it is about must be in the text once."""
    division = MADE.index("s.a")
    error = raised(of_spark("Division by zero", Context(division, division + 2), kind=PySparkException), OWN, None)
    assert isinstance(error, SparkFailure)
    assert error.place is not None
    assert error.place.text == "s.a"


def test_no_place_is_better_than_a_wrong_one() -> None:
    elsewhere = MADE.index("delta")
    for own in (None, "SELECT 1"):
        assert raised(of_spark("[X] y; line 1 pos 7", Context(elsewhere, elsewhere + 4)), own, MADE).place is None
