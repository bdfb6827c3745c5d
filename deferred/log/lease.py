"""Leases: one worker per view and kind of work, and nothing is written by one that was away for too long.

Three things keep such a worker from writing. Before each of its commits it asks the database whether the lease is still
its own. What it writes into the database is refused in the same transaction in which it would be written. And a
statement that it has sent to Spark already is refused by Delta: commits are numbered with the lease's token, and
whoever takes over a lease that was not released first makes a commit with its own token, which is greater.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from deferred.algebra.bags import merge_nothing
from deferred.errors import DeferredError, LeaseHeldError, LeaseLostError, SparkFailure
from deferred.log.context import Context, is_dead
from deferred.log.delta_log import is_delta, readable
from deferred.metadata import Lease
from deferred.metadata.leases import lost
from deferred.spark.engine import Mark
from deferred.sql.dialect import delta_table

TTL = 60.0
"""A lease that is not renewed for so many seconds may be taken over."""

log = logging.getLogger(__name__)


@dataclass
class Held:
    """A lease that this process holds, renewed in the background while the work goes on."""

    context: Context
    lease: Lease
    what: str
    is_lost: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Refuse to go on without the lease; asks the database, and renews the lease there."""
        if self.is_lost.is_set() or not self.context.metadata.leases.renew(self.lease, TTL):
            self.is_lost.set()
            raise lost(self.lease)

    def explain(self, error: DeferredError) -> DeferredError:
        """That the lease was lost, if it was: an error is then only what became of work that came too late."""
        with suppress(Exception):  # what the database cannot say now is not known
            self.check()
        return lost(self.lease) if self.is_lost.is_set() else error

    def renew_until(self, stop: threading.Event) -> None:
        """Renew in time. While the database cannot be reached this is tried again: the lease may still be ours."""
        pause = TTL / 3
        while not stop.wait(pause):
            try:
                if not self.context.metadata.leases.renew(self.lease, TTL):
                    self.is_lost.set()
                    return
                pause = TTL / 3
            except Exception as error:
                log.warning("%s: the lease could not be renewed, trying again: %s", self.what, error)
                pause = TTL / 30


@contextmanager
def lease(context: Context, name: str, what: str, shut_out: Callable[[int], None] | None = None) -> Iterator[Held]:
    """Hold a lease, renewed while the block runs. Waits for another holder; LeaseHeldError names it when time is up.

    Within the block, Spark writes only while the lease is held. LeaseLostError says that it was taken over.
    `shut_out` is called with a number for `bar` if the holder before did not release the lease: a process that died, or
    one that is still at work. Then nothing that it has begun may be committed any more.
    """
    held = Held(context, _acquired(context, name, what), what)
    context.held[name] = held.lease
    stop = threading.Event()
    beat = threading.Thread(target=held.renew_until, args=(stop,), name=f"lease {name}", daemon=True)
    beat.start()
    finished = False
    try:
        with context.engine.guarded(held.check):
            if held.lease.left_by and shut_out is not None:
                log.info("%s is taken over from %s", what, held.lease.left_by)
                try:
                    shut_out(held.lease.barring)
                except DeferredError as error:
                    raise SparkFailure(f"{what}: an interrupted process could not be shut out. {error}") from error
            yield held
        finished = True
    except DeferredError as error:
        finished = not isinstance(error, SparkFailure)  # other errors are ours, when Spark has nothing to do
        explained = held.explain(error)
        if explained is error:
            raise
        raise explained from error
    finally:
        stop.set()
        beat.join()
        context.held.pop(name, None)
        with suppress(Exception):  # it expires; what the block has raised matters more
            # Spark may go on with a statement whose client has failed or was interrupted.
            (context.metadata.leases.release if finished else context.metadata.leases.abandon)(held.lease)


def bar(context: Context, path: str, mark: Mark) -> None:
    """Make Delta refuse every commit to a table that the mark's application numbers lower, by one that changes no row.

    A statement that has not begun is then skipped, and one that is running cannot commit. A table that cannot be opened
    needs no bar.
    """
    if not is_delta(path):
        return
    try:
        context.engine.commit(merge_nothing(delta_table(path)), mark)
    except LeaseLostError:
        raise
    except DeferredError:
        if readable(path):
            raise


def _acquired(context: Context, name: str, what: str) -> Lease:
    store = context.metadata.leases
    owner = f"{context.owner}-{uuid.uuid4().hex[:8]}"
    deadline = time.monotonic() + context.patience
    pause = 0.05
    while (taken := store.acquire(name, owner, TTL)) is None:
        holder = store.holder(name)
        if holder is not None:
            if is_dead(holder.owner) and (taken := store.steal(name, holder.owner, owner, TTL)) is not None:
                break
            if time.monotonic() >= deadline:
                raise LeaseHeldError(
                    f"{what} is held by another process ({holder.owner}) until {holder.expires_at:%H:%M:%S} UTC. "
                    f"Try again when it has finished; the lease of a process that died expires."
                )
        time.sleep(pause)
        pause = min(pause * 2, 1.0)
    return taken


def alive(context: Context, name: str) -> bool:
    """Whether a process that is not known to be dead holds a lease."""
    holder = context.metadata.leases.holder(name)
    return holder is not None and not is_dead(holder.owner)
