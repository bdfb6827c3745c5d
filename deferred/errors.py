"""Every error that a user can cause. Each message says what happened, to which object, and what to do next.

A class of errors has a code, and says why such an error is raised and what to do about it; docs/ERRORS.md is made from
here (`make errors`). Errors about SQL know their place in the text, and show it with a caret line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

_SECRETS = (
    (re.compile(r"(://[^:/@\s]*:)[^@\s]+@"), r"\1***@"),
    (re.compile(r"((?:token|password|passwd|passfile|secret|access.?key)[\w.]*=)[^;&\s'\"]+", re.IGNORECASE), r"\1***"),
)


def redacted(text: str) -> str:
    """A text without passwords and tokens: messages are shown on pages, kept in the history and sent to logs.

    >>> redacted("no answer from postgresql://me:p:w@host/db?sslpassword=x and sc://host:1/;token=abc;user_id=me")
    'no answer from postgresql://me:***@host/db?sslpassword=*** and sc://host:1/;token=***;user_id=me'
    """
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class Node(Protocol):
    """A node of parsed SQL; those that stand in the text have `start`, `end` and `sql` in their meta."""

    @property
    def meta(self) -> Mapping[str, Any]: ...

    def walk(self) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Place:
    """A part of an SQL text, from one character to another, both included."""

    sql: str
    start: int
    end: int

    @classmethod
    def of(cls, node: Node) -> Place | None:
        """Returns where a node stands in the text that it was parsed from, None where that is not known."""
        spans = [part.meta for part in node.walk() if "sql" in part.meta]
        if not spans:
            return None
        sql = spans[0]["sql"]
        spans = [span for span in spans if span["sql"] is sql]
        start, end = min(span["start"] for span in spans), max(span["end"] for span in spans)
        return cls(sql, start, _closed(sql, start, end, "start" in node.meta))

    @classmethod
    def at(cls, sql: str, line: int, start: int, end: int) -> Place:
        """Returns the part from one column to another of a line; lines count from 1, columns from 0."""
        before = sum(len(text) + 1 for text in sql.split("\n")[: line - 1])
        return cls(sql, before + start, before + end)

    @property
    def line(self) -> int:
        """The number of its line, from 1."""
        return self.sql.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        """The number of its first character in the line, from 1."""
        return self.start - self.sql.rfind("\n", 0, self.start)

    @property
    def text(self) -> str:
        """The characters themselves."""
        return self.sql[self.start : self.end + 1]

    def __str__(self) -> str:
        """The line, and carets under the part of it that is meant; a long line is cut on both sides.

        >>> print(Place("SELECT a\\nFROM t\\nWHERE a > rnd()", 26, 30))
        line 3 | WHERE a > rnd()
               |           ^^^^^
        """
        first = self.start - self.column + 1
        line = self.sql[first:].partition("\n")[0]
        begin = max(0, min(self.column - 1 - 20, len(line) - WIDEST))
        shown = line[begin : begin + WIDEST].replace("\t", " ")
        position = self.column - 1 - begin
        carets = "^" * max(1, min(self.end - self.start + 1, len(shown) - position))
        label = f"line {self.line}"
        cut = "…" if begin else ""
        return f"{label} | {cut}{shown}\n{' ' * len(label)} | {' ' * (position + len(cut))}{carets}"


WIDEST = 100
"""Characters of a line of SQL that are shown with an error."""


def _closed(sql: str, start: int, end: int, call: bool) -> int:
    """The end of a part that has its closing parentheses too; after the name of a call, all of its parentheses.

    >>> _closed("f(a, (b))", 0, 6, True), _closed("a + b", 0, 0, True)
    (8, 0)
    """
    if call and sql[end + 1 :].lstrip().startswith("(") and "(" not in sql[start : end + 1]:
        end = sql.index("(", end)
    while sql.count("(", start, end + 1) > sql.count(")", start, end + 1):
        following = sql.find(")", end + 1)
        if following < 0:
            return end
        end = following
    return end


class DeferredError(Exception):
    """Something went wrong that the message explains."""

    # The base of all errors that a user can cause or fix. No message contains a secret, whoever has written it.

    code: ClassVar[str] = "D001"
    why: ClassVar[str] = "No other code says it better."
    remedy: ClassVar[str] = "Do what the message says."

    place: Place | None = None
    """Where in the SQL text it is."""

    def __init__(self, *arguments: object, at: Node | Place | None = None) -> None:
        super().__init__(*(redacted(part) if isinstance(part, str) else part for part in arguments))
        if at is not None:
            self.place = at if isinstance(at, Place) else Place.of(at)

    def prefixed(self, prefix: str, suffix: str = "") -> Self:
        """Returns the same error with more to its message."""
        return type(self)(f"{prefix}{self}{suffix}", at=self.place)

    def to_dict(self) -> dict[str, Any]:
        """Returns the error as a part of a JSON document."""
        where = None
        if self.place is not None:
            text = redacted(self.place.text)
            where = {"line": self.place.line, "column": self.place.column, "text": text, "shown": self.shown_place}
        return {
            "type": type(self).__name__,
            "code": self.code,
            "message": str(self),
            "where": where,
            "why": self.why,
            "remedy": self.remedy,
        }

    @property
    def shown_place(self) -> str:
        """The SQL with a caret line; empty where the place is not known."""
        return "" if self.place is None else redacted(str(self.place))


@contextmanager
def located(node: Node) -> Iterator[None]:
    """Gives an error that is raised in the block the place of a node, unless it has one."""
    try:
        yield
    except DeferredError as error:
        if error.place is None:
            error.place = Place.of(node)
        raise


class ConfigurationError(DeferredError):
    """A setting, a configuration file or a command-line value is not usable."""

    code = "D101"
    why = "Nothing is guessed: a misspelled setting would otherwise be ignored, and another warehouse be used."
    remedy = (
        "Correct the file and the setting that the message names. `deferred init` writes a file with every setting."
    )


class MetadataError(DeferredError):
    """The metadata database is unreachable, has no schema, or a schema of another version."""

    code = "D102"
    why = "Which tables are tracked and what each view shows is in that database; without it nothing can be maintained."
    remedy = (
        "Check `warehouse.metadata_url`, and that the database runs. `deferred db upgrade` gives it the schema of the "
        "installed version; `deferred init` makes a new one."
    )


class UnknownObjectError(DeferredError):
    """A table, view, column or operation with that name does not exist."""

    code = "D201"
    why = "A view reads tracked tables and other views by their names, and commands take the names of views."
    remedy = (
        "The message names what comes closest. `deferred status` lists views and tables; `deferred track` adds one."
    )


class NameTakenError(DeferredError):
    """Something with that name exists already."""

    code = "D202"
    why = "Tables and views share one space of names, compared without case, so that SQL means one thing."
    remedy = "Choose another name, or `untrack` or `drop` what has it. `CREATE OR REPLACE` changes an existing view."


class InvalidNameError(DeferredError):
    """A name that cannot be the name of a table or view."""

    code = "D203"
    why = "The name has to work in SQL and as the name of a folder."
    remedy = "Use letters, digits and underscores, and begin with a letter."


class InvalidSQLError(DeferredError):
    """SQL text that does not parse, does not resolve, or that Spark refuses."""

    code = "D301"
    why = "The text has no meaning in Spark SQL, so there is nothing to maintain."
    remedy = "Correct the marked part. A query that Spark accepts with `deferred sql` is a query that a view can have."


class UnsupportedSQLError(DeferredError):
    """SQL that is well-formed and that a view may not contain; the construct is named."""

    code = "D302"
    why = (
        "There is no incremental rule for the construct. With `refresh_policy = 'auto'` or `'incremental'` such a view "
        "is recomputed at each propagate; `'incremental_strict'` refuses it."
    )
    remedy = "Write it as the message says, see docs/SQL.md for what has a rule; or choose another refresh_policy."


class NondeterministicSQLError(UnsupportedSQLError):
    """SQL whose result is not decided by the base tables alone, so no way of maintaining it could be correct."""

    code = "D303"
    why = (
        "A view is equal to its query at a state of its tables. What depends on the clock, on chance or on the order "
        "of rows has no such value: two recomputations would differ."
    )
    remedy = (
        "Store the value in a column when the table is written, filter on it when the view is read, or add the ORDER "
        "BY that decides it."
    )


class UnsafeSQLError(UnsupportedSQLError):
    """SQL that would run code, or read anything but tracked tables."""

    code = "D304"
    why = "Views are run again by schedulers, with their rights. Files and code that nobody has tracked are not theirs."
    remedy = "`deferred track` the table, and name it in the query. See docs/SECURITY.md."


class EndlessRecursionError(DeferredError):
    """A recursion that still finds new rows after as many rounds as it may take."""

    code = "D305"
    why = "WITH RECURSIVE ends when a round finds no new rows. Counting up, or a cycle under UNION ALL, never ends."
    remedy = "Use UNION instead of UNION ALL, or bound it with a condition, such as `WHERE level < 100`."


class InvalidInputError(DeferredError):
    """Rows, timestamps or parameters that do not fit what they are for."""

    code = "D401"
    why = "The value cannot mean what it is given for."
    remedy = "Give a value of the form that the message shows."


class LogLostError(DeferredError):
    """The base log that a view needs is gone or cannot be trusted; `rebuild` fixes the view."""

    code = "D501"
    why = (
        "What has changed since the view's last cut is no longer known: VACUUM, retention, a table that was recreated, "
        "or a column that was dropped. Guessing would show wrong rows, so the view stays as it is, marked broken."
    )
    remedy = "`deferred rebuild VIEW` recomputes it from the tables as they are. Keep logs longer than views are stale."


class StorageError(DeferredError):
    """Files cannot be read at present. Nothing is known to be lost, and nothing was changed: it may be tried again."""

    code = "D502"
    why = "The storage did not answer, or refused access."
    remedy = "Run the same command again. If it goes on, check the path, the credentials and the storage itself."


class InvariantError(DeferredError):
    """`verify` found a state in which the scenario's invariant does not hold."""

    code = "D503"
    why = "The view's tables do not hold what its query gives: somebody wrote them, or there is a defect."
    remedy = "`deferred rebuild VIEW` repairs it for its readers. Then find out what wrote the view's folder."


class TransactionError(DeferredError):
    """A transaction could not be completed; its changes were undone."""

    code = "D504"
    why = "One of its statements failed, or another job has changed the same rows in the meantime."
    remedy = "Correct the statement or run it again. `deferred transaction list` shows what could not be undone."


class PromiseBrokenError(DeferredError):
    """A base table does not keep the key or the references that it was tracked with, and a view relies on them."""

    code = "D505"
    why = (
        "A view with maintain = 'self' keeps only the rows that keys and references let a change meet. With others its "
        "rows would be wrong, so the view stays as it is, marked broken."
    )
    remedy = "Correct the rows that the message names, then `deferred rebuild VIEW`; `deferred verify` checks them all."


class LeaseHeldError(DeferredError):
    """Another process is working on the same view."""

    code = "D601"
    why = "Two propagates of one view at the same time would compute the same changes twice; one waits, then gives up."
    remedy = "Wait and run it again. A lease of a process that died expires by itself."


class LeaseLostError(DeferredError):
    """Another process has taken over the work: this one was away for too long, and may no longer write."""

    code = "D602"
    why = "The process was stopped or cut off for longer than its lease, and somebody else has gone on."
    remedy = "Nothing is lost and nothing was written twice. Run it again if the view is still stale."


class SparkFailure(DeferredError):
    """Spark or Delta refused or failed a statement."""

    code = "D701"
    why = "The reason is Spark's own: memory, a lost executor, a cluster that cannot be reached, a failing function."
    remedy = "Nothing was committed; run it again after the cause is gone. `DEFERRED_DEBUG=1` shows Spark's messages."


class StaleReadWarning(UserWarning):
    """A view was read as it is, although it was to be refreshed before: that has failed, for the reason given."""


def all_errors() -> list[type[DeferredError]]:
    """Returns every class of errors, by code.

    >>> [error.code for error in all_errors()][:3]
    ['D001', 'D101', 'D102']
    """
    found, left = [], [DeferredError]
    while left:
        error = left.pop()
        found.append(error)
        left += error.__subclasses__()
    return sorted((e for e in found if e.__module__.partition(".")[0] == "deferred"), key=lambda e: e.code)


def not_one_of(name: str, value: object, choices: Sequence[object]) -> InvalidInputError:
    """The error that a parameter has a value that it cannot have.

    >>> print(not_one_of("order", "x", ["first", "last"]))
    order must be first or last, not 'x'.
    >>> print(not_one_of("scenario", None, ["a", "b", "c"]))
    scenario must be one of a, b, c, not None.
    """
    listed = " or ".join(map(str, choices)) if len(choices) == 2 else "one of " + ", ".join(map(str, choices))
    return InvalidInputError(f"{name} must be {listed}, not {value!r}.")


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that says that a name does not exist: the names that come closest to it.

    >>> "There is no table custmer" + nearest("custmer", ["customer", "sales"])
    'There is no table custmer; did you mean customer?'
    >>> "There is no table x" + nearest("x", ["customer", "sales"])
    'There is no table x; there are customer, sales.'
    >>> "There is no table x" + nearest("x", [])
    'There is no table x.'
    """
    known = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name.casefold(), known, n=3, cutoff=0.5)
    if close:
        return "; did you mean " + " or ".join(known[c] for c in close) + "?"
    listed = sorted(known.values())
    if listed:
        return "; there are " + ", ".join(listed[:8]) + (", …" if len(listed) > 8 else ".")
    return "."
