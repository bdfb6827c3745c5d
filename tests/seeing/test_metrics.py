"""metrics: read back by the parser of Prometheus' own client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.seeing.shop import BIG_SALES, Shop
from tests.test_cli import Project


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(family: Any, **labels: str) -> list[float]:
    return [sample.value for sample in family.samples if labels.items() <= sample.labels.items()]


def test_the_figures_are_those_of_status_and_history(project: Project, shop: Shop) -> None:
    found = families(project.run("metrics")[1])
    status = {view["name"]: view for view in project.json("status")["views"]}
    assert values(found["deferred_view_unseen_commits"], view="big_sales") == [1]
    assert values(found["deferred_view_lag_seconds"], view="largest") == [0]
    assert values(found["deferred_view_lag_seconds"], view="big_sales")[0] <= status["big_sales"]["stale_seconds"]
    assert values(found["deferred_view_downtime_seconds"]) == [0.25]
    assert values(found["deferred_view_health"], view="high_sales", deferred_view_health="broken") == [1]
    assert sum(values(found["deferred_view_health"], view="high_sales")) == 1
    failed = {"view": "high_sales", "operation": "propagate", "outcome": "failed"}
    assert values(found["deferred_operations"], **failed) == [1]
    rows = {"view": "big_sales", "operation": "propagate", "change": "read"}
    assert values(found["deferred_operation_rows"], **rows) == [1 + 2 + 3 + 4 + 5]
    applied = {"view": "big_sales", "operation": "partial_refresh", "phase": "apply"}
    assert values(found["deferred_operation_seconds"], **applied) == [0.75]
    assert {family.type for family in found.values()} == {"gauge", "counter", "stateset"}


def test_an_empty_warehouse_and_a_file(project: Project, shop: Shop, tmp_path: Path) -> None:
    for view in ("largest", "big_sales", "high_sales"):
        shop.metadata.views.remove(shop.metadata.views.get(view).id)
    file = tmp_path / "metrics.prom"
    assert project.run("metrics", "--output", str(file)) == (0, "", "")
    assert families(file.read_text())["deferred_view_lag_seconds"].samples == []
    assert "cannot be written" in project.fails("metrics", "--output", str(tmp_path / "nowhere" / "m"))


def test_names_are_escaped(project: Project, shop: Shop) -> None:
    shop.operation(shop.view("v", BIG_SALES, ["sales"]), 'a "new"\nkind\\', {"apply": 0.1})
    found = families(project.json("metrics")["metrics"])
    assert values(found["deferred_operations"], operation='a "new"\nkind\\') == [1]
