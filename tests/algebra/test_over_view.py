"""A definition with fewer joins over the rows of the view: only where the joins neither add nor remove a row."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.operators.scan import tables_of
from deferred.algebra.over_view import VIEW, of_view, over_view
from deferred.algebra.selfmaintenance import Promises
from deferred.algebra.sharing import Sharing
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
