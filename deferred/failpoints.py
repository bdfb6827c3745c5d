"""Failpoints: every durable effect announces itself here, so that a test can kill the process between any two of them.

A durable effect is a Delta commit, staged rows, a commit of the metadata database, or a folder or file that is made or
removed. Each is made in one of a few places, which tests/test_architecture.py lists, and is announced just before: so a
new operation has its failpoints without knowing of them. Without the environment variable, nothing happens here.
"""

from __future__ import annotations

import os
import signal
import threading

VARIABLE = "DEFERRED_FAILPOINT"
"""FILE: append the name of every effect to a file. FILE:NUMBER: and kill the process when it is about to make that
effect, counted from 1. FILE:NUMBER+SECONDS: kill it that long after the effect has begun."""

_reached = 0
_counting = threading.Lock()


def active() -> bool:
    """Whether anybody wants to know."""
    return VARIABLE in os.environ


def reached(name: str) -> None:
    """Announce that a durable effect is about to be made.

    Threads that work on several views side by side are all counted. A daemon is not: it only accompanies the work, as
    the one that renews leases does, at moments that no test can repeat.
    """
    global _reached
    if not active() or threading.current_thread().daemon:
        return
    file, _, wanted = os.environ[VARIABLE].partition(":")
    number, _, seconds = wanted.partition("+")
    with _counting:
        _reached += 1
        is_wanted = number != "" and int(number) == _reached
        with open(file, "a", encoding="utf-8") as names:
            names.write(f"{name}\n")
    if not is_wanted:
        return
    if seconds:
        killing = threading.Timer(float(seconds), _kill)
        killing.daemon = True
        killing.start()
    else:
        _kill()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
