"""A real Airflow on a real warehouse, both in a temporary folder: one for all tests here, stopped at the end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow")

from deferred import Warehouse
from deferred.airflow.local import LocalAirflow
from deferred.maintenance import files
from deferred.sql.viewfile import load_views
from tests.conftest import ConnectServer, connected

Rows = list[tuple[Any, ...]]

ROOT = Path(__file__).parents[2]
DONE = ("success", "failed")

VIEWS = {
    "sales_by_region": "WITH (propagate_every = '40s', refresh_every = '80s', policy = 1) "
    "AS SELECT region, SUM(amount) AS total FROM orders GROUP BY region",
    "large_orders": "WITH (propagate_every = '40s', refresh_every = '80s', policy = 2) "
    "AS SELECT id, amount FROM orders WHERE amount > 10",
    "order_details": "WITH (refresh_every = '@daily') "
    "AS SELECT o.id, o.amount, r.country FROM orders o JOIN regions r ON o.region = r.region",
    "sales_by_country": "AS SELECT country, SUM(amount) AS total, COUNT(*) AS orders FROM order_details "
    "GROUP BY country",
    "large_countries": "AS SELECT country, total FROM sales_by_country WHERE total > 20",
    "orders_by_region": "WITH (refresh_every = '@daily') "
    "AS SELECT region, COUNT(*) AS orders, SUM(amount) AS total FROM orders GROUP BY region",
    "order_amounts": "WITH (propagate_every = '0 3 * * *', refresh_every = '@weekly', policy = 2) "
    "AS SELECT o.region, o.amount FROM orders o",
    "largest_orders": "AS SELECT region, MAX(amount) AS largest FROM orders GROUP BY region",
    "known_regions": "WITH (target_lag = '1h') AS SELECT DISTINCT region FROM orders_by_region",
}
TABLES = {"orders": "id INT, region STRING, amount INT", "regions": "region STRING, country STRING"}
ROWS = {
    "orders": "(1, 'north', 10), (2, 'south', 20), (3, 'east', 30)",
    "regions": "('north', 'NO'), ('south', 'SE'), ('east', 'NO')",
}
NOT_CREATED = "known_regions"
"""The view that its DAG creates."""

PRELOADED = """
import sys
if "scheduler" in sys.argv:  # tasks are forked from it, and loading these takes longer than a task of the tests does
    import deferred.maintenance.warehouse, deltalake, pyspark.sql.connect.session
"""


@dataclass
class Site:
    """The project, its warehouse and its Airflow, with what the tests need from them."""

    airflow: LocalAirflow
    warehouse: Warehouse
    folder: Path

    def trigger(self, dag: str, conf: dict[str, Any] | None = None) -> str:
        """Start a run the way the form does; returns its id."""
        self.unpause(dag)
        made = self.airflow.request("POST", f"/api/v2/dags/{dag}/dagRuns", {"conf": conf or {}, "logical_date": None})
        return str(made["dag_run_id"])

    def unpause(self, dag: str, paused: bool = False) -> None:
        self.airflow.request("PATCH", f"/api/v2/dags/{dag}", {"is_paused": paused})

    def pause(self, dag: str) -> None:
        self.unpause(dag, paused=True)

    def all_runs(self, dag: str) -> list[dict[str, Any]]:
        found = self.airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns?limit=100&order_by=run_after")
        return list(found["dag_runs"])

    def wait(self, dag: str, run: str, timeout: float = 300.0) -> str:
        """How a run ended."""
        path = f"/api/v2/dags/{dag}/dagRuns/{run}"
        self.until(lambda: self.airflow.request("GET", path)["state"] in DONE, f"{dag} {run}", timeout)
        return str(self.airflow.request("GET", path)["state"])

    def succeed(self, dag: str, conf: dict[str, Any] | None = None) -> str:
        """A run that must succeed."""
        run = self.trigger(dag, conf)
        assert self.wait(dag, run) == "success", self.logs(dag, run)
        return run

    def states(self, dag: str, run: str) -> dict[str, str | None]:
        found = self.airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")
        return {t["task_id"]: t["state"] for t in found["task_instances"]}

    def task(self, dag: str, run: str, task: str) -> dict[str, Any]:
        return dict(self.airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}"))

    def xcom(self, dag: str, run: str, task: str, key: str = "return_value") -> Any:
        path = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/{key}?deserialize=true"
        return self.airflow.request("GET", path)["value"]

    def log(self, dag: str, run: str, task: str, attempt: int = 1) -> str:
        """A task's log as it is on the disk."""
        files = self.airflow.home.glob(f"logs/dag_id={dag}/run_id={run}/task_id={task}/attempt={attempt}.log*")
        return "\n".join(f.read_text(encoding="utf-8", errors="replace") for f in files)

    def logs(self, dag: str, run: str) -> str:
        return "\n".join(
            self.log(dag, run, task) for task, state in self.states(dag, run).items() if state not in (None, "skipped")
        )

    def until(self, true: Callable[[], Any], what: str, timeout: float = 300.0, pause: float = 0.5) -> Any:
        deadline = time.monotonic() + timeout
        while not (found := true()):
            assert time.monotonic() < deadline, f"{what}: not within {timeout:.0f} seconds"
            time.sleep(pause)
        return found

    # ---- the warehouse

    def statement(self, sql: str) -> Rows:
        """Run SQL directly, as any job does, not through the warehouse."""
        return _rows(self.warehouse.spark.sql(sql))

    def insert(self, *rows: tuple[int, str, int]) -> None:
        listed = ", ".join(f"({i}, '{region}', {amount})" for i, region, amount in rows)
        self.statement(f"INSERT INTO delta.`{self.folder}/tables/orders` VALUES {listed}")

    def rows(self, view: str) -> Rows:
        return _rows(self.warehouse.read(view))

    def expected(self, sql: str) -> Rows:
        return _rows(self.warehouse.sql(sql))

    def verified(self, view: str) -> bool:
        return bool(self.warehouse.verify(view).holds)

    def record(self, view: str) -> Any:
        return next(v for v in self.warehouse.views() if v.name == view)


def now() -> str:
    return datetime.now(UTC).isoformat()


def make_project(folder: Path) -> Path:
    """Configuration, view files, and the DAG files of this repository and one of a user."""
    views = folder / "conf" / "views"
    views.mkdir(parents=True)
    config = folder / "conf" / "deferred.toml"
    config.write_text('[warehouse]\npath = "warehouse"\n', encoding="utf-8")
    for name, rest in VIEWS.items():
        text = f"-- The view {name} of the tests.\n-- owner: tests\nCREATE MATERIALIZED VIEW {name} {rest}\n"
        (views / f"{name}.sql").write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "dags", folder / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(__file__).parent / "user_dags.py", folder / "dags")
    return config


def _rows(frame: Any) -> Rows:
    return sorted(map(tuple, frame.collect()))


def fill(warehouse: Warehouse, folder: Path) -> None:
    """The tables, tracked, and all views but one."""
    for name, columns in TABLES.items():
        location = f"{folder}/tables/{name}"
        warehouse.spark.sql(
            f"CREATE TABLE delta.`{location}` ({columns}) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        warehouse.track(name, location)
        warehouse.spark.sql(f"INSERT INTO delta.`{location}` VALUES {ROWS[name]}")
    for view in load_views(warehouse.settings.views_folder):
        if view.name != NOT_CREATED:
            files.create(warehouse, view)


@pytest.fixture(scope="package")
def site(server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Everything started: tables and views on the Spark Connect server, and Airflow."""
    folder = tmp_path_factory.mktemp("airflow")
    config = make_project(folder)
    environment = {
        "DEFERRED_CONFIG": str(config),
        "DEFERRED_SPARK_REMOTE": server.remote,
        "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
        "AIRFLOW_CONN_DEFERRED_METADATA": f"sqlite:////{folder}/warehouse/deferred.db",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    }
    (folder / "home" / "config").mkdir(parents=True)
    (folder / "home" / "config" / "airflow_local_settings.py").write_text(PRELOADED, encoding="utf-8")
    airflow = LocalAirflow(folder / "home", folder / "dags", environment)
    with connected(server.remote) as session, Warehouse.open(config, spark=session) as warehouse:
        fill(warehouse, folder)
        with airflow:
            found = Site(airflow, warehouse, folder)
            found.until(
                lambda: airflow.request("GET", "/api/v2/dags?limit=50")["total_entries"] >= len(VIEWS) + 5, "the DAGs"
            )
            yield found
