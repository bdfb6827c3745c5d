"""Plans and programs as SQL text: leaves under readable names, steps one after the other, rounds to be read."""

from __future__ import annotations

import pytest
from sqlglot import exp

from deferred.algebra.delta import differentiate
from deferred.algebra.operators import Scan, Stored, Temporary
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.plan import Keys
from deferred.algebra.scalar import column
from deferred.sql.dialect import parse_query
from deferred.sql.render import ReadableLeaves, Renderer
from tests.algebra.operators.cases import database

RENDERER = Renderer(ReadableLeaves())


def statement(query: str, *changed: str) -> str | None:
    bound = database().bind(query)
    return RENDERER.statement(differentiate(bound.plan, set(changed), bound.types))


def tables(sql: str) -> set[str]:
    """What is read; the names in hints are parsed as tables, too."""
    found = parse_query(sql).find_all(exp.Table)
    return {table.name for table in found if isinstance(table.parent, (exp.From, exp.Join))}


READ: dict[tuple[str, str], set[str]] = {
    ("SELECT a FROM t WHERE b = 1", "t"): {"changes of t"},
    ("SELECT a, c FROM t JOIN u ON t.b = u.b", "t"): {"changes of t", "u"},
    ("SELECT a, COUNT(*) AS n FROM t GROUP BY a", "t"): {"changes of t", "support support1"},
}


@pytest.mark.parametrize(("query", "changed"), READ)
def test_a_change_is_one_statement(query: str, changed: str) -> None:
    sql = statement(query, changed)
    assert sql is not None
    steps = {name for name in tables(sql) if name.startswith("step")}
    assert tables(sql) - steps == READ[query, changed]
    assert steps == {cte.alias for cte in parse_query(sql).find_all(exp.CTE)} & steps


def test_without_a_change_there_is_no_statement() -> None:
    assert statement("SELECT a FROM t") is None


def test_rounds_are_shown_to_be_read() -> None:
    closure = (
        "WITH RECURSIVE x AS (SELECT a, b FROM t UNION SELECT x.a, t.b FROM x JOIN t ON x.b = t.a) SELECT a, b FROM x"
    )
    sql = statement(closure, "t")
    assert sql is not None
    assert sql.count(": the first rows; ") == sql.count(": the rows of the next round, until there are none\n") == 2


@pytest.mark.parametrize("small", [True, False])
def test_small_changes_are_sent_to_the_data(small: bool) -> None:
    t, u = Scan("t", ("a", "b"), ("a", "b")), Scan("u", ("b", "c"), ("x", "y"))
    sql = Renderer(ReadableLeaves(), small).render(Restrict(t, Keys.of(u, [("b", "x")])))
    assert ("BROADCAST" in sql) is small


def test_what_only_an_engine_can_do_is_left_out() -> None:
    """A statement that is shown looks nothing up beforehand, and names no values."""
    stored, step = Stored("kept", ("a", "b"), ("a",)), Temporary("step1", ("a",))
    keys = Keys.of(step, [("a", "a")])
    assert (RENDERER.fetched(stored, keys), RENDERER.one_of(keys)) == (None, None)
    assert RENDERER.near(column("a"), step, column("a")) is None
    assert RENDERER.held(stored) == stored.columns
    assert RENDERER.render(stored) == RENDERER.text(RENDERER.newest(stored, RENDERER.query(stored)))
    assert tables(RENDERER.render(stored)) == {"support kept"}
