"""A real Airflow at work: scheduled runs, forms through the REST API, Assets, backfills, kills, leases, lost logs."""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deferred.log.delta_log import DeltaLog
from deferred.log.lease import lease
from deferred.metadata import Cut
from tests.airflow.conftest import DONE, VIEWS, Site, now

pytestmark = pytest.mark.slow


POLICIES = {
    "sales_by_region": ({"plan", "propagate"}, {"plan", "refresh"}),
    "large_orders": ({"plan", "propagate"}, {"plan", "propagate", "partial_refresh"}),
}
"""The views with a clock of their own, and the two kinds of runs that their policies make."""


@pytest.fixture(scope="module", autouse=True)
def scheduled(site: Site) -> Iterator[threading.Thread]:
    """Scheduled views run during the other tests, until each has had both kinds of runs; the last test checks them."""
    site.insert((100, "north", 100))
    inserted = datetime.now(UTC)
    for dag in POLICIES:
        site.unpause(dag)
    stopped = threading.Event()
    watch = threading.Thread(target=_pause_when_seen, args=(site, inserted, stopped))
    watch.start()
    yield watch
    stopped.set()
    watch.join()


def _pause_when_seen(site: Site, since: datetime, stopped: threading.Event) -> None:
    """Runs count whose interval ends after the insertion: those before it need not know of it."""
    waiting = dict(POLICIES)
    while waiting and not stopped.wait(5):
        for dag, kinds in list(waiting.items()):
            seen = [
                {t for t, state in site.states(dag, r["dag_run_id"]).items() if state == "success"}
                for r in site.all_runs(dag)
                if r["run_type"] == "scheduled"
                and r["state"] == "success"
                and datetime.fromisoformat(r["data_interval_end"]) > since
            ]
            if all(kind in seen for kind in kinds):
                site.pause(dag)
                del waiting[dag]


def test_all_dags_are_there(site: Site) -> None:
    assert site.airflow.request("GET", "/api/v2/importErrors")["import_errors"] == []
    dags = {d["dag_id"]: d for d in site.airflow.request("GET", "/api/v2/dags?limit=100")["dags"]}
    assert dags.keys() >= {*VIEWS, "deferred_refresh", "deferred_sync"}
    assert dags["orders_by_region"]["owners"] == ["tests"]
    assert dags["sales_by_country"]["timetable_summary"] == "Asset"
    assets = {a["name"] for a in site.airflow.request("GET", "/api/v2/assets?limit=100")["assets"]}
    assert assets >= {*VIEWS, "orders", "regions"}
    warnings = site.airflow.request("GET", "/api/v2/dagWarnings")
    assert warnings["total_entries"] == 0, warnings


# ---- by hand


def test_each_action_of_the_form(site: Site) -> None:
    site.warehouse.refresh("order_amounts")
    before = now()
    site.insert((200, "north", 1), (201, "south", 2))
    between = now()
    site.insert((202, "east", 3))
    asked = [
        {"action": "propagate", "until": between},
        {"action": "partial_refresh"},
        {"action": "verify"},
        {"action": "refresh", "full": True},
        {"action": "rebuild"},
        {"action": "refresh"},
        {"action": "replay", "until": before},
    ]
    runs = []
    for conf in asked:
        runs.append(site.trigger("order_amounts", conf))
        time.sleep(1.1)  # runs wait for each other in the order of their times
    for conf, run in zip(asked, runs, strict=True):
        assert site.wait("order_amounts", run) == "success", (conf, site.logs("order_amounts", run))
        states = site.states("order_amounts", run)
        assert {t for t, state in states.items() if state == "success"} == {"plan", conf["action"]}
    done = [site.xcom("order_amounts", run, conf["action"]) for conf, run in zip(asked, runs, strict=True)]
    assert done[0]["kind"] == "propagate"
    assert done[0]["rows_inserted"] == 2, "what came after until is left for later"
    assert done[0]["to_cut"]["timestamp"] == between
    assert done[1]["rows_inserted"] == 2
    assert done[2]["holds"]
    assert done[3]["strategy"] == "full"
    assert done[3]["rows_inserted"] == 1
    assert done[4]["kind"] == "rebuild"
    assert done[5]["state"] == "nothing"
    assert all(d["requested_by"].startswith("admin (order_amounts, manual__") for d in done if "requested_by" in d)
    assert site.rows("order_amounts") == site.expected("SELECT region, amount FROM orders")
    replayed = site.warehouse.read_history("order_amounts")
    assert replayed.count() == done[6]["rows_inserted"] > 0
    log = site.log("order_amounts", runs[0], "propagate")
    assert "compute: " in log
    assert "2 inserted" in log


@pytest.mark.parametrize("conf", [{"action": "drop"}, {"until": "soon"}, {"full": "maybe"}, {"action": None}])
def test_a_bad_value_is_refused_before_a_run_exists(site: Site, conf: dict[str, Any]) -> None:
    runs = len(site.all_runs("order_amounts"))
    with pytest.raises(urllib.error.HTTPError) as refused:
        site.trigger("order_amounts", conf)
    assert refused.value.code in (400, 422)
    assert len(site.all_runs("order_amounts")) == runs


def test_values_that_cannot_be_combined_are_refused_before_anything_runs(site: Site) -> None:
    run = site.trigger("order_amounts", {"action": "rebuild", "until": now()})
    picked = site.trigger("deferred_refresh", {"views": ["known_regions"]})
    assert site.wait("order_amounts", run) == "failed"
    assert site.task("order_amounts", run, "plan")["try_number"] == 1
    assert {state for task, state in site.states("order_amounts", run).items() if task != "plan"} == {"upstream_failed"}
    log = site.log("order_amounts", run, "plan")
    first = next(line for line in log.splitlines() if '"level":"error"' in line)
    assert "until works with refresh, propagate, replay, not with rebuild" in first
    assert site.wait("deferred_refresh", picked) == "failed"
    assert "These views do not exist yet: known_regions" in site.log("deferred_refresh", picked, "plan")


def test_a_view_that_is_not_there_waits_for_what_it_reads_and_is_created(site: Site) -> None:
    read, views = site.record("orders_by_region"), site.warehouse._context.metadata.views
    views.update(read.id, state="broken", problem="The log of orders is lost.")  # so that it shows nothing of use
    site.unpause("known_regions")  # the last interval is over, so a run begins at once
    run = site.until(lambda: site.all_runs("known_regions"), "the run")[0]["dag_run_id"]
    site.until(lambda: site.task("known_regions", run, "plan")["state"] == "deferred", "the wait for orders_by_region")
    views.update(read.id, state="active", problem=None)
    assert site.wait("known_regions", run) == "success", site.logs("known_regions", run)
    site.pause("known_regions")
    assert site.states("known_regions", run)["create"] == "success"
    assert site.rows("known_regions") == site.expected("SELECT DISTINCT region FROM orders_by_region")


# ---- Assets


def test_a_chain_of_three_views(site: Site) -> None:
    for view in ("sales_by_country", "large_countries"):
        site.unpause(view)
    site.insert((300, "south", 300))
    site.succeed("order_details", {"action": "refresh"})
    followed = site.until(lambda: [r for r in site.all_runs("large_countries") if r["state"] == "success"], "the chain")
    assert followed[0]["run_type"] == "asset_triggered"
    assert site.all_runs("sales_by_country")[0]["run_type"] == "asset_triggered"
    joined = "orders o JOIN regions r ON o.region = r.region"
    assert site.rows("large_countries") == site.expected(
        f"SELECT country, SUM(amount) AS total FROM {joined} GROUP BY country HAVING SUM(amount) > 20"
    )
    events = site.airflow.request("GET", "/api/v2/assets/events?source_dag_id=order_details")["asset_events"]
    assert any(event["extra"]["rows_inserted"] >= 1 for event in events)


def test_an_ingest_announces_a_table(site: Site) -> None:
    site.unpause("largest_orders")
    site.succeed("ingest", {"id": 400})
    site.until(lambda: any(r["state"] == "success" for r in site.all_runs("largest_orders")), "largest_orders")
    assert ("west", 400) in site.rows("largest_orders")


def test_new_commits_are_announced_whoever_made_them(site: Site) -> None:
    site.succeed("deferred_sync")
    site.insert((450, "coast", 450))
    run = site.succeed("deferred_sync")
    site.pause("deferred_sync")
    events = site.airflow.request("GET", "/api/v2/assets/events?source_dag_id=deferred_sync")["asset_events"]
    assert "orders" in {event["name"] for event in events}, site.xcom("deferred_sync", run, "sync")
    site.until(lambda: ("coast", 450) in site.rows("largest_orders"), "the view that follows")


def test_several_views_at_once(site: Site) -> None:
    site.insert((500, "south", 500))
    run = site.succeed("deferred_refresh", {"views": ["sales_by_country", "order_details"], "action": "refresh"})
    states = site.states("deferred_refresh", run)
    assert {t for t, state in states.items() if state == "success"} == {"plan", "order_details", "sales_by_country"}
    ended = site.task("deferred_refresh", run, "order_details")["end_date"]
    assert site.task("deferred_refresh", run, "sales_by_country")["start_date"] >= ended
    assert any(total >= 800 for country, total, _ in site.rows("sales_by_country") if country == "SE")


# ---- operators in users' DAGs


def test_every_operator_with_a_connection(site: Site) -> None:
    run = site.succeed("every_operator")
    assert set(site.states("every_operator", run).values()) == {"success"}
    assert site.xcom("every_operator", run, "sync")["versions"]["orders"] > 1
    assert site.xcom("every_operator", run, "verify")["holds"]
    done = site.xcom("every_operator", run, "rebuild")
    path = f"/api/v2/dags/every_operator/dagRuns/{run}/taskInstances/rebuild"
    link = site.airflow.request("GET", f"{path}/links")["extra_links"]["Operation"]
    assert link.endswith(f"/deferred/operations/{done['id']}")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(link, timeout=30)
    assert refused.value.code == 401
    page = urllib.request.Request(link, headers={"Authorization": f"Bearer {site.airflow.token()}"})
    with urllib.request.urlopen(page, timeout=30) as answer:
        assert "rebuild of order_amounts" in answer.read().decode()
    assert "deferred.db" not in str(site.task("every_operator", run, "refresh")["rendered_fields"])


def test_the_sensor_waits_in_the_triggerer(site: Site) -> None:
    site.insert((600, "north", 600))
    site.warehouse.sync()
    run = site.trigger("waiting")
    site.until(lambda: site.task("waiting", run, "wait")["state"] in ("deferred", "failed"), "the sensor")
    assert site.task("waiting", run, "wait")["state"] == "deferred", site.logs("waiting", run)
    site.warehouse.refresh("order_amounts")
    assert site.wait("waiting", run) == "success"


# ---- backfills


DAYS = 3
"""How many steps a backfill has here."""


def test_a_backfill_steps_through_history_twice(site: Site) -> None:
    view, begin = "orders_by_region", datetime(2026, 1, 5, tzinfo=UTC)
    site.unpause(view)  # Airflow runs no backfill of a paused DAG; the last interval's own run comes first
    site.until(lambda: any(r["state"] == "success" for r in site.all_runs(view)), "the scheduled run")
    site.warehouse.refresh(view)
    for step in range(DAYS):
        site.insert((700 + step, "north", 7 * step))
    _move_into_the_past(site, view, begin)
    versions = [c.version for c in site.warehouse.commits("orders")][-DAYS:]
    first = DeltaLog(site.record(view).location + "/mv").version
    _backfill(site, view, begin, DAYS)
    runs = sorted((r for r in site.all_runs(view) if r["run_type"] == "backfill"), key=lambda r: r["logical_date"])
    assert [r["state"] for r in runs] == ["success"] * DAYS
    for step, (run, version) in enumerate(zip(runs, versions, strict=True)):
        done = site.xcom(view, run["dag_run_id"], "refresh")
        end = begin + timedelta(days=step + 1)
        assert done["to_cut"] == {"timestamp": end.isoformat(), "versions": {"orders": version}}
        shown = f"delta.`{site.record(view).location}/mv` VERSION AS OF {first + step + 1}"
        past = f"delta.`{site.folder}/tables/orders` VERSION AS OF {version}"
        assert site.statement(f"SELECT region, orders, total FROM {shown}") == site.statement(
            f"SELECT region, COUNT(*) AS orders, SUM(amount) AS total FROM {past} GROUP BY region"
        ), end
    last = DeltaLog(site.record(view).location + "/mv").version
    assert last == first + DAYS, "one commit per step"
    _backfill(site, view, begin, DAYS, "--reprocess-behavior", "completed")
    assert DeltaLog(site.record(view).location + "/mv").version == last, "the second time changes nothing"
    assert site.verified(view)
    _backfill(site, view, begin - timedelta(days=1), 1, "--dag-run-conf", '{"action": "replay"}')
    assert DeltaLog(site.record(view).location + "/mv").version == last, "a replay leaves the view alone"
    past = f"delta.`{site.folder}/tables/orders` VERSION AS OF {versions[0] - 1}"
    assert sorted(map(tuple, site.warehouse.read_history(view).drop("_as_of").collect())) == site.statement(
        f"SELECT region, COUNT(*) AS orders, SUM(amount) AS total FROM {past} GROUP BY region"
    )


def _move_into_the_past(site: Site, view: str, begin: datetime) -> None:
    """Write into the ledger that the last commits were made at noon of one day each, and all others before."""
    site.warehouse.sync()
    metadata = site.warehouse._context.metadata
    orders, record = metadata.tables.get("orders"), site.record(view)
    entries = metadata.ledger.between(orders.id, -1, 1_000_000)
    metadata.ledger.prune(orders.id, 1_000_000)
    noon = timedelta(hours=12)
    metadata.ledger.append(
        [replace(e, timestamp=begin - timedelta(hours=len(entries) - i)) for i, e in enumerate(entries[:-DAYS])]
        + [replace(e, timestamp=begin + noon + timedelta(days=i)) for i, e in enumerate(entries[-DAYS:])]
    )
    past = Cut(begin, record.propagated.versions)
    assert past.versions[orders.id] == entries[-DAYS - 1].version
    metadata.views.update(record.id, shown=past, propagated=past)


def _backfill(site: Site, view: str, begin: datetime, days: int, *more: str) -> None:
    # Airflow may run ten steps of a backfill at once; ours wait for one another.
    site.airflow.run(
        "backfill",
        "create",
        "--dag-id",
        view,
        "--from-date",
        begin.isoformat(),
        "--to-date",
        (begin + timedelta(days=days - 1)).isoformat(),
        *more,
    )
    site.until(
        lambda: all(
            b["completed_at"] for b in site.airflow.request("GET", f"/api/v2/backfills?dag_id={view}")["backfills"]
        ),
        "the backfill",
        600,
    )


# ---- what goes wrong


def test_a_killed_task_is_tried_again(site: Site) -> None:
    view = site.record("order_details")
    site.insert((800, "east", 800))
    run = site.trigger("order_details", {"action": "refresh"})
    for name in (f"propagate:{view.id}", f"refresh:{view.id}"):
        holder = site.until(lambda name=name: site.warehouse._context.metadata.leases.holder(name), name, pause=0.02)
        os.kill(int(holder.owner.rsplit(":", 3)[1]), signal.SIGKILL)
    assert site.wait("order_details", run) == "success", site.logs("order_details", run)
    assert site.task("order_details", run, "refresh")["try_number"] >= 2
    assert site.verified("order_details")
    assert any(row[0] == 800 for row in site.rows("order_details"))


def test_a_lease_makes_a_task_wait_and_not_fail(site: Site) -> None:
    view = site.record("order_amounts")
    with lease(site.warehouse._context, f"propagate:{view.id}", "The propagation of order_amounts"):
        run = site.trigger("order_amounts", {"action": "propagate"})
        site.until(lambda: site.task("order_amounts", run, "propagate")["state"] == "up_for_reschedule", "waiting")
    assert site.wait("order_amounts", run) == "success"
    assert site.task("order_amounts", run, "propagate")["try_number"] == 1
    assert "is held by another process" in site.log("order_amounts", run, "propagate")


def test_a_lost_log_fails_once_and_says_what_to_do(site: Site) -> None:
    site.warehouse._context.metadata.views.update(
        site.record("largest_orders").id, state="broken", problem="The log of orders from version 3 to 5 is lost."
    )
    run = site.trigger("largest_orders", {"action": "refresh"})
    assert site.wait("largest_orders", run) == "failed"
    assert site.task("largest_orders", run, "refresh")["try_number"] == 1, "retries cannot help"
    errors = [line for line in site.log("largest_orders", run, "refresh").splitlines() if '"level":"error"' in line]
    assert "The log of orders from version 3 to 5 is lost." in errors[0]
    assert "rebuild" in errors[0]
    site.succeed("largest_orders", {"action": "rebuild"})
    assert site.record("largest_orders").state == "active"


# ---- the clock


def test_scheduled_runs_follow_the_policies(site: Site, scheduled: threading.Thread) -> None:
    scheduled.join(600)
    assert not scheduled.is_alive(), "a policy has not made both kinds of runs"
    for dag in POLICIES:
        # A run that the pause has caught half-way stays where it is.
        assert {r["state"] for r in site.all_runs(dag) if r["state"] in DONE} == {"success"}
        assert site.verified(dag)
    assert dict(site.rows("sales_by_region"))["north"] >= 110
    operation = next(o for o in site.warehouse.history("large_orders") if o.requested_by)
    assert operation.requested_by is not None
    assert operation.requested_by.startswith("airflow scheduled (large_orders, scheduled__")
