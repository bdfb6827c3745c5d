"""μ: linear. DuckDB has no LATERAL VIEW, so the reference evaluator computes and recomputes."""

from __future__ import annotations

import pytest

from deferred.algebra.delta import differentiate
from deferred.algebra.notation import Labels, notation
from deferred.algebra.operators import Generate, Join, Scan
from deferred.algebra.operators.project import pick
from deferred.algebra.operators.scan import scans_of
from deferred.algebra.paper.evaluate import evaluate
from deferred.algebra.plan import Plan
from deferred.algebra.prune import prune
from deferred.algebra.scalar import Fresh, column, conjunction
from deferred.algebra.unnest import unnested
from deferred.sql.dialect import parse_scalar
from tests.algebra.operators.cases import STATE, follows_on_reference, keys_on, restricts_exactly

T = Scan("t", ("a", "b"), ("a", "b"))


def generated(call: str, *ids: str, outer: bool = False) -> Generate:
    return Generate(T, parse_scalar(call), ids, outer)


PLANS = {
    "explode(ARRAY(a, b))": generated("explode(ARRAY(a, b))", "x"),
    "duplicates": generated("explode(ARRAY(a, a))", "x"),
    "places": generated("posexplode(ARRAY(b, 0))", "i", "x"),
    "nothing": generated("explode(ARRAY())", "x"),
    "nothing, outer": generated("explode(ARRAY())", "x", outer=True),
    "NULL, outer": generated("explode(CASE WHEN a > 1 THEN ARRAY(b) END)", "x", outer=True),
    "twice": Generate(generated("explode(ARRAY(a, b))", "x"), parse_scalar("explode(ARRAY(x, a))"), ("y",)),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_it_follows_changes(plan: Plan) -> None:
    follows_on_reference(plan)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_pushed_keys_restrict_exactly(plan: Plan) -> None:
    restricts_exactly(plan)


def test_it_is_written() -> None:
    assert notation(PLANS["duplicates"]) == "μ[EXPLODE(ARRAY(a, a))](t)"
    assert notation(PLANS["nothing, outer"]) == "μ[outer EXPLODE(ARRAY())](t)"
    assert Labels(PLANS["places"]).columns("ix") == "POSEXPLODE(ARRAY(b, 0)).1, POSEXPLODE(ARRAY(b, 0)).2"


def test_what_it_reads() -> None:
    node = PLANS["places"]
    assert (node.strategy.name, node.reads(Labels(node))) == ("linear", "the changed rows")
    assert not [node for step in differentiate(node, {"t"}).steps for node in step.plan.walk()]
    assert node.unique_key is None


@pytest.mark.parametrize(
    ("columns", "pushed"),
    [
        ("a", "μ[EXPLODE(ARRAY(a, a))](t ⋉[a] K)"),
        ("x", "μ[EXPLODE(ARRAY(a, a))](t) ⋉[EXPLODE(ARRAY(a, a))] K"),
        ("ax", "μ[EXPLODE(ARRAY(a, a))](t ⋉[a] K) ⋉[a, EXPLODE(ARRAY(a, a))] K"),
    ],
)
def test_how_far_keys_go_down(columns: str, pushed: str) -> None:
    assert notation(PLANS["duplicates"].restricted(keys_on([column(c) for c in columns]))) == pushed


@pytest.mark.parametrize(("asked", "read"), [("x", ("a",)), ("b", ("a", "b")), ("a", ("a",))])
def test_which_columns_are_needed(asked: str, read: tuple[str, ...]) -> None:
    """The generator is run whoever asks: it says how often a row is there."""
    (scan,) = scans_of(prune(pick(PLANS["duplicates"], [asked])))
    assert scan.names == read


def test_it_is_unnested() -> None:
    """explode(ARRAY(a, k)) for an outer column k, joined to the outer rows, is the same over the product."""
    outer = Scan("u", ("b",), ("k",))
    inner, links = unnested(outer, generated("explode(ARRAY(a, k))", "x"), Fresh())
    joined = pick(Join((outer, inner), conjunction(links)), ("k", "a", "b", "x"))
    beside = Generate(Join((outer, T)), parse_scalar("explode(ARRAY(a, k))"), ("x",))
    assert evaluate(joined, STATE) == evaluate(beside, STATE)
    follows_on_reference(joined)
