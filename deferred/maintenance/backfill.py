"""Stepping through time: a view itself, which then shows each state in turn, or its history table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from deferred.config import parse_duration, parse_timestamp
from deferred.errors import InvalidInputError
from deferred.log.context import Context
from deferred.maintenance import refresh, replay
from deferred.maintenance.operation import Operation


def backfill(context: Context, view: str, start: Any, end: Any, step: Any) -> list[Operation]:
    """Refresh a view to the end of every step. A view never goes back: a step behind what it shows changes nothing."""
    moments = step_ends(parse_timestamp(start), parse_timestamp(end), parse_duration(step, "step"))
    return [refresh.refresh(context, view, moment) for moment in moments]


def step_ends(start: datetime, end: datetime, width: timedelta) -> Iterator[datetime]:
    """The end of every step from start to end. There is at least one; the last one is `end`.

    >>> [str(m.time()) for m in step_ends(datetime(2026, 1, 1), datetime(2026, 1, 1, 1), timedelta(minutes=25))]
    ['00:25:00', '00:50:00', '01:00:00']
    >>> [str(m.time()) for m in step_ends(datetime(2026, 1, 1), datetime(2026, 1, 1), timedelta(minutes=25))]
    ['00:00:00']
    """
    if end < start:
        raise InvalidInputError(f"The end {end} must not be before the start {start}.")
    moment = start + width
    while moment < end:
        yield moment
        moment += width
    yield end


def replay_steps(context: Context, view: str, start: Any, end: Any, step: Any, of: str) -> list[Operation]:
    """Write every step of a view's past into its history table."""
    intervals = replay.steps(parse_timestamp(start), parse_timestamp(end), parse_duration(step, "step"))
    return [replay.replay(context, view, since, until, of) for since, until in intervals]
