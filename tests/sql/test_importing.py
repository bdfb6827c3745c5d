"""Queries of other tools: dbt's manifest, as dbt itself has written it, and SQL files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deferred.errors import ConfigurationError, InvalidInputError
from deferred.sql.importing import Model, read_models

MANIFEST = Path(__file__).parents[1] / "fixtures" / "dbt" / "target" / "manifest.json"


def of_dbt(*select: str) -> dict[str, Model]:
    return {model.name: model for model in read_models(MANIFEST, select)}


def test_models_that_store_rows_are_taken() -> None:
    """A view of dbt and an ephemeral model are parts of those that read them."""
    models = of_dbt()
    assert set(models) == {"revenue_by_score", "daily_items", "best_score", "loaded"}
    assert "stg_sales" not in models["revenue_by_score"].sql.replace("AS `stg_sales`", "")
    assert "raw.sales" in models["revenue_by_score"].sql
    assert "`revenue_by_score`" in models["best_score"].sql
    assert "analytics" not in models["best_score"].sql
    assert list(models).index("best_score") > list(models).index("revenue_by_score")
    assert not any(model.problem for model in models.values())


def test_models_are_selected_by_name_and_tag() -> None:
    assert set(of_dbt("tag:deferred")) == {"revenue_by_score", "daily_items"}
    found = of_dbt("best_*", "loaded")
    assert set(found) == {"best_score", "loaded"}
    assert "analytics.revenue_by_score" in found["best_score"].sql  # no view: the table that dbt makes
    with pytest.raises(InvalidInputError, match="is selected"):
        of_dbt("nothing")


def changed(tmp_path: Path, model: str, **values: Any) -> Model:
    manifest = json.loads(MANIFEST.read_text())
    manifest["nodes"][f"model.shop.{model}"].update(values)
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(manifest))
    (found,) = [m for m in read_models(file) if m.name == model]
    return found


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"compiled_code": None}, "dbt compile"),
        ({"compiled_code": "select itemNo from analytics.daily_items"}, "--full-refresh"),
        ({"compiled_code": "select from where"}, "line"),
        ({"language": "python"}, "written in python"),
        ({"config": {"materialized": "clone"}}, "materialization is clone"),
    ],
)
def test_what_cannot_be_taken_says_why(tmp_path: Path, values: dict[str, Any], problem: str) -> None:
    found = changed(tmp_path, "daily_items", **values).problem
    assert found is not None
    assert problem in found.lower()


def test_a_model_over_one_that_cannot_be_taken(tmp_path: Path) -> None:
    manifest = json.loads(MANIFEST.read_text())
    manifest["nodes"]["model.shop.revenue_by_score"]["compiled_code"] = None
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (found,) = [m for m in read_models(tmp_path / "manifest.json") if m.name == "best_score"]
    assert found.problem is not None
    assert "revenue_by_score" in found.problem


def test_files(tmp_path: Path) -> None:
    (tmp_path / "daily.sql").write_text("SELECT a, COUNT(*) AS n FROM t GROUP BY a -- all of it")
    (tmp_path / "nightly.sql").write_text(
        "CREATE OR REPLACE TABLE mart.totals USING delta AS\nSELECT SUM(n) AS n FROM daily;"
    )
    (tmp_path / "over.sql").write_text(
        "INSERT OVERWRITE TABLE copies WITH c AS (SELECT n FROM mart.totals) SELECT * FROM c"
    )
    (tmp_path / "view.sql").write_text("CREATE MATERIALIZED VIEW v (x) AS SELECT a FROM t")
    (tmp_path / "adds.sql").write_text("INSERT INTO u SELECT a FROM t")
    (tmp_path / "two.sql").write_text("SELECT 1; SELECT 2")
    (tmp_path / "drops.sql").write_text("DROP TABLE t")
    models = {model.name: model for model in read_models(tmp_path)}
    assert {name for name, model in models.items() if model.problem} == {"adds", "two", "drops"}
    assert models["daily"].sql == "SELECT a, COUNT(*) AS n FROM t GROUP BY a"
    assert models["totals"].sql == "SELECT SUM(n) AS n FROM `daily` AS `daily`"
    assert models["copies"].sql == "WITH c AS (SELECT n FROM `totals` AS `totals`) SELECT * FROM c"
    assert models["v"].sql.startswith("SELECT * FROM")
    assert list(models).index("daily") < list(models).index("totals") < list(models).index("copies")


def test_what_is_no_project(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ConfigurationError, match="not a dbt manifest"):
        read_models(tmp_path / "manifest.json")
    (tmp_path / "dbt_project.yml").write_text("name: x")
    with pytest.raises(ConfigurationError, match="dbt compile"):
        read_models(tmp_path)
    with pytest.raises(InvalidInputError, match="is neither a dbt project"):
        read_models(tmp_path / "x.csv")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.sql").write_text("SELECT a FROM y")
    (tmp_path / "a" / "y.sql").write_text("SELECT a FROM x")
    with pytest.raises(ConfigurationError, match="in a circle"):
        read_models(tmp_path / "a")
