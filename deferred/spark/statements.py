"""Statements as text, and Spark's errors in our words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.errors import InvalidInputError, InvalidSQLError, Place, SparkFailure
from deferred.sql.dialect import text

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

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


_POSITION = re.compile(r"\bline (\d+),? pos (\d+)")


@contextmanager
def translated(own: str | None = None, made: str | None = None) -> Iterator[None]:
    """Turns Spark's errors into DeferredErrors with Spark's message, without stack trace or plan.

    `own` is the text of a user from which the statement was `made`: an error says where in it that is what it is about.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except ParseException as error:
        raise InvalidSQLError(
            f"Spark does not parse the SQL: {brief(str(error))}", at=_place(error, own, made)
        ) from error
    except AnalysisException as error:
        remedy = _REMEDIES.get(error.getCondition() or "", "")
        raise InvalidSQLError(
            f"Spark refuses the SQL: {brief(str(error))}{remedy}", at=_place(error, own, made)
        ) from error
    except PySparkException as error:
        raise SparkFailure(brief(str(error)), at=_place(error, own, made)) from error
    except Py4JError as error:
        raise SparkFailure(f"Spark does not respond: {brief(str(error))}") from error
    except (TypeError, ValueError) as error:
        if "pyspark" in ((error.__traceback__ and str(error.__class__.__module__)) or ""):
            raise InvalidInputError(str(error)) from error
        raise


def _place(error: PySparkException, own: str | None, made: str | None) -> Place | None:
    """Where in the user's text that is what Spark's error is about."""
    if own is None:
        return None
    for context in error.getQueryContext():
        if context.contextType().name == "SQL" and (
            place := placed(own, made, context.fragment(), context.startIndex())
        ):
            return place
    position = _POSITION.search(str(error))
    if position is None or made is None:
        return None
    line, column = int(position[1]), int(position[2])
    start = sum(len(text) + 1 for text in made.split("\n")[: line - 1]) + column
    word = re.compile(r"`[^`]*`|\w+|\S").match(made, start)
    return None if word is None else placed(own, made, word[0], start)


def placed(own: str, made: str | None, part: str, start: int) -> Place | None:
    """Where a part of a statement is in the user's text from which it was made; None where that cannot be told.

    Other tables are named in the statement, and more may be around it. Where the part is in both equally often, it is
    the same one of them; otherwise the user's text must have it once.

    >>> placed("SELECT x, xy FROM t WHERE x > 1", "SELECT x, xy FROM d.`t` AS t WHERE x > 1", "x", 35).start
    26
    >>> placed("x > 1", "SELECT x FROM d.`t` WHERE x > 1", "x", 26).start
    0
    >>> placed("x > x", "SELECT x FROM d.`t` WHERE x > x", "x", 26) is None
    True
    """
    if not part.strip():
        return None
    ends = (r"(?<!\w)" if part[0].isalnum() else "", r"(?!\w)" if part[-1].isalnum() else "")
    pattern = re.compile(ends[0] + re.escape(part) + ends[1])
    ours = [found.start() for found in pattern.finditer(own)]
    theirs = [found.start() for found in pattern.finditer(made)] if made is not None else []
    if len(ours) == len(theirs) and start in theirs:
        begin = ours[theirs.index(start)]
    elif len(ours) == 1:
        begin = ours[0]
    else:
        return None
    return Place(own, begin, begin + len(part) - 1)


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
