"""Debezium's events: what each says about a row, at which position of its source, and what is known in the end.

An event is a statement about one key: at this position the row is so, or is gone. Of two statements about a key the one
with the greater position holds. So the result depends neither on the order of the events nor on how often one is
delivered: taking the greatest is commutative, associative and idempotent.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from deferred.algebra.types import BITS, Columns
from deferred.errors import InvalidInputError

UNAVAILABLE = "__debezium_unavailable_value"
"""What PostgreSQL's connector sends for a large value that an update has not changed."""

FILE = "file/"
"""Begins the positions in MySQL's log."""

COARSE = ("scn", "ts_ns", "ts_us", "ts_ms")
"""The kinds of positions that several events of a key may share: of these, the one that comes later holds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    "io.debezium.time.Timestamp": 1000,
    "org.apache.kafka.connect.data.Timestamp": 1000,
    "io.debezium.time.MicroTimestamp": 1,
}
"""By the name of a field's schema: how many microseconds one is."""

_SIMPLE = frozenset([*BITS, "float", "double", "string", "boolean", "date", "timestamp", "timestamp_ntz", "binary"])


@dataclass(frozen=True)
class Statement:
    """What is known of a key: the row at a position, None where it is gone."""

    position: str
    row: tuple[Any, ...] | None


@dataclass(frozen=True)
class Newest:
    """How far the log of a source has been read: the greatest position, its server, and the latest time of all."""

    position: str
    server: int
    moment: int

    def after(self, position: str, source: Mapping[str, Any]) -> Newest:
        """The same after one more event.

        MySQL numbers the files of its log from 1 again on another server, and after RESET MASTER. Then what is new
        seems to be old, and would be left out. An event that comes again, or late, is not later than all others.
        """
        server, moment = _number(source, "server_id"), _number(source, "ts_ms")
        elsewhere = _file_of(position) != _file_of(self.position) or 0 < server != self.server > 0  # a snapshot has 0
        if position.startswith(FILE) and position < self.position and moment > self.moment and elsewhere:
            raise _MalformedError(
                f"is later than all events before it, but its position ({_shown(position)}, server {server}) is "
                f"before theirs ({_shown(self.position)}, server {self.server}): the log of the source is numbered "
                f"anew, as after a failover, and the order is not known. Untrack the table and track it again, "
                f"from a new snapshot."
            )
        moment = max(moment, self.moment)
        return Newest(position, server, moment) if position > self.position else replace(self, moment=moment)


@dataclass
class Statements:
    """The statements that hold, by key; a truncation says of every key that it is gone."""

    by_key: dict[tuple[Any, ...], Statement] = field(default_factory=dict)
    truncated: str | None = None
    events: int = 0
    newest: Newest | None = None

    def add(self, key: tuple[Any, ...], statement: Statement) -> None:
        """Take in a statement; of equal positions the later one holds: a row may be written twice at one."""
        known = self.by_key.get(key)
        if known is None or statement.position >= known.position:
            self.by_key[key] = statement


def check_columns(table: str, columns: Columns) -> None:
    """Refuse types whose values cannot be told from JSON."""
    for name, type_ in columns:
        kind = type_.lower()
        if kind not in _SIMPLE and not kind.startswith(("decimal(", "varchar(", "char(")):
            raise InvalidInputError(
                f"Column {name} of {table} is {type_}, which cannot be read from Debezium's events. Declare it as "
                f"STRING; a view can take it apart."
            )


def statements(
    events: Iterable[tuple[str, Any]], columns: Columns, key: Sequence[str], table: str, newest: Newest | None = None
) -> Statements:
    """What events say, each given with what it is called in a message. Refuses all of them if one is malformed.

    `newest` is how far the source had been read before.
    """
    found = Statements(newest=newest)
    reader = _Reader(table, columns, key)
    for place, event in events:
        try:
            found.events += reader.take(event, found)
        except _MalformedError as error:
            raise InvalidInputError(f"{place} for {table} {error} Nothing was changed.") from None
    return found


def lines(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """The events of a file: one per line, or one array of them."""
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text, parse_float=Decimal)
        except ValueError as error:
            raise InvalidInputError(f"{name} is not JSON: {error}. Nothing was changed.") from None
        yield from ((f"Event {number} of {name}", event) for number, event in enumerate(listed, start=1))
        return
    # A text in JSON may contain what Python takes for the end of a line, such as U+2028.
    each = text.removesuffix("\n").split("\n")
    yield from ((f"Line {number} of {name}", line) for number, line in enumerate(each, start=1))


class _MalformedError(Exception):
    """Why an event cannot be taken, as the end of a sentence about it."""


@dataclass(frozen=True)
class _Reader:
    table: str
    columns: Columns
    key: Sequence[str]

    def take(self, event: Any, found: Statements) -> int:
        """Take in an event; returns how many it was: a tombstone is none."""
        payload, types = _payload(event)
        if payload is None:
            return 0
        operation = payload.get("op")
        if operation == "m":  # a message in the log of the source, about no row
            return 0
        at = position(payload.get("source"), next(iter(found.by_key.values()), None) or found.truncated)
        source = payload["source"]
        first = Newest(at, _number(source, "server_id"), _number(source, "ts_ms"))
        found.newest = first if found.newest is None else found.newest.after(at, source)
        if operation == "t":
            found.truncated = max(found.truncated or at, at)
            return 1
        if operation not in ("c", "r", "u", "d"):
            raise _MalformedError(
                f"has op {operation!r}. Debezium's whole envelopes are needed (before, after, op, source), without "
                f"ExtractNewRecordState."
            )
        before, after = payload.get("before"), payload.get("after")
        if operation == "d":
            if not isinstance(before, Mapping):
                raise _MalformedError("deletes a row without naming it: before is empty.")
            found.add(self._key(before, types), Statement(at, None))
            return 1
        if not isinstance(after, Mapping):
            raise _MalformedError(f"has op {operation!r} and no row: after is empty.")
        row = self._values(after, self.columns, types)
        new = self._key(after, types)
        if operation == "u" and isinstance(before, Mapping) and _has(before, self.key):
            old = self._key(before, types)
            if old != new:
                found.add(old, Statement(at, None))
        found.add(new, Statement(at, row))
        return 1

    def _key(self, row: Mapping[str, Any], types: Mapping[str, Any]) -> tuple[Any, ...]:
        named = {name.casefold(): (name, type_) for name, type_ in self.columns}
        values = self._values(row, [named[name.casefold()] for name in self.key], types)
        if None in values:
            raise _MalformedError(f"has no value for its key ({', '.join(self.key)}).")
        return values

    def _values(self, row: Mapping[str, Any], columns: Columns, types: Mapping[str, Any]) -> tuple[Any, ...]:
        given = {str(name).casefold(): (name, value) for name, value in row.items()}
        values = []
        for name, type_ in columns:
            if name.casefold() not in given:
                raise _MalformedError(
                    f"has no column {name}. It has {', '.join(map(str, row)) or 'none'}; untrack {self.table} and "
                    f"track it with the columns that it has."
                )
            sent, value = given[name.casefold()]
            values.append(_converted(value, type_.lower(), types.get(sent) or {}, name))
        return tuple(values)


def _has(row: Mapping[str, Any], names: Sequence[str]) -> bool:
    return {name.casefold() for name in names} <= {str(name).casefold() for name in row}


def _payload(event: Any) -> tuple[Mapping[str, Any] | None, dict[str, Any]]:
    """An event's payload, None for a tombstone, and the schemas of the fields of its rows, where it has them.

    A row of Spark is an event by its columns, or has one in its column `value`, as a row of a Kafka topic.
    """
    if hasattr(event, "asDict"):
        event = event.asDict(recursive=True)
        event = event["value"] if "value" in event and "op" not in event else event
    if isinstance(event, (bytes, bytearray)):
        event = bytes(event).decode("utf-8", errors="replace")
    if isinstance(event, str):
        if not event.strip():
            return None, {}
        try:
            event = json.loads(event, parse_float=Decimal)
        except ValueError as error:
            raise _MalformedError(f"is not JSON: {error}.") from None
    if event is None:
        return None, {}
    if not isinstance(event, Mapping):
        raise _MalformedError(f"is not an object, but {type(event).__name__}.")
    if "payload" not in event:
        return event, {}
    if event["payload"] is not None and not isinstance(event["payload"], Mapping):
        raise _MalformedError("has a payload that is not an object.")
    fields = ((event.get("schema") or {}).get("fields")) or []
    rows = [part for part in fields if part.get("field") in ("before", "after")]
    types = {f["field"]: f for part in rows for f in part.get("fields") or []}
    return event["payload"], types


_NUMBERED = re.compile(r"(.*?)(\d+)\Z")


def position(source: Any, known: Statement | str | None = None) -> str:
    """The position of an event in the log of its source, as a text that sorts like it.

    >>> position({"lsn": 24023128}) < position({"lsn": 124023128})
    True
    >>> position({"file": "bin.000003", "pos": 154, "row": 1})
    'file/bin./00000000000000000003/00000000000000000154/00000000000000000001'
    """
    if not isinstance(source, Mapping):
        raise _MalformedError("has no source, so its position is not known.")
    found = _position(source)
    if found is None:
        raise _MalformedError(
            f"has no position: its source has none of lsn, file and pos, commit_lsn, scn, ts_ns, ts_us, ts_ms, only "
            f"{', '.join(map(str, source)) or 'nothing'}."
        )
    kind, parts = found
    before = known.position if isinstance(known, Statement) else known
    if before is not None and before.partition("/")[0] != kind:
        raise _MalformedError(
            f"has a position of another kind ({kind}) than the events before it ({before.partition('/')[0]}): their "
            f"order is not known."
        )
    return "/".join([kind, *(f"{part:020}" if isinstance(part, int) else part for part in parts)])


def _number(source: Mapping[str, Any], name: str) -> int:
    """A number in the position of an event; 0 where it is missing."""
    try:
        return int(source.get(name) or 0)
    except (TypeError, ValueError):
        raise _MalformedError(f"has the position {name} = {source.get(name)!r}, which is not a number.") from None


def _position(source: Mapping[str, Any]) -> tuple[str, list[int | str]] | None:
    """The kind of a position, and its parts as they are compared.

    A snapshot of SQL Server has the commit of its moment, and no change. The SCN of Oracle is shared by changes that
    are made at one moment: what orders them depends on Debezium's version and on how it reads Oracle's log.
    """
    if source.get("lsn") is not None:
        return "lsn", [_number(source, "lsn")]
    if source.get("file") is not None and source.get("pos") is not None:
        name = _NUMBERED.match(str(source["file"]))
        file: list[int | str] = [name[1], int(name[2])] if name else [str(source["file"])]
        return "file", [*file, _number(source, "pos"), _number(source, "row")]
    if source.get("commit_lsn") is not None or source.get("change_lsn") is not None:
        commit, change = (str(source.get(name) or "") for name in ("commit_lsn", "change_lsn"))
        return "commit_lsn", [commit, change, _number(source, "event_serial_no")]
    if source.get("scn") is not None:
        texts = [str(source.get(name) or "").strip() for name in ("rs_id", "lcr_position")]
        numbers = [_number(source, name) for name in ("scn", "commit_scn", "txSeq")]
        return "scn", [*numbers, *texts, _number(source, "ssn")]
    for kind in COARSE:
        if source.get(kind) is not None:
            return kind, [_number(source, kind)]
    return None


def _file_of(position: str) -> str:
    return position.rpartition("/")[0].rpartition("/")[0]


def _shown(position: str) -> str:
    """A position in a file as MySQL writes it.

    >>> _shown("file/bin./00000000000000000003/00000000000000000154/00000000000000000001")
    'bin.000003, 154'
    """
    *file, pos, _ = position.removeprefix(FILE).split("/")
    return f"{''.join([*file[:-1], f'{int(file[-1]):06}'] if file[-1].isdigit() else file)}, {int(pos)}"


def _converted(value: Any, type_: str, schema: Mapping[str, Any], name: str) -> Any:
    """A value of JSON in the type of its column; what would have to be guessed is refused."""
    if value is None:
        return None
    if value == UNAVAILABLE:
        raise _MalformedError(
            f"leaves out column {name}, a large value that did not change. Let the source send whole rows: "
            f"ALTER TABLE … REPLICA IDENTITY FULL."
        )
    try:
        return _typed(value, type_, schema)
    except _Unfit as error:
        raise _MalformedError(f"has {value!r} in column {name}, which is {type_}. {error}".rstrip()) from None
    except (ValueError, TypeError, OverflowError, InvalidOperation):
        raise _MalformedError(f"has {value!r} in column {name}, which is {type_}.") from None


class _Unfit(Exception):
    """What to do about a value that does not say enough."""


def _typed(value: Any, type_: str, schema: Mapping[str, Any]) -> Any:
    if type_ in BITS:
        if isinstance(value, bool) or int(value) != value:
            raise ValueError
        if not -(1 << BITS[type_] - 1) <= value < 1 << BITS[type_] - 1:
            raise OverflowError
        return int(value)
    if type_ == "boolean":
        if not isinstance(value, bool):
            raise ValueError
        return value
    if type_ in ("float", "double"):
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    if type_.startswith("decimal"):
        return _decimal(value, type_, schema)
    if type_ == "date":
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        return date.fromisoformat(value) if isinstance(value, str) else date(1970, 1, 1) + timedelta(days=int(value))
    if type_ == "timestamp_ntz" and isinstance(value, datetime) and value.tzinfo is None:
        return value
    if type_.startswith("timestamp"):
        moment = _timestamp(value, schema)
        return moment.replace(tzinfo=None) if type_ == "timestamp_ntz" else moment
    if type_ == "binary":
        if isinstance(value, (bytes, bytearray)):
            return bytes(value)
        return base64.b64decode(value, validate=True)
    if not isinstance(value, str):
        raise _Unfit("Declare the type that the source sends.")
    return value


def _decimal(value: Any, type_: str, schema: Mapping[str, Any]) -> Decimal:
    if schema.get("name") == "org.apache.kafka.connect.data.Decimal":
        scale = int((schema.get("parameters") or {}).get("scale", 0))
        whole = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
        number = Decimal(whole).scaleb(-scale)
    else:
        try:
            number = Decimal(repr(value) if isinstance(value, float) else value)
        except InvalidOperation:
            raise _Unfit("Send schemas with the events, or set decimal.handling.mode = string.") from None
    precision, scale = (int(part) for part in re.findall(r"\d+", type_))
    fitted = number.quantize(Decimal(1).scaleb(-scale))
    if fitted != number or len(fitted.as_tuple().digits) > precision:
        raise OverflowError
    return fitted


def _timestamp(value: Any, schema: Mapping[str, Any]) -> datetime:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise _Unfit("Its time zone is not known: send it as a text, or with its zone.")
        return value
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    unit = _UNITS.get(schema.get("name") or "")
    if unit is None:
        raise _Unfit("Its unit is not known: send schemas with the events, or declare the column as BIGINT.")
    return _EPOCH + timedelta(microseconds=int(value) * unit)
