"""User-defined functions in views: named in the configuration, and refused if declared nondeterministic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deferred import Warehouse
from deferred.errors import ConfigurationError, InvalidSQLError, NondeterministicSQLError, UnsupportedSQLError
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


def test_a_function_that_is_defined_again_recomputes_the_views_that_call_it(own: Any, tmp_path: Path) -> None:
    """No log says that it has changed; rows of both meanings must not be mixed, also below another function."""
    spark, table = own.spark, f"delta.`{tmp_path / 'r'}`"
    spark.sql("CREATE OR REPLACE FUNCTION times(x INT) RETURNS INT RETURN x * 2")
    spark.sql("CREATE OR REPLACE FUNCTION more(x INT) RETURNS INT RETURN times(x) + 1")
    own.create_view("kept", "SELECT more(a) AS m, s FROM r")
    own.create_view("sums", "SELECT s, SUM(default.times(a)) AS t FROM r GROUP BY s")
    spark.sql("CREATE OR REPLACE FUNCTION times(x INT) RETURNS INT COMMENT 'as before' RETURN x * 2")
    spark.sql(f"INSERT INTO {table} VALUES (5, 'x')")
    assert [own.refresh(name).strategy for name in ("kept", "sums")] == ["incremental", "incremental"]
    spark.sql("CREATE OR REPLACE FUNCTION times(x INT) RETURNS INT RETURN x * 3")
    spark.sql(f"INSERT INTO {table} VALUES (6, 'y')")
    for name, function in (("kept", "times"), ("sums", "default`.`times")):
        fresh = sorted(map(str, own.read(name, fresh=True).collect()))
        done = own.refresh(name)
        assert done.strategy == "full"
        assert f"Defined again since the view was computed: `{function}`" in done.warnings[0]
        assert_fresh(own, name)
        assert sorted(map(str, own.read(name).collect())) == fresh
        assert own.verify(name).holds
    spark.sql(f"DELETE FROM {table} WHERE a = 1")
    assert own.refresh("kept").strategy == "incremental"
    assert_fresh(own, "kept")
    spark.sql("CREATE OR REPLACE FUNCTION times(x INT) RETURNS INT RETURN x * 4")
    assert "Defined again" in own.alter_view("kept", "SELECT more(a) AS m FROM r WHERE s = 'x'").message
    assert_fresh(own, "kept")
    spark.sql("CREATE OR REPLACE FUNCTION times(x INT) RETURNS STRING RETURN x * 4")
    spark.sql(f"DELETE FROM {table} WHERE a = 2")
    for act in (own.propagate, own.rebuild):
        with refused(InvalidSQLError, "returned INT", "returns STRING now", "alter_view('sums'"):
            act("sums")
    spark.sql("CREATE OR REPLACE FUNCTION times(x INT) RETURNS INT RETURN x * 4")
    own.rebuild("sums")
    spark.sql(f"INSERT INTO {table} VALUES (7, 'y')")
    assert own.refresh("sums").strategy == "incremental"
    assert_fresh(own, "sums")


def test_a_function_of_the_configuration_whose_module_changes_recomputes_its_views(own: Any, tmp_path: Path) -> None:
    """In a process that loads the module anew, as the text of the module is what is remembered."""
    from deferred.spark import functions

    own.create_view("shouted", "SELECT loud(s) AS s FROM r")
    own.spark.sql(f"INSERT INTO delta.`{tmp_path / 'r'}` VALUES (3, 'z')")
    assert own.refresh("shouted").strategy == "incremental"
    text = functions._TEXTS.pop("own_functions")
    (tmp_path / "own_functions.py").write_text(MODULE.replace('"!"', '"?"'))
    sys.modules.pop("own_functions")
    try:
        with Warehouse.open(tmp_path / "conf" / "deferred.toml", spark=own.spark.newSession()) as again:
            again.spark.sql(f"INSERT INTO delta.`{tmp_path / 'r'}` VALUES (4, 'v')")
            assert again.refresh("shouted").strategy == "full"
            assert {row.s for row in again.read("shouted").collect()} == {"X?", "Y?", "Z?", "V?", None}
    finally:
        sys.modules.pop("own_functions", None)
        functions._TEXTS["own_functions"] = text


def test_a_function_that_reads_a_table_or_the_clock_is_refused(own: Any, tmp_path: Path) -> None:
    """The log of that table is not the view's."""
    spark = own.spark
    other = make(spark, tmp_path / "other", "a INT", "(1)")
    spark.sql(f"CREATE OR REPLACE TABLE prices USING delta AS SELECT * FROM delta.`{other}`")
    spark.sql("CREATE OR REPLACE FUNCTION dearest() RETURNS INT RETURN (SELECT MAX(a) FROM prices)")
    spark.sql("CREATE OR REPLACE FUNCTION above(x INT) RETURNS BOOLEAN RETURN x > dearest()")
    for call in ("dearest() = a", "above(a)"):
        with refused(UnsupportedSQLError, "dearest", "reads tables"):
            own.create_view("v", f"SELECT a FROM r WHERE {call}")
    spark.sql("CREATE OR REPLACE FUNCTION today() RETURNS DATE RETURN current_date()")
    with refused(NondeterministicSQLError, "clock"):
        own.create_view("v", "SELECT a, today() AS d FROM r")
    assert own.views() == []
    spark.sql("DROP TABLE prices")
