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


@dataclass(frozen=True)
class Running:
    """An operation that has begun: the last that was heard of it, and when it began."""

    event: Event
    begun: float

    def line(self, tasks: tuple[int, int] | None) -> str:
        """Returns its state: phase, rows, tasks, seconds, time left."""
        event, elapsed = self.event, time.monotonic() - self.begun
        parts = [_named(event), f"{event.phase or 'begins'}{_changed(event, ' · ')}"]
        if tasks is not None:
            parts.append(_of_spark(tasks))
        parts.append(f"{elapsed:.0f} s")
        if event.expected_seconds is not None and event.expected_seconds > elapsed:
            parts.append(f"about {event.expected_seconds - elapsed:.0f} s left")
        return " · ".join(parts)


@dataclass
class Progress:
    """What a command is doing now, on one view or several, and what it has done; a listener of the warehouse."""

    doing: str = ""
    say: Callable[[str], None] = lambda line: None
    """Called with a line when something new begins or ends."""
    tasks: Callable[[], tuple[int, int] | None] = lambda: None
    running: dict[str, Running] = field(default_factory=dict)
    """By the id of the operation. Each is only changed by the thread that does its work."""
    done: list[Event] = field(default_factory=list)
    again: str = "Run the same command to go on from here; `deferred status` shows what is left to do."
    """What to do after Ctrl-C."""

    def __call__(self, event: Event) -> None:
        if event.moment == "BROKEN":
            self.say(f"{event.view} is broken: {event.message}")
            return
        if event.moment in ("COMPLETE", "FAIL"):
            self.done.append(event)
            self.running.pop(event.operation, None)
        else:
            before = self.running.get(event.operation)
            self.running[event.operation] = Running(event, before.begun if before else time.monotonic())
        if event.moment == "PHASE":
            self.say(f"{_named(event)}: {event.phase}{_changed(event, ', ')}")
        elif event.moment == "COMPLETE":
            rows = ", ".join(f"{number} {what}" for what, number in event.rows.items() if number)
            taken = sum(event.seconds.values())
            self.say(f"{_named(event)}: done in {taken:.1f} s{f', rows: {rows}' if rows else ''}")

    @contextmanager
    def repeated(self, say: Callable[[str], None], every: float = EVERY) -> Iterator[None]:
        """Says the present state again and again while the block runs, where work takes that long."""
        ended = threading.Event()

        def tell() -> None:
            while not ended.wait(every):
                if self.running:
                    for line in self.lines():
                        say(line)

        threading.Thread(target=tell, name="progress", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def line(self) -> str:
        """Returns the present state, one line for each view that is worked on."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Returns the lines of the present state. Spark counts the tasks of all work together."""
        running = list(self.running.values())
        if not running:
            return [f"{self.doing} …"]
        tasks = self.tasks()
        if len(running) == 1:
            return [running[0].line(tasks)]
        return [*(work.line(None) for work in running), *([_of_spark(tasks)] if tasks is not None else [])]

    def stopped(self) -> str:
        """Returns in which state things are after Ctrl-C."""
        complete = [_work(event) for event in self.done if event.moment == "COMPLETE"]
        ended = [event for event in self.done if event.moment == "FAIL"]
        failed = [_work(event) for event in ended if isinstance(event.error, Exception)]
        lost = [event for event in ended if not isinstance(event.error, Exception)]
        said = ["Stopped by Ctrl-C."]
        said += [f"Done: {', '.join(complete)}."] if complete else []
        said += [f"Failed: {', '.join(failed)}."] if failed else []
        said += [
            f"Interrupted: {_work(event)}{f' in its phase {event.phase}' if event.phase else ''}."
            for event in [*lost, *(work.event for work in list(self.running.values()))]
        ]
        said.append(
            "Nothing is lost: a view shows its rows from before or after an operation, never in between. " + self.again
        )
        return "\n".join(said)


def _named(event: Event) -> str:
    """What is being done, with its place among the steps of a longer work."""
    step = "" if event.step is None else f", step {event.step[0]} of {event.step[1]}"
    return f"{event.view} {event.kind}{step}"


def _work(event: Event) -> str:
    return f"{event.kind} of {event.view}"


def _of_spark(tasks: tuple[int, int]) -> str:
    return f"{tasks[0]} of {tasks[1]} Spark tasks"


def _changed(event: Event, before: str) -> str:
    """The number of changed rows that are worked on, once it is known."""
    rows = event.rows.get("read", 0)
    return f"{before}{rows:,} changed row{'' if rows == 1 else 's'}" if rows else ""
