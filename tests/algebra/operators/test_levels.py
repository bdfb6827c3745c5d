"""A bag that is defined by recursion: one row for each derivation, counted by the height of it."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.operators.levels import CountedLevels
from deferred.algebra.operators.recursion import Recursion
from deferred.algebra.strategy import support_tables
from tests.algebra.operators.cases import ROWS, SCHEMAS, TELLING, bound, database
from tests.fuzz.case import Case, Change, Row
from tests.fuzz.check import check

FROM_ONE = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT t.b FROM x JOIN t ON x.n = t.a) "
STEPS = (
    "WITH RECURSIVE x(a, k) AS (SELECT a, 0 FROM t UNION ALL SELECT t.b, k + 1 FROM x JOIN t ON x.a = t.a WHERE k < 2) "
)

VIEWS = {
    "derivations": f"{STEPS}SELECT a, k FROM x",
    "counted above": f"{STEPS}SELECT a, COUNT(*) AS n FROM x GROUP BY a",
    "over a join": "WITH RECURSIVE x(a, k) AS (SELECT t.a, 0 FROM t JOIN u ON t.b = u.b UNION ALL "
    "SELECT u.c, k + 1 FROM x JOIN u ON x.a = u.b WHERE k < 2) SELECT a, k FROM x",
    "two branches": "WITH RECURSIVE x(a, k) AS (SELECT a, 0 FROM t UNION ALL SELECT t.b, k + 1 FROM x JOIN t ON x.a = t.a "
    "WHERE k < 1 UNION ALL SELECT u.c, k + 1 FROM x JOIN u ON x.a = u.b WHERE k < 2) SELECT a, k FROM x",
    "non-linear": "WITH RECURSIVE x(a, k) AS (SELECT b, 1 FROM u UNION ALL SELECT x.a, x.k + y.k FROM x JOIN x AS y "
    "ON x.a = y.a WHERE x.k + y.k < 4) SELECT a, k FROM x",
}


@pytest.mark.parametrize("view", VIEWS)
def test_it_follows_changes(view: str) -> None:
    (node,) = {n for n in bound(VIEWS[view]).walk() if isinstance(n, Recursion)}
    assert isinstance(node.strategy, CountedLevels)
    check(Case(SCHEMAS, VIEWS[view], ROWS, tuple(TELLING.values())), database())


# edges, a change of them: each row with its level and the number of its derivations, before and after
GRAPHS: dict[str, tuple[tuple[Row, ...], Change, dict[Row, int], dict[Row, int]]] = {
    "a diamond loses a side": (
        ((1, 2), (1, 3), (2, 4), (3, 4)),
        Change(((3, 4),), ()),
        {(1, 0): 1, (2, 1): 1, (3, 1): 1, (4, 2): 2},
        {(1, 0): 1, (2, 1): 1, (3, 1): 1, (4, 2): 1},
    ),
    "an edge twice": (
        ((1, 2), (2, 3)),
        Change((), ((1, 2),)),
        {(1, 0): 1, (2, 1): 1, (3, 2): 1},
        {(1, 0): 1, (2, 1): 2, (3, 2): 2},
    ),
    "a shorter way beside a longer one": (
        ((1, 2), (2, 3)),
        Change((), ((1, 3),)),
        {(1, 0): 1, (2, 1): 1, (3, 2): 1},
        {(1, 0): 1, (2, 1): 1, (3, 1): 1, (3, 2): 1},
    ),
    "the first edge moves": (
        ((1, 2), (2, 4), (3, 4)),
        Change(((1, 2),), ((1, 3),)),
        {(1, 0): 1, (2, 1): 1, (4, 2): 1},
        {(1, 0): 1, (3, 1): 1, (4, 2): 1},
    ),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_what_it_keeps(graph: str) -> None:
    edges, change, before, after = GRAPHS[graph]
    left = Counter(edges)
    left.subtract(change.deleted)
    left.update(change.inserted)
    query = f"{FROM_ONE}SELECT n FROM x"
    for rows, expected in ((Counter(edges), before), (left, after)):
        db = database()
        for name in SCHEMAS:
            db.replace(name, +rows if name == "t" else Counter())
        view = db.bind(query)
        db.keep(view)
        (name,) = support_tables(view.plan)
        assert db.wrong_support_tables(view) == {}
        stored = db.connection.execute(f'SELECT * FROM "{name}"').fetchall()
        assert {row[:2]: row[2] for row in stored} == expected
    check(Case(SCHEMAS, query, {"t": edges, "u": ()}, ({"t": change},)), database())
