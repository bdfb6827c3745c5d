"""Queries with other conditions and branches: the delta rules take the old rows, and what is kept, to the new ones."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.duck import Database
from tests.fuzz.test_altering import Alteration, View

SCHEMAS = {"t": [("a", "int"), ("b", "int"), ("s", "string")], "u": [("a", "int"), ("c", "int")]}
ROWS = {
    "t": Counter({(1, 2, "x"): 2, (1, 5, "y"): 1, (2, None, "x"): 1, (None, 7, "z"): 1, (3, 3, None): 1}),
    "u": Counter({(1, 2): 1, (2, 4): 2, (9, 9): 1, (None, None): 1}),
}

REACHED = "WITH RECURSIVE x AS (SELECT a, b FROM t UNION SELECT x.a, u.c FROM x JOIN u ON x.b = u.a)"

PAIRS = {
    "counted groups": [
        f"SELECT a, COUNT(*) AS n, SUM(b) AS t, MAX(b) AS m FROM t WHERE {condition} GROUP BY a"
        for condition in ("b > 2", "b > 1 OR s = 'x'", "b < 4", "TRUE", "s <> 'x' AND b > 2")
    ],
    "groups that are not counted": [
        "SELECT a, COUNT(DISTINCT b) AS n FROM t WHERE b > 2 GROUP BY a",
        "SELECT a, COUNT(DISTINCT b) AS n FROM t GROUP BY a",
    ],
    "all rows as one group": ["SELECT COUNT(*) AS n FROM t WHERE b > 2", "SELECT COUNT(*) AS n FROM t"],
    "groups over a join": [
        f"SELECT t.a, SUM(c) AS n FROM t JOIN u ON t.a = u.a WHERE {condition} GROUP BY t.a"
        for condition in ("b > 2", "c > 2", "b > 2 AND c > 2")
    ],
    "below a derived table": [
        f"SELECT s, n, COUNT(*) AS k FROM (SELECT s, a AS n FROM t WHERE {condition}) AS x GROUP BY s, n"
        for condition in ("b > 2", "b IS NULL")
    ],
    "a common table expression that is read twice": [
        f"WITH x AS (SELECT a, b FROM t WHERE {condition}) SELECT l.a, r.b FROM x l JOIN x r ON l.a = r.a"
        for condition in ("b > 2", "b < 4")
    ],
    "a condition above another one": [
        f"SELECT a, MAX(b) AS m FROM (SELECT * FROM t WHERE {below}) AS x WHERE {above} GROUP BY a"
        for below, above in (("b > 2", "a > 0"), ("b > 1", "a > 1"), ("b < 6", "a IS NULL"))
    ],
    "branches of UNION": [
        "SELECT a FROM t UNION SELECT a FROM u",
        "SELECT a FROM t UNION SELECT a FROM u UNION SELECT b FROM t",
        "SELECT a FROM t UNION SELECT b FROM t",
    ],
    "branches of UNION below groups": [
        "SELECT a, COUNT(*) AS n FROM (SELECT a FROM t UNION SELECT a FROM u) AS x GROUP BY a",
        "SELECT a, COUNT(*) AS n FROM (SELECT a FROM t UNION SELECT a FROM u UNION SELECT b FROM t) AS x GROUP BY a",
    ],
    "branches of UNION ALL below groups": [
        "SELECT a, COUNT(*) AS n FROM (SELECT a FROM t UNION ALL SELECT a FROM u) GROUP BY a",
        "SELECT a, COUNT(*) AS n FROM (SELECT c AS a FROM u UNION ALL SELECT a FROM t UNION ALL SELECT a FROM u) GROUP BY a",
    ],
    "a branch with groups": [
        "SELECT a, b FROM t",
        "SELECT a, b FROM t UNION ALL SELECT a, MAX(c) AS b FROM u GROUP BY a",
        "SELECT a, b FROM t UNION ALL SELECT 0 AS a, MAX(c) AS b FROM u",
    ],
    "a scalar subquery": [
        "SELECT t.a, (SELECT MAX(c) FROM u WHERE c < 4) AS m FROM t",
        "SELECT t.a, (SELECT MAX(c) FROM u WHERE c < 9) AS m FROM t",
    ],
    "a correlated subquery": [
        f"SELECT t.a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND c > {least})" for least in (3, 1)
    ],
    "an anti join": [
        "SELECT t.a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND c > 3)",
        "SELECT t.a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND c > 1)",
    ],
    "the padded side of an outer join": [
        f"SELECT t.a, x.c FROM t LEFT JOIN (SELECT a, c FROM u WHERE {condition}) AS x ON t.a = x.a"
        for condition in ("c > 3", "c < 9")
    ],
    "first rows": [
        "SELECT a, b FROM t WHERE s = 'x' ORDER BY b DESC, a LIMIT 2",
        "SELECT a, b FROM t ORDER BY b DESC, a LIMIT 2",
    ],
    "windows": [f"SELECT a, RANK() OVER (PARTITION BY s ORDER BY b) AS k FROM t WHERE b > {least}" for least in (2, 4)],
    "conditions on groups and below them": [
        f"SELECT a, COUNT(*) AS n, MAX(b) AS m FROM t WHERE {below} GROUP BY a HAVING {above}"
        for below, above in (("TRUE", "COUNT(*) > 1"), ("s <> 'z'", "COUNT(*) > 0"), ("b > 2", "MAX(b) < 7 OR n > 1"))
    ],
    "what a window shows": [
        f"SELECT a, b, s FROM t WHERE {below} QUALIFY RANK() OVER (PARTITION BY s ORDER BY b) {above}"
        for below, above in (("TRUE", "< 2"), ("TRUE", "> 1"), ("b > 2", "<= 2"))
    ],
    "what rows are joined on": [
        f"SELECT t.a, t.b, u.c FROM t JOIN u ON t.a = u.a{on} WHERE {condition}"
        for on, condition in (("", "TRUE"), (" AND u.c > 2", "TRUE"), (" AND u.c > 1 AND t.b < 5", "s = 'x'"))
    ],
    "groups over what rows are joined on": [
        f"SELECT t.a, COUNT(*) AS n FROM t JOIN u ON t.a = u.a{on} GROUP BY t.a" for on in ("", " AND u.c > 2")
    ],
    "distinct rows": [f"SELECT DISTINCT a FROM t WHERE b > {least}" for least in (2, 1)],
    "above a recursion": [
        f"{REACHED} SELECT a, COUNT(*) AS n FROM x WHERE {condition} GROUP BY a" for condition in ("b > 1", "b < 4")
    ],
    "a difference of sets": [
        f"SELECT a FROM t EXCEPT SELECT a FROM u WHERE {condition}" for condition in ("c > 3", "c < 9")
    ],
}
"""Queries of which each may become each other."""

RECOMPUTED = {
    "another type": ("SELECT a FROM t", "SELECT a FROM t UNION ALL SELECT s FROM t"),
    "another kind of union": ("SELECT a FROM t UNION ALL SELECT a FROM u", "SELECT a FROM t UNION SELECT a FROM u"),
    "duplicates": ("SELECT a FROM t", "SELECT a FROM t UNION SELECT a FROM u"),
}


@pytest.fixture(scope="module")
def db() -> Database:
    database = Database(SCHEMAS)
    for name, rows in ROWS.items():
        database.replace(name, rows)
    return database


@pytest.mark.parametrize("what", PAIRS)
def test_the_old_rows_become_the_new_ones(db: Database, what: str) -> None:
    for old in PAIRS[what]:
        for new in PAIRS[what]:
            if old != new:
                assert Alteration(View(db, old), new).ways["difference"], f"{old}\nbecame {new}"


def test_support_tables_move(db: Database) -> None:
    old, *others = PAIRS["counted groups"]
    for new in others:
        assert Alteration(View(db, old), new).ways["difference, kept rows moved"]


@pytest.mark.parametrize("why", RECOMPUTED)
def test_what_is_not_surely_the_same_below(db: Database, why: str) -> None:
    old, new = RECOMPUTED[why]
    assert not Alteration(View(db, old), new).ways["difference"]
