"""The DAG that looks for new commits of the tracked tables; see docs/AIRFLOW.md."""

from pathlib import Path

from deferred.airflow.factory import sync_dag

dag = sync_dag(Path(__file__).parents[1] / "conf" / "deferred.toml")
