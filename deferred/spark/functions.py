"""User-defined functions: the PySpark UDFs that the configuration names, registered with every session."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deferred.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, functions: Mapping[str, str], folder: Path) -> None:
    """Register each function under its name. Modules are searched in the project's folder too."""
    for name, where in functions.items():
        spark.udf.register(name, _load(name, where, folder))


def _load(name: str, where: str, folder: Path) -> Any:
    from pyspark import cloudpickle

    module_name, _, attribute = where.partition(":")
    before = list(sys.path)
    sys.path.insert(0, str(folder.absolute()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module does when it is loaded
        raise ConfigurationError(
            f"functions.{name}: The module {module_name} cannot be imported: {type(error).__name__}: {error}. It is "
            f"searched in {folder} and on Python's path."
        ) from error
    finally:
        sys.path[:] = before
    function = getattr(module, attribute, None)
    if not (callable(function) and hasattr(function, "returnType") and hasattr(function, "asNondeterministic")):
        raise ConfigurationError(
            f"functions.{name}: {where} is not a PySpark UDF. Define it with @udf(returnType=…) from "
            f"pyspark.sql.functions."
        )
    # Executors get the code itself: the module need not be installed there.
    cloudpickle.register_pickle_by_value(module)
    return function
