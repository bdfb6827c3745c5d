"""Progress of long work: one live line in a terminal, plain lines elsewhere, and what to say when it is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deferred.maintenance.notices import Event


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
            self.say(f"{event.view} {event.kind}: {event.phase}")
        elif event.moment == "COMPLETE":
            rows = ", ".join(f"{number} {what}" for what, number in event.rows.items() if number)
            taken = sum(event.seconds.values())
            self.say(f"{event.view} {event.kind}: done in {taken:.1f} s{f', rows: {rows}' if rows else ''}")

    def line(self) -> str:
        """Returns the present state: phase, tasks, seconds, time left."""
        event = self.current
        if event is None:
            return f"{self.doing} …"
        elapsed = time.monotonic() - self.begun
        parts = [f"{event.view} {event.kind}", event.phase or "begins"]
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
