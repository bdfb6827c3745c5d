"""The rows that an insertion gives itself: which values are taken as they are, and which are left to Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from deferred.log.given_rows import of_python, of_values, stage, staged

COLUMNS = [("a", "int"), ("d", "decimal(6,2)"), ("f", "double"), ("s", "string"), ("b", "boolean"), ("t", "date")]


def values(text: str, columns: Any = COLUMNS, **settings: str) -> Any:
    rows = of_values(f"INSERT INTO delta.`/tables/x` {text}", columns, settings)
    return None if rows is None else [tuple(row.values()) for row in rows.to_pylist()]


def test_literals() -> None:
    assert values("VALUES (1, 2.5, 0.25, 'ä', TRUE, DATE '2024-02-29'), (-1, -3, 4, '', false, NULL)") == [
        (1, Decimal("2.50"), 0.25, "ä", True, date(2024, 2, 29)),
        (-1, Decimal("-3.00"), 4.0, "", False, None),
    ]
    assert values("VALUES 1, 2", [("a", "bigint")]) == [(1,), (2,)]


def test_columns_in_another_order() -> None:
    columns = [("a", "int"), ("S", "string")]
    assert values("(s, A) VALUES ('x', 1)", columns) == [(1, "x")]
    for text in ("(a) VALUES (1)", "(a, a) VALUES (1, 2)", "(a, q) VALUES (1, 'x')", "(a, s, s) VALUES (1, 'x', 'y')"):
        assert values(text, columns) is None


@pytest.mark.parametrize(
    ("type_", "literals"),
    [
        ("int", ["1.0", "'1'", "2147483648", "-2147483649", "1L", "TRUE", "1 + 1", "- -1", "DEFAULT", "1e2", "x"]),
        ("tinyint", ["128", "-129"]),
        ("decimal(6,2)", ["1.005", "10000", "-10000", "1e2", "'1'", "1BD", "0.1234567890123456789"]),
        ("double", ["1e3", "-0.0", "-0", "1.5D", "0.12345678901234567", "'1'"]),
        ("float", ["1.5", "1"]),
        ("string", ["1", "'it''s'", r"'a\nb'", "'a' 'b'", "r'a'", "-'a'", "'${a}'", "concat('a', 'b')", "'a\nb'"]),
        ("boolean", ["1", "'true'"]),
        (
            "date",
            ["'2024-01-01'", "DATE '2024-1-1'", "DATE '2024-02-30'", "DATE '1582-10-10'", "TIMESTAMP '2024-01-01'"],
        ),
        ("timestamp", ["TIMESTAMP '2024-01-01 00:00:00'"]),
        ("binary", ["X'1F'", "'a'"]),
        ("varchar(3)", ["'a'"]),
        ("array<int>", ["ARRAY(1)", "NULL"]),
    ],
)
def test_doubtful_literals(type_: str, literals: list[str]) -> None:
    for literal in literals:
        assert values(f"VALUES ({literal})", [("c", type_)]) is None, literal


@pytest.mark.parametrize(
    "text",
    [
        "BY NAME VALUES (1)",
        "PARTITION (c = 1) VALUES (1)",
        "REPLACE WHERE c = 1 VALUES (1)",
        "SELECT 1",
        "SELECT * FROM VALUES (1)",
        "VALUES (1) AS v(c)",
        "VALUES (1, 2)",
        "VALUES (1), (1, 2)",
        "AS t VALUES (1)",
        "VALUES (1) UNION ALL VALUES (2)",
        "VALUES (1) LIMIT 1",
    ],
)
def test_other_statements(text: str) -> None:
    assert values(text, [("c", "int")]) is None
    assert of_values("WITH q AS (SELECT 1) INSERT INTO t VALUES (1)", [("c", "int")], {}) is None
    assert of_values("DELETE FROM t", [("c", "int")], {}) is None


def test_a_session_with_settings_of_its_own() -> None:
    known = {"spark.sql.session.timeZone": "UTC", "spark.sql.parquet.fieldId.read.enabled": "true"}
    assert values("VALUES (1)", [("c", "int")], **known) == [(1,)]
    for name in ("spark.sql.storeAssignmentPolicy", "spark.sql.parser.escapedStringLiterals"):
        assert values("VALUES (1)", [("c", "int")], **known, **{name: "x"}) is None


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("smallint", -(2**15)),
        ("bigint", 2**63 - 1),
        ("decimal(6,2)", Decimal("-12.5")),
        ("decimal(6,2)", 12),
        ("double", 0.1),
        ("double", 3),
        ("string", "it's \\ \n ${x} 😀"),
        ("boolean", False),
        ("binary", b"\x00\xff"),
        ("date", date(1900, 1, 1)),
        ("timestamp", datetime(2024, 1, 1, 2, 3, 4, 5, UTC)),
        ("timestamp_ntz", datetime(2024, 1, 1, 2, 3, 4, 5)),
        ("int", None),
    ],
)
def test_values_of_python(type_: str, value: Any, tmp_path: Path) -> None:
    columns = [("c", type_)]
    rows = of_python([(value,)], columns)
    assert rows is not None
    assert rows.to_pylist() == [{"c": value}]
    assert stage(rows, "t", str(tmp_path / "staged"))
    assert staged(str(tmp_path / "staged"), columns) == rows
    assert staged(str(tmp_path / "staged"), [("c", "array<int>")]) is None
    assert staged(str(tmp_path), columns) is None


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int", 2**31),
        ("int", True),
        ("int", 1.0),
        ("decimal(6,2)", Decimal("1.005")),
        ("decimal(6,2)", Decimal("10000")),
        ("decimal(6,2)", Decimal("NaN")),
        ("decimal(6,2)", 1.5),
        ("double", float("nan")),
        ("double", float("inf")),
        ("double", -0.0),
        ("double", 2**53 + 1),
        ("float", 1.5),
        ("string", 1),
        ("string", "\ud800"),
        ("boolean", 1),
        ("date", datetime(2024, 1, 1)),
        ("date", date(1582, 10, 10)),
        ("timestamp", datetime(2024, 1, 1)),
        ("timestamp", date(2024, 1, 1)),
        ("timestamp_ntz", datetime(2024, 1, 1, tzinfo=UTC)),
        ("varchar(3)", "a"),
        ("array<int>", [1]),
    ],
)
def test_doubtful_values_of_python(type_: str, value: Any) -> None:
    assert of_python([(value,)], [("c", type_)]) is None
