"""Fresh reads: a view as it is now or was at a time, equal to a recomputation, and nothing is written for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deferred import DeferredError
from deferred.errors import InvalidInputError, InvalidSQLError, LogLostError
from deferred.log import ledger
from deferred.log.delta_log import DeltaLog
from deferred.spark import temporaries
from tests.engine.support import bag, recomputed, refused

VIEWS = {
    "joined": "SELECT r.a, r.b, r.s, t.d FROM r JOIN t ON r.a = t.a",
    "grouped": "SELECT s, COUNT(*) AS n, SUM(b) AS total, MAX(a) AS top FROM r GROUP BY s",
    "kinds": "SELECT DISTINCT a, s FROM r",
    "ranked": "SELECT a, b, s, ROW_NUMBER() OVER (PARTITION BY s ORDER BY a, b) AS place FROM r",
    "first": "SELECT a, b FROM r ORDER BY a DESC, b LIMIT 2",
}
CONDITIONS = {
    "joined": "a = 1 AND d > 1",
    "grouped": "s IN ('x', 'z') OR s IS NULL",
    "kinds": "s = 'y'",
    "ranked": "s = 'x' AND place = 1",
    "first": "a > 1 AND 10 / a > 2",
}


@pytest.fixture(scope="module")
def pending(shared: Any) -> Any:
    """Five views with a pending batch and a log that is not propagated; the moments between the changes."""
    wh = shared
    for name, sql in VIEWS.items():
        wh.create_view(name, sql, refresh_policy="incremental")
    moments = []
    for number, texts in enumerate(CHANGES):
        with wh.transaction() as tx:
            for text in texts:
                tx.sql(text)
        wh.sync()
        moments.append(max(wh.commits(t)[-1].timestamp for t in ("r", "t")))
        for name in (("joined", "grouped"), VIEWS, ())[number]:
            (wh.refresh if number == 0 else wh.propagate)(name)
    return wh, moments


CHANGES = (
    ("INSERT INTO r VALUES (3, 4, 'z'), (2, 2, 'x')", "DELETE FROM t WHERE a = 2"),
    ("UPDATE r SET s = 'y' WHERE a = 1", "INSERT INTO t VALUES (3, 9.00)"),
    ("DELETE FROM r WHERE b IS NULL", "INSERT INTO r VALUES (1, 5, 'x')", "INSERT INTO t VALUES (1, 0.50)"),
)


def versions(wh: Any) -> dict[str, int]:
    folders = [v.location for v in wh.views()]
    return {
        str(path): DeltaLog(str(path)).version
        for folder in folders
        for path in sorted(Path(folder).iterdir())
        if (path / "_delta_log").is_dir()
    }


@pytest.mark.parametrize("name", VIEWS)
def test_a_fresh_read_is_a_recomputation_and_writes_nothing(pending: Any, name: str) -> None:
    wh, _ = pending
    before = wh.views(), versions(wh), len(wh.history())
    wanted = recomputed(wh, VIEWS[name])
    assert bag(wh.read(name)) != bag(wanted)
    found = wh.read(name, fresh=True)
    assert found.columns == wanted.columns
    assert bag(found) == bag(wanted)
    assert bag(wh.read(name, fresh=True, where=CONDITIONS[name])) == bag(wanted.where(CONDITIONS[name]))
    assert (wh.views(), versions(wh), len(wh.history())) == before


@pytest.mark.parametrize("name", ["joined", "grouped", "first"])
def test_the_past_is_read_from_what_the_tables_hold(pending: Any, name: str) -> None:
    wh, moments = pending
    for moment in moments:
        at = {t: wh.commits(t, until=moment)[-1].version for t in ("r", "t")}
        assert bag(wh.read(name, as_of=moment)) == bag(recomputed(wh, VIEWS[name], at)), moment


def test_before_the_view_was_made_its_base_tables_are_read(pending: Any) -> None:
    wh, moments = pending
    first = max(wh.commits(t, until=moments[0])[0].timestamp for t in ("r", "t"))
    at = {t: wh.commits(t, until=first)[-1].version for t in ("r", "t")}
    assert bag(wh.read("joined", as_of=first)) == bag(recomputed(wh, VIEWS["joined"], at))
    with refused(InvalidInputError, "joined", "2001", "Choose a time"):
        wh.read("joined", as_of="2001-01-01T00:00:00Z")


def test_large_changes_stay_in_spark(pending: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wh, _ = pending
    monkeypatch.setattr(temporaries, "LOCAL_ROWS", 1)
    found = wh.read("joined", fresh=True)
    assert bag(found.join(wh.read("kinds"), ["a", "s"])) == bag(
        recomputed(wh, VIEWS["joined"]).join(wh.read("kinds"), ["a", "s"])
    )
    assert not wh.spark.sql("SHOW VIEWS IN global_temp").where("namespace = 'global_temp'").collect()


def test_in_sql(pending: Any) -> None:
    wh, _ = pending
    found = wh.sql("SELECT v.s, g.n FROM fresh(kinds) v JOIN fresh(`grouped`) AS g ON v.s = g.s WHERE v.a > 0")
    kinds, grouped = recomputed(wh, VIEWS["kinds"]), recomputed(wh, VIEWS["grouped"])
    assert bag(found) == bag(kinds.where("a > 0").join(grouped, "s").select("s", "n"))
    assert bag(wh.sql("SELECT '{x}' AS x, n FROM fresh(grouped) WHERE grouped.s = 'x'")) == bag(
        grouped.where("s = 'x'").selectExpr("'{x}' AS x", "n")
    )
    with refused(InvalidSQLError, "fresh", "one view"):
        wh.sql("SELECT * FROM fresh(a, b)")
    with refused(DeferredError, "no view nothing"):
        wh.sql("SELECT * FROM fresh(nothing)")


def test_new_names_and_chance_and_samples_are_those_of_the_query(pending: Any) -> None:
    """What the query asks after it has renamed columns, or of a sample, is not what it asks of the view's rows."""
    wh, _ = pending
    joined = recomputed(wh, VIEWS["joined"])
    renamed = wh.sql("SELECT d, c, b, a FROM fresh(joined) AS x(b, a, c, d) WHERE a = 1")
    assert bag(renamed) == bag(joined.toDF("b", "a", "c", "d").where("a = 1").select("d", "c", "b", "a"))
    some = wh.sql("SELECT joined.a FROM fresh(joined) TABLESAMPLE (100 PERCENT) WHERE joined.a = 1 AND rand() >= 0")
    assert bag(some) == bag(joined.where("a = 1").select("a"))


def test_a_query_with_fresh_views_reads_one_state(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody writes after each cut; what is read, views and tables, is as it was at one of them."""
    wh = tables
    wh.create_view("v", "SELECT a, b FROM r", refresh_policy="incremental")
    wh.create_view("w", "SELECT a, COUNT(*) AS n FROM r GROUP BY a", refresh_policy="incremental")
    wh.sql("INSERT INTO r VALUES (7, 7, 'x')")
    original, location = ledger.cut, next(t.location for t in wh.tables() if t.name == "r")

    def cut(*given: Any) -> Any:
        found = original(*given)
        wh.spark.sql(f"INSERT INTO delta.`{location}` VALUES (8, 8, 'y')")
        return found

    monkeypatch.setattr(ledger, "cut", cut)
    found = wh.sql(
        "SELECT COUNT(*) AS of_v, (SELECT SUM(n) FROM fresh(w)) AS of_w, (SELECT COUNT(*) FROM r) AS of_r FROM fresh(v)"
    )
    assert [tuple(row) for row in found.collect()] == [(4, 4, 4)]


def test_a_name_that_is_a_keyword(tables: Any) -> None:
    wh = tables
    wh.create_view("natural", VIEWS["grouped"])
    wh.sql("INSERT INTO r VALUES (7, 8, 'x')")
    for fresh in (True, False):
        assert bag(wh.read("natural", fresh=fresh, where="`natural`.s = 'x'")) == bag(
            recomputed(wh, VIEWS["grouped"], None if fresh else {"r": wh.commits("r")[-1].version - 1}).where("s = 'x'")
        )
    assert bag(wh.sql("SELECT * FROM fresh(`natural`)")) == bag(recomputed(wh, VIEWS["grouped"]))


def test_conditions_that_are_refused(pending: Any) -> None:
    wh, _ = pending
    with refused(InvalidInputError, "without a subquery"):
        wh.read("kinds", where="a IN (SELECT a FROM t)")
    with refused(InvalidSQLError, "nothing") as found:
        wh.read("kinds", fresh=True, where="a > 0 AND nothing = 1")
    assert found.value.place is not None
    assert (found.value.place.column, found.value.place.text) == (11, "nothing")
    with refused(InvalidSQLError, "nothing") as found:
        wh.sql("SELECT k.a\nFROM fresh(kinds) k JOIN t ON k.a = t.nothing")
    assert found.value.shown_place.endswith("^" * len("t.nothing"))


def test_a_condition_under_other_settings_means_what_the_reader_means(pending: Any) -> None:
    """The view's own time zone is UTC, the reader's is not; and what has to be recomputed runs under the view's."""
    wh, moments = pending
    wh.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        condition = "s = 'x' AND date_format(timestamp_seconds(0), 'HH') = '09'"
        found = wh.read("kinds", fresh=True, where=condition)
        assert bag(found) == bag(recomputed(wh, VIEWS["kinds"]).where("s = 'x'"))
        assert bag(wh.read("first", as_of=moments[0])) == bag(
            recomputed(wh, VIEWS["first"], {"r": wh.commits("r", until=moments[0])[-1].version})
        )
    finally:
        wh.spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_read_stays_what_it_was_while_the_view_is_maintained(tables: Any) -> None:
    wh = tables
    wh.create_view("v", VIEWS["grouped"], refresh_policy="incremental")
    wh.sql("INSERT INTO r VALUES (1, 7, 'x'), (9, 9, 'y')")
    wh.propagate("v")
    wh.sql("DELETE FROM r WHERE a = 2")
    found, wanted = wh.read("v", fresh=True), bag(recomputed(wh, VIEWS["grouped"]))
    wh.refresh("v")
    assert bag(found) == wanted


def test_versions_that_are_gone(tables: Any) -> None:
    wh = tables
    wh.sql("INSERT INTO t VALUES (5, 5.00)")
    moment = wh.commits("t")[-1].timestamp
    wh.sql("DELETE FROM t WHERE a = 5")
    wh.create_view("v", "SELECT a, d FROM t")
    location = next(t.location for t in wh.tables() if t.name == "t")
    assert bag(wh.read("v", as_of=moment)) == bag(recomputed(wh, "SELECT a, d FROM t", {"t": 3}))
    wh.spark.sql(f"VACUUM delta.`{location}` RETAIN 0 HOURS")
    with refused(LogLostError, "v", "t", "Choose a later time"):
        wh.read("v", as_of=moment)
    assert next(v.state for v in wh.views()) == "active"


def test_refresh_on_read(tables: Any) -> None:
    wh = tables
    view = wh.create_view("v", VIEWS["kinds"], target_lag="1h", refresh_on_read=True)
    wh.sql("INSERT INTO r VALUES (8, 8, 'x')")
    wanted = bag(recomputed(wh, VIEWS["kinds"]))
    assert bag(wh.read("v")) != wanted
    an_hour_ago = replace(view.shown, timestamp=view.shown.timestamp - timedelta(hours=1))
    wh._context.metadata.views.update(view.id, shown=an_hour_ago)
    assert bag(wh.read("v")) == wanted
    wh.sql("INSERT INTO r VALUES (9, 9, 'y')")
    assert bag(wh.sql("WITH c AS (SELECT * FROM v) SELECT * FROM c")) == wanted, "it is young enough"
    shown = next(v.shown for v in wh.views())
    wh._context.metadata.views.update(view.id, shown=replace(shown, timestamp=an_hour_ago.timestamp))
    assert bag(wh.sql("WITH c AS (SELECT * FROM v) SELECT * FROM c")) == bag(recomputed(wh, VIEWS["kinds"])) != wanted
