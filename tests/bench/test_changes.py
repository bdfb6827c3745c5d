"""The changes: their statements can be read, write what they say, and later steps take other rows."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import sqlglot

from bench.cases import CASES
from bench.changes import CHANGES, SIZES, Size, Step, order_key


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("size", SIZES)
def test_statements_write_the_tables_that_the_change_names(name: str, size: str) -> None:
    written = set()
    for number in (0, 5):
        for statement in CHANGES[name].statements(Step(number, 0.01, Size(size))):
            tree = sqlglot.parse_one(statement, dialect="spark")
            target = tree.find(sqlglot.exp.Table)
            assert target is not None
            written.add(target.name)
    assert written == CHANGES[name].tables


@pytest.mark.parametrize("size", ["row", "0.1%", "1%"])
def test_later_steps_take_other_orders(size: str) -> None:
    ranges = [Step(number, 0.01, Size(size)).range(1_500_000) for number in range(6)]
    assert all(0 <= low <= high < 15_000 for low, high in ranges)
    assert all(a[1] < b[0] for a, b in pairwise(ranges))


def test_scattered_orders_are_as_many_as_asked() -> None:
    for size in ("0.1%", "10%", "50%"):
        (statement,) = CHANGES["update_scattered"].statements(Step(3, 0.01, Size(size)))
        found = re.search(r"% (\d+) = (\d+)$", statement)
        assert found is not None
        every, which = map(int, found.groups())
        keys = [order_key(number) for number in range(15_000)]
        chosen = [key for key in keys if (key // 32 * 8 + key % 32 - 1) % every == which]
        assert len(chosen) == Size(size).rows(15_000)


def test_cases_know_their_tables() -> None:
    assert CASES["view_over_view"].tables == {"orders", "customer"}
    assert CASES["q16"].tables == {"partsupp", "part", "supplier"}  # 'Customer' is in a string there
    assert all(case.tables for case in CASES.values())
