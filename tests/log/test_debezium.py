"""Debezium's events: what they say, that order and repetition do not matter, and which ones are refused."""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row

from deferred.errors import InvalidInputError
from deferred.log.debezium import UNAVAILABLE, Statements, check_columns, lines, position, statements

COLUMNS = (("id", "int"), ("name", "string"))


def event(op: str, lsn: int, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "source": {"lsn": lsn}, "ts_ms": 1, **more}


def row(id_: int, name: str | None = "x") -> dict[str, Any]:
    return {"id": id_, "name": name}


def read(*events: Any, columns: Any = COLUMNS) -> Statements:
    return statements(((f"Event {n}", e) for n, e in enumerate(events, start=1)), columns, ["id"], "orders")


def rows(found: Statements) -> dict[Any, Any]:
    return {key: s.row for key, s in found.by_key.items() if s.position > (found.truncated or "")}


def test_the_operations() -> None:
    found = read(
        event("r", 1, after=row(1, "a")),
        json.dumps(event("c", 2, after=row(2))),
        json.dumps({"schema": None, "payload": event("u", 3, before=row(1, "a"), after=row(1, "b"))}).encode(),
        event("d", 4, before={"id": 2, "name": None}),
        None,
        "",
        {"payload": None},
        {"op": "m", "message": {"prefix": "p"}},
        event("u", 5, before=row(1, "b"), after=row(9, "b")),
    )
    assert rows(found) == {(1,): None, (2,): None, (9,): (9, "b")}
    assert found.events == 5
    assert rows(read(event("c", 1, after=row(1)), event("t", 2), event("c", 3, after=row(2)))) == {(2,): (2, "x")}


def test_neither_order_nor_repetition_matters() -> None:
    rng = random.Random(7)
    for seed in range(300):
        rng.seed(seed)
        events = []
        live: dict[int, Any] = {}
        for lsn in range(1, rng.randint(2, 15)):
            key = rng.randint(1, 3)
            kind = "t" if rng.random() < 0.1 else "d" if key in live and rng.random() < 0.4 else "u"
            if kind == "t":
                live.clear()
                events.append(event("t", lsn))
            elif kind == "d":
                events.append(event("d", lsn, before=live.pop(key)))
            else:
                live[key] = row(key, f"at {lsn}")
                events.append(event("c", lsn, after=live[key]))
        delivered = [*events, *rng.choices(events, k=rng.randint(0, 9))]
        rng.shuffle(delivered)
        shown = {key[0]: dict(zip(("id", "name"), r, strict=True)) for key, r in rows(read(*delivered)).items() if r}
        assert shown == live, seed


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({"lsn": 9}, {"lsn": 10}),
        ({"file": "bin.999999", "pos": 9}, {"file": "bin.1000000", "pos": 4}),
        ({"file": "bin.000001", "pos": 9, "row": 2}, {"file": "bin.000001", "pos": 10, "row": 0}),
        ({"file": "bin.000001", "pos": 9, "row": 1}, {"file": "bin.000001", "pos": 9, "row": 2}),
        (
            {"commit_lsn": "00000025:00000d98:00a2", "change_lsn": "00000025:00000d98:0002", "event_serial_no": 1},
            {"commit_lsn": "00000025:00000d98:00a2", "change_lsn": "00000025:00000d98:0002", "event_serial_no": 2},
        ),
        (
            {"commit_lsn": "0025:0098:00a2", "change_lsn": None},
            {"commit_lsn": "0025:0098:00a3", "change_lsn": "0025:0098:02"},
        ),
        ({"commit_lsn": "0025:0098:00a2"}, {"commit_lsn": "0025:0098:00a2", "change_lsn": "0025:0098:02"}),
        ({"scn": "9"}, {"scn": "10"}),
        ({"scn": "9", "commit_scn": None}, {"scn": "9", "commit_scn": "12"}),
        ({"scn": "9", "commit_scn": "12", "ssn": 1}, {"scn": "9", "commit_scn": "12", "ssn": 2}),
        ({"scn": "9", "rs_id": "0x05.0d3c.0010", "ssn": 7}, {"scn": "9", "rs_id": "0x05.0d3c.0020", "ssn": 0}),
        ({"scn": "9", "commit_scn": "12", "txSeq": 9}, {"scn": "9", "commit_scn": "12", "txSeq": 10}),
        ({"ts_ms": 999}, {"ts_ms": 1000}),
        ({"ts_ms": 5, "ts_us": 5001}, {"ts_ms": 5, "ts_us": 5002}),
    ],
)
def test_positions_sort_as_the_source_wrote_them(earlier: Any, later: Any) -> None:
    assert position(earlier) < position(later)


def test_values_in_the_types_of_their_columns() -> None:
    columns = (
        *(("id", "bigint"), ("d", "decimal(8,2)"), ("e", "decimal(8,2)"), ("f", "double"), ("b", "boolean")),
        *(("day", "date"), ("t", "timestamp"), ("u", "timestamp"), ("v", "timestamp_ntz"), ("x", "binary")),
    )
    names = ("org.apache.kafka.connect.data.Decimal", "io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp")
    fields = [
        {"field": "e", "name": names[0], "parameters": {"scale": "2"}},
        {"field": "u", "name": names[1]},
        {"field": "v", "name": names[2]},
    ]
    after = {
        "ID": 2**40,
        "d": "12.30",
        "e": base64.b64encode((-125).to_bytes(2, "big", signed=True)).decode(),
        "f": 0.1,
        "b": True,
        "day": 19000,
        "t": "2026-01-02T03:04:05.000006Z",
        "u": 1000,
        "v": 1_000_001,
        "x": base64.b64encode(b"\x00\xff").decode(),
        "more": "is left out",
    }
    text = json.dumps(
        {"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": event("c", 1, after=after)}
    )
    (statement,) = read(text, columns=columns).by_key.values()
    assert statement.row == (
        *(2**40, Decimal("12.30"), Decimal("-1.25"), 0.1, True, date(2022, 1, 8)),
        *(datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        *(datetime(1970, 1, 1, 0, 0, 1, 1), b"\x00\xff"),
    )


def test_rows_of_spark() -> None:
    """An event as a row with its columns, and the text of one in a row of a Kafka topic."""
    image = Row(id=1, name="a")
    as_columns = Row(before=None, after=image, op="c", source=Row(lsn=7, file=None, pos=None))
    of_a_topic = Row(key=b"{}", value=json.dumps(event("c", 8, after=row(2, "b"))).encode(), partition=0)
    tombstone = Row(key=b"{}", value=None, partition=0)
    assert rows(read(as_columns, of_a_topic, tombstone)) == {(1,): (1, "a"), (2,): (2, "b")}
    columns = (("id", "int"), ("d", "date"), ("t", "timestamp"), ("n", "timestamp_ntz"), ("x", "binary"))
    moment = datetime(2026, 1, 2, 3, tzinfo=UTC)
    values = Row(id=1, d=date(2026, 1, 2), t=moment, n=moment.replace(tzinfo=None), x=bytearray(b"x"))
    (statement,) = read(Row(op="c", after=values, source=Row(lsn=7)), columns=columns).by_key.values()
    assert statement.row == (1, date(2026, 1, 2), moment, moment.replace(tzinfo=None), b"x")
    with pytest.raises(InvalidInputError, match="Its time zone is not known"):
        read(Row(op="c", after=Row(id=1, t=datetime(2026, 1, 2)), source=Row(lsn=7)), columns=(columns[0], columns[2]))


MALFORMED = [
    ("{", "is not JSON"),
    ("[1]", "is not an object, but list"),
    ({"payload": 3}, "payload that is not an object"),
    ({"id": 1, "name": "x"}, "has no source, so its position is not known"),
    ({"op": "c", "after": row(1), "source": {"db": "shop"}}, "has no position: .* only db"),
    ({"op": "c", "after": row(1), "source": {"lsn": "later"}}, "lsn = 'later', which is not a number"),
    ({"op": "c", "after": row(1), "source": {"ts_ms": 1}}, r"position of another kind \(ts_ms\).*\(lsn\)"),
    (event("x", 1, after=row(1)), "has op 'x'.*without ExtractNewRecordState"),
    (event("c", 1), "has op 'c' and no row"),
    (event("d", 1), "deletes a row without naming it"),
    (event("c", 1, after={"id": 1}), "has no column name"),
    (event("c", 1, after={"id": None, "name": "x"}), r"no value for its key \(id\)"),
    (event("c", 1, after={"id": "1", "name": "x"}), "has '1' in column id, which is int"),
    (event("c", 1, after={"id": 2**31, "name": "x"}), "2147483648 in column id"),
    (event("c", 1, after={"id": True, "name": "x"}), "True in column id"),
    (event("c", 1, after={"id": 1, "name": 5}), "5 in column name, which is string.*Declare the type"),
    (event("c", 1, after={"id": 1, "name": UNAVAILABLE}), "leaves out column name.*REPLICA IDENTITY FULL"),
]


@pytest.mark.parametrize(("malformed", "reason"), MALFORMED)
def test_malformed_events_are_refused(malformed: Any, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"(?s)^Event 2 for orders .*{reason}.*Nothing was changed\.$"):
        read(event("c", 7, after=row(7)), malformed)


@pytest.mark.parametrize(
    ("type_", "value", "reason"),
    [
        ("timestamp", 1000, "Its unit is not known"),
        ("decimal(4,2)", "BNI=", r"decimal\.handling\.mode = string"),
        ("decimal(4,2)", "1.234", "is decimal"),
        ("decimal(4,2)", 1000, "is decimal"),
        ("boolean", 1, "is boolean"),
        ("binary", "%", "is binary"),
        ("date", "yesterday", "is date"),
    ],
)
def test_a_value_that_would_have_to_be_guessed(type_: str, value: Any, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        read(event("c", 1, after={"id": 1, "v": value}), columns=(("id", "int"), ("v", type_)))


def test_nested_columns_are_refused() -> None:
    check_columns("orders", [("a", "DECIMAL(8,2)"), ("b", "varchar(10)")])
    with pytest.raises(InvalidInputError, match=r"Column a of orders is array<int>.*Declare it as STRING"):
        check_columns("orders", [("a", "array<int>")])


def test_a_snapshot_of_sql_server_and_what_follows() -> None:
    """The connector has no change_lsn for the rows of a snapshot, only the commit up to which it has read."""
    source = {"commit_lsn": "00000025:00000d98:00a2", "change_lsn": None, "ts_ms": 5}
    later = {"commit_lsn": "00000025:00000e00:0003", "change_lsn": "00000025:00000e00:0002", "event_serial_no": 1}
    events = [{"op": "u", "after": row(1, "b"), "source": later}, {"op": "r", "after": row(1, "a"), "source": source}]
    assert rows(read(*events)) == rows(read(*events[::-1])) == {(1,): (1, "b")}


def mysql(file: int, pos: int, seconds: int, name: str, server: int = 1) -> dict[str, Any]:
    source = {"file": f"bin.{file:06}", "pos": pos, "row": 0, "server_id": server, "ts_ms": 1000 * seconds}
    return {"op": "u", "before": None, "after": row(1, name), "source": source}


def test_a_log_that_is_numbered_anew_is_refused() -> None:
    """After a failover of MySQL, or RESET MASTER, what is new seems older than all that is known."""
    known = read(mysql(7, 500, 90, "a"), mysql(7, 900, 100, "b")).newest
    message = r"position \(bin\.00000[17], \d+, server [12]\) is before theirs \(bin\.000007, 900, server 1\)"
    for anew in (mysql(1, 4, 101, "c", server=2), mysql(1, 4, 101, "c"), mysql(7, 4, 101, "c", server=2)):
        with pytest.raises(InvalidInputError, match=message):
            statements([("Event 1", anew)], COLUMNS, ["id"], "orders", known)
        with pytest.raises(InvalidInputError, match=message):
            read(mysql(7, 900, 100, "b"), anew)


def test_an_event_that_comes_again_or_late_is_not_refused() -> None:
    known = read(mysql(7, 900, 100, "b", server=1)).newest
    for old in (mysql(6, 4, 80, "a"), mysql(6, 4, 100, "a", server=2), mysql(7, 800, 101, "a")):
        assert statements([("Event 1", old)], COLUMNS, ["id"], "orders", known).newest is not None
    assert rows(read(mysql(7, 900, 100, "b"), mysql(8, 4, 101, "c", server=2))) == {(1,): (1, "c")}
    found = statements([("Event 1", mysql(7, 800, 105, "a"))], COLUMNS, ["id"], "orders", known).newest
    assert (found.position, found.moment) == (known.position, 105_000)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0c", "\x1c"])
def test_what_ends_a_line_for_python_may_be_in_a_text(separator: str) -> None:
    """Writers of JSON need not escape these: U+2028 and U+0085 in a text, the others only where they are lenient."""
    sent = json.dumps(event("c", 1, after=row(1, f"a{separator}b")), ensure_ascii=False)
    (_, line), (_, other) = lines(f"{sent}\r\n{sent}\n", "a.json")
    assert [json.loads(each, strict=False)["after"]["name"] for each in (line, other)] == [f"a{separator}b"] * 2
    if separator > "\x1f":
        assert rows(read(line)) == {(1,): (1, f"a{separator}b")}


def test_files() -> None:
    one, two = json.dumps(event("c", 1, after=row(1))), json.dumps(event("c", 2, after=row(2)))
    assert [place for place, _ in lines(f"{one}\n{two}\n", "a.json")] == ["Line 1 of a.json", "Line 2 of a.json"]
    assert [place for place, _ in lines(f" [{one}, {two}]", "b.json")] == ["Event 1 of b.json", "Event 2 of b.json"]
    with pytest.raises(InvalidInputError, match=r"b\.json is not JSON"):
        list(lines("[", "b.json"))
