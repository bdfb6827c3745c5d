"""Leases, on both databases, with real threads: never two owners at once, and no dead owner for ever."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from deferred.metadata import Metadata


def test_a_lease_has_one_owner_until_it_is_given_back(metadata: Metadata) -> None:
    lease = metadata.leases.acquire("view:top", "first", 60)
    assert lease is not None
    assert metadata.leases.holder("view:top") == lease
    assert metadata.leases.acquire("view:top", "second", 60) is None
    assert metadata.leases.acquire("view:other", "second", 60) is not None
    assert not metadata.leases.release("view:top", "second")
    assert metadata.leases.release("view:top", "first")
    assert metadata.leases.holder("view:top") is None
    assert metadata.leases.acquire("view:top", "second", 60) is not None


def test_its_owner_may_acquire_it_again(metadata: Metadata) -> None:
    first = metadata.leases.acquire("view:top", "me", 1)
    again = metadata.leases.acquire("view:top", "me", 60)
    assert first is not None
    assert again is not None
    assert again.acquired_at == first.acquired_at
    assert again.expires_at > first.expires_at


def test_an_expired_lease_can_be_taken_over(metadata: Metadata) -> None:
    metadata.leases.acquire("view:top", "dead", 0.05)
    time.sleep(0.1)
    assert metadata.leases.holder("view:top") is None
    taken = metadata.leases.acquire("view:top", "living", 60)
    assert taken is not None
    assert taken.owner == "living"
    assert not metadata.leases.renew("view:top", "dead", 60)
    assert not metadata.leases.release("view:top", "dead")
    assert metadata.leases.renew("view:top", "living", 120)
    holder = metadata.leases.holder("view:top")
    assert holder is not None
    assert holder.expires_at > taken.expires_at


def test_a_lease_is_stolen_only_from_the_owner_that_is_dead(metadata: Metadata) -> None:
    metadata.leases.acquire("view:top", "dead", 60)
    assert not metadata.leases.steal("view:top", "another", "thief", 60)
    assert metadata.leases.steal("view:top", "dead", "thief", 60)
    assert not metadata.leases.steal("view:top", "dead", "second thief", 60)
    holder = metadata.leases.holder("view:top")
    assert holder is not None
    assert holder.owner == "thief"


def race(runners: int, attempt: object) -> int:
    """How many of several threads that start at the same instant succeed."""
    barrier = threading.Barrier(runners)

    def run(number: int) -> bool:
        barrier.wait()
        return bool(attempt(f"runner {number}"))  # type: ignore[operator]

    with ThreadPoolExecutor(runners) as pool:
        return sum(pool.map(run, range(runners)))


def test_one_of_many_wins_a_free_lease(metadata: Metadata) -> None:
    for turn in range(10):
        assert race(8, lambda owner, turn=turn: metadata.leases.acquire(f"lease {turn}", owner, 60)) == 1


def test_one_of_many_wins_an_expired_lease(metadata: Metadata) -> None:
    for turn in range(10):
        metadata.leases.acquire(f"lease {turn}", "dead", -1)
        assert race(8, lambda owner, turn=turn: metadata.leases.acquire(f"lease {turn}", owner, 60)) == 1


def test_one_of_many_steals_a_lease(metadata: Metadata) -> None:
    for turn in range(10):
        metadata.leases.acquire(f"lease {turn}", "dead", 60)
        assert race(8, lambda owner, turn=turn: metadata.leases.steal(f"lease {turn}", "dead", owner, 60)) == 1


def test_two_connections_to_one_database_see_one_lease(metadata: Metadata, url: str) -> None:
    """What two processes do: a lease keeps a counter whole that is read, waited on, and written back."""
    counter = [0]

    def work(owner: str) -> None:
        with Metadata.open(url) as own:
            for _ in range(10):
                while own.leases.acquire("counter", owner, 60) is None:
                    time.sleep(0.001)
                seen = counter[0]
                time.sleep(0.001)
                counter[0] = seen + 1
                own.leases.release("counter", owner)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, "abcd"))
    assert counter[0] == 40
