"""DAGs as users write them, for the tests: an ingest, and one of every operator."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, task

from deferred.airflow.assets import asset
from deferred.airflow.opening import opened
from deferred.airflow.operators import PartialRefresh, Propagate, Rebuild, Refresh, Replay, SyncLog, Verify
from deferred.airflow.sensors import FreshnessSensor

with DAG("ingest", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), params={"id": 900}):

    @task(outlets=[asset("orders")])
    def write(params: dict[str, int]) -> None:
        with opened(None) as warehouse:
            warehouse.sql(f"INSERT INTO orders VALUES ({params['id']}, 'west', {params['id']})")

    write()

with DAG(
    "every_operator",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"retries": 0},
    params={"until": ""},
):
    shared = {"view": "order_amounts", "metadata_conn_id": "deferred_metadata"}
    (
        SyncLog(task_id="sync", metadata_conn_id="deferred_metadata")
        >> Propagate(task_id="propagate", until="{{ params.until }}", **shared)
        >> PartialRefresh(task_id="partial_refresh", **shared)
        >> Refresh(task_id="refresh", full=True, **shared)
        >> Rebuild(task_id="rebuild", **shared)
        >> Verify(task_id="verify", **shared)
        >> Replay(task_id="replay", until="{{ dag_run.run_after }}", **shared)
    )

with DAG(
    "waiting",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"retries": 0},
    params={"moment": ""},
):
    FreshnessSensor(
        task_id="wait",
        view="order_amounts",
        moment="{{ params.moment or dag_run.run_after }}",
        timeout=timedelta(minutes=2),
        poll_interval=timedelta(seconds=1),
    )
