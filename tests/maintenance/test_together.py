"""Work on many views: side by side, each after those that it reads, and one failure leaves out no other. No Spark."""

from __future__ import annotations

import threading

import pytest

from deferred.errors import InvalidInputError
from deferred.maintenance.together import AT_ONCE, side_by_side


def test_views_that_do_not_read_each_other_are_worked_on_at_the_same_time() -> None:
    meeting = threading.Barrier(AT_ONCE, timeout=20)
    views = [f"v{n}" for n in range(AT_ONCE)]

    def work(name: str) -> str:
        meeting.wait()
        return name

    assert side_by_side(views, {}, work) == (views, {})


def test_a_view_comes_after_those_that_it_reads() -> None:
    seen: list[str] = []
    reads = {"top": ["middle", "low"], "middle": ["low"]}

    def work(name: str) -> str:
        seen.append(name)
        return name

    done, _ = side_by_side(["top", "middle", "low"], reads, work)
    assert seen == ["low", "middle", "top"]
    assert done == ["top", "middle", "low"]


def test_a_failure_leaves_out_no_other_view() -> None:
    def work(name: str) -> str:
        if name == "low":
            raise InvalidInputError("no")
        return name

    done, failed = side_by_side(["low", "top", "other"], {"top": ["low"]}, work)
    assert done == ["top", "other"]
    assert {name: str(error) for name, error in failed.items()} == {"low": "no"}
    with pytest.raises(ZeroDivisionError):
        side_by_side(["v"], {}, lambda name: 1 // 0)
