"""Bad input: a DeferredError names the object and says what to do, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deferred import DeferredError
from deferred.errors import (
    InvalidInputError,
    InvalidNameError,
    InvalidSQLError,
    NameTakenError,
    UnknownObjectError,
    UnsupportedSQLError,
)
from tests.engine.support import bag, make, refused, state_of

QUERIES: list[tuple[str, type[DeferredError], list[str]]] = [
    ("SELECT a FROM rr", UnknownObjectError, ["rr", "did you mean r"]),
    ("SELECT a FROM nowhere.at.all", DeferredError, ["nowhere"]),
    ("SELECT bb FROM r", UnknownObjectError, ["bb", "did you mean b"]),
    ("SELECT r.d FROM r JOIN t ON r.a = t.a", UnknownObjectError, ["d"]),
    ("SELECT a FROM r JOIN t ON r.a = t.a", InvalidSQLError, ["a", "ambiguous"]),
    ("SELECT a FRM r", InvalidSQLError, ["line 1", "column 14"]),
    ("SELECT a FROM r WHERE (b = 1", InvalidSQLError, ["line 1", "column"]),
    ("SELECT 'open FROM r", InvalidSQLError, ["parse"]),
    ("", InvalidSQLError, ["statement"]),
    ("SELECT a FROM r; DROP TABLE r", InvalidSQLError, ["one SQL statement"]),
    ("DELETE FROM r", InvalidSQLError, ["DELETE"]),
    ("SELECT a, RAND() AS x FROM r", UnsupportedSQLError, ["RAND", "deterministic"]),
    ("SELECT a, uuid() AS x FROM r", UnsupportedSQLError, ["uuid()"]),
    ("SELECT a FROM r WHERE current_timestamp() > DATE '2020-01-01'", UnsupportedSQLError, ["current_timestamp()"]),
    ("SELECT a, monotonically_increasing_id() AS i FROM r", UnsupportedSQLError, ["monotonically_increasing_id()"]),
    ("SELECT a, a FROM r", InvalidSQLError, ["a", "alias"]),
    ("SELECT a, b AS A FROM r", InvalidSQLError, ["A", "alias"]),
    ("SELECT a, nofunction(b) AS x FROM r", InvalidSQLError, ["nofunction"]),
    ("SELECT a + s AS x FROM r WHERE s = DATE '2020-01-01' + s", DeferredError, []),
    ("SELECT a, b FROM r GROUP BY a", InvalidSQLError, ["b", "GROUP BY"]),
    ("SELECT SUM(a) AS x FROM r WHERE SUM(a) > 1", InvalidSQLError, ["SUM", "WHERE"]),
    ("SELECT a FROM r UNION SELECT a, d FROM t", InvalidSQLError, ["1", "2"]),
    ("SELECT NULL AS x FROM r", UnsupportedSQLError, ["x", "void"]),
    ("SELECT PARSE_JSON(s) AS m FROM r", UnsupportedSQLError, ["m", "variant"]),
    ("SELECT a AS _deferred_n FROM r", InvalidSQLError, ["_deferred_n"]),
    ("SELECT v.a FROM v", UnknownObjectError, ["v"]),
]


@pytest.mark.parametrize(("sql", "kind", "words"), QUERIES, ids=lambda v: v[:40] if isinstance(v, str) else "")
def test_queries(shared: Any, sql: str, kind: type[DeferredError], words: list[str]) -> None:
    before = state_of(shared)
    with refused(kind, *words):
        shared.create_view("v", sql)
    assert state_of(shared) == before


@pytest.mark.parametrize(
    "name", ["", "a b", "a.b", "1a", "a-b", "größe", "x`y", "a;DROP TABLE r", "../up", "a" * 200, "v'", None, 7]
)
def test_names_that_are_no_identifiers(shared: Any, name: Any) -> None:
    before = state_of(shared)
    with refused(InvalidNameError, repr(name)):
        shared.create_view(name, "SELECT a FROM r")
    with refused(InvalidNameError, repr(name)):
        shared.track(name, "/nowhere")
    assert state_of(shared) == before


OPTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"scenario": "eager"}, ["eager", "combined"]),
    ({"refresh_policy": "sometimes"}, ["sometimes", "incremental"]),
    ({"policy": 3}, ["3"]),
    ({"propagate_every": "often"}, ["often"]),
    ({"refresh_every": "-1h"}, ["-1h"]),
    ({"target_lag": "1 parsec"}, ["parsec"]),
]


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=lambda v: str(v)[:30])
def test_options(shared: Any, options: dict[str, Any], words: list[str]) -> None:
    before = state_of(shared)
    with refused(DeferredError, *words):
        shared.create_view("v", "SELECT a FROM r", **options)
    assert state_of(shared) == before


def test_tracking(shared: Any, tmp_path: Path) -> None:
    before = state_of(shared)
    plain = tmp_path / "parquet"
    shared.spark.range(1).write.parquet(str(plain))
    location = next(t.location for t in shared.tables() if t.name == "r")
    fresh = make(shared.spark, tmp_path / "fresh", "a INT")
    with refused(InvalidInputError, str(plain), "not a Delta table"):
        shared.track("p", plain)
    with refused(InvalidInputError, "/no/such", "does not exist"):
        shared.track("p", "/no/such")
    with refused(UnknownObjectError, "no_such_table"):
        shared.track("p", "no_such_table")
    with refused(NameTakenError, "r", "already"):
        shared.track("R", fresh)
    with refused(NameTakenError, location, "as r"):
        shared.track("again", location)
    with refused(UnknownObjectError, "fresh", "aa", "did you mean a"):
        shared.track("fresh", fresh, key=["aa"])
    with refused(InvalidInputError, "log", "journal"):
        shared.track("fresh", fresh, log="journal")
    with refused(UnknownObjectError, "rr", "did you mean r"):
        shared.untrack("rr")
    assert state_of(shared) == before


def test_names_that_are_taken_or_unknown(shared: Any) -> None:
    shared.create_view("held", "SELECT a FROM r")
    before = state_of(shared)
    for name in ("held", "HELD", "r"):
        with refused(NameTakenError, "already"):
            shared.create_view(name, "SELECT a FROM t")
    for work in (
        shared.propagate,
        shared.partial_refresh,
        shared.refresh,
        shared.rebuild,
        shared.verify,
        shared.explain,
        shared.read,
        shared.diff,
        shared.drop_view,
        shared.history,
    ):
        with refused(UnknownObjectError, "heldd", "did you mean held"):
            work("heldd")
    with refused(UnknownObjectError, "rr"):
        shared.log("rr")
    with refused(InvalidInputError, "sideways"):
        shared.refresh("held", order="sideways")
    with refused(DeferredError, "not-a-time"):
        shared.propagate("held", until="not-a-time")
    with refused(InvalidInputError, "r", "held"):
        shared.untrack("r")
    with refused(InvalidInputError, "held", "view"), shared.transaction() as tx:
        tx.insert("held", [(1,)])
    with refused(InvalidInputError, "r is tracked by its change feed"):
        shared.append_changes("r", insertions=[(1, 1, "x")])
    assert state_of(shared) == before
    shared.drop_view("held")


def test_views_that_would_read_themselves(shared: Any) -> None:
    """A view may read only what exists, and what is read cannot be dropped: so there can be no cycle."""
    before = state_of(shared)
    with refused(UnknownObjectError, "loop"):
        shared.create_view("loop", "SELECT a FROM loop")
    shared.create_view("low", "SELECT a FROM r")
    shared.create_view("high", "SELECT a FROM low")
    with refused(InvalidInputError, "low", "high"):
        shared.drop_view("low")
    with refused(NameTakenError, "low"):
        shared.create_view("low", "SELECT a FROM high")
    shared.drop_view("high")
    shared.drop_view("low")
    assert state_of(shared) == before


INJECTIONS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda tx: tx.delete("r", "a = 1; DROP TABLE r"), "one"),
    (lambda tx: tx.delete("r", "TRUE) OR (TRUE"), ""),
    (lambda tx: tx.delete("r", "a = 1 UNION SELECT 1"), ""),
    (lambda tx: tx.delete("r", "a FROM t"), "one"),
    (lambda tx: tx.delete("r`; DELETE FROM t; --", "TRUE"), "No tracked table"),
    (lambda tx: tx.update("r", {"a = 2, b": "1"}), "no column"),
    (lambda tx: tx.update("r", {"a": "2, b = 3"}), "one"),
    (lambda tx: tx.update("r", {"a": "1 WHERE TRUE --"}), ""),
    (lambda tx: tx.sql("DELETE FROM r; DELETE FROM t"), "one SQL statement"),
    (lambda tx: tx.sql("DELETE FROM delta.`/etc/passwd`"), "tracked"),
]


@pytest.mark.parametrize(("attempt", "word"), INJECTIONS, ids=lambda v: v if isinstance(v, str) else "")
def test_injection_through_transactions(shared: Any, attempt: Callable[[Any], Any], word: str) -> None:
    before = state_of(shared)
    with refused(DeferredError, word), shared.transaction() as tx:
        attempt(tx)
    assert state_of(shared) == before


def test_a_condition_with_quotes_and_comments_means_what_it_says(shared: Any) -> None:
    with shared.transaction() as tx:
        tx.insert("r", [(50, 1, "a'; DROP TABLE r --"), (51, 1, 'back\\slash `tick` "quote"')])
        tx.update("r", {"b": "60"}, "s = 'a\\'; DROP TABLE r --' -- a comment")
        tx.delete("r", "s LIKE 'back\\\\\\\\slash%' /* another */")
    rows = bag(shared.sql("SELECT a, b FROM r WHERE a >= 50"))
    assert rows == {(50, 60): 1}
    with shared.transaction() as tx:
        tx.delete("r", "a >= 50")


@pytest.mark.parametrize("folder", ['it\'s ü; -- "x"', "tick`s"])
def test_paths_with_anything_in_them(warehouse: Any, tmp_path: Path, folder: str) -> None:
    wh = warehouse
    path = tmp_path / folder
    wh.spark.createDataFrame([(1,)], "a INT").write.format("delta").save(str(path))
    wh.track("x", path)
    wh.create_view("v", "SELECT a FROM x")
    with wh.transaction() as tx:
        tx.insert("x", [(2,)])
    wh.refresh("v")
    wh.verify("v")
    assert bag(wh.read("v")) == {(1,): 1, (2,): 1}


def test_a_path_that_one_of_its_readers_cannot_open(shared: Any, tmp_path: Path) -> None:
    """delta-rs reads a percent sign as an escape: the path is refused before anything is changed."""
    path = make(shared.spark, tmp_path / "a%20b", "a INT")
    before = state_of(shared)
    with refused(InvalidInputError, path):
        shared.track("x", path)
    assert state_of(shared) == before
    assert shared.spark.sql(f"DESCRIBE HISTORY delta.`{path}`").count() == 1
