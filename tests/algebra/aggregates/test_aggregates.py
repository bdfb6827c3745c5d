"""Every aggregate function: its value over nothing, over NULLs and over a few values, and that it states each part."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from sqlglot import exp

from deferred.algebra.aggregates.calls import is_aggregate
from deferred.algebra.aggregates.registry import (
    EMPTY_ARRAY,
    NULL,
    REGISTRY,
    ZERO,
    AggregateFunction,
    Call,
    RefusedAggregate,
    WindowOrder,
    lookup,
    register,
)
from deferred.algebra.aggregates.sketches import EMPTY_BITMAP, FULL_BITMAP, NOT_A_VALUE
from deferred.algebra.types import FLOATING
from deferred.sql.dialect import parse_scalar

FUNCTIONS = {name: function for name, function in REGISTRY.items() if isinstance(function, AggregateFunction)}
REFUSED = {name: function for name, function in REGISTRY.items() if isinstance(function, RefusedAggregate)}

TYPES = ("int", "bigint", "decimal(10,2)", "decimal(38,18)", "double", "float", "string", "date", "boolean")
NAN = math.nan
ONLY_SPARK = "only Spark can say"

# name and aliases: value over no rows, over rows of NULLs, rows of arguments, value over them
TABLE: dict[tuple[str, ...], tuple[Any, Any, list[tuple[Any, ...]], Any]] = {
    ("count",): (0, 0, [(1,), (1,), (None,), (2,)], 3),
    ("count_if",): (0, 0, [(True,), (False,), (None,), (True,)], 2),
    ("sum", "try_sum"): (None, None, [(1,), (1,), (None,), (5,)], 7),
    ("avg", "mean", "try_avg"): (None, None, [(1,), (None,), (2,)], Fraction(3, 2)),
    ("min",): (None, None, [(2,), (None,), (1,)], 1),
    ("max",): (None, None, [(2,), (None,), (1,)], 2),
    ("bool_and", "every"): (None, None, [(True,), (None,), (False,)], False),
    ("bool_or", "some", "any"): (None, None, [(True,), (None,), (False,)], True),
    ("bit_and",): (None, None, [(6,), (None,), (3,)], 2),
    ("bit_or",): (None, None, [(6,), (None,), (3,)], 7),
    ("bit_xor",): (None, None, [(6,), (6,), (6,), (None,), (3,)], 5),
    ("min_by",): (None, None, [("b", 2), ("c", 1), ("a", 1), ("z", None)], "a"),
    ("max_by",): (None, None, [("b", 2), ("c", 2), ("z", None), (None, 1)], "c"),
    ("var_pop",): (None, None, [(1,), (3,), (None,)], 1),
    ("var_samp", "variance"): (None, None, [(1,), (3,), (None,)], 2),
    ("stddev_pop",): (None, None, [(1,), (5,), (None,)], 2.0),
    ("stddev_samp", "stddev", "std"): (None, None, [(1,), (1,), (4,), (4,), (None,)], math.sqrt(3)),
    ("covar_pop",): (None, None, [(1, 2), (3, 6), (None, 9), (9, None)], 2),
    ("covar_samp",): (None, None, [(1, 2), (3, 6), (None, 9)], 4),
    ("corr",): (None, None, [(1, 6), (3, 2), (None, 9)], -1.0),
    ("skewness",): (None, None, [(1,), (1,), (4,), (None,)], pytest.approx(1 / math.sqrt(2))),
    ("kurtosis",): (None, None, [(1,), (1,), (4,), (None,)], pytest.approx(-1.5)),
    ("regr_count",): (0, 0, [(1, 2), (3, 6), (None, 9), (9, None)], 2),
    ("regr_avgx",): (None, None, [(1, 2), (3, 6), (None, 9), (9, None)], 4),
    ("regr_avgy",): (None, None, [(1, 2), (3, 6), (None, 9), (9, None)], 2),
    ("regr_sxx",): (None, None, [(1, 2), (3, 6), (None, 9), (9, None)], 8),
    ("regr_syy",): (None, None, [(1, 2), (3, 6), (None, 9), (9, None)], 2),
    ("regr_sxy",): (None, None, [(1, 2), (3, 6), (None, 9), (9, None)], 4),
    ("regr_slope",): (None, None, [(1, 2), (3, 6), (None, 9), (9, None)], Fraction(1, 2)),
    ("regr_intercept",): (None, None, [(2, 2), (4, 6), (None, 9), (9, None)], 1),
    ("regr_r2",): (None, None, [(1, 2), (3, 6), (None, 9), (9, None)], 1),
    ("median",): (None, None, [(1,), (2,), (None,), (9,), (4,)], 3),
    ("percentile",): (None, None, [(1, 0.25), (3, 0.25), (None, 0.25)], Fraction(3, 2)),
    ("collect_list", "array_agg"): ((), (), [(2,), (1,), (2,), (None,)], (1, 2, 2)),
    ("collect_set",): ((), (), [(2,), (1,), (2,), (None,)], (1, 2)),
    ("approx_count_distinct",): (0, 0, [(1,)], ONLY_SPARK),
    ("percentile_cont",): (None, None, [(0.5,)], ONLY_SPARK),
    ("percentile_disc",): (None, None, [(0.5,)], ONLY_SPARK),
    ("percentile_approx", "approx_percentile"): (None, None, [(1, 0.5)], ONLY_SPARK),
    ("mode",): (None, None, [(1,)], ONLY_SPARK),
    ("bitmap_construct_agg",): (EMPTY_BITMAP, None, [(1,)], ONLY_SPARK),
    ("bitmap_or_agg",): (EMPTY_BITMAP, None, [(1,)], ONLY_SPARK),
    ("bitmap_and_agg",): (FULL_BITMAP, None, [(1,)], ONLY_SPARK),
    ("count_min_sketch",): (NOT_A_VALUE, None, [(1, 0.1, 0.9, 7)], ONLY_SPARK),
    ("listagg", "string_agg"): (None, None, [("a", ",")], ONLY_SPARK),
}
ROWS = [(name, *row) for names, row in TABLE.items() for name in names]


def test_the_table_has_every_function() -> None:
    assert sorted(name for name, *_ in ROWS) == sorted(FUNCTIONS)


@pytest.mark.parametrize(("name", "nothing", "nulls", "rows", "value"), ROWS, ids=[row[0] for row in ROWS])
def test_an_aggregate_by_its_definition(
    name: str, nothing: Any, nulls: Any, rows: list[tuple[Any, ...]], value: Any
) -> None:
    function = FUNCTIONS[name]
    assert all(len(row) in function.arity for row in rows)
    if function.reference is None:
        assert value == ONLY_SPARK
        return
    assert function.reference(Counter()) == nothing
    assert function.reference(Counter({(None,) * len(rows[0]): 3})) == nulls
    assert function.reference(Counter(rows)) == value


@pytest.mark.parametrize(("name", "nothing", "nulls", "rows", "value"), ROWS, ids=[row[0] for row in ROWS])
def test_its_value_over_nothing_is_the_one_in_plans(
    name: str, nothing: Any, nulls: Any, rows: list[tuple[Any, ...]], value: Any
) -> None:
    assert FUNCTIONS[name].over_nothing == {None: NULL, 0: ZERO, (): EMPTY_ARRAY}.get(nothing, nothing)


@pytest.mark.parametrize(
    ("name", "rows", "value"),
    [
        ("count", [(), (), ()], 3),
        ("count", [(1, 1), (1, None), (2, 2)], 2),
        ("sum", [(Fraction(1, 3),), (Fraction(2, 3),)], 1),
        ("min_by", [(None, 1), ("a", 2)], None),
        ("min_by", [("a", 1), (None, 1)], None),
        ("max_by", [("a", 1), (None, 1)], "a"),
        ("var_pop", [(7,)], 0),
        ("var_samp", [(7,)], None),
        ("stddev", [(7,)], None),
        ("covar_samp", [(1, 1)], None),
        ("corr", [(1, 1)], None),
        ("corr", [(1, 1), (1, 2)], NAN),
        ("median", [(3,)], 3),
        ("skewness", [(7,), (7,)], None),
        ("kurtosis", [(7,)], None),
        ("regr_slope", [(1, 1), (2, 1)], None),
        ("regr_intercept", [(1, 1), (2, 1)], None),
        ("regr_r2", [(1, 1), (2, 1)], None),
        ("regr_r2", [(1, 1), (1, 2)], 1),
        ("regr_sxx", [(1, 1)], 0),
        ("percentile", [(1, 0.5, 1), (5, 0.5, 3), (9, 0.5, 0)], 5),
    ],
)
def test_an_edge_case(name: str, rows: list[tuple[Any, ...]], value: Any) -> None:
    reference = FUNCTIONS[name].reference
    assert reference is not None
    assert reference(Counter(rows)) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(("name", "nothing", "nulls", "rows", "value"), ROWS, ids=[row[0] for row in ROWS])
def test_a_copy_adds_nothing_to_an_idempotent_aggregate(
    name: str, nothing: Any, nulls: Any, rows: list[tuple[Any, ...]], value: Any
) -> None:
    function = FUNCTIONS[name]
    if function.reference is None or not function.idempotent:
        return
    for row in rows:
        assert function.reference(Counter([*rows, row, row])) == value


@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if function.exact])
@pytest.mark.parametrize("values", [[], [3, 1, 3], [Decimal("9" * 38), Decimal("1E-6"), Decimal(1)]])
def test_without_spark_it_has_the_value_of_its_definition(name: str, values: list[Any]) -> None:
    function = FUNCTIONS[name]
    assert function.exact is not None
    assert function.reference is not None
    exactly = [Fraction(value) if isinstance(value, Decimal) else value for value in values]
    found = function.exact.value(values)
    assert found == function.reference(Counter((value,) for value in exactly))


# ---- what each function states


def test_no_part_has_a_default() -> None:
    for kind in (AggregateFunction, RefusedAggregate):
        for part in dataclasses.fields(kind):
            assert part.default is dataclasses.MISSING, part.name
            assert part.default_factory is dataclasses.MISSING, part.name


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="count is registered twice"):
        register(FUNCTIONS["count"])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_order_free_form_is_sql_over_its_arguments(name: str) -> None:
    function = FUNCTIONS[name]
    for type_, distinct in itertools.product(TYPES, (False, True)):
        form = function.order_free and function.order_free(Call(distinct, lambda position, type_=type_: type_))
        if form is None:
            assert type_ not in FLOATING or function.window_order is not WindowOrder.ONE_IF_FLOATING
            continue
        expression = parse_scalar(form)
        names = {c.name for c in expression.find_all(exp.Column) if len(c.parts) == 1}
        assert names == set("xy"[: max(function.arity[0], 1)])
        assert any(is_aggregate(part) for part in expression.walk())


@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if function.countable])
def test_counted_parts_make_the_value(name: str) -> None:
    counted = FUNCTIONS[name].countable
    assert counted is not None
    for type_ in TYPES:
        parts = counted.parts(type_, lambda: "decimal(14,6)")
        if parts is None:
            continue
        kinds = {kind for kind, _ in parts.kept}
        used = {c.name for c in parse_scalar(parts.final).find_all(exp.Column)}
        assert kinds <= {"sum", "min", "max"}
        assert used - {"count"} == kinds


@pytest.mark.parametrize(
    ("name", "type_", "kept"),
    [
        ("count", "double", ()),
        ("sum", "int", (("sum", "decimal(38,0)"),)),
        ("sum", "decimal(10,2)", (("sum", "decimal(38,2)"),)),
        ("sum", "decimal(38,6)", (("sum", "decimal(38,6)"),)),
        ("sum", "decimal(38,7)", None),
        ("sum", "double", None),
        ("avg", "decimal(20,2)", (("sum", "decimal(38,2)"),)),
        ("avg", "decimal(21,2)", None),
        ("avg", "int", None),
        ("min", "date", (("min", "date"),)),
        ("max", "double", None),
        ("every", "boolean", (("min", "boolean"),)),
        ("any", "boolean", (("max", "boolean"),)),
    ],
)
def test_what_is_kept_of_a_type(name: str, type_: str, kept: tuple[tuple[str, str], ...] | None) -> None:
    counted = FUNCTIONS[name].countable
    assert counted is not None
    parts = counted.parts(type_, lambda: "decimal(14,6)")
    assert (parts and parts.kept) == kept


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_aggregate_says_why(name: str) -> None:
    assert lookup(name) is None
    message = REFUSED[name].message.format(call=f"{name}(x)")
    assert f"{name}(x)" in message
    assert message.endswith(".")
