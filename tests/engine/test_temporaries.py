"""Temporary results: what comes to the driver goes back unchanged, and large results stay in Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deferred.algebra.bags import COUNT, column
from deferred.log.delta_log import DeltaLog
from deferred.log.small_changes import small_changes
from deferred.maintenance.rounds import SparkMachine
from deferred.spark import temporaries as temporaries_module
from deferred.spark.data_skipping import within_spans
from deferred.spark.engine import Engine
from deferred.sql.dialect import text
from deferred.sql.render import ReadableLeaves, Renderer

VALUES = {
    "tinyint": ("CAST(-128 AS TINYINT)", "CAST(127 AS TINYINT)"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "float": ("CAST('-0.0' AS FLOAT)", "CAST('NaN' AS FLOAT)"),
    "double": ("-0.0D", "0.0D", "CAST('Infinity' AS DOUBLE)", "CAST('NaN' AS DOUBLE)", "1.1D + 2.2D"),
    "decimal": ("CAST('-99999999999999999999999999999999999.999' AS DECIMAL(38, 3))", "CAST(0 AS DECIMAL(38, 3))"),
    "string": ("''", "'it\\'s \\\\ é 日本'", "'a\\u0000b'", "' x '"),
    "binary": ("X''", "X'00FF10'"),
    "boolean": ("TRUE", "FALSE"),
    "date": ("DATE '1582-10-10'", "DATE '0001-01-01'", "DATE '9999-12-31'"),
    "timestamp": (
        "TIMESTAMP '0001-01-01 00:00:00.000001'",
        "TIMESTAMP '1883-11-18 12:00:00'",
        "TIMESTAMP '2024-11-03 01:30:00'",
        "TIMESTAMP '2024-11-03 06:30:00Z'",
        "TIMESTAMP '9999-12-31 23:59:59.999999'",
    ),
    "timestamp_ntz": ("TIMESTAMP_NTZ '0001-01-01 00:00:00'", "TIMESTAMP_NTZ '2024-03-10 02:30:00.000001'"),
    "array": ("ARRAY(1, NULL, 3)", "ARRAY()"),
    "struct": ("NAMED_STRUCT('a', 1, 'b', TIMESTAMP '2024-11-03 01:30:00')", "NAMED_STRUCT('a', NULL, 'b', NULL)"),
    "map": ("MAP('k', -0.0D, 'l', NULL)", "MAP()"),
}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_what_comes_to_the_driver_goes_back_unchanged(spark: Any, zone: str) -> None:
    engine = Engine(spark)
    with engine.temporaries({"spark.sql.session.timeZone": zone}) as temporaries:
        for type_, values in VALUES.items():
            listed = " UNION ALL ".join(f"SELECT {value} AS x" for value in (*values, "NULL"))
            wanted = engine.rows(f"SELECT TYPEOF(x) AS t, CAST(x AS STRING) AS s FROM ({listed}) ORDER BY s")
            table = temporaries.compute(type_, listed, expected=1)
            assert temporaries.local(table) is not None
            assert temporaries.rows(table) == len(values) + 1
            got = engine.rows(f"SELECT TYPEOF(x) AS t, CAST(x AS STRING) AS s FROM {table.name} ORDER BY s")
            assert got == wanted, type_


def test_rows_in_several_chunks_are_all_taken(spark: Any) -> None:
    engine = Engine(spark)
    chunks = pa.chunked_array([pa.array(part, pa.int32()) for part in ([], [1], [], [2, 3])])
    with engine.temporaries() as temporaries:
        table = temporaries.put("few", pa.table({"x": chunks}), "x int")
        assert sorted(row[0] for row in engine.rows(f"SELECT x FROM {table.name}")) == [1, 2, 3]


def test_queries_that_are_computed_together_give_what_they_give_alone(spark: Any) -> None:
    engine = Engine(spark)
    nested = ("array", "struct", "map")
    flat = ", ".join(f"{values[0]} AS `c {kind}`" for kind, values in VALUES.items() if kind not in nested)
    deep = ", ".join(f"{VALUES[kind][0]} AS `c {kind}`" for kind in nested)
    queries = {
        "flat": f"SELECT {flat}",
        "none": "SELECT id, CAST(id AS STRING) AS s FROM RANGE(0)",
        "some": "SELECT id, IF(id = 1, NULL, CAST(id AS STRING)) AS s FROM RANGE(3)",
    }
    with engine.temporaries() as temporaries:
        for expected in (3, temporaries_module.UNKNOWN):
            found = temporaries.compute_all(queries, expected)
            found |= temporaries.compute_all({"one": f"SELECT {deep}", "other": "SELECT 1 AS x"}, expected)
            for name, query in [*queries.items(), ("one", f"SELECT {deep}")]:
                wanted = engine.rows(f"SELECT TO_JSON(STRUCT(*)) FROM ({query})")
                got = engine.rows(f"SELECT TO_JSON(STRUCT(*)) FROM {found[name].name}")
                assert sorted(map(str, got)) == sorted(map(str, wanted))
                assert temporaries.rows(found[name]) == len(wanted)
                assert temporaries.local(found[name]) is not None or name == "one"


def test_changes_that_the_driver_reads_are_those_that_spark_reads(spark: Any, tmp_path: Path) -> None:
    """Every type that Arrow holds exactly, as Spark writes it and as Spark reads the change feed."""
    path, engine = str(tmp_path / "t"), Engine(spark)
    kinds = [kind for kind in VALUES if kind not in ("array", "struct", "map")]
    for number in range(2):
        listed = ", ".join(f"{VALUES[kind][-1 - number]} AS `{kind}`" for kind in kinds)
        rows = spark.sql(f"SELECT CAST({number} AS INT) AS id, {listed}").coalesce(1).write.format("delta")
        rows.option("delta.enableChangeDataFeed", "true").mode("append").save(path)
    spark.sql(f"UPDATE delta.`{path}` SET id = 7, string = NULL WHERE id = 1")
    log = DeltaLog(path)
    found = small_changes(log, 0, log.version, log.columns, 100)
    assert found is not None
    names = ", ".join(f"`{name}`" for name, _ in log.columns)
    feed = f"""SELECT {names}, IF(_change_type IN ('insert', 'update_postimage'), 1L, -1L) AS {COUNT}
FROM table_changes_by_path('{path}', 1, {log.version})"""
    schema = ", ".join(f"`{name}` {type_}" for name, type_ in [*log.columns, (COUNT, "bigint")])
    with engine.temporaries() as temporaries:
        table = temporaries.put("found", found, schema)
        seen = "SELECT TO_JSON(STRUCT(*)), HEX(`binary`) FROM"
        got, wanted = engine.rows(f"{seen} {table.name}"), engine.rows(f"{seen} ({feed})")
        assert len(wanted) == 3
        assert sorted(map(str, got)) == sorted(map(str, wanted))


def test_only_a_result_of_few_rows_comes_to_the_driver(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporaries_module, "LOCAL_ROWS", 3)
    engine = Engine(spark)
    with engine.temporaries() as temporaries:
        few = temporaries.compute("few", "SELECT id FROM RANGE(3)", expected=1)
        many = temporaries.compute("many", "SELECT id FROM RANGE(4)", expected=1)
        after = temporaries.compute("after", "SELECT id FROM RANGE(1)", expected=1)
        empty = temporaries.compute("empty", "SELECT id FROM RANGE(0)")
        assert [temporaries.rows(table) for table in (few, many, after, empty)] == [3, 4, 1, 0]
        assert [temporaries.local(table) is not None for table in (few, many, after, empty)] == [
            True,
            False,
            True,
            True,
        ]
        (total,) = engine.rows(f"SELECT SUM(id) AS s FROM {many.name}")
        assert total["s"] == 6


def test_values_of_a_result_that_stays_in_spark_are_covered(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporaries_module, "LOCAL_ROWS", 3)
    values = "id AS k, DATE_ADD(DATE '2024-01-01', CAST(id AS INT)) AS d, CAST(id AS STRING) AS s, NULL AS n"
    rows = f"SELECT {values} FROM RANGE(1000) UNION ALL SELECT 1000000, NULL, 'x', NULL"
    with Engine(spark).temporaries() as temporaries:
        many = temporaries.compute("many", rows)
        found = {name: temporaries.spans(many, name) for name in ("k", "d", "s", "n")}
        assert found["s"] is None
        assert found["n"] is None
        covered = {name: within_spans(spans, column(name)) for name, spans in found.items() if spans is not None}
    assert {name: text(condition) for name, condition in covered.items() if condition is not None} == {
        "k": "(`k` BETWEEN CAST(0 AS BIGINT) AND CAST(999 AS BIGINT)) OR (`k` = CAST(1000000 AS BIGINT))",
        "d": "(`d` BETWEEN CAST('2024-01-01' AS DATE) AND CAST('2026-09-26' AS DATE)) OR `d` IS NULL",
    }


def test_types_that_arrow_would_change_stay_in_spark(spark: Any) -> None:
    engine = Engine(spark)
    with engine.temporaries() as temporaries:
        variant = temporaries.compute("variant", "SELECT PARSE_JSON('{\"a\": null}') AS x", expected=1)
        collated = temporaries.compute("collated", "SELECT 'a' COLLATE UTF8_LCASE AS x", expected=1)
        assert temporaries.local(variant) is None
        assert temporaries.local(collated) is None


def test_padded_texts_that_were_computed_at_the_driver_go_to_spark(spark: Any) -> None:
    engine = Engine(spark)
    with engine.temporaries() as temporaries:
        machine = SparkMachine(Renderer(ReadableLeaves()), {}, temporaries, {"c": "char(4)", "n": "int"})
        held = machine.hold("step", pa.table({"c": ["ab  ", None], "n": pa.array([1, None], pa.int32())}))
        rows = engine.rows(f"SELECT c, n FROM {temporaries.ready(held).name}")
        assert sorted(map(tuple, rows), key=str) == [("ab  ", 1), (None, None)]
