"""What a view means is decided when it is created: whoever maintains it, from whatever session, on whatever host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from deferred import DeferredError, Warehouse
from deferred.errors import InvalidInputError
from tests.engine.support import FEED, assert_fresh, bag, dying, dying_after, make, mv, recomputed, refused, state_of

HERE = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
}
THERE = {
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.caseSensitive": "true",
    "spark.sql.legacy.sizeOfNull": "true",
}


@contextmanager
def settings(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    """A session with some settings, as another host or another user would have them."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


EVENTS = (
    "(1, TIMESTAMP '2024-01-01 03:30:00Z', '7', 99999999999999999999999999999999999999, 1.5), "
    "(2, TIMESTAMP '2024-01-01 20:30:00Z', 'x', 1, 2.25), (3, TIMESTAMP '2024-01-02 20:30:00Z', '9', 5, 3.125)"
)
VIEWS = {
    "days": "SELECT CAST(ts AS DATE) AS day, COUNT(*) AS n, MAX(HOUR(ts)) AS h FROM e GROUP BY CAST(ts AS DATE)",
    "lenient": "SELECT ID, CAST(s AS INT) AS i, ts >= TIMESTAMP '2024-01-01 12:00:00' AS late, SIZE(NULL) AS no FROM e",
    "sums": "SELECT id % 2 AS odd, SUM(big) AS big, SUM(small * small) AS small FROM e GROUP BY id % 2",
    "total": "SELECT SUM(big) AS big, COUNT(*) AS n FROM e",
}


def wanted(wh: Any, name: str) -> Counter[Any]:
    with settings(wh.spark, HERE):
        return bag(recomputed(wh, next(v.sql for v in wh.views() if v.name == name)))


def test_settings_of_the_session_that_created_a_view(warehouse: Any, tmp_path: Path) -> None:
    wh = warehouse
    path = make(
        wh.spark,
        tmp_path / "e",
        "id INT, ts TIMESTAMP, s STRING, big DECIMAL(38,0), small DECIMAL(20,10)",
        EVENTS,
        **{FEED: "true"},
    )
    wh.track("e", path)
    with settings(wh.spark, HERE):
        for name, sql in VIEWS.items():
            scenario = "immediate" if name == "lenient" else "combined"
            wh.create_view(name, sql, scenario=scenario, refresh_policy="incremental")
        assert wh.explain("days").settings["spark.sql.session.timeZone"] == "America/New_York"
        assert (None,) in {row[1:2] for row in bag(wh.read("sums"))}, "the sum has too many digits: NULL, and no error"
    host = wh.spark.newSession()
    for name, value in THERE.items():
        host.conf.set(name, value)
    with Warehouse.open(path=wh.settings.path, spark=host) as there:
        there.create_view("own", "SELECT day, CAST(ts AS DATE) AS here FROM days JOIN e ON n > 0")
        with there.transaction() as tx:
            tx.delete("e", "id = 1")
            tx.sql("INSERT INTO e VALUES (4, TIMESTAMP_LTZ '2024-01-02 03:59:00Z', 'y', 7, 4.0625)")
        for name in VIEWS:
            there.propagate(name)
            there.verify(name)
            there.partial_refresh(name)
            assert bag(wh.read(name)) == wanted(wh, name), name
        there.refresh("own")
        there.verify("own")
        there.sql("INSERT INTO e VALUES (5, TIMESTAMP_LTZ '2024-01-03 04:30:00Z', 'z', 1, 1)")
        there.rebuild("days")
        assert bag(wh.read("days")) == wanted(wh, "days")
        now = datetime.now(UTC)
        there.replay("lenient", now.replace(year=now.year + 1), now.replace(year=now.year + 2), "400d")
        assert bag(there.read_history("lenient").drop("_as_of")) == wanted(wh, "lenient")
    with settings(wh.spark, HERE):
        wh.refresh("own")
        wh.verify("own")


def test_a_transaction_means_the_same_when_another_process_finishes_it(
    warehouse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh = warehouse
    rows = "(1, TIMESTAMP '2024-01-01 03:30:00Z'), (2, TIMESTAMP '2024-01-01 20:30:00Z')"
    path = make(wh.spark, tmp_path / "e", "id INT, ts TIMESTAMP", rows, **{FEED: "true"})
    wh.track("e", path)
    with settings(wh.spark, HERE), monkeypatch.context() as patch, dying():
        dying_after(patch, 0)
        with wh.transaction() as tx:
            tx.delete("e", "CAST(ts AS DATE) = DATE '2023-12-31'")
    with Warehouse.open(path=wh.settings.path, spark=wh.spark) as another:
        another.sync()
    assert bag(wh.spark.sql(f"SELECT id FROM delta.`{path}`")) == {(2,): 1}


def test_columns_that_the_table_fills(warehouse: Any, tmp_path: Path) -> None:
    """DEFAULT, identity and generated columns are left to Delta where a row does not give them."""
    wh = warehouse
    path = make(
        wh.spark,
        tmp_path / "d",
        "id BIGINT GENERATED ALWAYS AS IDENTITY, a INT NOT NULL, d INT DEFAULT 7, g INT GENERATED ALWAYS AS (a + 1)",
        **{FEED: "true", "delta.feature.allowColumnDefaults": "supported"},
    )
    wh.spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT positive CHECK (a > 0)")
    wh.track("d", path)
    wh.create_view("v", "SELECT a, d, g, COUNT(id) AS n FROM d GROUP BY a, d, g", scenario="immediate")
    with wh.transaction() as tx:
        tx.insert("d", [{"a": 1}, {"A": 2, "d": None}, {"a": 3, "d": 3}, {"a": 3}])
    assert_fresh(wh, "v")
    assert bag(wh.read("v")) == {(1, 7, 2, 1): 1, (2, None, 3, 1): 1, (3, 3, 4, 1): 1, (3, 7, 4, 1): 1}
    before = state_of(wh)
    for row in ({"a": -1}, {"d": 1}, {"a": 1, "g": 9}, {"a": 1, "id": 9}):
        with pytest.raises(DeferredError), wh.transaction() as tx:
            tx.insert("d", [row])
    assert bag(wh.spark.sql(f"SELECT COUNT(*) FROM delta.`{path}`")) == {(4,): 1}
    assert state_of(wh)["views"] == before["views"]


def test_until_a_time_before_someone_optimized_a_view(warehouse: Any, tmp_path: Path) -> None:
    """OPTIMIZE and ALTER of a view's table change no row, so they have no place of their own in time."""
    wh = warehouse
    path = make(wh.spark, tmp_path / "r", "a INT", "(1), (2)", **{FEED: "true"})
    wh.track("r", path)
    wh.create_view("v", "SELECT a, COUNT(*) AS n FROM r GROUP BY a")
    wh.create_view("w", "SELECT n, COUNT(*) AS times FROM v GROUP BY n")
    moments = []
    for value in (1, 2):
        wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES ({value})")
        sleep(0.02)  # commits have times in milliseconds
        moments.append((datetime.now(UTC), bag(recomputed(wh, next(v.sql for v in wh.views() if v.name == "w")))))
        sleep(0.02)
    for moment, rows in moments:
        wh.spark.sql(f"OPTIMIZE delta.`{mv(wh, 'v')}`")
        wh.spark.sql(f"ALTER TABLE delta.`{mv(wh, 'v')}` SET TBLPROPERTIES ('some' = 'thing')")
        wh.sync()
        for name in ("v", "w"):
            wh.refresh(name, until=moment)
        assert bag(wh.read("w")) == rows
        assert wh.is_fresh("w", moment)
    wh.verify("w")


def test_a_view_is_replaced_when_the_new_one_is_there(warehouse: Any, tmp_path: Path) -> None:
    wh = warehouse
    path = make(wh.spark, tmp_path / "r", "a INT", "(1), (2)", **{FEED: "true"})
    wh.track("r", path)
    wh.create_view("v", "SELECT a FROM r")
    wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES (3)")
    wh.propagate("v")
    before = state_of(wh)
    for sql in ("SELECT nothing FROM r", "SELECT 1 DIV (a - 3) AS x FROM r"):
        with pytest.raises(DeferredError):
            wh.replace_view("v", sql)
        assert state_of(wh) == before
    with refused(InvalidInputError, "v", "reads it"):
        wh.replace_view("v", "SELECT a FROM v")
    assert wh.views() == before["views"]
    wh.replace_view("v", "SELECT COUNT(*) AS n FROM r", scenario="immediate")
    assert [view.name for view in wh.views()] == ["v"]
    wh.sql("INSERT INTO r VALUES (4)")
    assert bag(wh.read("v")) == {(4,): 1}
    wh.verify("v")
    assert len(state_of(wh)["folders"]) == 1
    wh.create_view("w", "SELECT n FROM v")
    with refused(InvalidInputError, "w"):
        wh.replace_view("v", "SELECT a FROM r")
