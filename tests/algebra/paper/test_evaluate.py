"""The reference evaluator on cases small enough to work out by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from sqlglot import exp, parse_one

from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.operators import (
    Aggregate,
    Change,
    Distinct,
    Filter,
    Join,
    Net,
    Project,
    Repeat,
    Restrict,
    Scan,
    SetOperation,
    Temporary,
    UnionAll,
    Values,
)
from deferred.algebra.operators.project import minus, signed
from deferred.algebra.paper.evaluate import Table, evaluate, execute, run_program
from deferred.algebra.paper.interpret import interpret
from deferred.algebra.plan import Keys
from deferred.algebra.program import Program, Step
from deferred.algebra.scalar import column
from tests.algebra.strategies import function

STATE = {
    "R": Table(("a", "b"), Counter({(1, 10): 2, (2, None): 1, (None, 30): 1})),
    "S": Table(("a",), Counter({(1,): 1, (2,): 3, (None,): 2})),
}
R = Scan("R", ("a", "b"), ("c1", "c2"))
S = Scan("S", ("a",), ("c3",))


def sql(text: str):
    return parse_one(text, dialect="spark")


def test_scan_picks_columns_by_name_and_keeps_duplicates():
    assert evaluate(Scan("R", ("b", "a"), ("x", "y")), STATE) == {(10, 1): 2, (None, 2): 1, (30, None): 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "x AND y",
            {(True, None): None, (False, None): False, (None, False): False, (None, None): None, (True, True): True},
        ),
        (
            "x OR y",
            {(True, None): True, (None, True): True, (False, None): None, (None, None): None, (False, False): False},
        ),
        ("NOT x", {(True, 0): False, (False, 0): True, (None, 0): None}),
        ("x = y", {(1, 1): True, (1, 2): False, (None, 1): None, (None, None): None}),
        ("x <=> y", {(1, 1): True, (1, 2): False, (None, 1): False, (None, None): True}),
        ("x <> y", {(1, 2): True, (1, 1): False, (None, 1): None}),
        ("x IS NULL", {(None, 0): True, (0, 0): False}),
        ("x IS NOT NULL", {(None, 0): False, (0, 0): True}),
        ("x < y OR x > 5", {(6, None): True, (1, None): None, (1, 2): True, (2, 1): False}),
        ("-x + y * 2 - 1", {(1, 3): 4, (None, 3): None}),
        ("CASE WHEN x > 1 THEN y WHEN x = 1 THEN 7 END", {(2, 5): 5, (1, 5): 7, (0, 5): None, (None, 5): None}),
        ("CASE x WHEN y THEN 'same' ELSE 'other' END", {(1, 1): "same", (1, 2): "other", (None, None): "other"}),
        ("CAST((x) AS BIGINT)", {(3, 0): 3, (None, 0): None}),
        ("TRUE", {(0, 0): True}),
        ("NULL", {(0, 0): None}),
        ("1.5", {(0, 0): 1.5}),
    ],
)
def test_scalars_follow_three_valued_logic(text, expected):
    value = interpret(sql(text), ("x", "y"))
    assert {row: value(row) for row in expected} == expected


def test_unknown_scalars_are_refused():
    with pytest.raises(NotImplementedError, match="UPPER"):
        interpret(sql("upper(x)"), ("x",))


def test_filter_drops_what_is_false_and_what_is_unknown():
    assert evaluate(Filter(R, sql("c2 = 10")), STATE) == {(1, 10): 2}
    assert evaluate(Filter(R, sql("NOT c2 = 10")), STATE) == {(None, 30): 1}


def test_project_keeps_duplicates_and_adds_up():
    assert evaluate(Project(R, (("x", sql("c1 IS NULL")),)), STATE) == {(False,): 3, (True,): 1}


def test_join_multiplies_and_never_matches_null():
    assert evaluate(Join((R, S), sql("c1 = c3")), STATE) == {(1, 10, 1): 2, (2, None, 2): 3}
    assert evaluate(Join((R, S), sql("c1 <=> c3")), STATE)[None, 30, None] == 2
    assert evaluate(Join((R, S)), STATE).total() == 4 * 6


def test_three_inputs_with_one_condition():
    third = Scan("S", ("a",), ("c4",))
    assert evaluate(Join((R, S, third), sql("c1 = c3 AND c3 = c4")), STATE) == {(1, 10, 1, 1): 2, (2, None, 2, 2): 9}


def test_union_and_distinct():
    both = UnionAll((S, Scan("R", ("a",), ("c4",))), ("x",))
    assert evaluate(both, STATE) == {(1,): 3, (2,): 4, (None,): 3}
    assert evaluate(Distinct(both), STATE) == {(1,): 1, (2,): 1, (None,): 1}


@pytest.mark.parametrize(
    ("kind", "every", "expected"),
    [
        ("EXCEPT", True, {(1,): 1}),
        ("EXCEPT", False, {(9,): 1}),
        ("INTERSECT", True, {(1,): 1, (2,): 1, (None,): 1}),
        ("INTERSECT", False, {(1,): 1, (2,): 1, (None,): 1}),
    ],
)
def test_set_operations_count_rows_and_take_null_for_a_value(kind, every, expected):
    state = STATE | {"L": Table(("a",), Counter({(1,): 2, (2,): 1, (None,): 1} | ({} if every else {(9,): 2})))}
    assert evaluate(SetOperation(Scan("L", ("a",), ("x",)), S, kind, every, ("y",)), state) == expected


def test_aggregates_by_group():
    outputs = tuple((name, function(name, column("c2"))) for name in ("count", "sum", "min", "max", "avg"))
    state = {"R": Table(("a", "b"), Counter({(1, 10): 2, (1, 40): 1, (1, None): 1, (None, None): 2}))}
    assert evaluate(Aggregate(R, ("c1",), outputs), state) == {
        (1, 3, 60, 10, 40, 20): 1,
        (None, 0, None, None, None, None): 1,
    }


def test_aggregate_without_keys_has_a_row_over_nothing():
    everything = Aggregate(R, (), (("n1", function("count", sql("*"))), ("n2", function("sum", column("c1")))))
    assert evaluate(everything, STATE) == {(4, 4): 1}
    assert evaluate(everything, {"R": Table(("a", "b"), Counter())}) == {(0, None): 1}
    assert evaluate(Aggregate(R, ("c1",), ()), {"R": Table(("a", "b"), Counter())}) == {}


def test_expressions_over_aggregates_and_distinct_arguments():
    total = exp.Add(this=function("sum", column("c1")), expression=bigint(1))
    different = function("count", exp.Distinct(expressions=[column("c1")]))
    assert evaluate(Aggregate(R, (), (("x", total), ("y", different))), STATE) == {(5, 2): 1}


def test_restriction_is_null_safe():
    keys = Keys.of(Values(("k",), ((sql("NULL"),), (sql("2"),))), [("c1", "k")])
    assert evaluate(Restrict(R, keys), STATE) == {(2, None): 1, (None, 30): 1}


def test_signed_bags_net_and_repeat():
    more = UnionAll((signed(S), minus(Change("S", ("a",), ("c3",)))), ("c3", COUNT))
    changes = {"S": Table(("a",), Counter({(1,): 1, (2,): -1}))}
    assert evaluate(Net(more), STATE, changes) == {(2, 4): 1, (None, 2): 1}
    assert evaluate(Repeat(Net(more)), STATE, changes) == {(2,): 4, (None,): 2}


def test_repeat_refuses_negative_counts():
    with pytest.raises(ValueError, match="-1 copies"):
        evaluate(Repeat(Values(("a", COUNT), ((bigint(7), bigint(-1)),))), {})


def test_programs_run_their_steps_in_order():
    step = Step("step1", signed(S, 2))
    result = Net(UnionAll((Temporary("step1", ("c3", COUNT)), Temporary("step1", ("c3", COUNT))), ("c3", COUNT)))
    assert run_program(Program((step,), result), STATE, {}) == {(1,): 4, (2,): 12, (None,): 8}
    assert run_program(Program((), None), STATE, {}) == {}


def test_assignments_see_the_state_before_any_of_them():
    after = execute({"S": Scan("R", ("a",), ("a",)), "R": Scan("S", ("a",), ("a",))}, STATE)
    assert after["S"].rows == {(1,): 2, (2,): 1, (None,): 1}
    assert after["R"].rows == STATE["S"].rows
