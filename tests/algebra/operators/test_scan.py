"""R and its net log ▲R − ▼R."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.bags import COUNT
from deferred.algebra.delta import differentiate
from deferred.algebra.notation import notation
from deferred.algebra.operators import Change, Net, Scan
from deferred.algebra.operators.scan import listed_tables, scans_of, tables_of
from tests.algebra.operators.cases import OperatorCases, bound, same_on_duckdb

LOG = Change("t", ("b", "a"), ("x", "y"))


class TestScan(OperatorCases):
    operator = Scan
    views = {
        "everything": "SELECT * FROM t",
        "one column": "SELECT b FROM t",
        "one table twice": "SELECT x.a, y.a AS other FROM t AS x, t AS y WHERE x.b = y.b",
    }
    notation = {
        "everything": "Π[a, b](t)",
        "one table twice": "Π[t.a, t′.a](t ⋈[t.b = t′.b] t′)",
    }
    reads = {"everything": "linear: its changes"}
    pushed = {("everything", "a"): "t ⋉[a] K", ("everything", "a & b"): "t ⋉[a, b] K"}
    pruned = {("everything", "a"): "t(a)", ("everything", "b"): "t(b)", ("everything", "b & a"): "t(a, b)"}
    unique_keys = {"everything": None}


def test_a_scan_of_which_nothing_is_asked_keeps_a_column_to_count_rows_by() -> None:
    assert Scan("t", ("a", "b"), ("x", "y")).pruned((), frozenset()).columns == ("x",)


@pytest.mark.parametrize("view", ["SELECT a FROM t", "SELECT x.a FROM t x JOIN u ON x.b = u.b JOIN t y ON u.c = y.a"])
def test_tables_of_a_plan(view: str) -> None:
    plan = bound(view)
    assert tables_of(plan) == {scan.table for scan in scans_of(plan)}
    assert listed_tables(plan) == ", ".join(sorted(tables_of(plan)))


def test_a_table_that_has_not_changed_has_no_delta() -> None:
    scan = Scan("t", ("a",), ("x",))
    assert differentiate(scan, {"u"}).result is None
    change = differentiate(scan, {"t"}).result
    assert isinstance(change, Net)
    assert notation(change) == "net((▲t − ▼t))"


def test_a_log_is_a_signed_bag() -> None:
    assert LOG.columns == ("x", "y", COUNT)
    rows = same_on_duckdb(LOG)
    assert rows == Counter({(1, 1, -1): 1, (2, 2, 1): 1, (3, None, 1): 1, (0, 0, -2): 1})
