"""A sample of the crashes, drawn from a seed; `make reliability` makes all of them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ConnectServer
from tests.reliability.crashes import Crashes, differences
from tests.reliability.operations import OPERATIONS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "DEFERRED_TEST_CRASHES" not in os.environ, reason="takes many minutes; run it with DEFERRED_TEST_CRASHES=1"
    ),
]

SEED = int(os.environ.get("DEFERRED_TEST_SEED", "20261"))
SAMPLED = 3
"""Operations that are drawn, each with two crashes; a minute and a half on two cores."""


@pytest.fixture(scope="module")
def crashes(server: ConnectServer, postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashes]:
    made = Crashes(tmp_path_factory.mktemp("crashes"), server.remote, postgres_server)
    made.prepare()
    yield made
    made.worker.close()


def test_a_crash_leaves_no_trace(crashes: Crashes) -> None:
    chance = random.Random(SEED)
    violations = {}
    for number, operation in enumerate(chance.sample(list(OPERATIONS), SAMPLED)):
        for case in chance.sample(crashes.cases(operation, crashes.databases[number % 2]), 2):
            violations[str(case)] = crashes.violation(case)
    assert {case: found for case, found in violations.items() if found} == {}, f"seed {SEED}"


def test_differences_are_seen() -> None:
    assert differences({"views": {"v": ["row"]}}, {"views": {"v": []}}) == ["views/v: wanted ['row'], found []"]


def test_the_origin_is_left_alone(crashes: Crashes) -> None:
    """Every crash happens to a copy."""
    assert not [path for path in Path(crashes.folder).iterdir() if path.name != "origin"]
