"""What every operation of a warehouse works with: its metadata, its Spark, its folder, and who is asking."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from dataclasses import dataclass, field

from deferred.metadata import Metadata
from deferred.spark.engine import Engine


def _owner() -> str:
    """Who holds a lease: machine, process and the process's start, so that a dead holder can be told."""
    return f"{socket.gethostname()}:{os.getpid()}:{process_start(os.getpid())}:{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True)
class Context:
    """A warehouse at work. One object a Warehouse; threads may share it."""

    metadata: Metadata
    engine: Engine
    root: str
    requested_by: str | None = None
    patience: float = 120.0
    """How many seconds to wait for work that another process is at, before LeaseHeldError."""
    owner: str = field(default_factory=_owner)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def folder(self, *parts: str) -> str:
        return "/".join([self.root.rstrip("/"), *parts])


def process_start(pid: int) -> str:
    """The start of a process in clock ticks since boot, empty where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""


def is_dead(owner: str) -> bool:
    """Whether an owner is known to be gone: a process of this machine that no longer runs."""
    try:
        host, pid, start, _ = owner.rsplit(":", 3)
    except ValueError:
        return False
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return bool(start) and process_start(int(pid)) not in ("", start)
