"""Stepping through time: a view itself, which then shows each state in turn, or its history table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from deferred.config import parse_duration, parse_timestamp
from deferred.errors import InvalidInputError
from deferred.log.context import Context
from deferred.maintenance import replay
from deferred.maintenance.following import followed
from deferred.maintenance.operation import Operation
from deferred.maintenance.scenarios import PROPAGATE_FIRST, scenario_of


def backfill(context: Context, view: str, start: Any, end: Any, step: Any) -> list[Operation]:
    """Refresh a view to the end of every step, as its scenario does. The views that follow it do so after the last one.

    A view never goes back: a step behind what it shows changes nothing. If a step fails, the views that follow are
    brought to what the steps before it have reached.
    """
    done: list[Operation] = []
    try:
        for part, (_, until) in _counted(context, list(steps(start, end, step))):
            record = context.metadata.views.get(view)
            done.append(scenario_of(record).refresh(part, record, until, PROPAGATE_FIRST, full=False))
    finally:
        if done:
            done[-1] = followed(context, done[-1])
    return done


def replay_steps(context: Context, view: str, start: Any, end: Any, step: Any, of: str) -> list[Operation]:
    """Write every step of a view's past into its history table."""
    intervals = list(steps(start, end, step))
    if intervals[0][0] == intervals[0][1]:
        raise InvalidInputError(f"The range from {start} to {end} is empty.")
    return [replay.replay(part, view, since, until, of) for part, (since, until) in _counted(context, intervals)]


Interval = tuple[datetime, datetime]


def _counted(context: Context, intervals: Sequence[Interval]) -> Iterator[tuple[Context, Interval]]:
    """Each interval with the context in which it is worked on, which tells the place of the step."""
    for number, interval in enumerate(intervals, start=1):
        yield replace(context, step=(number, len(intervals))), interval


def steps(start: Any, end: Any, step: Any) -> Iterator[tuple[datetime, datetime]]:
    """The intervals [a, b) from start to end. There is at least one; the last one ends at `end`.

    >>> [str(b.time()) for _, b in steps("2026-01-01", "2026-01-01T01:00", "25m")]
    ['00:25:00', '00:50:00', '01:00:00']
    >>> [str(b.time()) for _, b in steps("2026-01-01", "2026-01-01", "25m")]
    ['00:00:00']
    """
    since, upto, width = parse_timestamp(start), parse_timestamp(end), parse_duration(step, "step")
    if upto < since:
        raise InvalidInputError(f"The end {upto} must not be before the start {since}.")
    while upto - since > width:
        yield since, since + width
        since += width
    yield since, upto
