"""User-defined functions in views: named in the configuration, and refused if declared nondeterministic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deferred import Warehouse
from deferred.errors import ConfigurationError, InvalidSQLError, NondeterministicSQLError
from tests.engine.support import assert_fresh, make, refused

MODULE = """
from pyspark.sql.functions import udf

SUFFIX = "!"


def _louder(text):
    return None if text is None else text.upper() + SUFFIX


@udf("string")
def loud(text):
    return _louder(text)


lucky = udf(lambda n: n, "int").asNondeterministic()


def plain(text):
    return text
"""


def configured(folder: Path, functions: str) -> Path:
    (folder / "conf").mkdir(parents=True)
    (folder / "own_functions.py").write_text(MODULE)
    file = folder / "conf" / "deferred.toml"
    file.write_text(f'[warehouse]\npath = "warehouse"\n\n[functions]\n{functions}\n')
    return file


@pytest.fixture
def own(spark: Any, tmp_path: Path) -> Iterator[Any]:
    config = configured(tmp_path, 'loud = "own_functions:loud"\nlucky = "own_functions:lucky"')
    with Warehouse.open(config, spark=spark) as wh:
        path = make(spark, tmp_path / "r", "a INT, s STRING", "(1, 'x'), (2, 'y'), (2, NULL)")
        wh.track("r", path)
        yield wh


def test_a_declared_function_is_maintained_like_any_other(own: Any, tmp_path: Path) -> None:
    own.create_view(
        "shouted",
        "SELECT loud(s) AS s, COUNT(*) AS n FROM r WHERE loud(s) <> 'Z!' GROUP BY loud(s)",
        refresh_policy="incremental_strict",
    )
    own.spark.sql("CREATE OR REPLACE FUNCTION twice(x INT) RETURNS INT DETERMINISTIC RETURN x * 2")
    own.create_view("doubled", "SELECT twice(a) AS a, s FROM r WHERE twice(a) > 2", refresh_policy="incremental_strict")
    own.spark.sql(f"INSERT INTO delta.`{tmp_path / 'r'}` VALUES (3, 'x'), (4, 'z')")
    own.spark.sql(f"DELETE FROM delta.`{tmp_path / 'r'}` WHERE s = 'y'")
    for name in ("shouted", "doubled"):
        assert own.refresh(name).strategy == "incremental"
        own.verify(name)
        assert_fresh(own, name)
    assert sorted(map(tuple, own.read("shouted").collect())) == [("X!", 2)]


@pytest.mark.parametrize("call", ["lucky(a)", "random_twice(a)"])
def test_a_function_that_is_declared_nondeterministic_is_refused(own: Any, call: str) -> None:
    own.spark.sql("CREATE OR REPLACE FUNCTION random_twice(x INT) RETURNS DOUBLE NOT DETERMINISTIC RETURN x * rand()")
    for sql in (f"SELECT {call} AS n FROM r", f"SELECT a FROM r WHERE {call} > 1", f"SELECT MAX({call}) AS m FROM r"):
        with refused(NondeterministicSQLError, call.split("(")[0], "nondeterministic"):
            own.create_view("v", sql, refresh_policy="incremental")
    assert own.views() == []


def test_a_function_of_one_session_is_refused(own: Any) -> None:
    """Like a view of Spark's own: another process would not find the function."""
    own.spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION only_here(x INT) RETURNS INT RETURN x * 3")
    with refused(InvalidSQLError, "only_here", "[functions]"):
        own.create_view("v", "SELECT only_here(a) AS a FROM r")


def test_an_unknown_function_is_named(own: Any) -> None:
    with refused(InvalidSQLError, "quiet"):
        own.create_view("v", "SELECT quiet(s) AS s FROM r")


@pytest.mark.parametrize(
    ("where", "word"),
    [("no_such_module:loud", "no_such_module"), ("own_functions:plain", "udf"), ("own_functions:nothing", "udf")],
)
def test_a_function_that_cannot_be_loaded(spark: Any, tmp_path: Path, where: str, word: str) -> None:
    config = configured(tmp_path, f'loud = "{where}"')
    with Warehouse.open(config, spark=spark) as wh, refused(ConfigurationError, "functions.loud", word):
        wh.spark  # noqa: B018
