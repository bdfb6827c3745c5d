"""Support tables on Spark: parts that add up exactly, and moves that a dead process began are taken back."""

from __future__ import annotations

from typing import Any

import pytest

from deferred.algebra.scalar import column
from deferred.log.history import DeltaLog
from deferred.maintenance import propagate as propagating
from deferred.spark.engine import table
from deferred.sql.dialect import text
from deferred.sql.supporting import _average
from tests.engine.support import make


@pytest.mark.parametrize(("digits", "scale"), [(15, 2), (10, 0), (20, 6), (5, 3), (20, 10)])
def test_an_average_of_parts_is_sparks_own(spark: Any, digits: int, scale: int) -> None:
    unit = f"CAST('0.{'0' * (scale - 1)}1' AS DECIMAL({digits}, {scale}))" if scale else "CAST(1 AS DECIMAL(1, 0))"
    value = (f"POW(-1, id) * MOD(HASH(id), {10 ** min(digits - scale, 6) - 1}) + "
             f"MOD(id, {10 ** min(scale, 4)}) * {unit}")
    rows = f"SELECT MOD(id, 700) AS k, CAST({value} AS DECIMAL({digits}, {scale})) AS x FROM RANGE(9000)"
    groups = spark.sql(f"SELECT k, AVG(x) AS wanted, CAST(SUM(x) AS DECIMAL(38, {scale})) AS total, COUNT(x) AS amount "
                       f"FROM ({rows}) GROUP BY k, MOD(x, 3)")
    type_ = groups.schema["wanted"].dataType
    made = text(_average(column("total"), column("amount"), type_.simpleString(), type_.scale))
    assert groups.count() > 700
    assert groups.selectExpr("wanted", f"{made} AS made").where("NOT (wanted <=> made)").take(3) == []


@pytest.fixture
def sales(warehouse: Any, tmp_path: Any) -> Any:
    path = str(tmp_path / "sales")
    warehouse.spark.sql(f"CREATE TABLE {table(path)} (item INT, amount DECIMAL(10, 2), day DATE) USING delta")
    warehouse.spark.sql(f"INSERT INTO {table(path)} VALUES (1, 2.50, DATE'2024-01-01'), (1, 2.50, DATE'2024-01-01'), "
                        "(2, NULL, DATE'2024-01-03'), (3, 7.25, NULL)")
    warehouse.track("sales", path)
    return path


QUERY = ("SELECT item, COUNT(*) AS n, COUNT(amount) AS c, SUM(amount) AS total, AVG(amount) AS mean, "
         "MIN(day) AS first, MAX(amount) AS best FROM sales GROUP BY item")


def _rows(warehouse: Any, path: str, name: str) -> None:
    wanted = warehouse.spark.sql(QUERY.replace("FROM sales", f"FROM {table(path)}"))
    assert sorted(map(str, warehouse.read(name).collect())) == sorted(map(str, wanted.collect()))


def test_counted_groups_follow_every_change(warehouse: Any, sales: str) -> None:
    warehouse.create_view("items", QUERY, refresh_policy="incremental_strict")
    assert "Aggregate · counted" in str(warehouse.explain("items"))
    for statement in (
        f"INSERT INTO {table(sales)} VALUES (1, 0.01, DATE'2023-12-31'), (4, NULL, NULL)",
        f"DELETE FROM {table(sales)} WHERE day = DATE'2023-12-31'",  # a deleted minimum: its group is read again
        f"UPDATE {table(sales)} SET item = 2 WHERE item = 3",
        f"DELETE FROM {table(sales)}",
    ):
        warehouse.spark.sql(statement)
        warehouse.refresh("items")
        warehouse.verify("items")
        _rows(warehouse, sales, "items")


def test_a_move_without_its_batch_is_taken_back(warehouse: Any, sales: str, monkeypatch: pytest.MonkeyPatch) -> None:
    view = warehouse.create_view("items", QUERY)
    support = f"{view.location}/support1"
    before = DeltaLog(support).version
    warehouse.spark.sql(f"INSERT INTO {table(sales)} VALUES (1, 5.00, DATE'2024-02-01')")

    class Death(BaseException):
        """What a killed process leaves undone, without killing this one."""

    original = propagating._write

    def dying(context: Any, view: Any, delta: str, cut: Any, work: Any, batch: int, move: Any) -> None:
        def moved_then_dead() -> None:
            move()
            raise Death

        original(context, view, delta, cut, work, batch, moved_then_dead)

    with monkeypatch.context() as patch:
        patch.setattr(propagating, "_write", dying)
        with pytest.raises(Death):
            warehouse.propagate("items")
    assert DeltaLog(support).version > before
    warehouse.refresh("items")
    warehouse.verify("items")
    _rows(warehouse, sales, "items")


def test_kept_values_are_told_apart_bit_by_bit(warehouse: Any, tmp_path: Any) -> None:
    path = make(warehouse.spark, tmp_path / "readings", "x DOUBLE, n INT",
                "(0.0D, 1), (-0.0D, 2), (CAST('NaN' AS DOUBLE), 3), (NULL, 4), (1e16D, 5), (1D, 6)")
    warehouse.track("readings", path)
    query = ("SELECT SORT_ARRAY(COLLECT_LIST(CAST(x AS STRING))) AS texts, SUM(x) FILTER (WHERE NOT ISNAN(x)) AS sum, "
             "MIN(x) AS least, MAX(x) AS most, MEDIAN(n) AS middle, COUNT(*) AS rows FROM readings")
    warehouse.create_view("total", query, refresh_policy="incremental_strict")
    assert "Kept · kept values" in str(warehouse.explain("total"))
    for statement in (
        f"INSERT INTO {table(path)} VALUES (-0.0D, 1), (-0.0D, 1), (CAST('NaN' AS DOUBLE), 3)",
        f"DELETE FROM {table(path)} WHERE CAST(x AS STRING) = '0.0'",
        f"DELETE FROM {table(path)} WHERE x = 1e16D",
        f"UPDATE {table(path)} SET x = 0.0D WHERE n = 2",
        f"DELETE FROM {table(path)}",
    ):
        warehouse.spark.sql(statement)
        warehouse.refresh("total")
        warehouse.verify("total")
        (wanted,) = warehouse.spark.sql(query.replace("FROM readings", f"FROM {table(path)}")).collect()
        (shown,) = warehouse.read("total").collect()
        same = [name for name in wanted.asDict() if name not in ("least", "most")]
        assert str([shown[name] for name in same]) == str([wanted[name] for name in same])
