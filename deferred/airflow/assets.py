"""Assets: every view and every base table has one, so that DAGs can wait for it or announce it."""

from __future__ import annotations

from airflow.sdk import Asset


def asset(name: str) -> Asset:
    """The Asset of a view or a tracked table, for any DAG: `schedule=asset("v")`, `outlets=[asset("sales")]`."""
    key = name.casefold()
    return Asset(name=key, uri=f"deferred://{key}", group="deferred")
