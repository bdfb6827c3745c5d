"""A reader's condition, pushed down the plan of a view: where it arrives, in the paper's notation."""

from __future__ import annotations

import pytest

from deferred.algebra.comparisons import holds_anywhere
from deferred.algebra.notation import notation
from deferred.algebra.predicate_pushdown import selected
from deferred.algebra.scalar import column, substitute
from deferred.sql.dialect import parse_scalar
from tests.algebra.operators.cases import database

# view, condition on its columns: the plan that is read
PUSHED: dict[tuple[str, str], str] = {
    ("SELECT a, b FROM t", "a = 1"): "Π[a, b](σ[a = 1](t))",
    ("SELECT a, b FROM t WHERE b > 1", "a = 1"): "Π[a, b](σ[b > 1](σ[a = 1](t)))",
    ("SELECT a, b FROM t", "a = 1 AND b = 2"): "Π[a, b](σ[a = 1](σ[b = 2](t)))",
    ("SELECT a, b FROM t", "a + b > 2"): "Π[a, b](σ[a + b > 2](t))",
    # a computed column is not the value of a base table's column
    ("SELECT a + 1 AS a, b FROM t", "a = 1"): "Π[a + 1, b](t)",
    # both sides of a union, a set operation and a join by an equality
    ("SELECT a FROM t UNION ALL SELECT c FROM u", "a = 1"): "Π[a](σ[a = 1](t)) ⊎ Π[c](σ[c = 1](u))",
    ("SELECT DISTINCT a FROM t", "a = 1"): "ε(Π[a](σ[a = 1](t)))",
    ("SELECT t.b, u.c FROM t JOIN u ON t.b = u.b", "b = 1"): "Π[t.b, c](σ[t.b = 1](t) ⋈[t.b = u.b] σ[u.b = 1](u))",
    # groups and partitions as a whole, or not at all
    ("SELECT a, MEDIAN(b) AS m FROM t GROUP BY a", "a = 1"): "Π[a, MEDIAN(b)](γ[a; MEDIAN(b)](σ[a = 1](t)))",
    ("SELECT a, MEDIAN(b) AS m FROM t GROUP BY a", "m = 1"): "Π[a, MEDIAN(b)](γ[a; MEDIAN(b)](t))",
    ("SELECT a, RANK() OVER (PARTITION BY a ORDER BY b) AS n FROM t", "a = 1"): (
        "Π[a, RANK() OVER (PARTITION BY a ORDER BY b)](ω[RANK() OVER (PARTITION BY a ORDER BY b)](σ[a = 1](t)))"
    ),
    # the first rows are chosen among all
    ("SELECT a, b FROM t ORDER BY a LIMIT 2", "a = 1"): "σ[a = 1](λ[a; 2](Π[a, b](t)))",
}


def pushed(view: str, condition: str) -> str:
    bound = database().bind(view)
    names = dict(zip((name.casefold() for name in bound.names), map(column, bound.plan.columns), strict=True))
    return notation(selected(bound.plan, substitute(parse_scalar(condition), names), bound.types))


@pytest.mark.parametrize(("view", "condition"), PUSHED)
def test_where_a_condition_arrives(view: str, condition: str) -> None:
    assert pushed(view, condition) == PUSHED[view, condition]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("a = 1 OR s IS NULL", True),
        ("a BETWEEN 1 AND 2 AND NOT (s IN ('x', 'y'))", True),
        ("a = -1", True),
        ("a <=> NULL", True),
        ("s = 1", False),  # the text would be converted, which may fail
        ("10 / a > 1", False),
        ("a = s", False),
        ("unknown = 1", False),
        ("a = ABS(1)", False),
        ("f(a)", False),
    ],
)
def test_only_what_cannot_fail_is_asked_of_other_rows(condition: str, holds: bool) -> None:
    assert holds_anywhere(parse_scalar(condition), {"a": "int", "s": "string"}) is holds
