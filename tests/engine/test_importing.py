"""Queries of other tools as views: how each would be maintained, and that nothing is touched by saying so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from deferred import demo
from deferred.maintenance import importing
from deferred.sql.viewfile import load_views

DBT = Path(__file__).parents[1] / "fixtures" / "dbt"


@pytest.fixture
def retail(warehouse: Any, tmp_path: Path) -> Any:
    for name, schema in demo.SCHEMAS.items():
        file = str(demo.examples() / "data" / f"{name}.csv")
        warehouse.spark.read.csv(file, schema=schema, header=True).write.format("delta").save(str(tmp_path / name))
    assert [found.outcome for found in warehouse.track_all(tmp_path)] == ["tracked", "tracked"]
    return warehouse


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_models_of_dbt(retail: Any, tmp_path: Path) -> None:
    """The sources of dbt are in no catalog here: the tracked tables of their names are meant."""
    before = files(tmp_path)
    found = {view.view: view for view in retail.assess_views(DBT / "target" / "manifest.json")}
    assert {name: view.outcome for name, view in found.items()} == {
        "revenue_by_score": "incremental",
        "daily_items": "incremental",
        "best_score": "incremental",
        "loaded": "refused",
    }
    assert "current_timestamp" in found["loaded"].how.lower()
    assert "counted" in found["revenue_by_score"].how
    assert found["best_score"].how == "linear"
    assert not any(view.track for view in found.values())
    assert {name for name in files(tmp_path) - before if "deferred.db" not in name} == set()
    assert retail.views() == []

    folder = tmp_path / "views"
    written = importing.write(list(found.values()), folder)
    assert written["loaded"] == "no view"
    views = {view.name: view for view in load_views(folder)}
    assert set(views) == {"revenue_by_score", "best_score", "daily_items"}
    for name in ("revenue_by_score", "best_score"):
        retail.create_view(name, views[name].query, refresh_policy="incremental_strict")
    retail.sql("INSERT INTO sales VALUES (1, 101, 50, 10.00)")
    retail.refresh("revenue_by_score")
    retail.refresh("best_score")
    assert retail.verify("best_score").holds
    assert "exists already" in importing.write(list(found.values()), folder)["best_score"]


def test_queries_in_files_over_a_catalog(retail: Any, tmp_path: Path) -> None:
    """A table of the catalog that is not tracked yet is looked at where it is, and named as one to be tracked."""
    spark, folder = retail.spark, tmp_path / "jobs"
    folder.mkdir()
    shutil.copytree(tmp_path / "sales", tmp_path / "archive")
    spark.sql("CREATE SCHEMA shop")
    try:
        spark.sql(f"CREATE TABLE shop.old_sales USING delta LOCATION '{tmp_path}/archive'")
        (folder / "big.sql").write_text("SELECT itemNo, quantity FROM shop.old_sales WHERE quantity > 1")
        (folder / "middle.sql").write_text("SELECT custId, MEDIAN(quantity) AS m FROM sales GROUP BY custId")
        (folder / "first.sql").write_text("SELECT FIRST(quantity) AS f FROM sales GROUP BY custId")
        (folder / "lost.sql").write_text("SELECT a FROM shop.nowhere")
        (folder / "over.sql").write_text("SELECT f FROM first")
        found = {view.view: view for view in retail.assess_views(folder)}
        assert found["big"].outcome == "incremental"
        assert found["big"].track == ("shop.old_sales",)
        assert found["middle"].outcome == "incremental"
        assert found["first"].outcome == "refused"
        assert "nowhere" in found["lost"].how
        assert (found["over"].outcome, "reads first" in found["over"].how) == ("refused", True)
        assert [(t.name, t.outcome) for t in retail.track_all("shop")] == [("old_sales", "tracked")]
        assert [(t.name, t.outcome) for t in retail.track_all("shop")] == [("old_sales", "tracked already")]
        (again,) = retail.assess_views(folder / "big.sql")
        assert (again.track, again.sql) == (
            (),
            "SELECT itemNo, quantity FROM `old_sales` AS `old_sales` WHERE quantity > 1",
        )
    finally:
        spark.sql("DROP SCHEMA shop CASCADE")
