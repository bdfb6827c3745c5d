"""The DAG that refreshes several views at once; see docs/AIRFLOW.md."""

from pathlib import Path

from deferred.airflow.factory import refresh_dag

dag = refresh_dag(Path(__file__).parents[1] / "conf" / "deferred.toml")
