"""Random views over tables with declared keys and references, maintained while the base tables are out of reach."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from deferred.algebra.operators.unmet import Unmet
from deferred.algebra.program import DANGLING, DUPLICATE, LATE
from tests.fuzz.check import Failure, Skipped
from tests.fuzz.promised import Seen, check, check_from_view, check_late

SEEDS = range(500)
PART = 100
ORPHANS = int(os.environ.get("DEFERRED_FUZZ_LATE", "40"))
FROM_VIEW = int(os.environ.get("DEFERRED_FUZZ_FROM_VIEW", "90"))


@pytest.mark.slow
@pytest.mark.parametrize("first", SEEDS[::PART])
def test_views_equal_their_recomputation_without_base_tables(first: int) -> None:
    seen = Seen()
    for seed in SEEDS[first : first + PART]:
        check(seed, seen)
    print(f"{seen.views} views, {seen.steps} steps, {seen.exposed} with exposed updates; {dict(seen.kinds)}")
    assert seen.views == PART
    assert seen.exposed < seen.steps / 5
    # Auxiliary tables that are aggregated first are rarer than one view in a hundred.
    for kind in ("PromisedJoin", "Referring", "Seen", "shared", "Aggregate", "OuterJoin", "Distinct"):
        assert seen.kinds[kind], f"no view has a {kind}"


def test_views_answer_changes_themselves() -> None:
    seen = Seen()
    for seed in range(FROM_VIEW):
        check_from_view(seed, seen)
    print(f"{seen.steps} of {seen.views} changes were answered from the view: {dict(seen.kinds)}")
    assert seen.steps > FROM_VIEW / 4
    assert seen.kinds["insertions"] > FROM_VIEW / 50
    assert seen.kinds[DUPLICATE], "no table has copies of rows that a view shows"


def test_a_row_that_comes_too_late_is_never_lost_without_a_word() -> None:
    seen = _check_all_late()
    print(f"{seen.views} views, {seen.steps} steps; {dict(seen.kinds)}")
    assert seen.kinds["Watched"] > ORPHANS / 4
    assert seen.kinds[DANGLING] + seen.kinds[LATE] > ORPHANS / 10
    assert seen.kinds[LATE]
    assert seen.steps > ORPHANS


def test_a_few_at_once() -> None:
    seen = Seen()
    for seed in range(1000, 1010):
        check(seed, seen)
    assert seen.views == 10


def test_the_same_seed_gives_the_same_view() -> None:
    """A failure is found again by its seed."""
    first, second = Seen(), Seen()
    check(7, first)
    check(7, second)
    assert first == second


def test_a_forgotten_reference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what is remembered of references that were not found, rows that come late make a view wrong."""
    monkeypatch.setattr(Unmet, "remember", lambda self, join, d: None)
    with pytest.raises(Failure, match="late"):
        _check_all_late()


def test_a_forgotten_guard_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without guards an exposed update makes a view wrong, so the changes here do contain them."""
    from deferred.algebra.operators import promised_join

    monkeypatch.setattr(promised_join, "guards", lambda join, d, changes: [])
    with pytest.raises((Failure, AssertionError)):
        _check_all(range(20, 30))


def _check_all(seeds: range) -> None:
    for seed in seeds:
        check(seed, Seen())


def _check_all_late() -> Seen:
    seen = Seen()
    for seed in range(ORPHANS):
        with suppress(Skipped):
            check_late(seed, seen)
    return seen
