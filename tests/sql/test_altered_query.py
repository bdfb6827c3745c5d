"""One text for two queries, in which it is marked what only one of them has."""

from __future__ import annotations

import re

import pytest

from deferred.sql.altered_query import marked, normal_form
from tests.algebra.operators.cases import database

MARKED: dict[tuple[str, str], str | None] = {
    ("SELECT a FROM t WHERE b > 1", "SELECT a FROM t"): "SELECT a FROM t WHERE [TRUE for b > 1]",
    ("SELECT a FROM t WHERE a > 1 AND b", "SELECT a FROM t WHERE b AND c"): "SELECT a FROM t WHERE b AND [c for a > 1]",
    (
        "SELECT s, COUNT(*) FROM (SELECT * FROM t WHERE a > 1) AS x GROUP BY s",
        "SELECT s, COUNT(*) FROM (SELECT * FROM t WHERE a > 2) AS x GROUP BY s",
    ): "SELECT s, COUNT(*) FROM (SELECT * FROM t WHERE [a > 2 for a > 1]) AS x GROUP BY s",
    (
        "SELECT a FROM t WHERE a IN (SELECT b FROM u WHERE c = 1)",
        "SELECT a FROM t WHERE a IN (SELECT b FROM u WHERE c = 2)",
    ): "SELECT a FROM t WHERE a IN (SELECT b FROM u WHERE [c = 2 for c = 1])",
    (
        "WITH x AS (SELECT a FROM t) SELECT a FROM x",
        "WITH x AS (SELECT a FROM t) SELECT a FROM x UNION ALL SELECT b FROM u",
    ): "WITH x AS (SELECT a FROM t) SELECT a FROM x UNION ALL SELECT b FROM u WHERE [TRUE for FALSE]",
    (
        "SELECT a FROM t UNION SELECT b FROM u UNION SELECT c FROM v",
        "SELECT b FROM u UNION SELECT c FROM v",
    ): "SELECT a AS `b` FROM t WHERE [FALSE for TRUE] UNION SELECT b FROM u UNION SELECT c FROM v",
    (
        "SELECT a FROM t",
        "SELECT a FROM t UNION ALL SELECT MAX(b) AS m FROM u",
    ): "SELECT a FROM t UNION ALL SELECT * FROM (SELECT MAX(b) AS m FROM u) AS _deferred_branch WHERE [TRUE for FALSE]",
    ("SELECT a FROM t", "SELECT a FROM t"): None,
    ("SELECT a FROM t WHERE b > 1", "SELECT c FROM t WHERE b > 2"): None,
    ("SELECT a FROM t ORDER BY a LIMIT 1", "SELECT a FROM t UNION ALL SELECT b FROM u ORDER BY a LIMIT 1"): None,
    ("SELECT t.a FROM t, u WHERE t.a = u.a", "SELECT t.a FROM t, u WHERE t.a = u.b"): None,
}


@pytest.mark.parametrize(("old", "new"), MARKED)
def test_conditions_and_branches_that_only_one_query_has(old: str, new: str) -> None:
    found = marked(old, new)
    mark = r"CASE WHEN (.*?) THEN TRUE WHEN (.*?) THEN FALSE ELSE '_deferred_edit' END"
    assert (None if found is None else re.sub(mark, r"[\1 for \2]", found)) == MARKED[old, new]


CLOSURE = "WITH RECURSIVE x AS (SELECT a, b FROM t UNION SELECT x.a, t.b FROM x JOIN t ON x.b = t.a) SELECT a, b FROM x"
SAME = {
    "other words": ("SELECT a, b FROM t WHERE a > 1", "select p.a, b -- the same\nfrom t as p where p.a > 1"),
    "a recursion by another name": (
        CLOSURE,
        CLOSURE.replace("x ", "Way ").replace("x.", "Way.").replace("FROM x", "FROM Way"),
    ),
    "a limit that does not count": (CLOSURE, CLOSURE.replace("x AS (", "x MAX RECURSION LEVEL 7 AS (")),
}
OTHER = {
    "another condition in a branch": (CLOSURE, CLOSURE.replace("= t.a)", "= t.a AND t.b > 1)")),
    "another start": (CLOSURE, CLOSURE.replace("SELECT a, b FROM t", "SELECT b, a FROM t")),
    "another union": (CLOSURE, CLOSURE.replace("UNION", "UNION ALL")),
    "another limit": (
        CLOSURE.replace("UNION", "UNION ALL"),
        CLOSURE.replace("UNION", "UNION ALL").replace("x AS (", "x MAX RECURSION LEVEL 7 AS ("),
    ),
    "another recursive column": (CLOSURE, CLOSURE.replace("SELECT x.a,", "SELECT x.b,")),
}


@pytest.mark.parametrize("name", [*SAME, *OTHER])
def test_texts_of_one_plan(name: str) -> None:
    old, new = map(database().bind, (SAME | OTHER)[name])
    assert (normal_form(old.plan, old.types) == normal_form(new.plan, new.types)) == (name in SAME)
