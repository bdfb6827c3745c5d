"""Views over declared keys and references: tables that keep their promises, and changes that keep them too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from deferred.algebra.plan import Plan
from deferred.algebra.selfmaintenance import Promises
from deferred.sql.bind import Bound
from tests.fuzz.case import INT, Change, Row
from tests.fuzz.duck import Database, added

SCHEMAS = {
    "line": (("id", INT), ("sale", INT), ("price", INT)),
    "sale": (("id", INT), ("shop", INT), ("day", INT)),
    "shop": (("id", INT), ("state", INT)),
}
"""A line refers to its sale, a sale to its shop."""

PROMISES = Promises.of({name: ["id"] for name in SCHEMAS}, {"line": {"sale": "sale.id"}, "sale": {"shop": "shop.id"}})
ROWS: dict[str, tuple[Row, ...]] = {
    "shop": ((1, 7), (2, 7), (3, 8)),
    "sale": ((1, 1, 5), (2, 2, 5), (3, 3, 6), (4, None, 6)),
    "line": ((1, 1, 10), (2, 1, 10), (3, 2, 20), (4, 3, 30), (5, 4, 40)),
}
STEPS: dict[str, dict[str, Change]] = {
    "lines come and go": {"line": Change(((1, 1, 10), (5, 4, 40)), ((6, 3, 1), (7, None, 2)))},
    "a price and a day are updated": {
        "line": Change(((2, 1, 10),), ((2, 1, 11),)),
        "sale": Change(((2, 2, 5),), ((2, 2, 9),)),
    },
    "a sale goes with its lines": {"sale": Change(((3, 3, 6),), ()), "line": Change(((4, 3, 30), (6, 3, 1)), ())},
    "all tables at once": {
        "shop": Change(((3, 8),), ((4, 7),)),
        "sale": Change((), ((5, 4, 1), (6, 1, 1))),
        "line": Change((), ((8, 5, 80), (9, 6, 90))),
    },
}


@contextmanager
def maintained(sql: str) -> Iterator[tuple[Database, Bound]]:
    """The view over these rows, bound so that no base table is read."""
    db = Database(SCHEMAS)
    for name, rows in ROWS.items():
        db.replace(name, Counter(rows))
    yield db, db.bind(sql, "self", PROMISES)
    db.close()


def node_of(plan: Plan, operator: type[Plan]) -> Plan:
    return next(node for node in plan.walk() if isinstance(node, operator))


def follows(sql: str, operator: type[Plan]) -> None:
    """The view is right after each step, and so is what it keeps, while the base tables are out of reach."""
    with maintained(sql) as (db, bound):
        assert any(isinstance(node, operator) for node in bound.plan.walk())
        shown = db.evaluate(bound)
        assert shown == db.query(sql)
        db.keep(bound)
        for what, step in STEPS.items():
            db.show(bound)
            for name in SCHEMAS:
                change = step.get(name, Change((), ()))
                new = db.state[name] - Counter(change.deleted) + Counter(change.inserted)
                log = Counter(new)
                log.subtract(db.state[name])
                db.log(name, log)
                db.replace(name, new)
            with db.out_of_reach():
                shown = added(shown, db.preview(bound, SCHEMAS))
                assert db.guarded(bound, SCHEMAS) == [], what
                db.move(bound, SCHEMAS)
            assert shown == db.query(sql), what
            assert db.wrong_support_tables(bound) == {}, what
