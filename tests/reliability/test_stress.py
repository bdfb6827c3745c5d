"""A piece of `make stress` on each database: seeded, in several processes, the whole history checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ConnectServer
from tests.metadata.conftest import postgres_url, url  # noqa: F401
from tests.reliability.stress import excused, stress

SECONDS = 20.0

takes_minutes = pytest.mark.skipif(
    "DEFERRED_TEST_STRESS" not in os.environ, reason="takes minutes; run it with make stress, or DEFERRED_TEST_STRESS=1"
)

LOST = "The log of u from version 3 to 5 is lost: Delta no longer has it (…)."


@pytest.mark.parametrize(
    ("note", "is_excused"),
    [
        ({"outcome": "done"}, True),
        ({"outcome": "unexpected", "error": "KeyError: 'v'"}, False),
        ({"outcome": "SparkFailure", "error": "A commit came in between (DELTA_CONCURRENT_APPEND)."}, True),
        ({"outcome": "SparkFailure", "error": "Division by zero (DIVIDE_BY_ZERO)."}, False),
        ({"outcome": "SparkFailure", "error": "Spark does not respond: Connection refused."}, False),
        ({"outcome": "TransactionError", "act": "transaction", "error": "The transaction was undone."}, True),
        ({"outcome": "TransactionError", "error": "Something else."}, False),
        ({"outcome": "LogLostError", "error": LOST, "rebuilt": True}, True),
        ({"outcome": "LogLostError", "error": LOST.replace("of u", "of r"), "rebuilt": True}, False),
        ({"outcome": "LogLostError", "error": LOST}, False),
        ({"outcome": "LogLostError", "error": LOST, "rebuilt": {"outcome": "LeaseHeldError", "error": "…"}}, True),
        ({"outcome": "LogLostError", "error": LOST, "rebuilt": {"outcome": "SparkFailure", "error": "…"}}, False),
    ],
)
def test_what_is_tolerated_has_a_cause(note: dict[str, Any], is_excused: bool) -> None:
    assert excused({"act": "refresh", **note}) == is_excused


@takes_minutes
@pytest.mark.parametrize("seed", [1])
def test_a_history_of_several_processes(server: ConnectServer, tmp_path: Path, url: str, seed: int) -> None:  # noqa: F811
    report = stress(tmp_path, server.remote, url, seed, SECONDS, kills=1)
    assert report.violations == []
    assert report.operations["read"] > 0
    assert report.operations["transaction"] > 0
