"""Tree joins on Spark and Delta: good-counters in support tables, made with the view, altered with it, read fresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deferred.log.delta_log import DeltaLog
from deferred.maintenance.view_tables import support_path
from tests.engine.support import bag, make, recomputed

TABLES = {
    "customer": ("id INT, name STRING", "(1, 'Ann'), (2, 'Bob'), (3, 'Cem'), (4, NULL)"),
    "orders": ("id INT, customer INT", "(10, 1), (11, 1), (12, 2), (13, 3), (14, NULL)"),
    "item": ("ord INT, part INT", "(10, 100), (10, 101), (11, 100), (12, 102), (13, 103), (13, 103)"),
    "part": ("id INT, brand STRING", "(100, 'x'), (101, 'y'), (102, 'y'), (103, 'y')"),
}

BUYERS = """
SELECT DISTINCT c.id, c.name FROM customer AS c JOIN orders AS o ON o.customer = c.id
JOIN item AS i ON i.ord = o.id JOIN part AS p ON p.id = i.part WHERE p.brand = 'x'
"""
CHAIN = "SELECT id FROM orders WHERE id IN (SELECT ord FROM item WHERE part IN (SELECT id FROM part WHERE brand = 'y'))"


@pytest.fixture
def shop(warehouse: Any, tmp_path: Path) -> Any:
    for name, (columns, values) in TABLES.items():
        warehouse.track(name, make(warehouse.spark, tmp_path / name, columns, values))
    return warehouse


def test_a_change_goes_up_only_as_far_as_something_becomes_good_or_bad(shop: Any) -> None:
    wh = shop
    view = wh.create_view("buyers", BUYERS, maintain="tree", refresh_policy="incremental_strict")
    wh.create_view("chain", CHAIN, maintain="tree", refresh_policy="incremental_strict")
    explained = wh.explain("buyers")
    assert "The join is a tree: customer(orders(item(part)))." in explained.notes
    assert "followed only while a key becomes good or bad" in explained.reason
    assert any("good-counters: reads the changed rows, and their kept counts" in line for line in explained.plan)
    tables = [support_path(view.location, f"good{i}") for i in (1, 2, 3, 4)]

    def refreshed() -> list[int]:
        """Refresh and compare; returns how many commits each table of counts has got."""
        before = [DeltaLog(path).version for path in tables]
        for name, sql in (("buyers", BUYERS), ("chain", CHAIN)):
            wh.propagate(name)
            assert bag(wh.read(name, fresh=True)) == bag(recomputed(wh, sql))
            wh.partial_refresh(name)
            assert wh.verify(name).holds
            assert bag(wh.read(name)) == bag(recomputed(wh, sql))
        return [DeltaLog(path).version - version for path, version in zip(tables, before, strict=True)]

    with wh.transaction() as tx:
        tx.sql("INSERT INTO item VALUES (11, 100), (12, 101), (99, 100)")  # a second support, a dangling part and order
    assert refreshed() == [0, 1, 0, 0]
    with wh.transaction() as tx:
        tx.sql("UPDATE part SET brand = 'x' WHERE id = 102")  # goes up to the view: Bob
    assert refreshed() == [1, 1, 1, 1]
    with wh.transaction() as tx:
        tx.sql("DELETE FROM item WHERE ord = 11")
        tx.sql("INSERT INTO customer VALUES (5, 'Dee')")
        tx.sql("INSERT INTO orders VALUES (15, 5), (16, 1)")
        tx.sql("UPDATE part SET brand = 'x' WHERE id = 103")
    refreshed()


def test_a_view_begins_and_ends_to_keep_counts(shop: Any) -> None:
    """Counts that were not kept for a while are made again: nothing brought them along."""
    wh = shop
    wh.create_view("buyers", BUYERS, refresh_policy="incremental")
    for maintain, changes in (
        ("tree", "INSERT INTO item VALUES (13, 100)"),
        ("auto", "DELETE FROM item WHERE ord = 13"),
        ("tree", "INSERT INTO item VALUES (12, 100)"),
    ):
        done = wh.alter_view("buyers", BUYERS, maintain=maintain)
        assert done.strategy == "from the view"
        assert [view.options.maintain for view in wh.views()] == [maintain]
        with wh.transaction() as tx:
            tx.sql(changes)
        done = wh.refresh("buyers")
        assert bag(wh.read("buyers")) == bag(recomputed(wh, BUYERS)), maintain
        assert done.strategy == "incremental"
    assert wh.verify("buyers").holds
