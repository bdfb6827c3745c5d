"""Commits and rows that do not matter to a view: on Delta's own logs, as Spark writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

from deferred import Warehouse
from deferred.algebra.relevance import Dialect, relevance_of
from deferred.log.delta_log import DeltaLog
from deferred.log.touched import Commits
from deferred.sql.dialect import text
from tests.engine.support import make
from tests.fuzz.on_spark import SparkDatabase

ZONE = "spark.sql.session.timeZone"

ORDERS = "id INT, customer INT, amount DECIMAL(8,2), day DATE, note STRING"
VIEW = """
SELECT o.id, c.name, o.day FROM orders AS o JOIN customer AS c ON o.customer = c.id
WHERE o.amount > 100 AND c.id < 50 AND o.day >= DATE'2024-01-01'
"""


@pytest.fixture
def shop(warehouse: Any, tmp_path: Path) -> tuple[Any, str, str]:
    """A warehouse with a view over two tables, and where these are."""
    wh = warehouse
    orders = make(
        wh.spark, tmp_path / "orders", ORDERS, "(1, 1, 500, DATE'2024-05-01', 'a'), (2, 2, 5, DATE'2024-05-01', 'b')"
    )
    customer = make(wh.spark, tmp_path / "customer", "id INT, name STRING, city STRING", "(1, 'Ann', 'X')")
    wh.track("orders", orders)
    wh.track("customer", customer)
    wh.create_view("large", VIEW, refresh_policy="incremental_strict")
    return wh, orders, customer


def test_commits_that_do_not_matter_start_no_spark(shop: tuple[Any, str, str], tmp_path: Path) -> None:
    wh, orders, customer = shop
    assert wh.explain("large").relevance == {
        "customer": "`id` < 50",
        "orders": "`amount` > 100 AND `customer` < 50 AND `day` >= CAST('2024-01-01' AS DATE)",
    }
    for statement in (
        f"INSERT INTO delta.`{orders}` VALUES (3, 1, 7, DATE'2024-06-01', 'too small')",  # by the statistics
        f"INSERT INTO delta.`{orders}` VALUES (4, 70, 700, DATE'2024-06-01', 'a customer that no row can meet')",
        f"INSERT INTO delta.`{orders}` VALUES (5, NULL, 700, DATE'2024-06-01', NULL)",
        f"DELETE FROM delta.`{orders}` WHERE amount < 6",  # by the predicate: the file has other rows too
        f"UPDATE delta.`{orders}` SET note = 'still too small' WHERE id = 3",
        f"INSERT INTO delta.`{customer}` VALUES (50, 'Bob', 'Y')",
        f"OPTIMIZE delta.`{customer}`",
    ):
        wh.spark.sql(statement)
    with Warehouse.open(path=tmp_path / "warehouse") as fresh:
        done = fresh.propagate("large")
        assert not fresh._context.engine.started
        assert (done.state, done.commits_irrelevant, done.rows_irrelevant) == ("nothing", 7, 7)
        assert done.message == (
            "None of 7 commits matters to the view: by Delta's log, no row that was changed can be in it."
        )
        (status,) = (view for view in fresh.status() if view["name"] == "large")
        assert (status["pending_commits"], status["irrelevant_commits"], status["irrelevant_rows"]) == (0, 7, 7)
        assert fresh.irrelevant_commits("customer") == {3: ["large"], 4: ["large"]}
        assert fresh.refresh("large").state == "nothing"
        assert not fresh._context.engine.started
    wh.verify("large")


def test_rows_that_do_not_matter_are_dropped_before_they_are_netted(shop: tuple[Any, str, str]) -> None:
    wh, orders, customer = shop
    wh.spark.sql(
        f"INSERT INTO delta.`{orders}` VALUES (3, 1, 7, DATE'2024-06-01', ''), (4, 1, 700, DATE'2024-06-01', '')"
    )
    wh.spark.sql(f"INSERT INTO delta.`{customer}` VALUES (60, 'Eve', 'Z')")
    done = wh.propagate("large")
    assert (done.rows_read, done.rows_inserted) == (1, 1)
    assert (done.commits_irrelevant, done.rows_irrelevant) == (1, 2)
    wh.spark.sql(f"UPDATE delta.`{orders}` SET note = upper(note), amount = amount + 1 WHERE id = 3")  # stays outside
    wh.spark.sql(f"UPDATE delta.`{customer}` SET city = 'W' WHERE id = 1")  # stays inside, as it was
    done = wh.propagate("large")
    assert (done.state, done.rows_read) == ("nothing", 0)
    wh.spark.sql(f"UPDATE delta.`{orders}` SET amount = 101 WHERE id = 3")  # comes in
    wh.spark.sql(f"UPDATE delta.`{orders}` SET day = DATE'2020-01-01' WHERE id = 1")  # goes out
    done = wh.refresh("large")
    assert (done.rows_deleted, done.rows_inserted) == (1, 2)
    wh.verify("large")


COLUMNS = {
    "f": "double",
    "s": "string",
    "t": "timestamp",
    "n": "timestamp_ntz",
    "c": "char(5)",
    "h": "float",
    "a": "int",
    "g": "string",
}
TRAPS = {
    # A condition at the edge of what statistics say, and the columns of a row for which it is true.
    "f > 1e3": {"f": "DOUBLE('NaN')"},
    "f >= 0.0": {"f": "-0.0D"},
    "h < 0.7": {"h": "0.7F"},
    f"s > '{'m' * 40}'": {"s": f"'{'m' * 41}'"},
    f"s < '{'m' * 40}'": {"s": f"'{'m' * 39}'"},
    "t > TIMESTAMP'2024-01-01 00:00:00.000500'": {"t": "TIMESTAMP'2024-01-01 00:00:00.000900'"},
    "n > TIMESTAMP_NTZ'2024-01-01 00:00:00.000500'": {"n": "TIMESTAMP_NTZ'2024-01-01 00:00:00.000900'"},
    "s COLLATE UTF8_LCASE = 'ABC'": {"s": "'abc'"},
    "CAST(c AS STRING) > 'ab'": {"c": "'ab'"},
    "a IS NULL": {},
    "g IS NULL OR g = ''": {"g": "''"},
}


def test_what_statistics_do_not_say_matters(spark: Any, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` ({columns}) USING delta PARTITIONED BY (g)")
    for row in TRAPS.values():
        spark.sql(f"INSERT INTO delta.`{tmp_path}/t` VALUES ({', '.join(row.get(name, 'NULL') for name in COLUMNS)})")
    database = SparkDatabase(spark, {"t": tuple(COLUMNS.items())})
    commits = Commits(DeltaLog(str(tmp_path / "t")), 0, COLUMNS)
    for version, condition in enumerate(TRAPS, start=1):
        bound = database.bind(f"SELECT * FROM t WHERE {condition}")
        relevance = relevance_of(bound.plan, bound.types, Dialect(ansi=True, zone=spark.conf.get(ZONE)))["t"]
        relevant = text(relevance.condition or exp.true())
        ((rows, kept),) = spark.sql(
            f"SELECT COUNT(*), COUNT_IF({relevant}) FROM delta.`{tmp_path}/t` VERSION AS OF {version} WHERE {condition}"
        ).collect()
        assert rows == kept > 0, condition
        groups = commits.touched(version)
        assert groups, condition
        decide = relevance.decider(COLUMNS)
        assert any(decide(group.known, group.predicate) for group in groups), condition
