"""What every node must say about itself: a class that leaves out a part cannot be imported."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from sqlglot import exp

from deferred.algebra import nodes, operators
from deferred.algebra.bags import COUNT
from deferred.algebra.nodes import Derived
from deferred.algebra.operators import (
    Change,
    Filter,
    Net,
    Repeat,
    Restrict,
    Scan,
    Stored,
    Temporary,
)
from deferred.algebra.operators.signed import Summed
from deferred.algebra.plan import FACTS, PARTS, Keys, Plan, free, transformed
from deferred.algebra.scalar import column
from tests.algebra import strategies

for module in pkgutil.iter_modules(operators.__path__, f"{operators.__name__}."):
    importlib.import_module(module.name)


def subclasses(of: type[Plan]) -> list[type[Plan]]:
    return [c for direct in of.__subclasses__() for c in (direct, *subclasses(direct))]


def is_operator(node: type[Plan]) -> bool:
    """What is defined in `nodes` are bases of operators, none of them an operator."""
    return node.__module__.startswith("deferred.") and node.__module__ != nodes.__name__


OPERATORS = sorted(filter(is_operator, set(subclasses(Plan))), key=lambda c: c.__name__)
R = Scan("R", ("a", "b"), ("x", "y"))


def stated(*without: str) -> dict[str, Any]:
    """The body of a class that says everything but some parts."""
    parts = {part: property(lambda self: None) for part in PARTS}
    return {name: value for name, value in {**parts, **dict.fromkeys(FACTS, True)}.items() if name not in without}


@pytest.mark.parametrize("part", [*PARTS, *FACTS])
def test_an_operator_that_forgets_a_part_cannot_be_imported(part: str) -> None:
    with pytest.raises(TypeError, match=rf"^The operator Forgetful does not define {part}\.$"):
        type("Forgetful", (Plan,), stated(part))


def test_all_forgotten_parts_are_named_at_once() -> None:
    with pytest.raises(TypeError, match=r"does not define delta, notation, row_by_row\.$"):
        type("Forgetful", (Plan,), stated("notation", "delta", "row_by_row"))


def test_an_operator_that_says_everything_is_accepted() -> None:
    assert type("Complete", (Plan,), stated()).row_by_row


def test_an_operator_that_extends_another_one_names_what_it_inherits() -> None:
    """Otherwise a sample would have the delta rule of a filter, and nobody would have said so."""
    with pytest.raises(TypeError, match=r"^The operator Sample inherits called, delta, demanded, .* from another one"):
        type("Sample", (Filter,), {})
    own = {part for part in (*PARTS, *FACTS) if part in vars(Filter)}
    with pytest.raises(TypeError, match=r"Unlike what it names: delta\.$"):
        type("Sample", (Filter,), {}, inherits=sorted(own - {"delta"}))
    with pytest.raises(TypeError, match=r"Unlike what it names: delta\.$"):
        type("Sample", (Filter,), {"delta": None}, inherits=sorted(own))
    assert type("Sample", (Filter,), {"delta": None}, inherits=sorted(own - {"delta"})).row_by_row


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_states_every_part(operator: type[Plan]) -> None:
    assert not operator.__abstractmethods__
    assert operator.called
    assert isinstance(operator.row_by_row, bool)
    assert isinstance(operator.in_recursion, bool)
    assert operator.__module__.startswith(operators.__name__), "an operator has a file in operators"
    assert operator.__doc__


def test_random_plans_contain_every_operator_that_a_query_can_have() -> None:
    drawn = {
        *strategies.FORMS,
        *strategies.LEAVES,
        *strategies.ONLY_KEEPING,
        *strategies.ONLY_PROMISED,
        *strategies.ONLY_EDITED,
    }
    assert drawn == {c for c in OPERATORS if not issubclass(c, Derived)}, "an operator has a form in strategies.py"


DERIVED = (
    Change("R", ("a",), ("x",)),
    Net(Change("R", ("a",), ("x",))),
    Repeat(Net(Change("R", ("a",), ("x",)))),
    Restrict(R, Keys.same(R, ["x"])),
    Stored("support1", ("x",), ()),
    Summed(Change("R", ("a",), ("x",)), (COUNT,)),
    Temporary("step1", ("x",)),
)


def test_these_are_the_derived_nodes() -> None:
    assert {type(plan) for plan in DERIVED} == {c for c in OPERATORS if issubclass(c, Derived)}


@pytest.mark.parametrize("plan", DERIVED, ids=lambda plan: type(plan).__name__)
@pytest.mark.parametrize(
    ("part", "arguments"),
    [
        ("needs", (frozenset(),)),
        ("pruned", ((), frozenset())),
        ("delta", (None,)),
        ("supported", (None,)),
        ("reads", (None,)),
        ("unnested", (None,)),
        ("pulled_up", ()),
        ("joined_on", (exp.true(),)),
        ("with_join_condition", (None,)),
        ("demanded", ((), None)),
        ("known", (None,)),
        ("figure2", (None,)),
    ],
)
def test_derived_nodes_say_that_no_query_contains_them(plan: Plan, part: str, arguments: tuple[Any, ...]) -> None:
    if (type(plan), part) == (Temporary, "delta"):  # it stands still, as a recursion over another one relies on
        assert plan.delta(*arguments) is None
        return
    with pytest.raises(TypeError, match=f"^{type(plan).__name__} occurs only in derived plans, so it has no "):
        getattr(plan, part)(*arguments)
    assert plan.strategy.name == "derived"
    assert plan.unique_key is None


def test_a_shared_plan_is_walked_and_transformed_once() -> None:
    seen = []
    both = operators.UnionAll((R, R), ("p", "q"))
    assert list(both.walk()) == [both, R]
    changed = transformed(both, lambda node: seen.append(node) or node)
    assert changed is both
    assert seen == [R, both]


def test_free_columns_are_read_and_made_by_nothing_below() -> None:
    condition = exp.EQ(this=column("x"), expression=column("outer"))
    assert free(Filter(R, condition)) == {"outer"}
    assert not free(R)


def test_the_origin_of_a_column_is_the_leaf_that_has_its_values() -> None:
    leaf = Temporary("step1", ("a", "b"))
    picked = operators.Project(Filter(leaf, exp.true()), (("x", column("b")), ("y", exp.Literal.number(1))))
    assert picked.origin("x") == (leaf, "b")
    assert picked.origin("y") is None
    change = Change("R", ("a",), ("x",))
    assert Net(change).origin("x") == (change, "a")
    assert Net(change).origin(COUNT) == (change, COUNT)
    assert R.origin("x") is None


def test_a_plan_of_global_aggregates_has_one_row_until_it_is_filtered() -> None:
    total = operators.Aggregate(R, (), (("n", exp.Anonymous(this="COUNT", expressions=[exp.Star()])),))
    product = operators.Join((total, operators.Project(total, (("m", column("n")),))))
    assert product.one_row
    assert not Filter(product, exp.true()).one_row
    assert not operators.Aggregate(R, ("x",), ()).one_row


@pytest.mark.parametrize("plan", DERIVED, ids=lambda plan: type(plan).__name__)
@pytest.mark.parametrize("part", ["one_row", "looked_up_by"])
def test_derived_nodes_know_nothing_of_queries(plan: Plan, part: str) -> None:
    with pytest.raises(TypeError, match="occurs only in derived plans"):
        getattr(plan, part)
