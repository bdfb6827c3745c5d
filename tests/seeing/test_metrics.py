"""metrics: read back by the parser of Prometheus' own client."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import parser
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
    assert {family.type for family in found.values()} == {"gauge", "counter"}
    sales = project.json("status")["views"][0]
    assert values(found["deferred_view_propagated_timestamp_seconds"], view=sales["name"]) == [
        pytest.approx(datetime.fromisoformat(sales["propagated"]).timestamp())
    ]


OF_THE_TEXT_FORMAT = {"counter", "gauge", "histogram", "summary", "untyped"}
"""All types that the text format of Prometheus knows; its reader in Go refuses a file with another one."""


def test_readers_of_the_older_text_format_understand_it(project: Project) -> None:
    """node_exporter reads files with such a reader: every type is known to it, each line is a comment or a sample."""
    text = project.run("metrics")[1]
    types = [line.split() for line in text.splitlines() if line.startswith("# TYPE")]
    assert {kind for _, _, _, kind in types} <= OF_THE_TEXT_FORMAT
    families_there = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families_there["deferred_view_health"].type == "gauge"
    assert len(values(families_there["deferred_view_health"])) == 3 * 5
    assert values(families_there["deferred_operations_total"], outcome="failed") == [1]


ALERTS = Path(__file__).parents[2] / "docs" / "examples" / "alerts.yml"


def test_alerts_are_about_figures_that_there_are(project: Project) -> None:
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    found = families(project.run("metrics")[1])
    page = (ALERTS.parents[1] / "OPERATING.md").read_text(encoding="utf-8")
    for rule in group["rules"]:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        assert rule["labels"]["severity"] in ("page", "ticket")
        named = re.findall(r"deferred_\w+", re.sub(r"\{.*?\}", "", rule["expr"]))
        assert named, rule["alert"]
        assert set(named) <= found.keys()
        for name, label, value in re.findall(r'(\w+)\{(\w+)="(\w+)"\}', rule["expr"]):
            assert value in {sample.labels[label] for sample in found[name].samples}
        assert f"`{rule['expr']}`" in page, "the page and the file agree"
    assert len(group["rules"]) == page.partition("## Alerts")[2].partition("## Notices")[0].count("\n| ") - 1


def test_a_file_is_replaced_as_a_whole(project: Project, tmp_path: Path) -> None:
    """Who has it open goes on reading what was there, and nothing else is left beside it."""
    file = tmp_path / "metrics.prom"
    file.write_text("old\n")
    with file.open() as reader:
        project.run("metrics", "--output", str(file))
        assert reader.read() == "old\n"
    assert file.read_text().endswith("# EOF\n")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["metrics.prom"]


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
