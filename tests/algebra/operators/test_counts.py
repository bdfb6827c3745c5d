"""How often rows are there in both states at once, from the new state and the change."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.bags import COUNT, call
from deferred.algebra.operators import Aggregate, Change, Scan, UnionAll
from deferred.algebra.operators.counts import NEW, OLD, changed_rows, counts_of_both_states, once
from deferred.algebra.paper.evaluate import Bag, Evaluation
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.scalar import Scalar, column
from tests.algebra.operators.cases import LOGS, ROWS, STATE

T, LOG = Scan("t", ("a", "b"), ("a", "b")), Change("t", ("a", "b"), ("a", "b"))
NOW = Counter(ROWS["t"])
BEFORE = Counter({row: NOW[row] - LOGS["t"].rows[row] for row in {*NOW, *LOGS["t"].rows}})


def both_states(change: Plan | None, keys: Plan) -> Plan:
    """One row for each row of t with a key, with its two counts."""
    counts = counts_of_both_states(T, change, Keys.same(keys, ["a", "b"]), ("x", "y"), (NEW, OLD))
    everything = counts[0] if len(counts) == 1 else UnionAll(tuple(counts), ("x", "y", NEW, OLD))
    sums = tuple((name, call("SUM", column(name))) for name in (NEW, OLD))
    return Aggregate(everything, ("x", "y"), sums)


def rows(plan: Plan) -> Bag:
    return Evaluation(STATE, LOGS)(plan)


def test_the_counts_are_those_of_the_new_state_and_of_the_old_one() -> None:
    found = {(a, b): (new, old) for a, b, new, old in rows(both_states(LOG, LOG))}
    assert found == {row: (NOW[row], BEFORE[row]) for row in LOGS["t"].rows}
    assert {old > new for new, old in found.values()} == {True, False}


def test_without_a_change_both_are_the_same() -> None:
    found = {(a, b): (new, old) for a, b, new, old in rows(both_states(None, T))}
    assert found == {row: (count, count) for row, count in NOW.items()}


RULES: dict[str, tuple[Scalar, Scalar, Counter[tuple[int | None, ...]]]] = {
    "every copy counts": (column(NEW), column(OLD), LOGS["t"].rows),
    "a row is there or is not": (
        once(NEW),
        once(OLD),
        Counter({row: (NOW[row] > 0) - (BEFORE[row] > 0) for row in LOGS["t"].rows}),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_rows_that_change(rule: str) -> None:
    new, old, expected = RULES[rule]
    plan = changed_rows(both_states(LOG, LOG), ("x", "y"), new, old)
    assert plan.columns == ("x", "y", COUNT)
    assert {(a, b): count for a, b, count in rows(plan)} == {row: count for row, count in expected.items() if count}
