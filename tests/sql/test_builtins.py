"""Which functions are Spark's own, and what is known of them: compared with Spark's own list."""

from __future__ import annotations

from typing import Any

import pytest
from sqlglot import exp

from deferred.algebra.aggregates.calls import is_aggregate, name_of
from deferred.algebra.aggregates.registry import REGISTRY
from deferred.algebra.operators.aggregate import Aggregate
from deferred.sql.bind import bind
from deferred.sql.builtins import BUILT_IN, KINDS
from deferred.sql.dialect import parse_query, parse_scalar, text
from deferred.sql.functions import GENERATORS, NONDETERMINISTIC, NOW, WINDOW_ONLY
from deferred.sql.types import Types

OF_GROUPING_SETS = {"grouping", "grouping_id"}
"""Their value depends on the clause, so they are bound with it."""

SYNTAX = {"between", "case", "cast", "extract", "if", "in", "not", "overlay", "position", "substr", "trim", "when"}
"""Names with a syntax of their own."""


def test_aggregates_are_in_the_registry() -> None:
    assert set(KINDS["aggregates"].split()) - OF_GROUPING_SETS == {n for n in REGISTRY if n in BUILT_IN}


def test_what_varies_is_named_as_spark_names_it() -> None:
    """What is not of Spark 4.2 is of a relative of it."""
    relatives = {"current_metastore", "current_role", "current_server", "getvariable", "is_member"}
    known = NOW | NONDETERMINISTIC | GENERATORS | WINDOW_ONLY
    assert known - BUILT_IN == relatives | {"is_account_group_member"}


@pytest.mark.parametrize("name", sorted(BUILT_IN - SYNTAX))
def test_a_call_is_seen_as_what_it_is(name: str) -> None:
    for arguments in ("a", "a, b", "a, b, c"):
        for written in (name, f"`{name}`", name.upper()):
            call = parse_scalar(f"{written}({arguments})")
            assert name_of(call) == name, text(call)


def booleans(sql: str) -> list[tuple[str, str]]:
    return [(f"t{number}", "boolean") for number, _ in enumerate(parse_query(sql).selects)]


@pytest.mark.parametrize("call", ["ANY(a > 1)", "any(a > 1)", "SOME(a > 1)", "EVERY(a > 1)", "`any`(a > 1)"])
def test_any_of_a_group_is_an_aggregate(call: str) -> None:
    """ANY is also a word before a subquery, and after LIKE: then it is none."""
    assert is_aggregate(parse_scalar(call))
    for sql in (f"SELECT {call} AS k FROM t", f"SELECT b, {call} FILTER (WHERE b > 0) AS k FROM t GROUP BY b"):
        bound = bind(sql, lambda path: (path[0], [("a", "int"), ("b", "int")]), Types(booleans))
        assert any(isinstance(node, Aggregate) for node in bound.plan.walk())
    for words in ("s LIKE ANY ('x', 'y')", "s NOT LIKE SOME ('x')"):
        assert not any(map(is_aggregate, parse_scalar(words).walk()))
        assert parse_scalar(words).find(exp.Any)


def test_the_list_is_sparks(spark: Any) -> None:
    """Each of Spark's functions is known; an aggregate, as Spark has it, as an aggregate."""
    utils = spark._jvm.org.apache.spark.util.Utils
    aggregates = [
        utils.classForName(f"org.apache.spark.sql.catalyst.expressions.{name}", False, False)
        for name in ("aggregate.AggregateFunction", "RuntimeReplaceableAggregate")
    ]
    listed, summed = set(), set()
    for name in [row.function for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()]:
        if not name.replace("_", "").isalnum():
            continue
        listed.add(name)
        told = [row[0] for row in spark.sql(f"DESCRIBE FUNCTION `{name}`").collect()]
        (kind,) = [line.partition(":")[2].strip() for line in told if line.startswith("Class:")] or [""]
        if kind.startswith("org.apache.spark."):
            found = utils.classForName(kind, False, False)
            if any(aggregate.isAssignableFrom(found) for aggregate in aggregates):
                summed.add(name)
    table_functions = {"range", "collations", "sql_keywords", "python_worker_logs"}
    assert listed - BUILT_IN <= table_functions
    assert BUILT_IN - listed <= {"case", "when", "between", "in", "not", "if", "cast", "timestampadd", "timestampdiff"}
    assert summed - set(KINDS["window"].split()) - set(KINDS["aggregates"].split()) == set()
