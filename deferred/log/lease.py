"""Leases: one worker a view and kind of work; the lease of a process that died is void at once on its own machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deferred.errors import LeaseHeldError
from deferred.log.context import Context, is_dead

TTL = 60.0


@contextmanager
def lease(context: Context, name: str, what: str, wait: float | None = None) -> Iterator[None]:
    """Hold a lease, renewed while the block runs; waits for a living holder, then says who it is."""
    store = context.metadata.leases
    owner = f"{context.owner}-{threading.get_ident()}"
    deadline = time.monotonic() + (context.patience if wait is None else wait)
    pause = 0.05
    while store.acquire(name, owner, TTL) is None:
        holder = store.holder(name)
        if holder is not None:
            if is_dead(holder.owner) and store.steal(name, holder.owner, owner, TTL):
                break
            if time.monotonic() >= deadline:
                raise LeaseHeldError(
                    f"{what} is held by another process ({holder.owner}) until {holder.expires_at:%H:%M:%S} UTC. "
                    f"Try again when it has finished; a process that died is given up when its lease expires.")
        time.sleep(pause)
        pause = min(pause * 2, 1.0)
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(TTL / 3):
            store.renew(name, owner, TTL)

    beat = threading.Thread(target=renew, name=f"lease {name}", daemon=True)
    beat.start()
    try:
        yield
    finally:
        stop.set()
        beat.join()
        store.release(name, owner)


def alive(context: Context, name: str) -> bool:
    """Whether somebody living holds a lease."""
    holder = context.metadata.leases.holder(name)
    return holder is not None and not is_dead(holder.owner)
