"""verify where the query leaves a choice: any row that it allows is right, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deferred.errors import InvariantError
from tests.engine.support import make

VIEWS = {
    "first": "SELECT k, v FROM ties ORDER BY k LIMIT 1",
    "newest": "SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY d) AS n FROM ties) WHERE n = 1",
    "before": "SELECT k, v, LAG(v) OVER (PARTITION BY k ORDER BY d) AS last FROM ties",
    "latest": "SELECT k, MAX_BY(v, d) AS v FROM ties GROUP BY k",
}


def test_verify_accepts_every_choice_and_nothing_else(warehouse: Any, tmp_path: Path) -> None:
    """Spark's own text takes 'z', the first of the equal rows in the file; the views take the least, or greatest."""
    wh = warehouse
    path = make(
        wh.spark, tmp_path / "ties", "k INT, v STRING, d INT", "(1, 'z', 5), (1, 'a', 5), (1, 'm', 5), (2, 'b', 1)"
    )
    wh.track("ties", path)
    for name, sql in VIEWS.items():
        wh.create_view(name, sql, refresh_policy="incremental_strict")
    wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES (2, 'c', 1), (2, 'a', 1)")
    told = []
    for name in VIEWS:
        wh.refresh(name)
        told.append(wh.verify(name).checks[0].condition)
    assert any("own choice where" in condition for condition in told), told
    location = next(view["location"] for view in wh.status() if view["name"] == "first")
    wh.spark.sql(f"UPDATE delta.`{location}` SET v = 'no such row'")
    with pytest.raises(InvariantError, match=r"'no such row'.* too many in the view"):
        wh.verify("first")
