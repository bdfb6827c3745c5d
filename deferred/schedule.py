"""When something is due that is done every so often. Time spans tick at their multiples since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from deferred.config import parse_cadence

PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
}


def last_tick(cadence: str | timedelta, moment: datetime) -> datetime | None:
    """Returns the latest tick up to a moment; None for a timetable that only a scheduler knows.

    >>> str(last_tick("15m", datetime(2026, 1, 1, 10, 50, tzinfo=UTC)))
    '2026-01-01 10:45:00+00:00'
    >>> str(last_tick("@daily", datetime(2026, 1, 1, tzinfo=UTC)))
    '2026-01-01 00:00:00+00:00'
    """
    parsed = cadence if isinstance(cadence, timedelta) else parse_cadence(cadence)
    if isinstance(parsed, timedelta):
        seconds = moment.timestamp()
        return datetime.fromtimestamp(seconds - seconds % parsed.total_seconds(), UTC)
    # croniter looks strictly before; a tick at the moment itself counts.
    return _cron(parsed, moment + timedelta(microseconds=1), back=True)


def next_tick(cadence: str, moment: datetime) -> datetime | None:
    """Returns the first tick after a moment; None for a timetable that only a scheduler knows.

    >>> str(next_tick("15m", datetime(2026, 1, 1, 10, 50, tzinfo=UTC)))
    '2026-01-01 11:00:00+00:00'
    >>> str(next_tick("30 6 * * 1-5", datetime(2026, 1, 2, 7, tzinfo=UTC)))
    '2026-01-05 06:30:00+00:00'
    >>> next_tick("@harvest", datetime(2026, 1, 2, 7, tzinfo=UTC))
    """
    parsed = parse_cadence(cadence)
    if isinstance(parsed, timedelta):
        last = last_tick(cadence, moment)
        return None if last is None else last + parsed
    return _cron(parsed, moment, back=False)


def _cron(text: str, moment: datetime, back: bool) -> datetime | None:
    from croniter import croniter

    cron = PRESETS.get(text, text)
    if cron.startswith("@") or not croniter.is_valid(cron):
        return None
    ticks = croniter(cron, moment)
    found: datetime = ticks.get_prev(datetime) if back else ticks.get_next(datetime)
    return found.astimezone(UTC)
