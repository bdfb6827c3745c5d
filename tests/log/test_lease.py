"""Leases as workers hold them: a renewal that fails is tried again, a lost lease ends the work, the dead are recognized."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deferred.errors import InvalidInputError, LeaseLostError, MetadataError, SparkFailure
from deferred.log import context as contexts
from deferred.log import lease as leases
from deferred.log.context import Context, is_dead
from deferred.log.lease import lease
from deferred.metadata import Lease, Metadata
from deferred.metadata.leases import LeaseStore
from deferred.spark.engine import Engine


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with Metadata.open(f"sqlite:///{tmp_path}/metadata.db", create=True) as metadata:
        yield Context(metadata, Engine(), str(tmp_path), patience=0.2)


def test_a_renewal_that_fails_is_tried_again(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is out of reach for a while: the work goes on, and the lease is renewed when it is back."""
    renew, failures, renewed = LeaseStore.renew, [0], threading.Event()

    def renewing(self: LeaseStore, lease: Lease, ttl_seconds: float) -> bool:
        if failures[0] < 3:
            failures[0] += 1
            raise MetadataError("The metadata database cannot be reached.")
        renewed.set()
        return renew(self, lease, ttl_seconds)

    monkeypatch.setattr(LeaseStore, "renew", renewing)
    monkeypatch.setattr(leases, "TTL", 0.3)
    with lease(context, "work", "The work") as held:
        assert renewed.wait(10)
        held.check()
    assert failures == [3]


def test_a_lost_lease_ends_the_work(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the work then fails with: the reason is that the lease was lost, and nothing is written after it."""
    monkeypatch.setattr(leases, "TTL", 0.3)
    for ending in (lambda held: held.check(), lambda held: held.is_lost.wait(10), lambda held: None):
        written = []
        with (  # noqa: PT012
            pytest.raises(LeaseLostError, match="again"),
            lease(context, "work", "The work") as held,
        ):
            stolen = context.metadata.leases.steal("work", held.lease.owner, "another", 60)
            assert stolen is not None
            ending(held)  # type: ignore[no-untyped-call]
            context.engine.check_guards()
            written.append("too late")
        assert written == []
        context.metadata.leases.release(stolen)


def test_a_failure_of_ours_is_shown_as_it_is(context: Context) -> None:
    with pytest.raises(InvalidInputError, match="ours"), lease(context, "work", "The work"):
        raise InvalidInputError("ours")


@pytest.mark.parametrize(
    ("error", "shut"),
    [(InvalidInputError("ours"), False), (SparkFailure("gone"), True), (KeyboardInterrupt(), True)],
    ids=["ours", "Spark's", "interrupted"],
)
def test_who_may_have_left_a_statement_running_is_shut_out(context: Context, error: BaseException, shut: bool) -> None:
    with pytest.raises(type(error)), lease(context, "work", "The work") as held:
        raise error
    barred: list[int] = []
    with lease(context, "work", "The work", barred.append) as after:
        pass
    assert barred == ([after.lease.barring] if shut else [])
    assert held.lease.committing < after.lease.barring < after.lease.committing


def test_an_interrupted_worker_that_could_not_be_shut_out_is_so_by_the_next(context: Context) -> None:
    with pytest.raises(KeyboardInterrupt), lease(context, "work", "The work"):
        raise KeyboardInterrupt

    def fail(number: int) -> None:
        raise MetadataError("out of reach")

    with pytest.raises(SparkFailure, match="shut out"), lease(context, "work", "The work", fail):
        pass
    barred: list[int] = []
    with lease(context, "work", "The work", barred.append):
        assert len(barred) == 1


def test_only_a_process_of_this_machine_is_known_to_be_dead(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    host, _, _, tail = context.owner.rsplit(":", 3)
    dead = f"{host}:{int(ended.stdout)}:1:{tail}"
    assert not is_dead(context.owner)
    assert is_dead(dead)
    assert is_dead(f"{host}:{os.getpid()}:1:{tail}")  # its number has been given to another process
    here = contexts.machine()
    boot, _, namespace = here.partition("/")
    for other in (f"another/{namespace}", f"{boot}/pid:[1]", ""):
        monkeypatch.setattr(contexts, "machine", lambda other=other: other)
        assert not is_dead(dead), "a container with the same host name and other processes"


def test_owners_are_unique(tmp_path: Path) -> None:
    with Metadata.open(f"sqlite:///{tmp_path}/metadata.db", create=True) as metadata:
        assert len({Context(metadata, Engine(), "").owner for _ in range(10)}) == 10
