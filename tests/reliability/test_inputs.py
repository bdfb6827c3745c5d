"""A sample of the damaged inputs; `make reliability` takes many more."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from tests.reliability.inputs import TARGETS, held, project, run

SEED = 20261


def test_every_input_is_understood_or_refused() -> None:
    found = [(name, str(given)[:300], wrong) for name, given, wrong in run(800, SEED) if wrong]
    assert found == [], f"seed {SEED}"


def test_a_change_of_a_project_is_seen(tmp_path: Path) -> None:
    with project(tmp_path):
        before = held(tmp_path / "project")
        assert any(name.endswith(".db") for name in before)
        assert held(tmp_path / "project") == before
        database = next((tmp_path / "project").rglob("*.db"))
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("DELETE FROM deferred_revision")
            connection.commit()
        assert held(tmp_path / "project") != before


def test_the_shares_are_of_a_hundred() -> None:
    assert sum(target.share for target in TARGETS.values()) == 100
