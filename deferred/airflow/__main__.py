"""`make airflow`: the demo data, a Spark that stays warm, and a whole Airflow to look at, until Ctrl-C."""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from deferred import demo
from deferred.airflow.local import USER, LocalAirflow
from deferred.config import DEFAULT_FILE
from deferred.maintenance import files
from deferred.maintenance.warehouse import Warehouse
from deferred.spark import server
from deferred.sql.viewfile import load_views

ROOT = Path(__file__).parents[2]


def make_project(folder: Path) -> Path:
    """Create the example project with a view over a view, and the DAG files with an ingest DAG."""
    shutil.copytree(demo.examples(), folder / "conf")
    shutil.copytree(ROOT / "docs" / "examples" / "views", folder / "conf" / "views", dirs_exist_ok=True)
    shutil.copytree(demo.dag_files(), folder / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "docs" / "examples" / "ingest.py", folder / "dags")
    return folder / DEFAULT_FILE


def fill(warehouse: Warehouse, folder: Path) -> None:
    """Create the tables of the demo, track them, and create its views."""
    for name, schema in demo.SCHEMAS.items():
        data = warehouse.spark.read.csv(str(folder / "conf" / "data" / f"{name}.csv"), schema=schema, header=True)
        data.write.format("delta").option("delta.enableChangeDataFeed", "true").save(str(folder / "tables" / name))
        warehouse.track(name, folder / "tables" / name)
    for view in load_views(warehouse.settings.views_folder):
        files.create(warehouse, view)


def main() -> None:
    """Start everything, print where it is, wait for Ctrl-C, stop, and remove everything."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="deferred-airflow-", ignore_cleanup_errors=True) as folder:
            _show(Path(folder))
    except KeyboardInterrupt:
        print("Stopped.", flush=True)


def _show(folder: Path) -> None:
    config = make_project(folder)
    try:
        print("Starting Spark and filling the demo warehouse (half a minute) …", flush=True)
        server.start(folder / "warehouse")
        with Warehouse.open(config) as warehouse:
            fill(warehouse, folder)
            warehouse.spark.stop()  # or this process would look for the server when it ends, after it has stopped
        print("Starting Airflow (half a minute) …", flush=True)
        with LocalAirflow(
            folder / "home",
            folder / "dags",
            {"DEFERRED_CONFIG": str(config), "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False"},
        ) as airflow:
            print(
                f"\n  Airflow    {airflow.url}\n  user       {USER}\n  password   {airflow.password}\n"
                f"  warehouse  deferred --config {config} status\n\nCtrl-C stops it all.",
                flush=True,
            )
            try:
                signal.pause()
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # once is enough
                print("\nStopping …", flush=True)
    finally:
        server.stop(folder / "warehouse")


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
