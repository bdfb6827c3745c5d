"""What a changed query takes over from the support tables of the one before it."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.operators.scan import tables_of
from deferred.algebra.paper.evaluate import evaluate
from deferred.algebra.sharing import VIEW, Sharing, over_shared, over_view
from deferred.sql.bind import Bound
from tests.algebra.operators.cases import STATE, database

GROUPS = "SELECT a, COUNT(*) AS n, SUM(b) AS s FROM t GROUP BY a"
CLOSURE = "WITH RECURSIVE x AS (SELECT a, b FROM t UNION SELECT x.a, t.b FROM x JOIN t ON x.b = t.a)"
FIRST = "SELECT a, b FROM t ORDER BY a, b DESC LIMIT 3"

NOTHING_READ = {
    "another condition on groups": (f"{GROUPS} HAVING SUM(b) > 1", f"{GROUPS} HAVING SUM(b) > 0"),
    "a total made of what is kept": (GROUPS, "SELECT a, AVG(b) AS m, COUNT(b) AS c FROM t GROUP BY a"),
    "other names, another order": (GROUPS, "SELECT SUM(q.b) AS x, q.a AS y FROM t AS q GROUP BY q.a"),
    "fewer first rows": (FIRST, FIRST.replace("LIMIT 3", "LIMIT 2")),
    "an offset": (FIRST, FIRST.replace("LIMIT 3", "LIMIT 2 OFFSET 1")),
    "groups above a recursion": (
        f"{CLOSURE} SELECT a, b FROM x",
        f"{CLOSURE} SELECT a, COUNT(*) AS n FROM x GROUP BY a",
    ),
    "a recursion by another name": (
        f"{CLOSURE} SELECT a FROM x",
        "WITH RECURSIVE y AS (SELECT a, b FROM t UNION SELECT y.a, t.b FROM y JOIN t ON y.b = t.a) SELECT b FROM y",
    ),
}

SOME_READ = {
    "an aggregate of a column that was not read": (
        "SELECT b, COUNT(*) AS n FROM u GROUP BY b",
        "SELECT b, COUNT(*) AS n, MAX(c) AS m FROM u GROUP BY b",
        {"u"},
    ),
    "more first rows": (FIRST, FIRST.replace("LIMIT 3", "LIMIT 4"), None),
    "another order": (FIRST, FIRST.replace("b DESC", "b"), None),
    "other rows": (GROUPS, GROUPS.replace("FROM t", "FROM t WHERE b > 0"), None),
    "other groups": (GROUPS, "SELECT b, COUNT(*) AS n FROM t GROUP BY b", None),
    "another recursion": (
        f"{CLOSURE} SELECT a FROM x",
        f"{CLOSURE.replace('x.a, t.b', 't.b, x.a')} SELECT a FROM x",
        None,
    ),
}
"""With the tables that are read for what is not kept, None where nothing is taken over."""


def compared(old: str, new: str) -> tuple[Sharing, Bound]:
    before, after = database().bind(old), database().bind(new)
    return Sharing(before.plan, before.types, after.types, frozenset(after.tables)), after


@pytest.mark.parametrize("name", NOTHING_READ)
def test_no_table_is_read_for_what_is_kept(name: str) -> None:
    sharing, after = compared(*NOTHING_READ[name])
    assert tables_of(over_shared(after.plan, sharing.shared(after.plan))) == frozenset()


@pytest.mark.parametrize("name", SOME_READ)
def test_what_is_not_kept_is_read(name: str) -> None:
    old, new, tables = SOME_READ[name]
    sharing, after = compared(old, new)
    shared = sharing.shared(after.plan)
    assert bool(shared) == (tables is not None)
    if tables is not None:
        assert tables_of(over_shared(after.plan, shared)) == tables


def test_a_table_that_was_tracked_again_is_another_one() -> None:
    before = database().bind(GROUPS)
    assert Sharing(before.plan, before.types, before.types, frozenset()).shared(before.plan) == {}


TWICE = "WITH c AS (SELECT a, b FROM t) SELECT p.a, p.b, q.a AS c, q.b AS d FROM c AS p JOIN c AS q ON p.a >= q.b"
ADDED = {
    "a condition": ("SELECT a, b FROM t", "SELECT a, b FROM t WHERE a < b"),
    "a join": ("SELECT a, b FROM t", "SELECT t.a, u.c FROM t JOIN u ON t.b = u.b"),
    "a condition on a query that is used twice": (TWICE, f"{TWICE} WHERE q.a >= p.b"),
}


@pytest.mark.parametrize("name", ADDED)
def test_what_is_added_to_a_view_is_computed_from_its_rows(name: str) -> None:
    old, new = (database().bind(sql) for sql in ADDED[name])
    plan = over_view(Sharing(old.plan, old.types, new.types, frozenset(new.tables)), new.plan)
    assert plan is not None
    rows = {VIEW: evaluate(old.plan, STATE)}
    assert evaluate(plan, STATE, temporaries=rows) == evaluate(new.plan, STATE)
    assert evaluate(new.plan, STATE) not in (Counter(), *rows.values())
