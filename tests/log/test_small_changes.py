"""Changes that are read at the driver: what two versions of a table do not share, or nothing at all. No Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import parse_one

from deferred.algebra.bags import COUNT
from deferred.log import small_changes as module
from deferred.log.delta_log import FEED, DeltaLog
from deferred.log.small_changes import meeting, small_changes
from deferred.spark.local_bags import netted

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string())])
COLUMNS = (("a", "bigint"), ("s", "string"))
Row = tuple[Any, ...]


def append(path: Path, *rows: Row) -> None:
    listed = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
    write_deltalake(path, pa.Table.from_pylist(listed, SCHEMA), mode="append", configuration={FEED: "true"})


def state(path: Path, version: int) -> Counter[Row]:
    rows = DeltaTable(path, version=version).to_pyarrow_table().to_pylist()
    return Counter((row["a"], row["s"]) for row in rows)


def read(path: Path, after: int, upto: int, most: int = 1000) -> dict[Row, int] | None:
    rows = small_changes(DeltaLog(str(path)), after, upto, COLUMNS, most)
    if rows is None:
        return None
    net = netted(rows)
    assert net is not None
    return {(row["a"], row["s"]): row[COUNT] for row in net.to_pylist()}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.tuples(st.integers(0, 3), st.sampled_from("xy") | st.none()))),
        st.tuples(st.just("update"), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.integers(0, 3)),
        st.tuples(st.just("overwrite"), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=30)
@given(STEPS, st.data())
def test_changes_are_the_difference_of_two_versions(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("r") / "t"
    append(path, (0, "x"), (1, None), (1, None))
    for kind, value in steps:
        table = DeltaTable(path)
        if kind == "append":
            append(path, *value)
        elif kind == "update":
            table.update(predicate=f"a = {value}", updates={"s": "'z'"})
        elif kind == "delete":
            table.delete(f"a = {value}")
        else:
            rows = pa.Table.from_pylist([{"a": value, "s": "new"}], SCHEMA)
            write_deltalake(path, rows, mode="overwrite")
    newest = DeltaTable(path).version()
    after = data.draw(st.integers(0, newest))
    upto = data.draw(st.integers(after, newest))
    wanted, old = state(path, upto), state(path, after)
    wanted.subtract(old)
    found = read(path, after, upto)
    assert found is None or found == {row: n for row, n in wanted.items() if n}
    assert found is not None or "overwrite" in dict(steps)  # of which delta-rs writes new columns


def rewritten(path: Path, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the actions of a commit, as another writer might have written them."""
    file = path / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        change(action)
    file.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def set_vector(action: dict[str, Any]) -> None:
    if "add" in action:
        action["add"]["deletionVector"] = {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 1, "cardinality": 1}


def set_path(action: dict[str, Any]) -> None:
    if "add" in action:
        action["add"]["path"] = f"file:///elsewhere/{action['add']['path']}"


def drop_size(action: dict[str, Any]) -> None:
    action.get("add", {}).pop("size", None)


@pytest.mark.parametrize("change", [set_vector, set_path, drop_size])
def test_what_files_alone_do_not_say_is_left_to_spark(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = tmp_path / "t"
    append(path, (1, "x"))
    append(path, (2, "y"))
    assert read(path, 0, 1) == {(2, "y"): 1}
    log = DeltaLog(str(path))
    rewritten(path, 1, change)
    assert small_changes(log, 0, 1, COLUMNS, 1000) is None


def test_columns_that_are_not_as_they_were_are_left_to_spark(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, (1, "x"))
    append(path, (2, "y"))
    log = DeltaLog(str(path))
    assert small_changes(log, 0, 1, (("a", "int"),), 1000) is None
    assert small_changes(log, 0, 1, (("b", "bigint"),), 1000) is None
    wider = pa.table({"a": pa.array([3], pa.int64()), "s": ["z"], "more": [1]})
    write_deltalake(path, wider, mode="append", schema_mode="merge")
    assert read(path, 0, 1) is None  # the shape changed later, but Spark reads the feed with it


def test_partition_columns_and_floats_are_left_to_spark(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([1], pa.int64()), "f": [0.5]})
    for _ in range(2):
        write_deltalake(tmp_path / "t", rows, mode="append", partition_by=["a"], configuration={FEED: "true"})
    log = DeltaLog(str(tmp_path / "t"))
    assert small_changes(log, 0, 1, (("a", "bigint"),), 1000) is None
    found = small_changes(log, 0, 1, (("f", "double"),), 1000)
    assert found is not None
    assert found.to_pylist() == [{"f": 0.5, COUNT: 1}]
    assert netted(found) is None  # Python's 0.0 equals -0.0


def test_much_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    append(path, (1, "x"))
    append(path, *((n, "y") for n in range(5)))
    assert read(path, 0, 1, most=5) is not None
    assert read(path, 0, 1, most=4) is None
    monkeypatch.setattr(module, "BYTES", 10)
    assert read(path, 0, 1) is None
    monkeypatch.undo()
    monkeypatch.setattr(module, "COMMITS", 0)
    assert read(path, 0, 1) is None


def test_a_file_that_is_gone_is_left_to_spark(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, (1, "x"))
    append(path, (2, "y"))
    for file in path.glob("*.parquet"):
        file.unlink()
    assert read(path, 0, 1) is None


PARTS = (
    "a > -2",
    "a <> 3",
    "a IN (-1, 3)",
    "p >= 1.50",
    "p < -0.25",
    "s = 'x'",
    "s > 'é'",
    "s IN ('', 'x y')",
    "d >= CAST('2024-02-29' AS DATE)",
    "d IS NULL",
    "NOT (a IS NULL)",
)
ROWS = pa.table(
    {
        "a": pa.array([None, -2, -1, 3, 3, 7], pa.int32()),
        "p": pa.array([None, *map(Decimal, ("-0.26", "1.50", "1.49", "0.00", "9.99"))], pa.decimal128(6, 2)),
        "s": pa.array([None, "", "x", "é", "ê", "x y"]),
        "d": pa.array([None, *(date(2024, 2, day) for day in (1, 28, 29, 29, 2))], pa.date32()),
        "n": pa.array(range(6)),
    }
)


@pytest.mark.parametrize("seed", range(60))
def test_conditions_mean_what_they_mean_in_sql(seed: int) -> None:
    """AND, OR and NOT of comparisons, over rows with NULLs, as DuckDB understands them."""
    random = Random(seed)

    def drawn(depth: int) -> str:
        if depth == 0 or random.random() < 0.2:
            return random.choice(PARTS)
        if random.random() < 0.25:
            return f"NOT ({drawn(depth - 1)})"
        return f"({drawn(depth - 1)} {random.choice(('AND', 'OR'))} {drawn(depth - 1)})"

    condition = drawn(3)
    found = meeting(ROWS, parse_one(condition, dialect="spark"))
    assert found is not None, condition
    wanted = duckdb.from_arrow(ROWS).filter(condition).order("n").project("n").fetchall()
    assert [(n,) for n in found.column("n").to_pylist()] == wanted, condition


@pytest.mark.parametrize(
    "condition",
    [
        *("a = 'x'", "s = 1", "d = '2024-01-01'", "a = p", "a IN (1, NULL)", "s LIKE 'x%'", "upper(s) = 'X'"),
        *("a > 12345678901", "d = CAST('2024-1-1' AS DATE)", "a > 1 OR f(a)", "a <=> 1", "a IN (SELECT 1)"),
    ],
)
def test_conditions_that_only_spark_knows(condition: str) -> None:
    assert meeting(ROWS, parse_one(condition, dialect="spark")) is None


def test_a_text_that_is_not_utf8_is_left_to_spark() -> None:
    broken = pa.table({"s": pa.array([b"\xff"], pa.binary()).view(pa.string())})
    assert meeting(broken, parse_one("s > 'a'")) is None
