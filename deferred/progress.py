"""Progress of long work: one live line in a terminal, plain lines elsewhere, and what to say when it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deferred.maintenance.notices import Event


EVERY = 10.0
"""Seconds between two lines about the same work, where no live line shows it."""


@dataclass
class Progress:
    """What a command is doing now, and what it has done; a listener of the warehouse."""

    doing: str = ""
    say: Callable[[str], None] = lambda line: None
    """Called with a line when something new begins or ends."""
    tasks: Callable[[], tuple[int, int] | None] = lambda: None
    current: Event | None = None
    done: list[Event] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def __call__(self, event: Event) -> None:
        if event.moment == "START":
            self.begun = time.monotonic()
        if event.moment in ("COMPLETE", "FAIL"):
            self.done.append(event)
            self.current = None
        else:
            self.current = event
        if event.moment == "PHASE":
            self.say(f"{event.view} {event.kind}: {event.phase}{_changed(event, ', ')}")
        elif event.moment == "COMPLETE":
            rows = ", ".join(f"{number} {what}" for what, number in event.rows.items() if number)
            taken = sum(event.seconds.values())
            self.say(f"{event.view} {event.kind}: done in {taken:.1f} s{f', rows: {rows}' if rows else ''}")

    @contextmanager
    def repeated(self, say: Callable[[str], None], every: float = EVERY) -> Iterator[None]:
        """Says the present state again and again while the block runs, where work takes that long."""
        ended = threading.Event()

        def tell() -> None:
            while not ended.wait(every):
                if self.current is not None:
                    say(self.line())

        threading.Thread(target=tell, name="progress", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def line(self) -> str:
        """Returns the present state: phase, rows, tasks, seconds, time left."""
        event = self.current
        if event is None:
            return f"{self.doing} …"
        elapsed = time.monotonic() - self.begun
        parts = [f"{event.view} {event.kind}", f"{event.phase or 'begins'}{_changed(event, ' · ')}"]
        tasks = self.tasks()
        if tasks is not None:
            parts.append(f"{tasks[0]} of {tasks[1]} Spark tasks")
        parts.append(f"{elapsed:.0f} s")
        if event.expected_seconds is not None and event.expected_seconds > elapsed:
            parts.append(f"about {event.expected_seconds - elapsed:.0f} s left")
        return " · ".join(parts)

    def stopped(self) -> str:
        """Returns in which state things are after Ctrl-C."""
        complete = [event for event in self.done if event.moment == "COMPLETE"]
        lost = [event for event in self.done if event.moment == "FAIL"]
        said = ["Stopped by Ctrl-C."]
        said += [f"Done: {', '.join(f'{event.kind} of {event.view}' for event in complete)}."] if complete else []
        said += [
            f"Interrupted: {event.kind} of {event.view}{f' in its phase {event.phase}' if event.phase else ''}."
            for event in lost or ([self.current] if self.current else [])
        ]
        said.append(
            "Nothing is lost: a view shows its rows from before or after an operation, never in between. "
            "Run the same command to go on from here; `deferred status` shows what is left to do."
        )
        return "\n".join(said)


def _changed(event: Event, before: str) -> str:
    """The number of changed rows that are worked on, once it is known."""
    rows = event.rows.get("read", 0)
    return f"{before}{rows:,} changed row{'' if rows == 1 else 's'}" if rows else ""
