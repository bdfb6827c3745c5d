"""The user's own functions: UDFs of a Python module that the configuration names, known to every session."""

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
    """Register each function under its name; modules are looked for in the project's folder too."""
    for name, where in functions.items():
        spark.udf.register(name, _found(name, where, folder))


def _found(name: str, where: str, folder: Path) -> Any:
    from pyspark import cloudpickle

    module_name, _, attribute = where.partition(":")
    before = list(sys.path)
    sys.path.insert(0, str(folder.absolute()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module does when it is loaded
        raise ConfigurationError(f"functions.{name}: the module {module_name} cannot be imported: "
                                 f"{type(error).__name__}: {error}. It is looked for in {folder} and where Python "
                                 f"looks for modules.") from error
    finally:
        sys.path[:] = before
    function = getattr(module, attribute, None)
    if not (callable(function) and hasattr(function, "returnType") and hasattr(function, "asNondeterministic")):
        raise ConfigurationError(f"functions.{name}: {where} is no UDF of PySpark. Write it with "
                                 f"@udf(returnType=…), from pyspark.sql.functions.")
    # Executors get the code itself: the module need not be installed there.
    cloudpickle.register_pickle_by_value(module)
    return function
