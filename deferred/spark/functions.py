"""User-defined functions: the PySpark UDFs that the configuration names, registered with every session."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from deferred.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, functions: Mapping[str, str], folder: Path) -> None:
    """Register each function under its name. Modules are searched in the project's folder too."""
    for name, where in functions.items():
        spark.udf.register(name, _load(name, where, folder))


def described(functions: Mapping[str, str], folder: Path, called: str) -> str | None:
    """What a function is, as JSON: its place, and a hash of its module as it was loaded. None for any other name.

    >>> described({"tax": "shop.functions:tax"}, Path(), "`other`") is None
    True
    """
    for name, where in functions.items():
        if called.strip("`").casefold() == name.casefold():
            returns = _load(name, where, folder).returnType.simpleString()
            return json.dumps({"Class": where, "Returns": returns, "Body": _TEXTS[where.partition(":")[0]]})
    return None


_TEXTS: dict[str, str] = {}
"""A hash of each module when it was loaded: its file may be another one since."""


def _code(module: ModuleType) -> bytes:
    """The text of a module, or its file where it has been compiled."""
    try:
        return inspect.getsource(module).encode()
    except (OSError, TypeError):
        return Path(module.__file__).read_bytes() if module.__file__ else b""


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
    if module_name not in _TEXTS:
        _TEXTS[module_name] = hashlib.sha256(_code(module)).hexdigest()
    function = getattr(module, attribute, None)
    if not (callable(function) and hasattr(function, "returnType") and hasattr(function, "asNondeterministic")):
        raise ConfigurationError(
            f"functions.{name}: {where} is not a PySpark UDF. Define it with @udf(returnType=…) from "
            f"pyspark.sql.functions."
        )
    # Executors get the code itself: the module need not be installed there.
    cloudpickle.register_pickle_by_value(module)
    return function
