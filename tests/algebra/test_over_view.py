"""A definition over the rows of the view: other conditions and columns, and fewer joins where these change no row."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.operators.scan import tables_of
from deferred.algebra.over_view import VIEW, OverView, of_view, over_view
from deferred.algebra.selfmaintenance import Promises
from deferred.algebra.sharing import Sharing
from deferred.sql.bind import Bound
from deferred.sql.dialect import text
from tests.fuzz.duck import Database

SCHEMAS = {
    "sale": (("id", "int"), ("customer", "int"), ("shop", "int"), ("day", "int")),
    "customer": (("id", "int"), ("name", "int")),
    "shop": (("id", "int"), ("region", "int")),
    "price": (("shop", "int"), ("day", "int"), ("amount", "int")),
}
ROWS = {
    "sale": [(1, 7, 1, 1), (1, 7, 1, 1), (2, None, 1, 2), (3, 8, None, 1), (None, 7, 2, 2), (4, None, None, 2)],
    "customer": [(7, 70), (8, None), (9, 90)],
    "shop": [(1, 10), (2, 20)],
    "price": [(1, 1, 100), (1, 2, 200), (2, 2, 300)],
}
PROMISES = Promises.of(
    {"sale": [], "customer": ["id"], "shop": ["id"], "price": ["shop", "day"]},
    {"sale": {"customer": "customer.id", "shop": "shop.id"}},
)
SALES = "SELECT s.id, s.day FROM sale s"

LEFT_OUT = {
    "a reference": ("SELECT s.id, s.day, c.name FROM sale s JOIN customer c ON s.customer = c.id", SALES, "sale"),
    "a reference that the new query reads": (
        "SELECT s.id, s.customer, c.name FROM sale s JOIN customer c ON s.customer = c.id",
        "SELECT s.customer, s.id FROM sale s",
        "sale",
    ),
    "one of two": (
        "SELECT s.id, c.name, h.region FROM sale s JOIN customer c ON c.id = s.customer JOIN shop h ON s.shop = h.id",
        "SELECT s.id, h.region FROM sale s JOIN shop h ON s.shop = h.id",
        "sale shop",
    ),
    "both": (
        "SELECT s.id, s.day, h.region FROM sale s, customer c, shop h WHERE c.id = s.customer AND s.shop = h.id",
        SALES,
        "sale",
    ),
    "with a condition that stays": (
        "SELECT s.id, s.day, c.name FROM sale s JOIN customer c ON s.customer = c.id WHERE s.day > 1",
        f"{SALES} WHERE day > 1 AND s.id > 1",
        "sale",
    ),
    "a left join": ("SELECT s.id, s.day, c.name FROM sale s LEFT JOIN customer c ON s.customer = c.id", SALES, ""),
    "a left join by two columns": (
        "SELECT s.id, s.day, amount FROM sale s LEFT JOIN price p ON s.shop = p.shop AND p.day = s.day",
        SALES,
        "",
    ),
    "a left join for another": (
        "SELECT s.id, s.shop, s.day, c.name FROM sale s LEFT JOIN customer c ON s.customer = c.id",
        "SELECT s.id, h.region FROM sale s JOIN shop h ON s.shop = h.id",
        "shop",
    ),
}
"""With the tables that are read again: of the one that refers, only the rows that refer to nothing."""

NOT_LEFT_OUT = {
    "no reference": ("SELECT s.id, s.day FROM sale s JOIN customer c ON s.id = c.id", SALES),
    "part of a key": ("SELECT s.id, s.day FROM sale s LEFT JOIN price p ON s.shop = p.shop", SALES),
    "a condition on the other table": (
        "SELECT s.id, s.day FROM sale s JOIN customer c ON s.customer = c.id WHERE c.name > 1",
        SALES,
    ),
    "a condition on the other table of a left join": (
        "SELECT s.id, s.day FROM sale s LEFT JOIN customer c ON s.customer = c.id WHERE c.name > 1",
        SALES,
    ),
    "a column that the view lacks": ("SELECT s.id FROM sale s JOIN customer c ON s.customer = c.id", SALES),
    "the table that refers": (
        "SELECT c.id, c.name FROM sale s JOIN customer c ON s.customer = c.id",
        "SELECT c.id, c.name FROM customer c",
    ),
    "an inequality": ("SELECT s.id, s.day FROM sale s JOIN customer c ON s.customer >= c.id", SALES),
    "a full join": ("SELECT s.id, s.day FROM sale s FULL JOIN customer c ON s.customer = c.id", SALES),
}


@pytest.fixture(scope="module")
def db() -> Database:
    made = Database(SCHEMAS)
    for name, rows in ROWS.items():
        made.replace(name, Counter(rows))
    return made


@pytest.mark.parametrize("name", LEFT_OUT)
def test_joins_that_are_left_out(db: Database, name: str) -> None:
    old, new, tables = LEFT_OUT[name]
    before, after = db.bind(old), db.bind(new)
    sharing = Sharing(before.plan, before.types, after.types, frozenset(after.tables))
    found = over_view(sharing, after.plan, PROMISES)
    assert found is not None
    names = ", ".join(f'"{of_view(c)}"' for c in before.plan.columns)
    rendered = db.renderer.render(before.plan)
    db.connection.execute(f'CREATE OR REPLACE TEMP TABLE "{VIEW}" AS SELECT * FROM ({rendered}) AS q({names})')
    assert db.rows_of(found.plan) == db.query(new)
    assert tables_of(found.plan) == set(tables.split())
    assert found.relied.keys
    assert over_view(sharing, after.plan, Promises()) is None


@pytest.mark.parametrize("name", NOT_LEFT_OUT)
def test_joins_that_count(db: Database, name: str) -> None:
    old, new = NOT_LEFT_OUT[name]
    before, after = db.bind(old), db.bind(new)
    sharing = Sharing(before.plan, before.types, after.types, frozenset(after.tables))
    assert over_view(sharing, after.plan, PROMISES) is None


TABLES = {
    "t": (("a", "int"), ("b", "int"), ("c", "int"), ("s", "string"), ("p", "double"), ("many", "array<int>")),
    "u": (("b", "int"), ("c", "int")),
}
CONTENTS = {
    "t": [
        (1, 2, 3, "x", 1.234, "[1, 2]"),
        (1, 5, 1, "X", 2.5, "[3]"),
        (2, None, 2, "y", -0.125, "[]"),
        (None, 7, None, "y", 9.0, "[4, 5]"),
        (1, 2, 3, "x", 1.234, "[1, 2]"),
    ],
    "u": [(2, 3), (None, 1)],
}
GROUPED = "SELECT a, COUNT(*) AS n FROM t GROUP BY a"

NOT_OF_VIEW = {
    "the row of no groups stays": ("SELECT COUNT(*) AS n FROM t", "SELECT COUNT(*) AS n FROM t WHERE FALSE"),
    "the row of all groups stays": (
        "SELECT a, COUNT(*) AS n FROM t GROUP BY ROLLUP (a)",
        "SELECT a, COUNT(*) AS n FROM t WHERE a > 1 GROUP BY ROLLUP (a)",
    ),
    "the condition is not on whole groups": (
        "SELECT a, MAX(b) AS n FROM t GROUP BY a",
        "SELECT a, MAX(b) AS n FROM t WHERE b > 1 GROUP BY a",
    ),
    "fewer columns have more duplicates": ("SELECT DISTINCT a, b FROM t", "SELECT DISTINCT a FROM t"),
    "a limit chooses among other rows": (
        "SELECT a, b FROM t ORDER BY a LIMIT 1",
        "SELECT a, b FROM t WHERE b = 1 ORDER BY a LIMIT 1",
    ),
    "a window sees other rows": (
        "SELECT a, RANK() OVER (ORDER BY a) AS n FROM t",
        "SELECT a, RANK() OVER (ORDER BY a) AS n FROM t WHERE a > 1",
    ),
    "a column that the old rows lack": ("SELECT a, b FROM t", "SELECT a, c FROM t"),
    "a subquery is no value of the old rows": (
        "SELECT a, b FROM t",
        "SELECT a, (SELECT MAX(c) FROM u) AS m FROM t",
    ),
    "another table": ("SELECT a FROM t", "SELECT a FROM t, u"),
    "another common table expression": (
        "WITH x AS (SELECT a FROM t) SELECT a FROM x",
        "WITH x AS (SELECT b AS a FROM u) SELECT a FROM x UNION ALL SELECT b FROM u",
    ),
    "the first rows of a union are chosen among all": (
        "SELECT a FROM t UNION ALL SELECT b AS a FROM u ORDER BY a LIMIT 1",
        "SELECT a FROM t",
    ),
    "names differ in case inside a text": ("SELECT a FROM t WHERE a = 'X'", "SELECT b FROM t WHERE a = 'x'"),
    "names of keys stand for coarser values": (
        "SELECT s AS k, COUNT(*) AS n FROM t GROUP BY k",
        "SELECT UPPER(s) AS k, COUNT(*) AS n FROM t GROUP BY k",
    ),
    "a name in HAVING stands for another value": (
        "SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n > 1",
        "SELECT a, COUNT(*) + 1 AS n FROM t GROUP BY a HAVING n > 1",
    ),
    "the condition is not on keys alone": (
        GROUPED,
        "SELECT a, COUNT(*) AS n FROM t WHERE b > 1 OR a > 1 GROUP BY a HAVING n > 1",
    ),
    "a total becomes rows": ("SELECT COUNT(*) AS n FROM t", "SELECT CAST(1 AS BIGINT) AS n FROM t"),
    "equal keys that are not the same": (
        "SELECT p, COUNT(*) AS n FROM t GROUP BY p",
        "SELECT p, COUNT(*) AS n FROM t WHERE CAST(p AS STRING) <> '-0.0' GROUP BY p",
    ),
}

# the old and the new query: the condition on its names for which old rows stay, where nothing else changes
OF_VIEW: dict[tuple[str, str], str | None] = {
    ("SELECT a, b FROM t", "SELECT b, a + 1 AS c FROM t"): None,
    ("SELECT a, b FROM t", "SELECT a, b FROM t"): "TRUE",
    ("SELECT a, b FROM t", "SELECT a, b FROM t WHERE a > 1"): "`a` > 1",
    ("SELECT a, b FROM t WHERE a > 1", "SELECT a, b FROM t WHERE a > 1 AND b = 2"): "`b` = 2",
    (
        "SELECT a, b, COUNT(*) AS n FROM t GROUP BY 1, 2",
        "SELECT b, a, COUNT(*) AS n FROM t GROUP BY 1, 2",
    ): None,  # an ordinal means another column
    (GROUPED, f"{GROUPED} HAVING COUNT(*) > 1"): "`n` > 1",
    (GROUPED, "SELECT a, COUNT(*) AS n FROM t WHERE a > 1 GROUP BY a"): "`a` > 1",
    ("SELECT COUNT(*) AS n FROM t", "SELECT COUNT(*) + 1 AS n FROM t"): None,
    ("SELECT DISTINCT a, b FROM t", "SELECT DISTINCT a, b FROM t WHERE a < b"): "`a` < `b`",
    (
        "SELECT UPPER(s) AS k, MAX(b) AS m FROM t GROUP BY UPPER(s)",
        "SELECT UPPER(s) AS k, MAX(b) AS m FROM t WHERE UPPER(s) = 'X' GROUP BY UPPER(s)",
    ): "`k` = 'X'",
    ("SELECT a, a + 1 AS x, x * 2 AS c FROM t", "SELECT a, a + 2 AS x, x * 2 AS c FROM t"): None,
    ("SELECT 2 AS two, p FROM t", "SELECT ROUND(p, 2) AS p FROM t"): None,
    ("SELECT 1 + 1 AS two, p FROM t", "SELECT ROUND(p, 1 + 1) AS p FROM t"): None,
    ("SELECT a AS y, many FROM t", "SELECT a AS y, TRANSFORM(many, y -> y + a) AS many FROM t"): None,
    (
        "SELECT a, RANK() OVER (ORDER BY a) AS n FROM t",
        "SELECT a, RANK() OVER (ORDER BY a) AS n FROM t QUALIFY RANK() OVER (ORDER BY a) < 3",
    ): "`n` < 3",
    (
        "SELECT x.a, n FROM (SELECT a, MAX(c) AS n FROM t GROUP BY a) x LEFT JOIN u ON x.n = u.c",
        "SELECT x.a, n FROM (SELECT a, MAX(c) AS n FROM t GROUP BY a) x LEFT JOIN u ON x.n = u.c WHERE n > 1",
    ): "`n` > 1",
}


@pytest.fixture(scope="module")
def rows() -> Database:
    made = Database(TABLES)
    for name, listed in CONTENTS.items():
        made.replace(name, Counter(listed))
    return made


def found_between(db: Database, old: str, new: str) -> tuple[Bound, OverView | None]:
    before, after = db.bind(old), db.bind(new)
    return before, over_view(
        Sharing(before.plan, before.types, after.types, frozenset(after.tables)), after.plan, Promises()
    )


@pytest.mark.parametrize("reason", NOT_OF_VIEW)
def test_rows_that_are_not_in_the_view(rows: Database, reason: str) -> None:
    _, found = found_between(rows, *NOT_OF_VIEW[reason])
    assert found is None or not found.follows


@pytest.mark.parametrize(("old", "new"), OF_VIEW)
def test_rows_that_are_made_of_those_of_the_view(rows: Database, old: str, new: str) -> None:
    before, found = found_between(rows, old, new)
    assert found is not None
    assert found.follows
    columns = ", ".join(f'"{of_view(c)}"' for c in before.plan.columns)
    rows.connection.execute(
        f'CREATE OR REPLACE TEMP TABLE "{VIEW}" AS SELECT * FROM ({rows.renderer.render(before.plan)}) AS q({columns})'
    )
    assert rows.rows_of(found.plan) == rows.query(new)
    left = found.left([name for name, _ in rows.types(old)])
    assert (None if left is None else text(left)) == OF_VIEW[old, new]
