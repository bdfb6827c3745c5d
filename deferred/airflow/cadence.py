"""Cadences: how often a view is propagated and refreshed, as Airflow timetables with data intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import CronDataIntervalTimetable, DeltaDataIntervalTimetable
from croniter import croniter

from deferred.config import parse_cadence, parse_duration
from deferred.errors import ConfigurationError, nearest
from deferred.maintenance.scenarios import BY_NAME
from deferred.options import ViewOptions
from deferred.schedule import PRESETS, last_tick


@dataclass(frozen=True)
class Cadence:
    """How often: a time span, cron, or a timetable of the user. Time spans tick at their multiples since 1970."""

    text: str
    timetable: Any
    every: timedelta | None = None
    cron: str | None = None

    def last(self, moment: datetime) -> datetime | None:
        """Returns the latest tick up to a moment; None for a timetable whose ticks only Airflow knows.

        >>> from datetime import UTC
        >>> str(cadence("15m").last(datetime(2026, 1, 1, 10, 50, tzinfo=UTC)))
        '2026-01-01 10:45:00+00:00'
        >>> str(cadence("@daily").last(datetime(2026, 1, 1, tzinfo=UTC)))
        '2026-01-01 00:00:00+00:00'
        """
        known = self.every or self.cron
        return None if known is None else last_tick(known, moment)


@dataclass(frozen=True)
class Schedule:
    """When a view's DAG runs by the clock, and how often such a run refreshes as well. Without a clock: on Assets."""

    runs: Cadence | None
    refreshes: Cadence | None
    policy: int

    def refresh_due(self, shown: datetime | None, until: datetime) -> bool:
        """Whether a run up to a time must refresh, because MV does not show the last tick of the refresh yet.

        So the next run makes up, once, for a tick that was missed because Airflow was down.
        """
        if self.refreshes is None:
            return self.runs is None
        tick = self.refreshes.last(until)
        return tick is None or shown is None or shown < tick

    def __str__(self) -> str:
        if self.runs is None:
            return "when what it reads is announced"
        what = "refresh" if self.policy == 1 else "partial_refresh"
        if self.refreshes is None:
            return f"propagate every {self.runs.text}"
        if self.runs is self.refreshes:
            return f"refresh every {self.runs.text}"
        return f"propagate every {self.runs.text}, {what} every {self.refreshes.text}"


def cadence(text: str, timetables: Mapping[str, Any] | None = None) -> Cadence:
    """Returns the cadence that a view file names; @name is a preset or one of the given timetables."""
    parsed = parse_cadence(text)
    if isinstance(parsed, timedelta):
        return Cadence(text, DeltaDataIntervalTimetable(parsed), every=parsed)
    known = timetables or {}
    if parsed.startswith("@") and parsed not in PRESETS:
        if parsed[1:] not in known:
            raise ConfigurationError(
                f"There is no timetable {parsed}{nearest(parsed, [*PRESETS, *(f'@{name}' for name in known)])}"
            )
        return Cadence(parsed, known[parsed[1:]])
    cron = PRESETS.get(parsed, parsed)
    if not croniter.is_valid(cron):
        raise ConfigurationError(f"{text!r} is not a cron expression; write minute, hour, day, month, weekday.")
    return Cadence(text, CronDataIntervalTimetable(cron, timezone="UTC"), cron=cron)


def schedule(options: ViewOptions, timetables: Mapping[str, Any] | None = None) -> Schedule:
    """Returns the schedule that the options of a view mean.

    The DAG runs every propagate_every; of these runs, those that are due by refresh_every also bring MV up to date.
    target_lag alone means a refresh every half of it: data then waits at most one half for a run, which has the other
    half to finish.
    """
    propagates = cadence(options.propagate_every, timetables) if options.propagate_every else None
    refreshes = cadence(options.refresh_every, timetables) if options.refresh_every else None
    if refreshes is None and options.target_lag:
        half = parse_duration(options.target_lag) / 2
        refreshes = Cadence(f"{half.total_seconds():g}s", DeltaDataIntervalTimetable(half), every=half)
    if not BY_NAME[options.scenario].scheduled(refresh_due=False, policy=options.policy):
        propagates = None  # a run between two refreshes would have nothing to do
    if propagates is None or (refreshes is not None and options.policy == 1 and _quicker(refreshes, propagates)):
        return Schedule(refreshes, refreshes, options.policy)
    if refreshes is not None and refreshes.every is None and refreshes.cron is None:
        raise ConfigurationError(
            f"refresh_every is {refreshes.text!r}: a timetable of your own must be the only cadence of a view; leave "
            f"propagate_every out."
        )
    return Schedule(propagates, refreshes, options.policy)


def _quicker(one: Cadence, other: Cadence) -> bool:
    return one.every is not None and other.every is not None and one.every < other.every
