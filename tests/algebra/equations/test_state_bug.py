"""The state bug, Examples 1.2 and 1.3 of the paper, with the paper's tables, equations and wrong results."""

from __future__ import annotations

from collections import Counter

import pytest
from sqlglot import exp

from deferred.algebra.delta import differentiate
from deferred.algebra.equations.figure2 import log, minimum, monus, plus
from deferred.algebra.operators import Join, Project, Scan
from deferred.algebra.paper.evaluate import Bag, State, Table, evaluate, run_program
from deferred.algebra.paper.lemmas import (
    future_additions,
    future_deletions,
    past_additions,
    past_deletions,
    transaction,
)
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import column


class Example:
    """A view over R and S, and one transaction seen from both of its ends."""

    def __init__(
        self,
        query: Plan,
        schema: dict[str, tuple[str, ...]],
        before: dict[str, Bag],
        deleted: dict[str, Bag],
        inserted: dict[str, Bag],
    ) -> None:
        self.query, self.schema = query, schema
        after = {name: before[name] - deleted.get(name, Counter()) + inserted.get(name, Counter()) for name in schema}
        self.changes = {
            name: Table(columns, Counter(inserted.get(name, Counter()))) for name, columns in schema.items()
        }
        for name in schema:
            self.changes[name].rows.subtract(deleted.get(name, Counter()))
        self.before = self._state(before, deleted, inserted)
        self.after = self._state(after, deleted, inserted)

    def _state(self, tables: dict[str, Bag], deleted: dict[str, Bag], inserted: dict[str, Bag]) -> State:
        state = {name: Table(columns, tables[name]) for name, columns in self.schema.items()}
        for name, columns in self.schema.items():
            for signs, change in (("∇▼", deleted), ("Δ▲", inserted)):
                state |= {sign + name: Table(columns, change.get(name, Counter())) for sign in signs}
        return state

    def refreshed(self, deletions: Plan, additions: Plan, state: State) -> Bag:
        """MU, holding the view's old value, after (MU ∸ deletions) ⊎ additions."""
        old = evaluate(self.query, self.before)
        return old - evaluate(deletions, state) + evaluate(additions, state)


@pytest.fixture
def joined() -> Example:
    """Example 1.2: SELECT R.A FROM R, S WHERE R.B = S.B; [a1, b2] goes into R and [b2, c2] into S."""
    r, s = Scan("R", ("A", "B"), ("ra", "rb")), Scan("S", ("B", "C"), ("sb", "sc"))
    query = Project(Join((r, s), exp.EQ(this=column("rb"), expression=column("sb"))), (("A", column("ra")),))
    return Example(
        query,
        {"R": ("A", "B"), "S": ("B", "C")},
        before={"R": Counter([("a1", "b1")]), "S": Counter([("b1", "c1"), ("b1", "c2"), ("b2", "c1")])},
        deleted={},
        inserted={"R": Counter([("a1", "b2")]), "S": Counter([("b2", "c2")])},
    )


@pytest.fixture
def subtracted() -> Example:
    """Example 1.3: R − S; [b] moves from R to S."""
    r, s = Scan("R", ("x",), ("rx",)), Scan("S", ("x",), ("sx",))
    return Example(
        monus(r, s),
        {"R": ("x",), "S": ("x",)},
        before={"R": Counter([("a",), ("b",), ("c",)]), "S": Counter([("c",), ("d",)])},
        deleted={"R": Counter([("b",)])},
        inserted={"S": Counter([("b",)])},
    )


def blakeley(example: Example) -> Plan:
    """ΔMU = π_A(R ⋈ ΔS) ∪ π_A(ΔR ⋈ S) ∪ π_A(ΔR ⋈ ΔS), the equation of [BLT86] as Example 1.2 has it."""

    def term(r: str, s: str) -> Plan:
        sides = Scan(r, ("A", "B"), ("ra", "rb")), Scan(s, ("B", "C"), ("sb", "sc"))
        return Project(Join(sides, exp.EQ(this=column("rb"), expression=column("sb"))), (("A", column("ra")),))

    return plus(term("R", "ΔS"), term("ΔR", "S"), term("ΔR", "ΔS"))


def qian_wiederhold(example: Example) -> Plan:
    """∇MU = (∇R − S) ∪ (ΔS ∩ R), the equation of [QW91, GL95] as Example 1.3 has it."""

    def whole(name: str) -> Plan:
        return Scan(name, ("x",), ("x",))

    return plus(monus(whole("∇R"), whole("S")), minimum(whole("ΔS"), whole("R")))


def test_example_1_2_starts_as_in_the_paper(joined):
    assert evaluate(joined.query, joined.before) == {("a1",): 2}
    assert evaluate(joined.query, joined.after) == {("a1",): 4}


@pytest.mark.parametrize("equation", [blakeley, lambda e: future_additions(transaction(e.schema), e.query)])
def test_example_1_2_pre_update_equations_give_two_rows_before_and_four_after(joined, equation):
    assert evaluate(equation(joined), joined.before) == {("a1",): 2}
    assert evaluate(equation(joined), joined.after) == {("a1",): 4}


def test_example_1_2_post_update_equations_are_right_after_the_update(joined):
    ell = log(joined.schema)
    assert evaluate(past_additions(ell, joined.query), joined.after) == {("a1",): 2}
    assert evaluate(past_deletions(ell, joined.query), joined.after) == {}
    assert run_program(differentiate(joined.query, {"R", "S"}), joined.after, joined.changes) == {("a1",): 2}


def test_example_1_3_starts_as_in_the_paper(subtracted):
    assert evaluate(subtracted.query, subtracted.before) == {("a",): 1, ("b",): 1}
    assert evaluate(subtracted.query, subtracted.after) == {("a",): 1}


@pytest.mark.parametrize("equation", [qian_wiederhold, lambda e: future_deletions(transaction(e.schema), e.query)])
def test_example_1_3_pre_update_equations_leave_the_stale_row_after_the_update(subtracted, equation):
    deletions = equation(subtracted)
    nothing = future_additions(transaction(subtracted.schema), subtracted.query)
    assert subtracted.refreshed(deletions, nothing, subtracted.before) == {("a",): 1}
    assert evaluate(deletions, subtracted.after) == {}
    assert subtracted.refreshed(deletions, nothing, subtracted.after) == {("a",): 1, ("b",): 1}


def test_example_1_3_post_update_equations_are_right_after_the_update(subtracted):
    ell = log(subtracted.schema)
    deletions, additions = past_deletions(ell, subtracted.query), past_additions(ell, subtracted.query)
    assert evaluate(deletions, subtracted.after) == {("b",): 1}
    assert subtracted.refreshed(deletions, additions, subtracted.after) == {("a",): 1}
    program = differentiate(subtracted.query, {"R", "S"})
    assert run_program(program, subtracted.after, subtracted.changes) == {("b",): -1}
