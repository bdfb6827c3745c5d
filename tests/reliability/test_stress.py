"""A piece of `make stress` on each database: seeded, in several processes, the whole history checked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import ConnectServer
from tests.metadata.conftest import postgres_url, url  # noqa: F401
from tests.reliability.stress import stress

SECONDS = 20.0

pytestmark = pytest.mark.skipif(
    "DEFERRED_TEST_STRESS" not in os.environ, reason="takes minutes; run it with make stress, or DEFERRED_TEST_STRESS=1"
)


@pytest.mark.parametrize("seed", [1])
def test_a_history_of_several_processes(server: ConnectServer, tmp_path: Path, url: str, seed: int) -> None:  # noqa: F811
    report = stress(tmp_path, server.remote, url, seed, SECONDS, kills=1)
    assert report.violations == []
    assert report.operations["read"] > 0
    assert report.operations["transaction"] > 0
