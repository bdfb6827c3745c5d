"""Rows of Delta tables, looked up at the driver: exactly those that have a key, whatever was asked before."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deferred.spark import lookups
from deferred.spark.driver import files_of
from deferred.spark.lookups import Lookup, newest

TYPES = {"a": "bigint", "b": "string"}
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


@pytest.fixture
def path(tmp_path: Path) -> str:
    chance = random.Random(5)
    for _ in range(3):
        rows = [(chance.choice((None, *range(40))), chance.choice((None, "x", "y", "z"))) for _ in range(100)]
        columns = dict(zip(("a", "b"), zip(*rows, strict=True), strict=True))
        write_deltalake(tmp_path / "t", pa.table(columns, SCHEMA), mode="append")
    return str(tmp_path / "t")


def test_random_keys(path: str) -> None:
    files, chance = files_of(path, 2, TYPES), random.Random(7)
    assert files is not None
    lookup, everything = Lookup(files), rows_of(files.to_table())
    for _ in range(50):
        asked = {(chance.choice((None, *range(45))), chance.choice((None, "x", "y"))) for _ in range(4)}
        keys = pa.table(
            {"k": [a for a, _ in asked], "l": [b for _, b in asked]}, pa.schema([("k", pa.int64()), ("l", pa.string())])
        )
        for on in ({"a": "k"}, {"b": "l"}, {"a": "k", "b": "l"}):
            found = lookup.candidates(keys, on)
            assert found is not None
            columns = [0 if name == "a" else 1 for name in on]
            wanted = {tuple(key[c] for c in columns) for key in asked}
            having = [row for row in rows_of(found) if tuple(row[c] for c in columns) in wanted]
            assert having == [row for row in everything if tuple(row[c] for c in columns) in wanted]


def test_no_more_is_remembered_than_has_room(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "REMEMBERED_ROWS", 30)
    files = files_of(path, 2, TYPES)
    assert files is not None
    lookup = Lookup(files)
    keys = pa.table({"k": pa.array([1, 2], pa.int64()), "l": pa.array(["x", "y"])})
    assert lookup.candidates(keys, {"b": "l"}) is None
    assert lookup.candidates(keys, {"a": "k", "b": "l"}) is not None


def test_an_earlier_version(path: str) -> None:
    (now, before) = (files_of(path, version, TYPES) for version in (2, 0))
    assert now is not None
    assert before is not None
    assert (now.count_rows(), before.count_rows()) == (300, 100)


def test_tables_that_are_left_to_spark(path: str, tmp_path: Path) -> None:
    assert files_of(f"s3://x{path}", 0, TYPES) is None
    assert files_of(path, 0, {**TYPES, "c": "double"}) is None
    assert files_of(path, 0, {**TYPES, "c": "date"}) is None
    write_deltalake(tmp_path / "parts", pa.table({"a": [1], "b": ["x"]}), partition_by=["b"])
    assert files_of(str(tmp_path / "parts"), 0, TYPES) is None


def test_the_newest_row_of_a_key() -> None:
    rows = pa.table(
        {
            "k": [1, 1, 2, 2, None, None, 3],
            "n": pa.array([10, 11, 20, None, 30, 31, 40], pa.int64()),
            "batch": [0, 2, 0, 1, 5, 4, 0],
            "gone": [False, False, False, True, False, False, False],
        }
    )
    assert rows_of(newest(rows, ["n", "k"], ["k"], "batch", "gone")) == [(11, 1), (30, None), (40, 3)]
