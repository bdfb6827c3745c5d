"""A DAG of your own: it writes a tracked table, announces it, and waits until a view shows what was written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task

from deferred.airflow.assets import asset
from deferred.airflow.opening import opened
from deferred.airflow.operators import SyncLog
from deferred.airflow.sensors import FreshnessSensor


@dag(
    schedule=timedelta(minutes=5),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    tags=["retail"],
    default_args={"owner": "retail"},
    max_active_runs=1,
)
def retail_ingest() -> None:
    """New sales every five minutes, announced as the Asset of their table."""

    @task(outlets=[asset("sales")], pool="deferred")
    def write() -> str:
        with opened(None) as warehouse:
            warehouse.sql(
                "INSERT INTO sales SELECT CAST(1 + rand() * 10 AS INT), CAST(100 + rand() * 8 AS INT), "
                "CAST(1 + rand() * 5 AS INT), CAST(5 + rand() * 20 AS DECIMAL(10, 2)) FROM range(20)"
            )
        return datetime.now(UTC).isoformat()

    written = write()
    written >> SyncLog(task_id="sync")
    (
        FreshnessSensor(
            task_id="wait_for_top_customers",
            view="top_customers",
            moment="{{ ti.xcom_pull('write') }}",
            timeout=timedelta(minutes=10),
            retries=0,
        )
        << written
    )


retail_ingest()
