"""What Delta's log says of the rows that a commit changed, without reading them: their files' statistics and partition
values, and the predicate of a DELETE or UPDATE. Whatever is not certain is not said.

- Bounds of texts are shortened by writers: a long maximum bounds nothing. Times are cut to milliseconds.
- delta-rs writes decimals by way of floating-point numbers, and those without digits after the point by way of 64-bit
  integers, of which the greatest stands for all that are greater. Who has written a file is not known.
- A maximum of floating-point numbers says nothing of NaN, which is greater; and a FLOAT is written with as few digits
  as tell it apart: 0.7 is really a little less.
- Delta writes a predicate as Spark prints it, with texts as they are, so that a text can look like a condition. Only
  forms that can be nothing else are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import ceil, floor
from typing import Any
from urllib.parse import unquote

from sqlglot import exp

from deferred.algebra.relevance import Known
from deferred.algebra.relevance.constants import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LOCAL,
    NUMBER,
    STRING,
    TIMESTAMP,
    Kind,
    kind_of,
    place,
)
from deferred.algebra.scalar import Scalar, column
from deferred.log.delta_log import DeltaLog

SHORTENED = 32
"""Statistics have this many characters of a text at most."""

LARGEST = 16_000_000
"""Commits with a longer log than this many bytes are not looked at: reading them takes longer than it may save."""

MILLISECOND = 1000
"""In microseconds: times in statistics are cut to it."""

EXACT_DIGITS = 15
"""Decimals of so many digits are the same after a floating-point number has held them."""

ROUNDED = Fraction(1, 2**49)
"""The part of itself by which a floating-point number may miss a decimal: it was rounded, divided and rounded again."""

LARGEST_WHOLE = 2**63 - 1
"""Stands in statistics for all decimals that are greater, its negation for all that are less."""

UNDERSTOOD = {"add", "remove", "cdc", "commitInfo", "txn", "domainMetadata"}
"""The actions of commits that change rows and nothing else."""

Action = Mapping[str, Any]


@dataclass(frozen=True)
class Touched:
    """Rows among which a commit changed some: what is known of their columns, and a condition that is true of them."""

    known: Mapping[str, Known]
    predicate: Scalar | None = None


class Commits:
    """The commits of a table after a version, and what they say of the rows that they changed."""

    def __init__(self, log: DeltaLog, after: int, columns: Mapping[str, str]) -> None:
        self._log = log
        self._after = after
        self._kinds = {name: kind for name, type_ in columns.items() if (kind := kind_of(type_)) is not None}
        self._added: dict[str, Mapping[str, Known]] = {}
        self._mapped = log.properties.get("delta.columnMapping.mode", "none") != "none"

    def touched(self, version: int) -> list[Touched] | None:
        """All rows that a commit can have changed, in groups; None where its log does not tell."""
        actions = self._log.actions(version, LARGEST)
        if not actions or self._mapped or any(set(action) - UNDERSTOOD for action in actions):
            return None
        added, removed = _changed(actions, "add"), _changed(actions, "remove")
        for path, action in added.items():
            self._added[path] = self._known(action)
        info = next((action["commitInfo"] for action in actions if "commitInfo" in action), None) or {}
        predicate = self._predicate(info)
        new = [] if info.get("operation") == "DELETE" else [path for path in added if path not in removed]
        before = {path: self._before(path, action) for path, action in removed.items()}
        return [
            *(Touched(known, predicate) for known in before.values()),
            *(Touched(self._added[path]) for path in new),
        ]

    def of_files(self, files: Iterable[Mapping[str, Any]]) -> list[Touched]:
        """The rows of some files that delta-rs lists, in groups."""
        return [Touched(self._known_before(file)) for file in files]

    def _before(self, path: str, action: Action) -> Mapping[str, Known]:
        """What is known of a file that was removed. Its bounds are where it was added: here, or earlier."""
        if path not in self._added:
            file = self._snapshot.get(path)
            self._added[path] = self._known(action) if file is None else self._known_before(file)
        return self._added[path]

    @cached_property
    def _snapshot(self) -> Mapping[str, Mapping[str, Any]]:
        """The files of the table before the first commit, by path, with their statistics."""
        return {unquote(file["path"]): file for file in self._log.files_at(self._after)}

    def _known(self, action: Action) -> Mapping[str, Known]:
        """What an action says of the rows in its file."""
        stats = json.loads(action.get("stats") or "{}", parse_float=Decimal)
        rows = stats.get("numRecords")
        found = {
            name: _bounds(
                kind,
                (stats.get("minValues") or {}).get(name),
                (stats.get("maxValues") or {}).get(name),
                (stats.get("nullCount") or {}).get(name),
                rows,
            )
            for name, kind in self._kinds.items()
        }
        values = action.get("partitionValues") or {}
        return found | {name: _partition(self._kinds[name], values[name]) for name in values if name in self._kinds}

    def _known_before(self, file: Mapping[str, Any]) -> Mapping[str, Known]:
        """The same, from the list of files that delta-rs gives."""
        found = {}
        for name, kind in self._kinds.items():
            if f"partition.{name}" in file:
                value = file[f"partition.{name}"]
                found[name] = _partition(kind, None if value is None else str(value))
            else:
                low, high, nulls = (file.get(f"{of}.{name}") for of in ("min", "max", "null_count"))
                found[name] = _bounds(kind, low, high, nulls, file.get("num_records"))
        return found

    def _predicate(self, info: Mapping[str, Any]) -> Scalar | None:
        """The condition that is true of all rows that a DELETE or an UPDATE found."""
        if info.get("operation") not in ("DELETE", "UPDATE"):
            return None
        try:
            listed = json.loads((info.get("operationParameters") or {}).get("predicate") or "[]")
        except ValueError:
            return None
        texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
        return predicate(texts[0], self._kinds) if len(texts) == 1 else None


def _changed(actions: Iterable[Action], kind: str) -> dict[str, Action]:
    """The files that a commit added or removed, by path, without those whose rows only moved."""
    listed = (action[kind] for action in actions if kind in action)
    return {unquote(file["path"]): file for file in listed if file.get("dataChange", True)}


def _bounds(kind: Kind, lowest: Any, highest: Any, nulls: Any, rows: Any) -> Known:
    """What statistics say of a column.

    >>> _bounds(Kind(STRING), "a", "b" * 32, 0, 5).highest is None
    True
    """
    if kind.name == STRING and lowest is not None and len(str(lowest)) >= SHORTENED:
        lowest = str(lowest)[: SHORTENED // 2]  # what a writer has made of the last character is not known
    least = place(lowest, kind) if lowest is not None else None
    most = place(highest, kind) if highest is not None else None
    if kind.name == NUMBER:
        least, most = _exact_number(kind, lowest, least, False), _exact_number(kind, highest, most, True)
    if kind.name == DOUBLE or (kind.name == STRING and len(str(highest)) >= SHORTENED):
        most = None
    if kind.name == DOUBLE and least is not None:
        least -= (abs(least) + 1) / 10**6
    if kind.name in (TIMESTAMP, LOCAL):
        least, most = (None if b is None else b + by for b, by in ((least, -MILLISECOND), (most, MILLISECOND)))
    has_values = nulls is None or rows is None or nulls < rows
    return Known(least, most, has_nulls=nulls != 0, has_values=has_values)


def _exact_number(kind: Kind, written: Any, bound: Fraction | None, is_highest: bool) -> Fraction | None:
    """A bound of exact numbers, moved to the farthest value of their type for which a writer may have written it.

    >>> _exact_number(kind_of("decimal(18,1)"), 12345678901234566.0, Fraction(12345678901234566), True)
    Fraction(123456789012345879, 10)
    >>> _exact_number(kind_of("decimal(20,2)"), 5, Fraction(5), True)
    Fraction(5, 1)
    """
    if bound is None or kind.whole:
        return bound if isinstance(written, int) else None  # else it is not known how it was rounded
    if kind.before_point + kind.after_point <= EXACT_DIGITS:
        return bound
    if kind.after_point == 0 and abs(bound) >= LARGEST_WHOLE:
        return None
    units, missed = bound * 10**kind.after_point, abs(bound) * 10**kind.after_point * ROUNDED
    moved = floor(units + missed) if is_highest else ceil(units - missed)
    return Fraction(moved, 10**kind.after_point)


def _partition(kind: Kind, value: str | None) -> Known:
    """What a partition value says: all rows of a file have it. Delta has no empty text there, and no time zones."""
    if value is None or value == "":
        return Known()
    found = place(value, kind) if kind.name in (NUMBER, DATE, BOOLEAN, STRING) else None
    return Known() if found is None else Known(found, found, has_nulls=False)


# ---- predicates

_TOKEN = re.compile(
    r"\s*(?:(?P<column>[A-Za-z_]\w*)#\d+L?(?![\w#])|(?P<date>\d{4}-\d\d-\d\d)(?!\S*\d)|(?P<number>-?\d+(?:\.\d+)?)(?![\w.:#-])"
    r"|(?P<word>AND|OR|NOT|IN|true|isnull|isnotnull)\b|(?P<sign><=>|<=|>=|!=|[()<>=,]))"
)
_OPERATORS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "<=>": exp.NullSafeEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}


class _NotRead(Exception):
    """A text is not of a form that can be only one condition."""


def predicate(text: str, kinds: Mapping[str, Kind]) -> Scalar | None:
    """The condition that Spark has printed, over the table's columns; None where it could be another one.

    A text is printed without quotes, so of texts only a comparison that is the whole predicate is read. All others are
    about numbers, dates and booleans, and compare a column: no part of them can be a text that looks like it.

    >>> print(predicate("((id#7 > 5) AND isnotnull(id#7))", {"id": kind_of("int")}))
    ("id" > 5 AND NOT "id" IS NULL)
    >>> print(predicate("(s#7 = x y)", {"s": kind_of("string")}))
    "s" = 'x y'
    >>> predicate("((s#7 = x) AND (id#8 = 1))", {"s": kind_of("string"), "id": kind_of("int")}) is None
    True
    """
    names = {name.casefold(): name for name in kinds}
    alone = re.fullmatch(r"\(([A-Za-z_]\w*)#\d+ = ([^#()]*)\)", text)
    if alone and (name := names.get(alone[1].casefold())) is not None and kinds[name].name == STRING:
        return exp.EQ(this=column(name), expression=exp.Literal.string(alone[2]))
    try:
        return _Reader(text, names, kinds).whole()
    except _NotRead:
        return None


class _Reader:
    """Reads a printed predicate: every operand of AND, OR and NOT is in parentheses, or a call, or a column."""

    def __init__(self, text: str, names: Mapping[str, str], kinds: Mapping[str, Kind]) -> None:
        self._names, self._kinds = names, kinds
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise _NotRead
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()

    def whole(self) -> Scalar:
        condition = self._condition()
        if self._tokens:
            raise _NotRead
        return condition

    def _condition(self) -> Scalar:
        """One operand, or several that AND or OR links, never both without parentheses."""
        result = self._operand()
        links = set()
        while self._tokens and self._tokens[0] in (("word", "AND"), ("word", "OR")):
            link = self._take("word")
            links.add(link)
            connector = exp.And if link == "AND" else exp.Or
            result = connector(this=result, expression=self._operand())
        if len(links) > 1:
            raise _NotRead
        return result

    def _operand(self) -> Scalar:
        kind, text = self._tokens[0] if self._tokens else ("", "")
        if (kind, text) == ("sign", "("):
            self._take("sign", "(")
            inner = self._condition()
            self._take("sign", ")")
            return exp.Paren(this=inner) if isinstance(inner, exp.Connector) else inner
        if kind == "word":
            self._take("word")
            if text == "true":
                return exp.true()
            if text == "NOT":
                return exp.Not(this=exp.Paren(this=self._operand()))
            if text in ("isnull", "isnotnull"):
                self._take("sign", "(")
                is_null = exp.Is(this=self._column()[0], expression=exp.Null())
                self._take("sign", ")")
                return is_null if text == "isnull" else exp.Not(this=is_null)
        return self._comparison()

    def _comparison(self) -> Scalar:
        left, kind = self._column()
        if self._tokens and self._tokens[0] == ("word", "IN"):
            self._take("word", "IN")
            self._take("sign", "(")
            values = [self._constant(kind)]
            while self._tokens and self._tokens[0] == ("sign", ","):
                self._take("sign", ",")
                values.append(self._constant(kind))
            self._take("sign", ")")
            return exp.In(this=left, expressions=values)
        operator = _OPERATORS.get(self._tokens[0][1]) if self._tokens else None
        if operator is None:
            if kind.name != BOOLEAN:
                raise _NotRead
            return left
        self._take("sign")
        if self._tokens and self._tokens[0][0] == "column":
            right, other = self._column()
            if other.name != kind.name:
                raise _NotRead
            return operator(this=left, expression=right)
        return operator(this=left, expression=self._constant(kind))

    def _column(self) -> tuple[Scalar, Kind]:
        name = self._names.get(self._take("column").casefold())
        if name is None or self._kinds[name].name not in (NUMBER, DATE, BOOLEAN):
            raise _NotRead
        return column(name), self._kinds[name]

    def _constant(self, kind: Kind) -> Scalar:
        if kind.name == DATE:
            return exp.cast(exp.Literal.string(self._take("date")), "date")
        if kind.name != NUMBER:
            raise _NotRead
        number = self._take("number")
        literal = exp.Literal.number(number.removeprefix("-"))
        return exp.Neg(this=literal) if number.startswith("-") else literal

    def _take(self, kind: str, text: str | None = None) -> str:
        """The next token, which must be of a kind."""
        if not self._tokens or self._tokens[0][0] != kind or text not in (None, self._tokens[0][1]):
            raise _NotRead
        return self._tokens.pop(0)[1]
