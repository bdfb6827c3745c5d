"""What Delta's log says of the rows that commits changed: real logs, written by delta-rs, and predicates of Spark."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deferred.algebra.relevance.constants import kind_of, place
from deferred.log.delta_log import DeltaLog
from deferred.log.touched import Commits, Touched, _bounds, _partition, predicate

COLUMNS = {"id": "int", "s": "string", "d": "date", "p": "decimal(10,2)", "f": "double", "b": "boolean"}
KINDS = {name: kind_of(type_) for name, type_ in COLUMNS.items()}


def rows(*values: tuple[Any, ...]) -> pa.Table:
    types = [pa.int32(), pa.string(), pa.date32(), pa.decimal128(10, 2), pa.float64(), pa.bool_()]
    listed = zip(COLUMNS, types, zip(*values, strict=True), strict=True)
    return pa.table({name: pa.array(column, type_) for name, type_, column in listed})


DAY = datetime.date(2024, 1, 5)


@pytest.fixture
def path(tmp_path: Path) -> str:
    where = str(tmp_path / "t")
    write_deltalake(where, rows((1, "a", DAY, Decimal("1.50"), 1.0, True), (5, "b", DAY, Decimal("2.50"), 2.0, None)))
    return where


def touched(path: str, version: int, after: int) -> list[Touched] | None:
    return Commits(DeltaLog(path), after, COLUMNS).touched(version)


def test_an_insertion_is_in_the_files_that_it_added(path: str) -> None:
    write_deltalake(path, rows((7, None, None, None, None, None)), mode="append")
    (group,) = touched(path, 1, 0) or []
    assert (group.known["id"].lowest, group.known["id"].highest, group.known["id"].has_nulls) == (7, 7, False)
    assert (group.known["s"].has_nulls, group.known["s"].has_values) == (True, False)


def test_bounds_are_exact(path: str) -> None:
    write_deltalake(path, rows((1, "a", DAY, Decimal("-1.10"), 1.5, True)), mode="append")
    (group,) = touched(path, 1, 0) or []
    assert group.known["p"].lowest == group.known["p"].highest == Fraction(-11, 10)
    assert group.known["d"].lowest == DAY.toordinal()
    assert (group.known["f"].lowest, group.known["f"].highest) == (Fraction(3, 2) - Fraction(25, 10**7), None)


def test_a_deletion_is_in_the_files_that_it_removed(path: str) -> None:
    """Their bounds are where they were added: in an earlier one of these commits, or before all of them."""
    write_deltalake(path, rows((7, "c", DAY, None, None, None), (9, "c", DAY, None, None, None)), mode="append")
    DeltaTable(path).delete("id IN (1, 7)")
    for after in (0, 1):
        commits = Commits(DeltaLog(path), after, COLUMNS)
        groups = [commits.touched(version) or [] for version in range(after + 1, 3)][-1]
        assert sorted((g.known["id"].lowest, g.known["id"].highest) for g in groups) == [(1, 5), (7, 9)]
        assert [g.predicate for g in groups] == [None, None]  # delta-rs writes another form than Spark


def test_partition_values_are_exact(tmp_path: Path) -> None:
    path = str(tmp_path / "parted")
    data = rows((1, "x", DAY, None, None, True), (2, "", DAY, None, None, None))
    write_deltalake(path, data, partition_by=["s", "b"])
    write_deltalake(path, rows((3, "y", DAY, None, None, False)), mode="append")
    (group,) = touched(path, 1, 0) or []
    kind = KINDS["s"]
    assert kind is not None
    assert group.known["s"].lowest == group.known["s"].highest == place("y", kind)
    assert (group.known["b"].lowest, group.known["b"].highest) == (0, 0)
    DeltaTable(path).delete()
    removed = touched(path, 2, 1) or []
    assert sorted(str(g.known["s"].lowest) for g in removed) == sorted(
        ["None", str(place("x", kind)), str(place("y", kind))]
    )


def test_nothing_is_said_of_a_commit_that_changes_more_than_rows(path: str) -> None:
    assert touched(path, 0, -1) is None
    assert touched(path, 9, 0) is None


def test_an_optimization_changes_no_row(path: str) -> None:
    write_deltalake(path, rows((7, "c", DAY, None, None, None)), mode="append")
    DeltaTable(path).optimize.compact()
    assert touched(path, 2, 0) == []


def test_a_shortened_maximum_bounds_nothing() -> None:
    kind = KINDS["s"]
    assert kind is not None
    assert _bounds(kind, "m" * 32, "m" * 32, 0, 2).highest is None
    assert _bounds(kind, "m" * 32, "m" * 31, 0, 2).highest == place("m" * 31, kind)


def test_times_are_cut_to_milliseconds() -> None:
    kind = kind_of("timestamp")
    assert kind is not None
    known = _bounds(kind, "2024-01-01T00:00:00.123Z", "2024-01-01T00:00:00.123Z", 0, 2)
    assert known.lowest is not None
    assert known.highest == known.lowest + 2000


@pytest.mark.parametrize("type_", ["timestamp", "double"])
def test_partition_values_that_depend_on_more_say_nothing(type_: str) -> None:
    kind = kind_of(type_)
    assert kind is not None
    assert _partition(kind, "2024").lowest is None


PREDICATES = {
    "(id#340 = 3)": '"id" = 3',
    "((id#1 > 7) AND ((p#2 >= 1.50) AND isnotnull(b#3)))": '("id" > 7 AND ("p" >= 1.50 AND NOT "b" IS NULL))',
    "((d#4 = 2020-01-01) OR id#1 IN (1,-2))": '("d" = CAST(\'2020-01-01\' AS DATE) OR "id" IN (1, -2))',
    "NOT (id#1 <=> 5)": 'NOT ("id" IS NOT DISTINCT FROM 5)',
    "(NOT b#3 OR (ID#1L < id#1L))": '(NOT ("b") OR "id" < "id")',
    "true": "TRUE",
    "(s#5 = it's a text)": "\"s\" = 'it''s a text'",
    # What could be something else is not read.
    "(s#5 = x) AND (id#1 > 5)": None,
    "((s#5 = x) AND (id#1 > 5))": None,
    "(s#5 = upper(y))": None,
    "(s#5 = s#5)": None,
    "(1 = 1) AND (id#1 > 5)": None,
    "(cast(id#1 as string) = 1)": None,
    "(id#1 = 5": None,
    "(id#1 = 5))": None,
    "(id#1 > 5) AND (id#1 > 5) OR (id#1 > 5)": None,
    "(f#6 > 1.0)": None,
    "(other#9 = 5)": None,
    "(id#1 = 2020-01-01)": None,
    "(d#4 = 5)": None,
    "(d#4 < 2020-01-01 10:00:00)": None,
    "(b#3 = 1)": None,
    "(id#1 = d#4)": None,
    "(id#1)": None,
    "(id#1 INSET 1, 2)": None,
    "": None,
}


@pytest.mark.parametrize("text", PREDICATES)
def test_predicates_that_spark_has_printed(text: str) -> None:
    found = predicate(text, {name: kind for name, kind in KINDS.items() if kind is not None})
    assert (None if found is None else found.sql()) == PREDICATES[text]
