"""`until` a timestamp, and backfill: exactly the state at that time, compared with Delta's time travel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deferred import DeferredError, Warehouse
from deferred.errors import InvalidInputError
from deferred.log.delta_log import DeltaLog
from tests.engine.conftest import with_copies
from tests.engine.support import assert_fresh, bag, make, recomputed, refused

SQL = "SELECT r.a, r.s, t.d FROM r JOIN t ON r.a = t.a"


def moment(wh: Any) -> tuple[datetime, dict[str, int]]:
    """Now, and the versions of the tables now, with nothing else happening in the same millisecond."""
    time.sleep(0.05)
    now = datetime.now(UTC)
    time.sleep(0.05)
    return now, {t.name: DeltaLog(t.location).version for t in wh.tables() if t.kind == "feed"}


History = tuple[Any, list[tuple[datetime, dict[str, int]]]]
VIEWS = ("stepped", "halfway", "ahead", "filled", "late", "replayed")
"""One for each test, all with the same text."""


@pytest.fixture(scope="module")
def history(spark: Any, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """The views, then three changes of their tables, and the moments between them."""
    folder = tmp_path_factory.mktemp("history")
    with Warehouse.open(path=folder / "warehouse", spark=spark) as opened:
        wh = with_copies(opened, made, folder / "tables")
        for name in VIEWS:
            wh.create_view(name, SQL)
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
        yield wh, moments


def record(wh: Any, name: str) -> Any:
    return next(view for view in wh.views() if view.name == name)


def test_until_gives_the_state_at_that_time(history: History) -> None:
    wh, moments = history
    for when, versions in moments[1:]:
        wh.propagate("stepped", until=when)
        wh.verify("stepped")
        wh.partial_refresh("stepped")
        assert bag(wh.read("stepped")) == bag(recomputed(wh, SQL, versions))
        shown = record(wh, "stepped").shown
        assert {t.name: shown.versions[t.id] for t in wh.tables() if t.kind == "feed"} == versions


def test_until_the_past_does_nothing(history: History) -> None:
    wh, moments = history
    wh.refresh("halfway", until=moments[2][0].isoformat())
    before = record(wh, "halfway")
    shown = bag(wh.read("halfway"))
    for when in (moments[1][0], moments[0][0], moments[0][0] - timedelta(days=3650)):
        assert wh.refresh("halfway", until=when).state == "nothing"
        assert wh.propagate("halfway", until=when).state == "nothing"
    assert bag(wh.read("halfway")) == shown
    assert record(wh, "halfway").propagated == before.propagated
    wh.verify("halfway")


def test_until_the_future_is_now(history: History) -> None:
    """The view records the time that it has reached, not the requested time in the future."""
    wh, _ = history
    wh.refresh("ahead", until=datetime.now(UTC) + timedelta(days=365))
    assert_fresh(wh, "ahead")
    assert record(wh, "ahead").shown.timestamp <= datetime.now(UTC)


def test_backfill_steps_through_time_and_can_be_repeated(history: History) -> None:
    wh, moments = history
    start, end = moments[0][0], moments[-1][0]
    step = (end - start) / 3 + timedelta(microseconds=1)
    done = wh.backfill("filled", start, end, step)
    assert len(done) == 3
    assert_fresh(wh, "filled")
    again = wh.backfill("filled", start, end, step)
    assert [operation.state for operation in again] == ["nothing"] * 3
    assert_fresh(wh, "filled")
    wh.verify("filled")


def test_catching_up_is_one_propagate(history: History) -> None:
    wh, _ = history
    wh.propagate("late")
    assert next(v for v in wh.status() if v["name"] == "late")["pending_batches"] == 1
    assert wh.propagate("late").state == "nothing"
    wh.partial_refresh("late")
    assert_fresh(wh, "late")


def test_times_that_make_no_sense(shared: Any) -> None:
    shared.create_view("timed", "SELECT a FROM r")
    now = datetime.now(UTC)
    for start, end, step in (
        (now, now - timedelta(hours=1), "1h"),
        (now, now, "0s"),
        (now, now, "soon"),
        ("yesterday-ish", now, "1h"),
    ):
        with refused(DeferredError):
            shared.backfill("timed", start, end, step)
    shared.drop_view("timed")


def test_replay_fills_a_history_table_and_leaves_the_view(history: History) -> None:
    wh, moments = history
    times = [when for when, _ in moments]
    before = record(wh, "replayed")
    for start, end in [*pairwise(times), (times[-2], times[-1])]:  # a step that runs again changes nothing
        for of in ("rows", "changes"):
            wh.replay("replayed", start, end, end - start, of=of)
    states, changes = wh.read_history("replayed"), wh.read_history("replayed", of="changes")
    reached = bag(recomputed(wh, SQL, moments[0][1]))
    for when, versions in moments[1:]:
        step = f"_as_of = TIMESTAMP'{when.isoformat()}'"
        wanted = bag(recomputed(wh, SQL, versions))
        assert bag(states.where(step).drop("_as_of")) == wanted
        for (*row, _, change, count), n in bag(changes.where(step)).items():
            reached[tuple(row)] += n * count * (1 if change == "insert" else -1)
        assert +reached == wanted
    assert record(wh, "replayed") == before
    with refused(DeferredError, "replayed", "first commit"):
        wh.replay("replayed", "2020-01-01", "2020-01-02", "1d")


def test_a_view_of_the_same_name_begins_a_history_of_its_own(history: History) -> None:
    wh, moments = history
    first, second, third = (when for when, _ in moments[:3])
    left = Path(str(wh.settings.path), "history", "twice_rows")
    for sql, start, end in ((SQL, first, second), ("SELECT a, b FROM r", second, third)):
        # What a view of version 0.1 of that name has left, dropped by that version: without an owner.
        make(wh.spark, left, "a INT, _as_of TIMESTAMP", "(1, TIMESTAMP'2020-01-01 00:00:00')")
        view = wh.create_view("twice", sql)
        assert not left.exists()
        wh.replay("twice", start, end, end - start)
        wh.gc(retain_hours=0)
        wanted = bag(recomputed(wh, sql, dict(moments)[end]))
        assert bag(wh.read_history("twice").drop("_as_of")) == wanted
        wh.drop_view("twice")
        assert not Path(view.location).exists()


def test_a_history_has_the_columns_of_one_definition(history: History) -> None:
    wh, moments = history
    first, second, third = (when for when, _ in moments[:3])
    wh.create_view("renamed", "SELECT a FROM r")
    wh.replay("renamed", first, second, second - first)
    kept = bag(wh.read_history("renamed"))
    for sql in ("SELECT b FROM r", "SELECT a, b FROM r"):
        wh.alter_view("renamed", sql)
        with refused(InvalidInputError, "renamed", "a, _as_of", "begins a new one"):
            wh.replay("renamed", first, second, second - first)
        assert bag(wh.read_history("renamed")) == kept
    wh.alter_view("renamed", "SELECT a FROM r WHERE a = 1")
    wh.replay("renamed", second, third, third - second)
    assert bag(wh.read_history("renamed").where("a = 2")) <= kept
    wh.drop_view("renamed")
