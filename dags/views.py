"""A DAG for every view file; see docs/AIRFLOW.md."""

from pathlib import Path

from deferred.airflow.factory import view_dags

globals().update(view_dags(Path(__file__).parents[1] / "conf" / "deferred.toml"))
