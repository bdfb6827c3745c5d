"""`until` a timestamp, and backfill: exactly the state at that time, as Delta's own time travel has it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from deferred import DeferredError
from deferred.log.history import DeltaLog
from tests.engine.support import assert_fresh, bag, recomputed, refused

pytestmark = pytest.mark.spark

SQL = "SELECT r.a, r.s, t.d FROM r JOIN t ON r.a = t.a"


def moment(wh: Any) -> tuple[datetime, dict[str, int]]:
    """Now, and the versions of the tables now, with nothing else happening in the same millisecond."""
    time.sleep(0.05)
    now = datetime.now(UTC)
    time.sleep(0.05)
    return now, {t.name: DeltaLog(t.location).version for t in wh.tables() if t.kind == "feed"}


@pytest.fixture
def told(tables: Any) -> tuple[Any, list[tuple[datetime, dict[str, int]]]]:
    """A view, four changes, and the moments between them."""
    wh = tables
    wh.create_view("v", SQL)
    paths = {t.name: t.location for t in wh.tables()}
    moments = [moment(wh)]
    with wh.transaction() as tx:
        tx.insert("r", [(1, 5, "one")])
        tx.insert("t", [(1, 5)])
    moments.append(moment(wh))
    wh.spark.sql(f"DELETE FROM delta.`{paths['t']}` WHERE a = 2")
    moments.append(moment(wh))
    wh.spark.sql(f"UPDATE delta.`{paths['r']}` SET s = 'z' WHERE a = 1")
    moments.append(moment(wh))
    return wh, moments


def test_until_gives_the_state_at_that_time(told: Any) -> None:
    wh, moments = told
    for when, versions in moments[1:]:
        wh.propagate("v", until=when)
        wh.verify("v")
        wh.partial_refresh("v")
        assert bag(wh.read("v")) == bag(recomputed(wh, SQL, versions))
        shown = wh.views()[0].shown
        assert {t.name: shown.versions[t.id] for t in wh.tables() if t.kind == "feed"} == versions


def test_until_the_past_does_nothing(told: Any) -> None:
    wh, moments = told
    wh.refresh("v", until=moments[2][0].isoformat())
    before = wh.views()[0]
    shown = bag(wh.read("v"))
    for when in (moments[1][0], moments[0][0], moments[0][0] - timedelta(days=3650)):
        assert wh.refresh("v", until=when).state == "nothing"
        assert wh.propagate("v", until=when).state == "nothing"
    assert bag(wh.read("v")) == shown
    assert wh.views()[0].propagated == before.propagated
    wh.verify("v")


def test_until_the_future_is_now(told: Any) -> None:
    """Nobody knows the future: the view says how far it has come, not how far it was asked to go."""
    wh, _ = told
    wh.refresh("v", until=datetime.now(UTC) + timedelta(days=365))
    assert_fresh(wh, "v")
    assert wh.views()[0].shown.timestamp <= datetime.now(UTC)


def test_backfill_steps_through_time_and_twice_is_once(told: Any) -> None:
    wh, moments = told
    start, end = moments[0][0], moments[-1][0]
    step = (end - start) / 3 + timedelta(microseconds=1)
    done = wh.backfill("v", start, end, step)
    assert len(done) == 3
    assert_fresh(wh, "v")
    again = wh.backfill("v", start, end, step)
    assert [operation.state for operation in again] == ["nothing"] * 3
    assert_fresh(wh, "v")
    wh.verify("v")


def test_catching_up_is_one_propagate(told: Any) -> None:
    wh, _ = told
    wh.propagate("v")
    assert wh.status()[0]["pending_batches"] == 1
    assert wh.propagate("v").state == "nothing"
    wh.partial_refresh("v")
    assert_fresh(wh, "v")


def test_times_that_make_no_sense(shared: Any) -> None:
    shared.create_view("timed", "SELECT a FROM r")
    now = datetime.now(UTC)
    for start, end, step in ((now, now - timedelta(hours=1), "1h"), (now, now, "0s"), (now, now, "soon"),
                             ("yesterday-ish", now, "1h")):
        with refused(DeferredError):
            shared.backfill("timed", start, end, step)
    shared.drop_view("timed")


def test_replay_fills_a_history_table_and_leaves_the_view(told: Any) -> None:
    wh, moments = told
    times = [when for when, _ in moments]
    before = wh.views()[0]
    for start, end in [*pairwise(times), (times[-2], times[-1])]:  # a step that runs again changes nothing
        for of in ("rows", "changes"):
            wh.replay("v", start, end, end - start, of=of)
    history, changes = wh.read_history("v"), wh.read_history("v", of="changes")
    reached = bag(recomputed(wh, SQL, moments[0][1]))
    for when, versions in moments[1:]:
        step = f"_as_of = TIMESTAMP'{when.isoformat()}'"
        wanted = bag(recomputed(wh, SQL, versions))
        assert bag(history.where(step).drop("_as_of")) == wanted
        for (*row, _, change, count), n in bag(changes.where(step)).items():
            reached[tuple(row)] += n * count * (1 if change == "insert" else -1)
        assert +reached == wanted
    assert wh.views()[0] == before
    with refused(DeferredError, "v", "first commit"):
        wh.replay("v", "2020-01-01", "2020-01-02", "1d")
