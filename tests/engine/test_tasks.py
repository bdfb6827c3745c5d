"""How many tasks Spark has done: asked of a Spark in this process; a server tells it, see test_connect.py."""

from __future__ import annotations

import threading
from typing import Any

from deferred import Warehouse

SLOW = "SELECT COUNT(java_method('java.lang.Thread', 'sleep', id * 0 + 200L)) AS n FROM range(0, 8, 1, 4)"
"""A query of four tasks that takes some tenths of a second."""


def seen_tasks(warehouse: Warehouse) -> set[tuple[int, int]]:
    """The figures while a slow query runs."""
    engine = warehouse._context.engine
    engine.rows("SELECT 1 AS one")  # Spark is there
    assert warehouse.tasks() is None
    running = threading.Thread(target=lambda: engine.rows(SLOW))
    running.start()
    found = set()
    while running.is_alive():
        found.add(warehouse.tasks())
        running.join(0.02)
    return {tasks for tasks in found if tasks is not None}


def test_tasks_of_a_spark_in_this_process(warehouse: Any) -> None:
    found = seen_tasks(warehouse)
    assert any(total >= 4 for _, total in found)
    assert all(done <= total for done, total in found)
