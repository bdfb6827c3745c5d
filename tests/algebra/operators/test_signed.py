"""Signed bags inside plans: netted, and written out."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.delta import differentiate
from deferred.algebra.notation import notation
from deferred.algebra.operators import Change, Net, Repeat, Scan, Values
from deferred.algebra.operators.project import minus, signed
from deferred.algebra.operators.signed import Summed
from deferred.algebra.operators.union_all import united
from deferred.algebra.paper.evaluate import evaluate
from deferred.algebra.plan import Keys, Plan
from deferred.sql.dialect import parse_scalar
from tests.algebra.operators.cases import STATE, database, same_on_duckdb

T, U = Scan("t", ("a", "b"), ("a", "b")), Scan("u", ("b",), ("k",))
LOG = Change("t", ("a", "b"), ("a", "b"))
OLD = Repeat(Net(united([signed(T), minus(LOG)], ("a", "b", COUNT))))
"""Old = New − Δ."""
ZEROS = ("0.0", "-0.0", "0.0")

SIGNED: dict[str, tuple[Plan, dict[tuple[int | None, ...], int]]] = {
    "a log": (Net(LOG), {(1, 1, -1): 1, (2, 2, 1): 1, (None, 3, 1): 1, (0, 0, -2): 1}),
    "a table": (
        Net(signed(T)),
        {(1, 1, 2): 1, (1, 2, 1): 1, (2, 2, 1): 1, (None, 3, 1): 1, (3, None, 1): 1},
    ),
    "counts": (
        Summed(united([signed(U), signed(U)], ("k", COUNT)), (COUNT,)),
        {(1, 4): 1, (2, 2): 1, (None, 2): 1, (3, 2): 1},
    ),
    "counts of a log that cancels": (
        Summed(united([Net(LOG), minus(LOG)], LOG.columns), (COUNT,)),
        {(1, 1, 0): 1, (2, 2, 0): 1, (None, 3, 0): 1, (0, 0, 0): 1},
    ),
    "what cancels": (Net(united([LOG, minus(LOG)], LOG.columns)), {}),
    "rows": (Repeat(Net(signed(U))), {(1,): 2, (2,): 1, (None,): 1, (3,): 1}),
    "the old state": (OLD, {(1, 1): 3, (1, 2): 1, (0, 0): 2, (3, None): 1}),
    "a change at keys": (Net(LOG).restricted(Keys.of(U, [("a", "k")])), {(1, 1, -1): 1, (2, 2, 1): 1, (None, 3, 1): 1}),
    "an old state at keys": (OLD.restricted(Keys.of(U, [("b", "k")])), {(1, 1): 3, (1, 2): 1, (3, None): 1}),
}


@pytest.mark.parametrize("name", SIGNED)
def test_signed_bags(name: str) -> None:
    plan, expected = SIGNED[name]
    assert same_on_duckdb(plan) == Counter(expected)


def test_they_are_written() -> None:
    assert notation(Net(LOG)) == "net((▲t − ▼t))"
    assert notation(Repeat(Net(LOG))) == "rows(net((▲t − ▼t)))"
    assert notation(Summed(LOG, (COUNT,))) == "counts((▲t − ▼t))"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT a FROM t",
        *(f"SELECT a FROM t {word} SELECT b FROM u" for word in ("EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")),
        *(f"SELECT t.a FROM t {kind} JOIN u ON t.b = u.b" for kind in ("LEFT SEMI", "LEFT ANTI", "LEFT", "FULL")),
        "SELECT a FROM t WHERE a NOT IN (SELECT b FROM u)",
        "SELECT a, COUNT(DISTINCT b) AS n, BIT_OR(b) AS bits FROM t GROUP BY a",
    ],
)
def test_copies_stay_counts(sql: str) -> None:
    """A row of which there are millions is one row with a count: only windows and folded aggregates need the copies."""
    bound = database().bind(sql)
    program = differentiate(bound.plan, ["t", "u"], bound.types)
    plans = [program.result, *(step.plan for step in program.steps)]
    assert not any(isinstance(node, Repeat) for plan in plans if plan is not None for node in plan.walk())


def test_a_bag_cannot_hold_less_than_nothing() -> None:
    """A delta that deletes what is not there has gone wrong before."""
    with pytest.raises(ValueError, match="A bag cannot hold -1 copies of"):
        evaluate(Repeat(minus(signed(T))), STATE)


@pytest.mark.parametrize(("bitwise", "expected"), [({}, 1), ({"x": "double"}, 2)])
def test_values_that_sql_equates_are_netted_bit_by_bit(bitwise: dict[str, str], expected: int) -> None:
    """0.0 and −0.0 are one value where SQL compares, and two where a row is named."""
    zeros = Values(("x", COUNT), tuple((parse_scalar(f"CAST('{text}' AS DOUBLE)"), bigint(1)) for text in ZEROS))
    rows = database().connection.execute(database().renderer.render(Net(zeros, bitwise))).fetchall()
    assert len(rows) == expected
    assert sum(count for _, count in rows) == len(ZEROS)
