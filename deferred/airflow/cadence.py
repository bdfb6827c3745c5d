"""Cadences: how often a view is propagated and refreshed, as Airflow timetables with data intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import CronDataIntervalTimetable, DeltaDataIntervalTimetable
from croniter import croniter

from deferred.config import parse_cadence, parse_duration
from deferred.errors import ConfigurationError, nearest

PRESETS = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
           "@quarterly": "0 0 1 */3 *", "@yearly": "0 0 1 1 *"}


@dataclass(frozen=True)
class Cadence:
    """One rhythm: a time span, cron, or somebody's own timetable. Time spans tick at their multiples since 1970."""

    text: str
    timetable: Any
    every: timedelta | None = None
    cron: str | None = None

    def last(self, moment: datetime) -> datetime | None:
        """The latest tick up to a moment; None for a timetable of which only Airflow knows the ticks.

        >>> str(cadence("15m").last(datetime(2026, 1, 1, 10, 50, tzinfo=UTC)))
        '2026-01-01 10:45:00+00:00'
        >>> str(cadence("@daily").last(datetime(2026, 1, 1, tzinfo=UTC)))
        '2026-01-01 00:00:00+00:00'
        """
        if self.every is not None:
            seconds = moment.timestamp()
            return datetime.fromtimestamp(seconds - seconds % self.every.total_seconds(), UTC)
        if self.cron is not None:
            # croniter looks strictly before; a tick at the moment itself counts.
            found: datetime = croniter(self.cron, moment + timedelta(microseconds=1)).get_prev(datetime)
            return found.astimezone(UTC)
        return None


@dataclass(frozen=True)
class Schedule:
    """When a view's DAG runs by the clock, and how often such a run refreshes as well. Without a clock: on Assets."""

    runs: Cadence | None
    refreshes: Cadence | None
    policy: int

    def refresh_due(self, shown: datetime | None, until: datetime) -> bool:
        """Whether a run that goes until a time is to refresh: MV does not show the last tick of the refresh yet.

        So a tick that nobody ran at, because Airflow was down, is made up for by the next run, once.
        """
        if self.refreshes is None:
            return self.runs is None
        tick = self.refreshes.last(until)
        return tick is None or shown is None or shown < tick

    def __str__(self) -> str:
        if self.runs is None:
            return "whenever what it reads is announced"
        what = "refresh" if self.policy == 1 else "partial_refresh"
        if self.refreshes is None:
            return f"propagate every {self.runs.text}"
        if self.runs is self.refreshes:
            return f"refresh every {self.runs.text}"
        return f"propagate every {self.runs.text}, {what} every {self.refreshes.text}"


def cadence(text: str, timetables: Mapping[str, Any] | None = None) -> Cadence:
    """The cadence that a view file names; @name is a preset or one of the given timetables."""
    parsed = parse_cadence(text)
    if isinstance(parsed, timedelta):
        return Cadence(text, DeltaDataIntervalTimetable(parsed), every=parsed)
    known = timetables or {}
    if parsed.startswith("@") and parsed not in PRESETS:
        if parsed[1:] not in known:
            raise ConfigurationError(f"There is no timetable {parsed}"
                                     f"{nearest(parsed, [*PRESETS, *(f'@{name}' for name in known)])}")
        return Cadence(parsed, known[parsed[1:]])
    cron = PRESETS.get(parsed, parsed)
    if not croniter.is_valid(cron):
        raise ConfigurationError(f"{text!r} is not a cron expression: minute, hour, day, month, weekday.")
    return Cadence(text, CronDataIntervalTimetable(cron, timezone="UTC"), cron=cron)


def schedule(options: Mapping[str, Any], timetables: Mapping[str, Any] | None = None) -> Schedule:
    """A view's options as a schedule.

    propagate_every is the beat, refresh_every says at which beats MV follows. target_lag alone means a refresh every
    half of it: data then waits one half at most for a run, which has the other half to finish.
    """
    policy = int(options.get("policy", 1))
    propagates = cadence(options["propagate_every"], timetables) if options.get("propagate_every") else None
    refreshes = cadence(options["refresh_every"], timetables) if options.get("refresh_every") else None
    if refreshes is None and options.get("target_lag"):
        half = parse_duration(options["target_lag"]) / 2
        refreshes = Cadence(f"{half.total_seconds():g}s", DeltaDataIntervalTimetable(half), every=half)
    if options.get("scenario") == "base_log":
        propagates = None  # it has no differential tables
    if propagates is None or (refreshes is not None and policy == 1 and _quicker(refreshes, propagates)):
        return Schedule(refreshes, refreshes, policy)
    if refreshes is not None and refreshes.every is None and refreshes.cron is None:
        raise ConfigurationError(f"refresh_every = {refreshes.text!r}: a timetable of your own is the only cadence of "
                                 f"a view; leave propagate_every out.")
    return Schedule(propagates, refreshes, policy)


def _quicker(one: Cadence, other: Cadence) -> bool:
    return one.every is not None and other.every is not None and one.every < other.every
