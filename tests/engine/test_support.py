"""Support tables on Spark: parts that add up exactly, and moves begun by a dead process are undone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

from deferred.algebra.aggregates.registry import lookup
from deferred.algebra.scalar import column
from deferred.log.delta_log import DeltaLog
from deferred.maintenance import batch as batches
from deferred.sql.dialect import quoted, text
from deferred.sql.templates import fill
from tests.engine.support import assert_fresh, make


@pytest.mark.parametrize(("digits", "scale"), [(15, 2), (10, 0), (20, 6), (5, 3), (20, 10)])
def test_an_average_of_parts_is_sparks_own(spark: Any, digits: int, scale: int) -> None:
    unit = f"CAST('0.{'0' * (scale - 1)}1' AS DECIMAL({digits}, {scale}))" if scale else "CAST(1 AS DECIMAL(1, 0))"
    value = f"POW(-1, id) * MOD(HASH(id), {10 ** min(digits - scale, 6) - 1}) + MOD(id, {10 ** min(scale, 4)}) * {unit}"
    rows = f"SELECT MOD(id, 700) AS k, CAST({value} AS DECIMAL({digits}, {scale})) AS x FROM RANGE(9000)"
    groups = spark.sql(
        f"SELECT k, AVG(x) AS wanted, CAST(SUM(x) AS DECIMAL(38, {scale})) AS total, COUNT(x) AS amount "
        f"FROM ({rows}) GROUP BY k, MOD(x, 3)"
    )
    type_ = groups.schema["wanted"].dataType
    average = lookup("avg")
    assert average is not None
    assert average.countable is not None
    parts = average.countable.parts(f"decimal({digits},{scale})", type_.simpleString)
    assert parts is not None
    made = text(fill(parts.final, sum=column("total"), count=column("amount")))
    assert groups.count() > 700
    assert groups.selectExpr("wanted", f"{made} AS made").where("NOT (wanted <=> made)").take(3) == []


@pytest.fixture
def sales(warehouse: Any, tmp_path: Any) -> Any:
    path = str(tmp_path / "sales")
    warehouse.spark.sql(f"CREATE TABLE delta.{quoted(path)} (item INT, amount DECIMAL(10, 2), day DATE) USING delta")
    warehouse.spark.sql(
        f"INSERT INTO delta.{quoted(path)} VALUES (1, 2.50, DATE'2024-01-01'), (1, 2.50, DATE'2024-01-01'), "
        "(2, NULL, DATE'2024-01-03'), (3, 7.25, NULL)"
    )
    warehouse.track("sales", path)
    return path


QUERY = (
    "SELECT item, COUNT(*) AS n, COUNT(amount) AS c, SUM(amount) AS total, AVG(amount) AS mean, "
    "MIN(day) AS first, MAX(amount) AS best FROM sales GROUP BY item"
)


def _rows(warehouse: Any, path: str, name: str) -> None:
    wanted = warehouse.spark.sql(QUERY.replace("FROM sales", f"FROM delta.{quoted(path)}"))
    assert sorted(map(str, warehouse.read(name).collect())) == sorted(map(str, wanted.collect()))


def test_counted_groups_follow_every_change(warehouse: Any, sales: str) -> None:
    warehouse.create_view("items", QUERY, refresh_policy="incremental_strict")
    assert "aggregate · counted" in str(warehouse.explain("items"))
    for statement in (
        f"INSERT INTO delta.{quoted(sales)} VALUES (1, 0.01, DATE'2023-12-31'), (4, NULL, NULL)",
        f"DELETE FROM delta.{quoted(sales)} WHERE day = DATE'2023-12-31'",  # a deleted minimum: its group is read again
        f"UPDATE delta.{quoted(sales)} SET item = 2 WHERE item = 3",
        f"DELETE FROM delta.{quoted(sales)}",
    ):
        warehouse.spark.sql(statement)
        warehouse.refresh("items")
        warehouse.verify("items")
        _rows(warehouse, sales, "items")


def test_a_move_without_its_batch_is_undone(warehouse: Any, sales: str, monkeypatch: pytest.MonkeyPatch) -> None:
    view = warehouse.create_view("items", QUERY)
    support = f"{view.location}/support1"
    before = DeltaLog(support).version
    warehouse.spark.sql(f"INSERT INTO delta.{quoted(sales)} VALUES (1, 5.00, DATE'2024-02-01')")

    class Death(BaseException):
        """Simulates a killed process, without killing this one."""

    original = batches._write_batch

    def dying(move: Any, change: Any, *rest: Any) -> None:
        def advance_then_die(operation: str, batch: int) -> None:
            change.advance_supports(operation, batch)
            raise Death

        original(move, replace(change, advance_supports=advance_then_die), *rest)

    with monkeypatch.context() as patch:
        patch.setattr(batches, "_write_batch", dying)
        with pytest.raises(Death):
            warehouse.propagate("items")
    assert DeltaLog(support).version > before
    warehouse.refresh("items")
    warehouse.verify("items")
    _rows(warehouse, sales, "items")


def test_a_table_of_an_earlier_version_is_filled_again(warehouse: Any, sales: str) -> None:
    """It has other columns; after one recomputation the view is incremental again."""
    record = warehouse.create_view("items", QUERY, refresh_policy="incremental_strict")
    kept = f"{record.workings}/support1"
    shutil.rmtree(kept)
    warehouse.spark.sql(f"CREATE TABLE delta.{quoted(kept)} (item INT, old BIGINT) USING delta")
    for number, strategy in enumerate(("full", "incremental")):
        warehouse.spark.sql(f"INSERT INTO delta.{quoted(sales)} VALUES (1, {number}, NULL)")
        assert warehouse.refresh("items").strategy == strategy
        warehouse.verify("items")
        _rows(warehouse, sales, "items")


def test_kept_values_are_compared_bit_by_bit(warehouse: Any, tmp_path: Any) -> None:
    path = make(
        warehouse.spark,
        tmp_path / "readings",
        "x DOUBLE, n INT",
        "(0.0D, 1), (-0.0D, 2), (CAST('NaN' AS DOUBLE), 3), (NULL, 4), (1e16D, 5), (1D, 6)",
    )
    warehouse.track("readings", path)
    query = (
        "SELECT SORT_ARRAY(COLLECT_LIST(CAST(x AS STRING))) AS texts, SUM(x) FILTER (WHERE NOT ISNAN(x)) AS sum, "
        "MIN(x) AS least, MAX(x) AS most, MEDIAN(n) AS middle, COUNT(*) AS rows FROM readings"
    )
    warehouse.create_view("total", query, refresh_policy="incremental_strict")
    assert "kept rows · kept values" in str(warehouse.explain("total"))
    for statement in (
        f"INSERT INTO delta.{quoted(path)} VALUES (-0.0D, 1), (-0.0D, 1), (CAST('NaN' AS DOUBLE), 3)",
        f"DELETE FROM delta.{quoted(path)} WHERE CAST(x AS STRING) = '0.0'",
        f"DELETE FROM delta.{quoted(path)} WHERE x = 1e16D",
        f"UPDATE delta.{quoted(path)} SET x = 0.0D WHERE n = 2",
        f"DELETE FROM delta.{quoted(path)}",
    ):
        warehouse.spark.sql(statement)
        warehouse.refresh("total")
        warehouse.verify("total")
        (wanted,) = warehouse.spark.sql(query.replace("FROM readings", f"FROM delta.{quoted(path)}")).collect()
        (shown,) = warehouse.read("total").collect()
        same = [name for name in wanted.asDict() if name not in ("least", "most")]
        assert str([shown[name] for name in same]) == str([wanted[name] for name in same])


OVER_EVERYTHING = {
    "ranked": "SELECT item, SUM(amount) AS total, RANK() OVER (ORDER BY SUM(amount) DESC) AS place, "
    "SUM(amount) / SUM(SUM(amount)) OVER () AS share FROM sales GROUP BY item",
    "numbered": "SELECT item, amount, COUNT(*) OVER () AS n, DENSE_RANK() OVER (ORDER BY day) AS r FROM sales",
    "later": "SELECT item, amount FROM sales ORDER BY item, amount OFFSET 1",
}


def test_what_reads_everything_reads_what_is_kept(warehouse: Any, sales: str) -> None:
    for name, query in OVER_EVERYTHING.items():
        warehouse.create_view(name, query, refresh_policy="incremental_strict")
        assert "recomputed" not in str(warehouse.explain(name))
    numbered = next(view for view in warehouse.views() if view.name == "numbered")
    shutil.rmtree(f"{numbered.location}/support1")  # as if an earlier version had kept nothing for it
    for statement in (
        f"INSERT INTO delta.{quoted(sales)} VALUES (1, 0.01, DATE'2023-12-31'), (4, NULL, NULL)",
        f"DELETE FROM delta.{quoted(sales)} WHERE item = 1",
    ):
        warehouse.spark.sql(statement)
        for name in OVER_EVERYTHING:
            warehouse.refresh(name)
            warehouse.verify(name)
        assert_fresh(warehouse, *OVER_EVERYTHING)
    strategies = [operation.strategy for operation in warehouse.history("numbered") if operation.strategy]
    assert strategies == ["incremental", "full"], "the table was made again, once"
