"""What every operation of a warehouse works with: its metadata, its Spark, its folder, and who requested it."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deferred.metadata import Lease, Metadata
from deferred.spark.engine import Engine


def machine() -> str:
    """The machine since it was started, and the process numbers that count here; empty where the system does not say.

    Containers may have one host name, and numbers of their own for processes.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _owner() -> str:
    """The holder of a lease: host, machine, process, its start, and a random part that makes it the only one.

    A dead holder is recognized where the machine is the same.
    """
    process = f"{os.getpid()}:{process_start(os.getpid())}"
    return f"{socket.gethostname()}/{machine()}:{process}:{uuid.uuid4().hex}"


@dataclass(frozen=True)
class Context:
    """An open warehouse. One object per Warehouse; threads may share it."""

    metadata: Metadata
    engine: Engine
    root: str
    requested_by: str | None = None
    patience: float = 120.0
    """The number of seconds to wait for a lease that another process holds, before LeaseHeldError."""
    owner: str = field(default_factory=_owner)
    lock: threading.RLock = field(default_factory=threading.RLock)
    step: tuple[int, int] | None = None
    """The place of this work in a longer one, such as a backfill, and the number of its parts."""
    listeners: tuple[Callable[[Any], None], ...] = ()
    """Who is told what happens to views, see deferred.maintenance.notices."""
    held: dict[str, Lease] = field(default_factory=dict)
    """The leases that this process holds through this object, by name."""

    def folder(self, *parts: str) -> str:
        """A path inside the warehouse."""
        return "/".join([self.root.rstrip("/"), *parts])


def process_start(pid: int) -> str:
    """The start of a process in clock ticks since boot, empty where the system does not provide it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""


def is_dead(owner: str) -> bool:
    """Whether an owner is known to be dead: a process of this machine that no longer runs. Others may be alive."""
    try:
        host, pid, start, _ = owner.rsplit(":", 3)
    except ValueError:
        return False
    here = machine()
    if not here or host.partition("/")[2] != here or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return bool(start) and process_start(int(pid)) not in ("", start)
