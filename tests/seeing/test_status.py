"""status and history: staleness, health, lineage and figures over time, from metadata and Delta's logs alone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from deltalake import write_deltalake

from deferred.metadata import Cut, utc_now
from tests.seeing.shop import BIG_SALES, SALES, Shop, heeds_ctrl_c
from tests.seeing.test_metrics import families, values
from tests.test_cli import Project


def test_what_a_view_does_not_show(project: Project, shop: Shop) -> None:
    views = {view["name"]: view for view in project.json("status")["views"]}
    big = views["big_sales"]
    assert (big["health"], big["unseen_commits"], big["pending_commits"]) == ("stale", 1, 1)
    assert big["stale_seconds"] < big["lag_seconds"], "stale since the commit, not since the cut that it shows"
    assert big["downtime_seconds"] == 0.25
    assert big["next_due"] > utc_now().isoformat()
    assert (views["largest"]["health"], views["largest"]["stale_seconds"]) == ("fresh", 0)
    assert views["high_sales"]["health"] == "broken"
    assert "log of sales" in views["high_sales"]["problem"]


def test_what_was_propagated_and_not_applied(project: Project, shop: Shop) -> None:
    view = shop.metadata.views.get("big_sales")
    shop.metadata.views.update(view.id, propagated=shop.cut("sales"), propagated_batch=1)
    (found,) = [view for view in project.json("status")["views"] if view["name"] == "big_sales"]
    assert (found["fresh"], found["unseen_commits"], found["pending_commits"]) == (False, 1, 0)
    assert found["pending_batches"] == 1


@pytest.mark.parametrize(
    ("options", "ago", "health"),
    [
        ({}, 90_000, "stale"),
        ({"refresh_every": "1d"}, 100, "stale"),
        ({"refresh_every": "1h"}, 8000, "late"),
        ({"refresh_every": "0 * * * *"}, 8000, "late"),
        ({"refresh_every": "@harvest"}, 90_000, "stale"),
        ({"target_lag": "1h", "refresh_every": "10s"}, 8000, "stale"),
    ],
)
def test_when_a_view_is_late(project: Project, shop: Shop, options: dict[str, str], ago: float, health: str) -> None:
    """By its target_lag, or else when it has missed a whole period."""
    shop.view("v", BIG_SALES, ["sales"], ago=ago, **options)
    shop.insert("sales", SALES)
    (found,) = [view for view in project.json("status")["views"] if view["name"] == "v"]
    assert found["health"] == health


def test_a_failure_that_is_not_the_last_word(project: Project, shop: Shop) -> None:
    view = shop.metadata.views.get("big_sales")
    shop.operation(view, "propagate", {}, state="failed", error="Spark is away.")
    (found,) = [view for view in project.json("status")["views"] if view["name"] == "big_sales"]
    assert found["health"] == "failing"
    assert "Spark is away." in project.run("status")[1]
    shop.operation(view, "propagate", {"log": 0.1})
    (found,) = [view for view in project.json("status")["views"] if view["name"] == "big_sales"]
    assert found["health"] == "stale"


def test_one_view_with_its_lineage(project: Project) -> None:
    found = project.json("status", "BIG_SALES")
    assert [part["name"] for part in found["lineage"]["reads"]["beyond"]] == ["sales"]
    assert [part["name"] for part in found["lineage"]["read_by"]["beyond"]] == ["largest"]
    _, out, _ = project.run("status", "largest")
    assert "└── big_sales (stale)" in out
    assert "    └── sales (table)" in out
    assert "did you mean largest" in project.fails("status", "larges")


def test_what_is_read_on_many_ways_is_listed_once(project: Project, shop: Shop) -> None:
    """Thirty diamonds on top of each other: as a tree they would have 2³⁰ branches."""
    below = "sales"
    for n in range(30):
        for side in ("left", "right"):
            shop.view(f"{side}_{n}", BIG_SALES, [below])
        below = shop.view(f"top_{n}", BIG_SALES, [f"left_{n}", f"right_{n}"]).name
    code, out, _ = project.run("status", below)
    assert code == 0
    assert out.count("top_28 (fresh)") == 2
    assert out.count("top_28 (fresh) (above)") == 1
    assert "sales (table) (above)" not in out, "nothing is beyond it"
    assert len(project.run("status", "left_0")[1].splitlines()) < 200
    assert project.json("status", below)["lineage"]["reads"]["beyond"][1]["beyond"][0]["above"] is True


def test_what_apply_would_drop(project: Project, shop: Shop) -> None:
    (shop.folder / "conf" / "views").mkdir()
    assert project.json("apply", "--dry-run")["views"] == {}
    listed = list(project.json("apply", "--drop", "--dry-run")["views"].items())
    assert sorted(listed) == [(name, "to be dropped") for name in ("big_sales", "high_sales", "largest")]
    assert listed.index(("largest", "to be dropped")) < listed.index(("big_sales", "to be dropped")), "which it reads"
    assert len(shop.metadata.views.all()) == 3


def test_watching_ends_with_ctrl_c(project: Project, shop: Shop) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "deferred.cli", "status", "--watch", "--every", "0.1"],
        cwd=shop.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heeds_ctrl_c,
    )
    assert process.stdout is not None
    lines = 0
    while lines < 12:  # more than one look
        lines += bool(process.stdout.readline().strip())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert project.run("status", "--watch", "--json")[0] == 2


def test_rows_and_seconds_over_time(project: Project) -> None:
    _, out, _ = project.run("history", "big_sales")
    assert "big_sales propagate: seconds ▅▆▆▇█ up to 0.90, rows ▂▄▅▇█ up to 5" in out
    assert "log 0.10, compute 0.70, write 0.10" in out
    assert len(project.json("history", "big_sales", "--limit", "3")["operations"]) == 3


def test_a_hundred_views_at_once(tmp_path: object, shop: Shop) -> None:
    """The work grows with the views, the number of questions to the database does not."""
    from deferred.maintenance.warehouse import Warehouse

    for n in range(40):
        view = shop.metadata.views.get("big_sales")
        assert view.shown is not None
        moved = Cut(view.shown.timestamp - timedelta(seconds=n), view.shown.versions)
        table = shop.metadata.tables.add(name=f"v{n}", location=view.location, kind="view")
        shop.metadata.views.add(
            name=f"v{n}",
            sql=BIG_SALES,
            options=view.options,
            columns=view.columns,
            location=view.location,
            table_id=table.id,
            depends_on=view.depends_on,
            shown=moved,
            propagated=moved,
        )
    with Warehouse.open(shop.folder / "conf" / "deferred.toml") as warehouse:
        begun, before = time.process_time(), os.times()
        assert len(warehouse.status()) == 43
        assert time.process_time() - begun < 1.0, before


@pytest.mark.parametrize("command", [["status"], ["propagate", "largest"], ["refresh", "largest"], ["history"]])
def test_a_command_with_nothing_to_compute_loads_nothing_that_computes(shop: Shop, command: list[str]) -> None:
    """What takes longest about a small command is loading: neither Spark, nor Arrow, nor the rules of the algebra."""
    code = (
        "import sys\nfrom deferred.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n"
        "    print(' '.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "-q", *command], cwd=shop.folder, capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert "deferred.maintenance.warehouse" in loaded
    assert not loaded & {"pyspark", "pyarrow", "pandas", "z3", "deferred.algebra.operators", "deferred.sql.bind"}


def test_a_view_explained_in_words(project: Project) -> None:
    _, words, _ = project.run("explain", "big_sales")
    assert "The last 5 propagates read 15 changed rows in 3.50 s; most of it, 2.50 s, was the phase compute." in words
    assert "What would make it cheaper:" in words
    assert "SELECT" not in words
    _, all_, _ = project.run("explain", "big_sales", "--sql")
    assert all_.startswith(words.rstrip())
    assert "▲V = " in all_
    assert "SELECT" in all_
    assert project.json("explain", "big_sales")["costs"][0] in words


def removed(shop: Shop) -> None:
    shutil.rmtree(shop.folder / "tables" / "sales")


def recreated(shop: Shop) -> None:
    removed(shop)
    write_deltalake(shop.folder / "tables" / "sales", SALES)


def put_back(shop: Shop) -> None:
    """An older copy of the same table, as a backup gives it."""
    view = shop.metadata.views.get("big_sales")
    shop.metadata.views.update(view.id, shown=shop.cut("sales"), propagated=shop.cut("sales"))
    (shop.folder / "tables" / "sales" / "_delta_log" / "00000000000000000001.json").unlink()


@pytest.mark.parametrize(
    ("change", "health", "said"),
    [
        (removed, "failing", "Table sales cannot be read"),
        (recreated, "broken", "Table sales at .* was dropped and recreated"),
        (put_back, "broken", "replaced by an older copy"),
    ],
)
def test_a_table_that_cannot_be_read_is_never_fresh(
    project: Project, shop: Shop, change: Callable[[Shop], None], health: str, said: str
) -> None:
    """Otherwise no alert would notice: nothing is known of its commits, so no figure says anything about them."""
    change(shop)
    views = {view["name"]: view for view in project.json("status")["views"]}
    big = views["big_sales"]
    assert (big["health"], big["fresh"], big["unreadable"]) == (health, False, ["sales"])
    assert (big["stale_seconds"], big["unseen_commits"], big["unseen_rows"]) == (None, None, None)
    assert re.search(said, big["problem"])
    assert views["largest"]["health"] == "fresh", "the view that it reads is there"
    out = " ".join(project.run("status")[1].split())
    assert re.search(said, out)
    assert "commits not known" in project.run("status", "big_sales")[1]
    found = families(project.run("metrics")[1])
    assert values(found["deferred_view_lag_seconds"], view="big_sales") == []
    assert values(found["deferred_view_unreadable_tables"], view="big_sales") == [1]
    assert values(found["deferred_view_health"], view="big_sales", deferred_view_health=health) == [1]
    assert project.run("report")[0] == 0
