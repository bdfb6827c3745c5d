"""Logs that are gone or cannot be trusted: nothing is guessed, the view is marked, and rebuild repairs it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from deferred.errors import LogLostError, StorageError
from tests.engine.support import FEED, assert_fresh, bag, make, refused

SQL = "SELECT a, COUNT(*) AS n, MAX(s) AS s FROM r GROUP BY a"


def path(wh: Any, name: str = "r") -> str:
    return next(t.location for t in wh.tables() if t.name == name)


def state(wh: Any) -> str:
    return str(next(v.state for v in wh.views() if v.name == "v"))


@pytest.fixture
def viewed(tables: Any) -> Any:
    tables.create_view("v", SQL)
    return tables


def broken(wh: Any, *words: str) -> None:
    """propagate refuses with the words, the view is marked, and stays as it is until rebuild."""
    shown = bag(wh.read("v"))
    with refused(LogLostError, "r", *words):
        wh.propagate("v")
    assert state(wh) == "broken"
    for work in (wh.propagate, wh.refresh, wh.verify):
        with refused(LogLostError, "v", "rebuild"):
            work("v")
    assert bag(wh.read("v")) == shown
    assert next(v for v in wh.status() if v["name"] == "v")["state"] == "broken"


def assert_repaired(wh: Any) -> None:
    """After rebuild the view is right, and is maintained incrementally again."""
    wh.rebuild("v")
    assert_fresh(wh, "v")
    wh.spark.sql(f"INSERT INTO delta.`{path(wh)}` (a, b, s) VALUES (1, 1, 'zz')")
    assert wh.refresh("v").strategy == "incremental"
    assert_fresh(wh, "v")


def test_vacuumed_files(viewed: Any) -> None:
    wh = viewed
    wh.spark.sql(f"UPDATE delta.`{path(wh)}` SET s = 'u' WHERE a = 1")
    wh.spark.sql(f"DELETE FROM delta.`{path(wh)}` WHERE a = 2")
    wh.spark.sql(f"INSERT INTO delta.`{path(wh)}` VALUES (3, 3, 'n')")
    wh.spark.sql(f"OPTIMIZE delta.`{path(wh)}`")
    wh.spark.sql(f"VACUUM delta.`{path(wh)}` RETAIN 0 HOURS")
    broken(wh, "version", "rebuild")
    assert_repaired(wh)


def test_feed_turned_off_for_a_while(viewed: Any) -> None:
    wh = viewed
    wh.spark.sql(f"ALTER TABLE delta.`{path(wh)}` SET TBLPROPERTIES ('{FEED}' = 'false')")
    wh.spark.sql(f"INSERT INTO delta.`{path(wh)}` VALUES (7, 7, 'unseen')")
    wh.spark.sql(f"ALTER TABLE delta.`{path(wh)}` SET TBLPROPERTIES ('{FEED}' = 'true')")
    broken(wh, "version", "rebuild")
    assert_repaired(wh)


def test_feed_turned_off_for_good(viewed: Any) -> None:
    """rebuild turns it on again: without it the view could not be maintained."""
    wh = viewed
    wh.spark.sql(f"ALTER TABLE delta.`{path(wh)}` SET TBLPROPERTIES ('{FEED}' = 'false')")
    wh.spark.sql(f"INSERT INTO delta.`{path(wh)}` VALUES (7, 7, 'unseen')")
    broken(wh, "version", "rebuild")
    assert_repaired(wh)


def test_a_table_recreated_at_the_same_path(viewed: Any) -> None:
    wh = viewed
    wh.create_view("other", "SELECT DISTINCT a FROM r")
    shutil.rmtree(path(wh))
    make(wh.spark, path(wh), "a INT, b INT, s STRING", "(9, 9, 'anew')")
    broken(wh, "recreated")
    assert_repaired(wh)
    with refused(LogLostError, "other", "rebuild"):  # its cut means a table that is no more
        wh.refresh("other")
    wh.rebuild("other")
    assert_fresh(wh, "other")


def test_a_table_that_is_gone(viewed: Any) -> None:
    wh = viewed
    away = Path(path(wh)).rename(Path(path(wh)).with_name("away"))
    for work in (wh.propagate, wh.rebuild):
        with refused(StorageError, "r"):
            work("v")
    assert state(wh) == "active"  # nobody knows whether it is gone for ever
    away.rename(path(wh))
    wh.spark.sql(f"INSERT INTO delta.`{path(wh)}` VALUES (5, 5, 'five')")
    wh.refresh("v")
    assert_fresh(wh, "v")


def test_restore_is_a_change_like_any_other(viewed: Any) -> None:
    wh = viewed
    wh.spark.sql(f"INSERT INTO delta.`{path(wh)}` VALUES (5, 5, 'five')")
    wh.refresh("v")
    wh.spark.sql(f"RESTORE TABLE delta.`{path(wh)}` TO VERSION AS OF 2")
    assert wh.refresh("v").strategy == "incremental"
    assert_fresh(wh, "v")
    wh.verify("v")


def test_restore_to_a_time_before_the_feed(viewed: Any) -> None:
    """It brings back the table's settings too, so that Delta records no change: the log is lost."""
    wh = viewed
    wh.spark.sql(f"INSERT INTO delta.`{path(wh)}` VALUES (5, 5, 'five')")
    wh.spark.sql(f"RESTORE TABLE delta.`{path(wh)}` TO VERSION AS OF 1")
    broken(wh, "version", "rebuild")
    wh.rebuild("v")
    assert_fresh(wh, "v")


def test_added_columns_do_not_affect_a_view(viewed: Any) -> None:
    wh = viewed
    wh.create_view("star", "SELECT * FROM r")
    wh.spark.sql(f"ALTER TABLE delta.`{path(wh)}` ADD COLUMNS (extra STRING FIRST)")
    wh.spark.sql(f"INSERT INTO delta.`{path(wh)}` (a, b, s, extra) VALUES (5, 5, 'five', 'e')")
    with wh.transaction() as tx:
        tx.insert("r", [{"a": 6, "extra": "f"}])
        tx.update("r", {"extra": "'g'"}, "a = 1")
    for name in ("v", "star"):
        wh.refresh(name)
        wh.verify(name)
        assert [n for n, _ in next(v for v in wh.views() if v.name == name).columns] == wh.read(name).columns
    assert wh.read("star").columns == ["a", "b", "s"]
    assert (6, None, None) in bag(wh.read("star"))
    assert_fresh(wh, "v")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DROP COLUMN s", ["s", "r"]),
        ("RENAME COLUMN s TO text", ["s", "r"]),
        ("ALTER COLUMN a TYPE BIGINT", ["a", "int", "bigint"]),
    ],
    ids=["dropped", "renamed", "retyped"],
)
def test_dropped_columns_are_named(warehouse: Any, tmp_path: Path, change: str, words: list[str]) -> None:
    wh = warehouse
    made = make(
        wh.spark,
        tmp_path / "r",
        "a INT, b INT, s STRING",
        "(1, 1, 'x')",
        **{"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"},
    )
    wh.track("r", made)
    wh.create_view("v", SQL)
    wh.create_view("untouched", "SELECT b FROM r")
    wh.spark.sql(f"ALTER TABLE delta.`{made}` {change}")
    wh.spark.sql(f"INSERT INTO delta.`{made}` (a, b) VALUES (2, 2)")
    broken(wh, *words)
    with refused(LogLostError, *words):  # rebuilding cannot help; the message says what does
        wh.rebuild("v")
    wh.drop_view("v")
    if change.startswith("ALTER"):
        wh.create_view("v", SQL)
        assert_fresh(wh, "v")


def test_no_dependence_on_the_past_version(viewed: Any) -> None:
    """The old files are vacuumed away; the feed of the change is there: that must be enough."""
    wh = viewed
    wh.spark.sql(f"INSERT INTO delta.`{path(wh)}` VALUES (1, 1, 'more')")
    wh.spark.sql(f"OPTIMIZE delta.`{path(wh)}`")
    wh.refresh("v")
    wh.spark.sql(f"VACUUM delta.`{path(wh)}` RETAIN 0 HOURS")
    wh.spark.sql(f"UPDATE delta.`{path(wh)}` SET s = 'later' WHERE b = 1")
    wh.refresh("v")
    assert_fresh(wh, "v")
    wh.verify("v")
