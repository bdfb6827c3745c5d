"""A set that is defined by recursion: what may be gone is looked for too widely, and what still follows is put back."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.delta import differentiate
from deferred.algebra.operators.recursion import Recursion
from deferred.algebra.operators.rederiving import DeleteRederive
from deferred.algebra.program import run
from tests.algebra.operators.cases import ROWS, SCHEMAS, TELLING, bound, database
from tests.algebra.strategies import signed
from tests.fuzz.case import Case, Change, Row
from tests.fuzz.check import apply, check

FROM_ONE = "WITH RECURSIVE x(n) AS (SELECT 1 UNION SELECT t.b FROM x JOIN t ON x.n = t.a) SELECT n FROM x"

VIEWS = {
    "from one row": FROM_ONE,
    "closure": "WITH RECURSIVE x AS (SELECT a, b FROM t UNION SELECT x.a, t.b FROM x JOIN t ON x.b = t.a) SELECT a, b FROM x",
    "two tables": "WITH RECURSIVE x AS (SELECT a, b FROM t UNION SELECT x.a, u.c FROM x JOIN u ON x.b = u.b) SELECT a, b FROM x",
    "semi join": "WITH RECURSIVE x(n) AS (SELECT a FROM t UNION SELECT t.b FROM x JOIN t ON x.n = t.a "
    "WHERE EXISTS (SELECT 1 FROM u WHERE u.b = t.b)) SELECT n FROM x",
    "anti join": "WITH RECURSIVE x(n) AS (SELECT a FROM t UNION SELECT t.b FROM x JOIN t ON x.n = t.a "
    "WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.b = t.b)) SELECT n FROM x",
}


@pytest.mark.parametrize("view", VIEWS)
def test_it_follows_changes(view: str) -> None:
    (node,) = {n for n in bound(VIEWS[view]).walk() if isinstance(n, Recursion)}
    assert isinstance(node.strategy, DeleteRederive)
    check(Case(SCHEMAS, VIEWS[view], ROWS, tuple(TELLING.values())), database())


# edges, a change of them: what may be gone, what is derived, and the change of the view
GRAPHS: dict[str, tuple[tuple[Row, ...], Change, set[int], set[int], dict[int, int]]] = {
    "the only way": (((1, 2), (2, 3)), Change(((1, 2),), ()), {2, 3}, set(), {2: -1, 3: -1}),
    "one of two ways": (((1, 2), (1, 3), (2, 4), (3, 4), (4, 5)), Change(((3, 4),), ()), {4, 5}, {4, 5}, {}),
    "a cycle that hangs on one edge": (((1, 2), (2, 3), (3, 2)), Change(((1, 2),), ()), {2, 3}, set(), {2: -1, 3: -1}),
    "a cycle with another way in": (((1, 2), (2, 3), (3, 2), (1, 3)), Change(((1, 2),), ()), {2, 3}, {2, 3}, {}),
    "an edge moves": (((1, 2), (2, 4), (3, 4)), Change(((1, 2),), ((1, 3),)), {2, 4}, {3, 4}, {2: -1, 3: 1}),
    "only new rows": (((1, 2),), Change((), ((2, 3), (3, 1))), set(), {3}, {3: 1}),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_what_may_be_gone_and_what_is_put_back(graph: str) -> None:
    edges, change, gone, derived, expected = GRAPHS[graph]
    db = database()
    for name in SCHEMAS:
        db.replace(name, Counter(edges if name == "t" else ()))
    view = db.bind(FROM_ONE)
    db.keep(view)
    before = db.query(FROM_ONE)
    program = differentiate(view.plan, apply(db, {"t": change}), view.types)
    run(program.steps, db)
    (told,) = program.recursions

    def values(name: str | None) -> set[int]:
        return (
            set() if name is None else {row[0] for row in db.connection.execute(f'SELECT * FROM "{name}"').fetchall()}
        )

    assert values(told.overestimated) == gone
    assert values(told.derived) == derived
    assert signed(db.query(FROM_ONE), before) == {(n,): count for n, count in expected.items()}
    check(Case(SCHEMAS, FROM_ONE, {"t": edges, "u": ()}, ({"t": change},)), database())
