"""Statements as text, and Spark's errors in our words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp

from deferred.errors import InvalidInputError, InvalidSQLError, SparkFailure
from deferred.sql.dialect import text

Statement = str | exp.Expr
"""SQL as text, or as a tree, which becomes text here and nowhere else."""


def statement_text(statement: Statement) -> str:
    return statement if isinstance(statement, str) else text(statement)


_REMEDIES = {
    "UNRESOLVED_ROUTINE": " A function that views use must be found by every process: name it in [functions] of the "
    "configuration, or make it with CREATE FUNCTION; a temporary function is known to one session only."
}
"""What a user can do about an error of Spark, by its condition."""

_CONDITION = re.compile(r"^\[([A-Z0-9_.]+)\]\s*(.*)$", re.DOTALL)


@contextmanager
def translated() -> Iterator[None]:
    """Turns Spark's errors into DeferredErrors with Spark's message, without stack trace or plan."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except ParseException as error:
        raise InvalidSQLError(f"Spark does not parse the SQL: {brief(str(error))}") from error
    except AnalysisException as error:
        remedy = _REMEDIES.get(error.getCondition() or "", "")
        raise InvalidSQLError(f"Spark refuses the SQL: {brief(str(error))}{remedy}") from error
    except PySparkException as error:
        raise SparkFailure(brief(str(error))) from error
    except Py4JError as error:
        raise SparkFailure(f"Spark does not respond: {brief(str(error))}") from error
    except (TypeError, ValueError) as error:
        if "pyspark" in ((error.__traceback__ and str(error.__class__.__module__)) or ""):
            raise InvalidInputError(str(error)) from error
        raise


def brief(message: str) -> str:
    """Spark's message without stack trace, plan and line breaks, ending with a full stop."""
    text = message.split("\n\nJVM stacktrace")[0].split("\n\tat ")[0]
    text = re.sub(r";\s*line \d+ pos \d+;?.*$", "", text, flags=re.DOTALL)
    text = re.split(r"\n\s*'?[+:]?-? ?'?(Project|Aggregate|Filter|Join|Sort|Distinct)\b", text)[0]
    found = _CONDITION.match(text.strip())
    if found:
        text = f"{found.group(2)} ({found.group(1)})"
    text = re.sub(r"\s+", " ", text).strip()
    return text[:600].rstrip(". ") + "."
