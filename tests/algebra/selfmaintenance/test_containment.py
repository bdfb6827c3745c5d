"""Auxiliary tables that contain others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deferred.algebra.notation import notation
from deferred.algebra.selfmaintenance import Promises, base_reads, described
from deferred.algebra.selfmaintenance.containment import Portion, Shared, over_shared, portions
from deferred.algebra.strategy import support_tables
from tests.algebra.selfmaintenance.test_rewriting import CAL_TOY_SALES, PROMISES, SCHEMAS
from tests.fuzz.duck import Database


@pytest.fixture
def db() -> Iterator[Database]:
    database = Database(SCHEMAS)
    yield database
    database.close()


def portion(db: Database, columns: str, where: str = "TRUE", table: str = "store") -> Portion:
    """What is kept of a table that is joined without any promise."""
    bound = db.bind(
        f"SELECT {columns} FROM {table} x JOIN item y ON x.city = y.item_name WHERE {where}", promises=Promises()
    )
    return next(each for each in portions(bound.plan).values() if each.table == table)


def test_one_contains_the_other(db: Database) -> None:
    wide = portion(db, "x.store_id, x.state, x.manager", "x.state <> 'NY'")
    assert set(wide.names) == {"store_id", "city", "state", "manager"}
    for columns, where, is_part in [
        ("x.store_id", "x.state <> 'NY'", True),
        ("x.store_id", "x.state <> 'NY' AND x.manager = 'Ann'", True),
        ("x.store_id", "x.manager = 'Ann'", False),
        ("x.store_id", "TRUE", False),
    ]:
        other = portion(db, columns, where)
        assert wide.contains(other) == is_part, where
        assert not other.contains(wide) or other == wide
    narrow = portion(db, "x.store_id", "x.state <> 'NY'")
    assert not narrow.contains(portion(db, "x.store_id", "x.state <> 'NY' AND x.manager = 'Ann'")), "no manager to ask"


def test_only_portions_of_one_table_are_shared(db: Database) -> None:
    """The sales of cal_toy_sales are those of stores that can matter: they depend on two tables."""
    bound = db.bind(CAL_TOY_SALES, promises=PROMISES)
    found = portions(bound.plan)
    assert {each.table for each in found.values()} == {"store", "item"}
    plan = over_shared(bound.plan, {name: Shared("there", each) for name, each in found.items()})
    assert base_reads(plan, bound.types) == set()
    assert len(support_tables(plan)) == len(support_tables(bound.plan)) - 2
    assert notation(plan) == notation(bound.plan)
    assert sum("kept in there, which views share" in line for line in described(plan)) == 2
