"""Materialized views on Spark and Delta Lake that stay up to date: incremental, exact, with almost no downtime."""

from deferred.errors import DeferredError

__all__ = ["DeferredError", "Warehouse", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`Warehouse` is loaded on first use, so that reading errors or parsing a DAG file imports no engine."""
    if name == "Warehouse":
        from deferred.maintenance.warehouse import Warehouse

        return Warehouse
    raise AttributeError(f"module 'deferred' has no attribute {name!r}")
