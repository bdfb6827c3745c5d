"""Leases, on both databases, with real threads: never two owners at once, and no dead owner for ever."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from deferred.errors import LeaseLostError
from deferred.metadata import LedgerEntry, Metadata, TransactionRecord, leases, records
from tests.metadata.test_stores import add_table, add_view


def test_a_lease_has_one_owner_until_it_is_given_back(metadata: Metadata) -> None:
    lease = metadata.leases.acquire("view:top", "first", 60)
    assert lease is not None
    assert metadata.leases.holder("view:top") == lease
    assert metadata.leases.acquire("view:top", "second", 60) is None
    assert metadata.leases.acquire("view:other", "second", 60) is not None
    assert not metadata.leases.release(replace(lease, owner="second"))
    assert metadata.leases.release(lease)
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
    lease = metadata.leases.acquire("view:top", "dead", 0.05)
    assert lease is not None
    time.sleep(0.1)
    assert metadata.leases.holder("view:top") is None
    taken = metadata.leases.acquire("view:top", "living", 60)
    assert taken is not None
    assert taken.owner == "living"
    assert taken.left_by == "dead"
    assert taken.token > lease.token
    assert not metadata.leases.renew(lease, 60)
    assert not metadata.leases.release(lease)
    assert metadata.leases.renew(taken, 120)
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


def test_tokens_grow_over_releases_expiries_and_thefts(metadata: Metadata) -> None:
    tokens = []
    for ttl in (60, 60, -1, 60):
        lease = metadata.leases.acquire("view:top", f"owner {len(tokens)}", ttl)
        assert lease is not None
        tokens.append(lease.token)
        if len(tokens) < 3:
            assert lease.left_by == ""
            metadata.leases.release(lease)
    stolen = metadata.leases.steal("view:top", "owner 3", "thief", 60)
    assert stolen is not None
    assert stolen.left_by == "owner 3"
    assert metadata.leases.abandon(stolen)
    heir = metadata.leases.acquire("view:top", "heir", 60)
    assert heir is not None
    assert heir.left_by == "thief"
    assert [*tokens, stolen.token, heir.token] == sorted({*tokens, stolen.token, heir.token})


def test_an_expired_lease_that_nobody_took_is_still_its_owners(metadata: Metadata) -> None:
    lease = metadata.leases.acquire("view:top", "late", -1)
    assert lease is not None
    assert metadata.leases.holder("view:top") is None
    assert metadata.leases.renew(lease, 60)
    assert metadata.leases.holder("view:top") is not None
    assert metadata.leases.acquire("view:top", "another", 60) is None


@pytest.mark.parametrize("hours", [-5, 5])
def test_the_clock_of_the_host_does_not_matter(metadata: Metadata, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """A host whose clock is wrong neither takes a lease too early nor holds one for too long."""
    held = metadata.leases.acquire("view:top", "right", 60)
    assert held is not None

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(hours=hours)

    for module in (records, leases):
        monkeypatch.setattr(module, "datetime", Wrong)
    monkeypatch.setattr(records, "utc_now", Wrong.now)
    assert metadata.leases.acquire("view:top", "wrong", 60) is None
    assert metadata.leases.holder("view:top") is not None
    expired = metadata.leases.acquire("view:other", "wrong", -1)
    assert expired is not None
    assert metadata.leases.acquire("view:other", "right", 60) is not None


def test_nothing_is_written_under_a_lease_that_was_taken_over(metadata: Metadata) -> None:
    """In the same transaction: also a worker that stood still between asking and writing is refused."""
    table = add_table(metadata, "t")
    view = add_view(metadata, "v", [table.id])
    transaction = metadata.transactions.add(TransactionRecord("t", "prepared", "me", []))
    old = metadata.leases.acquire("view:top", "old", -1)
    new = metadata.leases.acquire("view:top", "new", 60)
    assert old is not None
    assert new is not None
    entry = LedgerEntry(table.id, 7, records.utc_now())
    for write in (
        lambda lease: metadata.views.update(view.id, [lease], problem="written"),
        lambda lease: metadata.transactions.set_state("t", "committed", under=[lease]),
        lambda lease: metadata.ledger.append([entry], [lease]),
    ):
        with pytest.raises(LeaseLostError, match="view:top"):
            write(old)  # type: ignore[no-untyped-call]
        assert metadata.views.get(view.name) == view
        assert metadata.transactions.get("t") == transaction
        assert metadata.ledger.last(table.id) is None
    metadata.views.update(view.id, [new], problem="written")
    assert metadata.views.get(view.name).problem == "written"


def test_batches_only_go_forward(metadata: Metadata) -> None:
    view = add_view(metadata, "v", [add_table(metadata, "t").id])
    metadata.views.update(view.id, applied_batch=3, problem="new")
    kept = metadata.views.update(view.id, applied_batch=2, problem="old")
    assert (kept.applied_batch, kept.problem) == (3, "new")


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
                while (lease := own.leases.acquire("counter", owner, 60)) is None:
                    time.sleep(0.001)
                seen = counter[0]
                time.sleep(0.001)
                counter[0] = seen + 1
                own.leases.release(lease)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, "abcd"))
    assert counter[0] == 40
