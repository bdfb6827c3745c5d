"""A sample of the damaged inputs; `make reliability` takes many more."""

from __future__ import annotations

from tests.reliability.inputs import TARGETS, run

SEED = 20261


def test_every_input_is_understood_or_refused() -> None:
    found = [(name, str(given)[:300], wrong) for name, given, wrong in run(800, SEED) if wrong]
    assert found == [], f"seed {SEED}"


def test_the_shares_are_of_a_hundred() -> None:
    assert sum(target.share for target in TARGETS.values()) == 100
