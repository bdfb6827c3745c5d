"""The four scenarios: each has the invariant that the paper gives it, and a schedule. No database, no Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deferred.maintenance.scenarios import BY_NAME

FIGURE_1 = {
    "immediate": "Q ≡ MV",
    "base_log": "PAST(L, Q) ≡ MV",
    "differential": "Q ≡ (MV ∸ ∇MV) ⊎ ΔMV",
    "combined": "PAST(L, Q) ≡ (MV ∸ ∇MV) ⊎ ΔMV",
}


def test_the_invariants_are_those_of_figure_1() -> None:
    assert {name: str(scenario.invariant) for name, scenario in BY_NAME.items()} == FIGURE_1


def test_a_scenario_without_a_past_follows_every_transaction() -> None:
    for scenario in BY_NAME.values():
        assert scenario.follows_transactions is not scenario.invariant.of_past


@pytest.mark.parametrize(
    ("name", "due", "policy", "expected"),
    [
        ("combined", False, 1, ["propagate"]),
        ("combined", True, 1, ["refresh"]),
        ("combined", True, 2, ["propagate", "partial_refresh"]),
        ("differential", True, 2, ["propagate", "partial_refresh"]),
        ("immediate", False, 1, ["propagate"]),
        ("base_log", False, 1, []),
        ("base_log", True, 1, ["refresh"]),
        ("base_log", True, 2, ["refresh"]),
    ],
)
def test_what_a_scheduled_run_does(name: str, due: bool, policy: int, expected: list[str]) -> None:
    assert BY_NAME[name].scheduled(due, policy) == expected


def test_scenarios_can_be_asked_without_a_database_or_spark() -> None:
    code = "import sys; import deferred.maintenance.scenarios; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"pyspark", "sqlalchemy", "deltalake"} & set(loaded)
