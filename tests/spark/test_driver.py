"""Small commits by the driver: rows, marks and numbers as Spark would have written them, or nothing at all."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from deferred.errors import InvariantError
from deferred.spark import bags, driver
from deferred.spark.copy_on_write import rewritten
from deferred.spark.engine import Engine, Mark

SCHEMA = pa.schema([("a", pa.int32()), ("s", pa.string()), ("d", pa.date32())])
COLUMNS = [("a", "int"), ("s", "string"), ("d", "date")]
Row = tuple[Any, ...]

ROWS = st.tuples(
    st.none() | st.integers(-3, 3),
    st.none() | st.sampled_from(["", "it's", 'a"b', "\\", "é日", "x%_", "NULL"]),
    st.none() | st.sampled_from([date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
)


def table_of(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def changes_of(counts: dict[Row, int]) -> pa.Table:
    schema = pa.schema([*SCHEMA, (bags.COUNT, pa.int64())])
    return table_of([(*row, n) for row, n in counts.items()], schema)


def made(path: Path, rows: list[Row]) -> str:
    write_deltalake(path, table_of(rows))
    return str(path)


def held(path: str) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist())


def mark(number: int = 1) -> Mark:
    return Mark("deferred-test", number, {"kind": "refresh", "operation": f"o{number}"})


def last_commit(path: str) -> dict[str, Any]:
    version = DeltaTable(path).version()
    lines = (Path(path) / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return {name: value for line in lines for name, value in json.loads(line).items()}


def test_a_commit_carries_its_mark(tmp_path: Path) -> None:
    path = made(tmp_path / "t", [])
    assert Engine().append_rows(path, table_of([(1, "x", None)]), mark(7))
    commit = last_commit(path)
    assert commit["commitInfo"]["userMetadata"] == mark(7).text()
    assert commit["txn"]["appId"] == "deferred-test"
    assert commit["txn"]["version"] == 7


def test_a_number_is_committed_at_most_once(tmp_path: Path) -> None:
    path = made(tmp_path / "t", [])
    assert Engine().append_rows(path, table_of([(1, "x", None)]), mark(2))
    assert not Engine().append_rows(path, table_of([(2, "y", None)]), mark(2))
    assert not Engine().append_rows(path, table_of([(3, "z", None)]), mark(1))
    assert held(path) == {(1, "x", None): 1}


def test_the_number_survives_checkpoints(tmp_path: Path) -> None:
    path = made(tmp_path / "t", [])
    for number in range(1, 31):
        assert Engine().append_rows(path, table_of([(number, None, None)]), mark(number))
    DeltaTable(path).create_checkpoint()
    assert not Engine().append_rows(path, table_of([(0, None, None)]), mark(30))
    assert Engine().append_rows(path, table_of([(0, None, None)]), mark(31))
    assert sum(held(path).values()) == 31


def test_rows_are_rewritten_only_in_the_version_that_was_seen(tmp_path: Path) -> None:
    path = made(tmp_path / "t", [(1, "x", None), (2, "y", None)])
    files = rewritten(path, COLUMNS, changes_of({(1, "x", None): -1}))
    assert files is not None
    write_deltalake(path, table_of([(1, "new", None)]), mode="append")
    assert not Engine().rewrite_rows(path, files, mark())
    assert held(path) == {(1, "x", None): 1, (2, "y", None): 1, (1, "new", None): 1}


def test_a_rewriting_carries_its_mark_once(tmp_path: Path) -> None:
    path = made(tmp_path / "t", [(1, "x", None), (2, "y", None)])
    assert bags.apply_at_driver(Engine(), path, COLUMNS, changes_of({(1, "x", None): -1}), mark(7)) == (1, 0)
    commit = last_commit(path)
    assert commit["commitInfo"]["userMetadata"] == mark(7).text()
    assert (commit["txn"]["appId"], commit["txn"]["version"]) == ("deferred-test", 7)
    assert bags.apply_at_driver(Engine(), path, COLUMNS, changes_of({(2, "y", None): -1}), mark(7)) is None
    assert held(path) == {(2, "y", None): 1}


@given(
    st.lists(ROWS, max_size=12),
    st.lists(st.tuples(ROWS, st.integers(1, 3)), max_size=4),
    st.integers(0, 12),
    st.data(),
)
def test_a_change_is_applied_exactly(
    tmp_path_factory: pytest.TempPathFactory, before: list[Row], inserted: list[tuple[Row, int]], cut: int, data: Any
) -> None:
    """(R ∸ ∇R) ⊎ ΔR for any ∇R ⊆ R: with NULLs, duplicates and text that has a meaning in SQL, in one or two files."""
    path = made(tmp_path_factory.mktemp("driver") / "t", before[:cut])
    write_deltalake(path, table_of(before[cut:]), mode="append")
    deleted = data.draw(st.lists(st.sampled_from(before), max_size=4)) if before else []
    deletions = Counter(deleted) & Counter(before)
    changes: Counter[Row] = Counter()
    changes.update(dict(inserted))
    changes.subtract(deletions)
    wanted = Counter(before)
    wanted.update(changes)
    done = bags.apply_at_driver(Engine(), path, COLUMNS, changes_of(dict(changes)), mark())
    assert done == (-sum(n for n in changes.values() if n < 0), sum(n for n in changes.values() if n > 0))
    assert held(path) == +wanted


def test_a_row_that_is_not_there_is_not_deleted(tmp_path: Path) -> None:
    path = made(tmp_path / "t", [(1, "x", None)])
    with pytest.raises(InvariantError, match="rebuild"):
        bags.apply_at_driver(Engine(), path, COLUMNS, changes_of({(1, "x", None): -2}), mark())
    assert held(path) == {(1, "x", None): 1}


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int8(), -128),
        (pa.int64(), 2**63 - 1),
        (pa.decimal128(38, 3), Decimal("-999999999999.999")),
        (pa.string(), "it's \\ é\u0000"),
        (pa.binary(), b"\x00\xff"),
        (pa.bool_(), False),
        (pa.date32(), date(1582, 10, 10)),
        (pa.timestamp("us", "UTC"), datetime(9999, 12, 31, 23, 59, 59, 999999, ZoneInfo("UTC"))),
        (pa.float64(), -0.0),
        (pa.list_(pa.int32()), [1, None]),
        (pa.struct([("p", pa.int32()), ("q", pa.string())]), {"p": None, "q": "z"}),
    ],
    ids=str,
)
def test_values_come_through(tmp_path: Path, type_: pa.DataType, value: Any) -> None:
    schema = pa.schema([("x", type_)])
    write_deltalake(tmp_path / "t", pa.Table.from_pylist([], schema))
    assert Engine().append_rows(str(tmp_path / "t"), pa.Table.from_pylist([{"x": value}, {"x": None}], schema), mark())
    values = DeltaTable(tmp_path / "t").to_pyarrow_table().column("x").to_pylist()
    assert list(map(repr, values)) == [repr(value), "None"]


@pytest.mark.parametrize("value", [float("nan"), [float("nan")], {"p": 0.5}], ids=str)
def test_not_a_number_is_left_to_spark(tmp_path: Path, value: Any) -> None:
    """Spark takes NaN for the largest number, and statistics by delta-rs leave it out: its file would be skipped."""
    rows = pa.table({"x": [value]})
    write_deltalake(tmp_path / "t", rows)
    assert not Engine().append_rows(str(tmp_path / "t"), rows, mark())
    assert DeltaTable(tmp_path / "t").version() == 0


LONG = Decimal("123456789012345.678")


def test_decimals_with_many_digits_are_left_to_spark(tmp_path: Path) -> None:
    """delta-rs rounds them in the statistics of a file, which Spark would then skip."""
    schema = pa.schema([("x", pa.decimal128(18, 3)), ("y", pa.list_(pa.decimal128(18, 3)))])
    path = str(tmp_path / "t")
    write_deltalake(path, table_of([], schema))
    assert not Engine().append_rows(path, table_of([(LONG, None)], schema), mark())
    assert not Engine().append_rows(path, table_of([(None, [LONG])], schema), mark())


UTC = ZoneInfo("UTC")
HARD: dict[str, list[Any]] = {
    "bigint": [-(2**63), 2**63 - 1, 2**53 + 1, -(2**53) - 1],
    "decimal(15,3)": [Decimal("-999999999999.999"), Decimal("123456789012.345"), Decimal("0.001")],
    "decimal(18,3)": [LONG, -LONG, Decimal("999999999999.999"), Decimal("123456789012.345")],
    "decimal(38,20)": [Decimal("0.00000000000000000001"), Decimal("12345678901234567.00000000000000000001")],
    "double": [float("nan"), float("inf"), -0.0, 5e-324, 0.1 + 0.2],
    "string": ["", "\U0010ffff" * 40, "é" * 40, "a" * 31 + "\U0001f600" + "b" * 9, "it's", "a" * 33],
    "date": [date(1, 1, 1), date(1582, 10, 4), date(9999, 12, 31)],
    "timestamp": [datetime(1900, 1, 1, 0, 0, 0, 1, UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)],
}


@pytest.mark.parametrize("type_", HARD)
def test_spark_finds_every_value(spark: Any, tmp_path: Path, type_: str) -> None:
    """Spark skips files by their statistics: it never skips one of ours that has the value which is looked for."""
    from pyspark.sql import functions

    path, arrow = str(tmp_path / "t"), driver.exact_type(type_)
    assert driver.create(path, [("x", type_)], (), {})
    written = [
        value
        for number, value in enumerate(HARD[type_])
        if Engine().append_rows(path, pa.table({"x": pa.array([value], arrow)}), mark(number))
    ]
    assert written
    table = spark.read.format("delta").load(path)
    for value in written:
        literal = functions.lit(value.isoformat() if isinstance(value, date) else value).cast(type_)
        assert table.filter(functions.col("x") == literal).count() == 1, value


@pytest.mark.parametrize("type_", HARD)
def test_spark_finds_every_value_of_a_rewritten_file(spark: Any, tmp_path: Path, type_: str) -> None:
    from pyspark.sql import functions

    path, columns = str(tmp_path / "t"), [("a", "int"), ("x", type_)]
    assert driver.create(path, columns, (), {})
    schema = pa.schema([(name, driver.exact_type(kind)) for name, kind in columns])
    assert Engine().append_rows(path, table_of([(-1, None)], schema), mark(1))
    for number, value in enumerate(HARD[type_]):
        rows = table_of([(number - 1, None), (number - 1, value), (number, None)], schema)
        changes = rows.append_column(bags.COUNT, pa.array([-1, 1, 1]))
        assert bags.apply_at_driver(Engine(), path, columns, changes, mark(number + 2)) == (1, 2)
    table = spark.read.format("delta").load(path)
    for value in HARD[type_]:
        literal = functions.lit(value.isoformat() if isinstance(value, date) else value).cast(type_)
        assert table.filter(functions.col("x") == literal).count() == 1, value
    assert table.count() == len(HARD[type_]) + 1


def test_only_files_with_deleted_rows_are_rewritten(tmp_path: Path) -> None:
    """Also where their statistics do not tell them apart; floating-point numbers are compared by their bits."""
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64())])
    columns, path = [("k", "bigint"), ("x", "double")], str(tmp_path / "t")
    parts = [[(1, 0.0), (9, float("nan"))], [(1, -0.0), (9, 0.5)], [(20, 1.5), (21, None)]]
    write_deltalake(path, table_of([], schema))
    for part in parts:
        write_deltalake(path, table_of(part, schema), mode="append")
    files = {file["path"] for file in pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()}
    changes = table_of([(1, -0.0), (30, float("nan"))], schema).append_column(bags.COUNT, pa.array([-1, 2]))
    assert bags.apply_at_driver(Engine(), path, columns, changes, mark()) == (1, 2)
    after = {file["path"] for file in pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()}
    assert len(files - after) == 1
    rows = sorted(repr(tuple(row.values())) for row in DeltaTable(path).to_pyarrow_table().to_pylist())
    left = [*parts[0], parts[1][1], *parts[2], (30, float("nan")), (30, float("nan"))]
    assert rows == sorted(map(repr, left))
    gone = table_of([(9, float("nan"))], schema).append_column(bags.COUNT, pa.array([-1]))
    assert bags.apply_at_driver(Engine(), path, columns, gone, mark(2)) is None


def test_tables_that_spark_writes_otherwise_are_left_to_it(tmp_path: Path) -> None:
    rows = table_of([(1, "x", None)])
    path = made(tmp_path / "t", [(1, "x", None)])
    gone = changes_of({(1, "x", None): -1})
    assert rewritten(path, COLUMNS, gone) is not None
    assert rewritten(path, [*COLUMNS[:2], ("d", "varchar(9)")], gone) is None
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert rewritten(path, COLUMNS, gone) is None
    assert not driver.append("s3a://bucket/t", rows, "deferred-test", 1, "")
    assert not driver.append(str(tmp_path / "nothing"), rows, "deferred-test", 1, "")


@settings(max_examples=30)
@given(
    st.lists(st.lists(ROWS, max_size=3), min_size=1, max_size=3),
    st.lists(ROWS, max_size=3),
    st.sampled_from([("a",), ("s",), ("a", "d"), ("a", "s", "d")]),
)
def test_rows_are_looked_up_by_their_keys(
    tmp_path_factory: pytest.TempPathFactory, commits: list[list[Row]], keys: list[Row], names: tuple[str, ...]
) -> None:
    path = str(tmp_path_factory.mktemp("r") / "t")
    assert driver.create(path, COLUMNS, (), {})
    for rows in commits:
        write_deltalake(path, table_of(rows), mode="append")
    asked = table_of(keys).rename_columns([f"k_{name}" for name in SCHEMA.names])
    on = {name: f"k_{name}" for name in names}
    places = [SCHEMA.names.index(name) for name in names]
    wanted = {tuple(key[i] for i in places) for key in keys}
    for version in range(len(commits) + 1):
        found = driver.looked_up(path, version, dict(COLUMNS), asked, on, 1000)
        there = [row for rows in commits[:version] for row in rows]
        assert found is not None
        assert Counter(tuple(row.values()) for row in found.to_pylist()) == Counter(
            row for row in there if tuple(row[i] for i in places) in wanted
        )
        everything = driver.looked_up(path, version, dict(COLUMNS), None, {}, 1000)
        assert everything is not None
        assert Counter(tuple(row.values()) for row in everything.to_pylist()) == Counter(there)


def test_what_is_looked_up_must_be_little_and_exact(tmp_path: Path) -> None:
    path = made(tmp_path / "t", [(1, "x", None), (1, "y", None)])
    keys = pa.table({"k": pa.array([1], pa.int32())})
    types = dict(COLUMNS)
    assert driver.looked_up(path, 0, types, keys, {"a": "k"}, 2) is not None
    assert driver.looked_up(path, 0, types, keys, {"a": "k"}, 1) is None
    assert driver.looked_up(path, 0, types, None, {}, 1) is None
    assert driver.looked_up(path, 0, {**types, "m": "map<int,int>"}, keys, {"a": "k"}, 2) is None
    assert driver.looked_up(f"s3://x{path}", 0, types, keys, {"a": "k"}, 2) is None
    floats = str(tmp_path / "f")
    write_deltalake(floats, pa.table({"f": [0.0]}))
    assert driver.looked_up(floats, 0, {"f": "double"}, pa.table({"k": [-0.0]}), {"f": "k"}, 2) is None


def test_an_empty_table_is_created_as_by_spark(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    columns = [("a", "int"), ("v", "decimal(12,2)"), ("at", "timestamp"), ("n", "bigint")]
    assert driver.create(path, columns, ["n"], {"delta.enableDeletionVectors": "false"})
    table = DeltaTable(path)
    assert json.loads(table.schema().to_json())["fields"] == [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in (("a", "integer"), ("v", "decimal(12,2)"), ("at", "timestamp"), ("n", "long"))
    ]
    assert table.metadata().partition_columns == ["n"]
    assert table.metadata().configuration == {"delta.enableDeletionVectors": "false"}
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert not driver.create(path, columns, [], {})  # there is one already
    assert not driver.create(str(tmp_path / "u"), [("m", "map<int,int>")], [], {})
    assert not driver.create(str(tmp_path / "u"), columns, [], {"delta.enableChangeDataFeed": "true"})
    assert not (tmp_path / "u").exists()
