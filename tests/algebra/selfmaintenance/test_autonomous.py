"""Updates that a view can answer itself: the examples of Blakeley 1987, chapter 4, with the keys that a log needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from deferred.algebra.bags import COUNT
from deferred.algebra.program import DUPLICATE, NEW
from deferred.algebra.selfmaintenance import base_reads
from deferred.algebra.selfmaintenance.autonomous import Autonomous
from deferred.maintenance.strategies import _only_takes_away
from tests.fuzz.duck import Database, added

SCHEMAS = {
    "r1": (("h", "int"), ("i", "int")),
    "r2": (("j", "int"), ("k", "int"), ("l", "int")),
    "r3": (("m", "int"), ("n", "int")),
}


@pytest.fixture
def db() -> Iterator[Database]:
    database = Database(SCHEMAS)
    yield database
    database.close()


def answered(
    db: Database, sql: str, keys: dict[str, list[str]], rows: dict[str, Any], changes: dict[str, Any]
) -> tuple[Counter[Any], set[str]]:
    """The view after a change, from its own rows and the log alone; and what its guards found."""
    for name, given in rows.items():
        db.replace(name, Counter(given))
    bound, before = db.bind(sql), db.query(sql)
    db.show(bound)
    for name in SCHEMAS:
        db.connection.execute(f'DROP TABLE "{name}"')
    for name, net in changes.items():
        db.log(name, net)
    program = Autonomous(bound.plan, keys, bound.types).program(changes)
    assert program is not None
    found = db.run(program)
    return added(before, found.change), {guard.kind for guard, _ in found.broken}


def left_open(sql: str, keys: dict[str, list[str]], rows: dict[str, Any], changes: dict[str, Any]) -> Counter[Any]:
    """What a change adds to a view that cannot decide on it: there the base tables are read."""
    db = Database(SCHEMAS)
    for name, given in rows.items():
        db.replace(name, Counter(given))
    before = db.query(sql)
    for name, net in changes.items():
        db.replace(name, added(db.state[name], net))
    after = db.query(sql)
    _, guards = answered(db, sql, keys, rows, changes)
    db.close()
    assert guards == {NEW}
    assert before <= after
    return after - before


def test_4_1_a_deletion_by_a_column_that_makes_no_difference(db: Database) -> None:
    """DELETE(R₂, J > 0 AND K = 5 AND L > 10) of a view of the rows with J > 5: J is not shown, and need not be.

    The log names the deleted rows, and the view shows their key; the one with J = 1 was never in it.
    """
    rows = {"r2": [(6, 5, 11), (7, 5, 9), (1, 5, 12), (8, 4, 13)], "r1": [(1, 5), (1, 4)]}
    deleted = {(6, 5, 11): -1, (1, 5, 12): -1}
    sql = "SELECT i, k, l FROM r1 JOIN r2 ON i = k WHERE j > 5"
    assert answered(db, sql, {"r2": ["l"]}, rows, {"r2": deleted}) == (Counter([(5, 5, 9), (4, 4, 13)]), set())


def test_4_2_columns_that_the_view_determines(db: Database) -> None:
    """(I = J)(J > 7)(K = 5): I is known by J. That K is 5 is not put in where a key needs it: the tables are read."""
    bound = db.bind("SELECT j FROM r1 JOIN r2 ON i = j WHERE j > 7 AND k = 5")
    keys = {"r1": ["i"], "r2": ["j", "k"]}
    assert Autonomous(bound.plan, keys, bound.types).tables == ["r1"]
    sql = "SELECT j FROM r1 JOIN r2 ON i = j WHERE j > 7 AND k = 5"
    rows = {"r1": [(0, 10), (0, 9), (0, 6)], "r2": [(10, 5, 0), (9, 5, 0), (6, 5, 0)]}
    assert answered(db, sql, keys, rows, {"r1": {(0, 10): -1}}) == (Counter([(9,)]), set())


def test_4_3_insertions_need_no_other_table_only_in_a_view_of_one(db: Database) -> None:
    """INSERT(R₁, {(6, 10), (12, 5)})"""
    one = db.bind("SELECT h, i FROM r1 WHERE h > 10 AND i = 5")
    assert base_reads(one.plan, one.types) == set()
    inserted = {(6, 10): 1, (12, 5): 1}
    db.log("r1", inserted)
    with db.out_of_reach():
        assert db.preview(one, ["r1"]) == Counter([(12, 5)])
    two = db.bind("SELECT h, i FROM r1 JOIN r2 ON i = j WHERE h > 10")
    assert base_reads(two.plan, two.types) == {"r1", "r2"}
    sql = "SELECT h, i, k FROM r1 JOIN r2 ON i = j WHERE h > 10"
    _, guards = answered(db, sql, {"r1": ["h"]}, {}, {"r1": inserted})
    assert guards == {NEW}


def test_4_4_a_deletion_by_a_column_that_the_view_determines(db: Database) -> None:
    """I is not shown, but equal to J."""
    rows = {"r1": [(19, 10), (3, 20)], "r2": [(10, 15, 0), (20, 25, 0)]}
    sql = "SELECT j, k FROM r1 JOIN r2 ON i = j WHERE h < 20"
    assert answered(db, sql, {"r1": ["i"]}, rows, {"r1": {(3, 20): -1}}) == (Counter([(10, 15)]), set())


def test_4_5_a_value_that_the_condition_determines(db: Database) -> None:
    """(H = 5)(I = 10 - J), MODIFY(R₂, K := I + J): I is in another table, but the log has the new value, 10."""
    rows = {"r1": [(5, 3), (5, 4)], "r2": [(7, 1, 0), (6, 2, 0), (2, 3, 0)]}
    modified = {(7, 1, 0): -1, (7, 10, 0): 1}
    sql = "SELECT j, k FROM r1 JOIN r2 ON i = 10 - j WHERE h = 5"
    assert answered(db, sql, {"r2": ["j"]}, rows, {"r2": modified}) == (Counter([(7, 10), (6, 2)]), set())


def test_4_6_a_modification_of_a_column_that_passes_through(db: Database) -> None:
    """MODIFY(R₂, K > 5 AND K <= 22, J := L + 3): the row with I = 22 gets J = 23, and no base table is read."""
    rows = {
        "r1": [(1, 5), (2, 15), (3, 22), (4, 20)],
        "r2": [(19, 5, 20), (10, 15, 29), (16, 22, 20), (18, 20, 29)],
    }
    modified = {(10, 15, 29): -1, (32, 15, 29): 1, (16, 22, 20): -1, (23, 22, 20): 1, (18, 20, 29): -1, (32, 20, 29): 1}
    sql = "SELECT i, j FROM r1 JOIN r2 ON i = k WHERE l = 20"
    assert answered(db, sql, {"r2": ["k"]}, rows, {"r2": modified}) == (Counter([(5, 19), (22, 23)]), set())


def test_4_11_and_4_12_a_deletion_by_a_column_that_the_view_does_not_show(db: Database) -> None:
    """DELETE(R₁, I < 20 OR I > 22): the log names the deleted rows, and the view shows their key H.

    So the third of the view's rows goes, and the other two stay, as Lemmas 3 and 4 find out.
    """
    rows = {"r1": [(1, 16), (2, 20), (3, 24)], "r2": [(17, 18, 23), (19, 14, 25), (24, 18, 33)]}
    sql = "SELECT h, j, k, l FROM r1 JOIN r2 ON j < i AND i < l"
    for name, given in rows.items():
        db.replace(name, Counter(given))
    assert db.query(sql) == Counter([(2, 17, 18, 23), (2, 19, 14, 25), (3, 19, 14, 25)])
    view, guards = answered(db, sql, {"r1": ["h"]}, rows, {"r1": {(1, 16): -1, (3, 24): -1}})
    assert (view, guards) == (Counter([(2, 17, 18, 23), (2, 19, 14, 25)]), set())


def test_4_7_an_insertion_of_a_row_that_meets_what_another_meets(db: Database) -> None:
    """INSERT(R₁, (4, 10)): the view shows what (1, 10) meets. What (5, 40) would meet, it does not know."""
    rows = {"r1": [(1, 10), (2, 20), (3, 30)], "r2": [(10, 5, 25), (10, 6, 26), (20, 17, 31)]}
    before = [(1, 10, 25), (1, 10, 26), (2, 20, 31)]
    sql = "SELECT h, i, l FROM r1 JOIN r2 ON i = j"
    view, guards = answered(db, sql, {"r1": ["h"]}, rows, {"r1": {(4, 10): 1}})
    assert (view, guards) == (Counter([*before, (4, 10, 25), (4, 10, 26)]), set())
    other = Database(SCHEMAS)
    assert answered(other, sql, {"r1": ["h"]}, rows, {"r1": {(4, 10): 1, (5, 40): 1}})[1] == {NEW}
    other.close()


def test_4_8_what_is_compared_must_be_shown() -> None:
    """INSERT(R₂, (25, 28, 30)): J is compared with I and not shown, so the view does not say what the row meets."""
    sql = "SELECT h, i, k, l, n FROM r1 JOIN r2 ON i > j JOIN r3 ON l = m"
    rows = {"r1": [(2, 22), (3, 26)], "r2": [(21, 15, 30), (24, 25, 42)], "r3": [(30, 16), (42, 19)]}
    more = left_open(sql, {"r2": ["k"]}, rows, {"r2": {(25, 28, 30): 1}})
    assert more == Counter([(3, 26, 28, 30, 16)])


EXAMPLE_4_9 = {
    "r1": [(1, 20), (2, 22), (3, 23), (4, 25)],
    "r2": [(19, 14, 5), (22, 15, 10), (23, 50, 30)],
    "r3": [(5, 1), (10, 2), (30, 4)],
}


def test_4_9_i_rows_that_are_covered_by_an_inequality(db: Database) -> None:
    """INSERT(R₁, (4, 21)): what it meets is covered, as I = 20 meets it. Our rule wants the same value, as in (4, 20)."""
    sql, keys = "SELECT h, i, j, k, l FROM r1 JOIN r2 ON i < j", {"r1": ["h", "i"]}
    more = left_open(sql, keys, EXAMPLE_4_9, {"r1": {(4, 21): 1}})
    assert more == Counter([(4, 21, 22, 15, 10), (4, 21, 23, 50, 30)])
    view, guards = answered(db, sql, keys, EXAMPLE_4_9, {"r1": {(4, 20): 1}})
    before = [(1, 20, 22, 15, 10), (1, 20, 23, 50, 30), (2, 22, 23, 50, 30)]
    assert (view, guards) == (Counter([*before, (4, 20, 22, 15, 10), (4, 20, 23, 50, 30)]), set())


def test_4_9_ii_a_compared_column_that_is_not_shown() -> None:
    """INSERT(R₁, (4, 21)), as (5, 21), since H is the key: its I is not shown, so the base tables are read."""
    more = left_open("SELECT h, j, k, l FROM r1 JOIN r2 ON i < j", {"r1": ["h"]}, EXAMPLE_4_9, {"r1": {(5, 21): 1}})
    assert more == Counter([(5, 22, 15, 10), (5, 23, 50, 30)])


def test_4_9_iii_rows_that_several_rows_cover_together(db: Database) -> None:
    """INSERT(R₂, (22, 60, 30)): one row of the view covers I = 22, another one M = 30. Our rule wants one for both.

    What two rows of a view show of two tables, says how often they are there only if it shows the keys of both.
    """
    sql = "SELECT h, i, j, k, l, m, n FROM r1 JOIN r2 ON i = j JOIN r3 ON l = m"
    more = left_open(sql, {"r2": ["k"]}, EXAMPLE_4_9, {"r2": {(22, 60, 30): 1}})
    assert more == Counter([(2, 22, 22, 60, 30, 30, 4)])
    view, guards = answered(db, sql, {"r2": ["k"]}, EXAMPLE_4_9, {"r2": {(23, 60, 30): 1}})
    before = [(2, 22, 22, 15, 10, 10, 2), (3, 23, 23, 50, 30, 30, 4)]
    assert (view, guards) == (Counter([*before, (3, 23, 23, 60, 30, 30, 4)]), set())


def test_4_10_a_disjunction() -> None:
    """INSERT(R₁, (2, 25)): Lemmas 1 and 2 accept two candidates and reject one. Our rule knows no row with (2, 25)."""
    condition = "(h = 2 AND i < j) OR (h = 5 AND i > l) OR i = k"
    rows = {
        "r1": [(1, 18), (2, 24), (3, 28), (4, 25), (5, 21)],
        "r2": [(17, 14, 15), (21, 15, 30), (26, 50, 23), (3, 25, 42)],
    }
    sql = f"SELECT h, i, j, k FROM r1 JOIN r2 ON {condition}"
    more = left_open(sql, {"r1": ["h", "i"]}, rows, {"r1": {(2, 25): 1}})
    assert more == Counter([(2, 25, 26, 50), (2, 25, 3, 25)])


def test_one_of_several_rows_is_taken_that_meet_the_same(db: Database) -> None:
    """Rows of the other table need no key; what the new row computes is its own."""
    rows = {"r1": [(1, 10), (2, 10), (3, 11)], "r2": [(10, 5, 25), (10, 7, 25), (11, 6, 26)]}
    sql = "SELECT h, i, h * 2 AS twice, k + i AS both FROM r1 JOIN r2 ON i = j"
    view, guards = answered(db, sql, {"r1": ["h"]}, rows, {"r1": {(4, 10): 1, (1, 10): -1, (3, 11): -1, (3, 10): 1}})
    assert guards == set()
    assert view == Counter((h, 10, 2 * h, both) for h in (2, 3, 4) for both in (15, 17))


def test_what_a_new_row_must_agree_in(db: Database) -> None:
    """Columns that the join compares, or that are computed with those of others; all of them must be shown."""
    keys = {"r1": ["h"], "r2": ["j"]}
    shown = {
        "SELECT h, i, l FROM r1 JOIN r2 ON i < k": {"r1": ("i",)},
        "SELECT h, i, l + h AS x FROM r1 JOIN r2 ON i = k": {"r1": ("h", "i")},
        "SELECT h, j, l FROM r1 JOIN r2 ON i = k": {},
        "SELECT h, j, k FROM r1 JOIN r2 ON i = k": {"r1": ("i",), "r2": ("k",)},
        "SELECT x.h, y.h AS o, x.i FROM r1 x JOIN r1 y ON x.i = y.i": {},
    }
    for sql, wanted in shown.items():
        bound = db.bind(sql)
        assert Autonomous(bound.plan, keys, bound.types).insertable == wanted, sql


def test_what_a_modification_may_not_change(db: Database) -> None:
    """A value that is compared does more than pass through: the new row must meet what another meets.

    One that is only computed with leaves the row to meet what it met before.
    """
    rows = {"r1": [(1, 5)], "r2": [(5, 1, 7)]}
    compared, computed = "SELECT h, i, k FROM r1 JOIN r2 ON i = j", "SELECT h, i + 1 AS n, k FROM r1 JOIN r2 ON h = k"
    assert answered(db, compared, {"r1": ["h"]}, rows, {"r1": {(1, 5): -1, (1, 6): 1}})[1] == {NEW}
    other = Database(SCHEMAS)
    changes = {"r1": {(1, 5): -1, (1, 6): 1}}
    assert answered(other, computed, {"r1": ["h"]}, rows, changes) == (Counter([(1, 7, 1)]), set())
    other.close()


def test_one_column_shown_twice_is_modified_in_both(db: Database) -> None:
    rows = {"r1": [(1, 5)], "r2": [(1, 2, 3)]}
    sql = "SELECT h, i AS x, i AS y FROM r1 JOIN r2 ON h = j"
    assert answered(db, sql, {"r1": ["h"]}, rows, {"r1": {(1, 5): -1, (1, None): 1}})[0] == Counter([(1, None, None)])


def test_rows_of_both_tables_go_at_once(db: Database) -> None:
    rows = {"r1": [(1, 5), (2, 5)], "r2": [(5, 1, 7), (5, 2, 8)]}
    sql = "SELECT h, k, l FROM r1 JOIN r2 ON i = j"
    changes = {"r1": {(1, 5): -1}, "r2": {(5, 1, 7): -1, (5, 2, 8): -1, (5, 2, 9): 1}}
    assert answered(db, sql, {"r1": ["h"], "r2": ["k"]}, rows, changes) == (Counter([(2, 2, 9)]), set())


def test_a_key_that_is_none_is_found_out(db: Database) -> None:
    rows = {"r1": [(1, 5), (1, 6)], "r2": [(5, 1, 7), (6, 1, 7)]}
    _, guards = answered(db, "SELECT h, i, l FROM r1 JOIN r2 ON i = j", {"r1": ["h"]}, rows, {"r1": {(1, 5): -1}})
    assert guards == {DUPLICATE}


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("SELECT h, i, k FROM r1 JOIN r2 ON i = j", {"r1": ["h"], "r2": ["j"]}),
        ("SELECT h, l, i FROM r1 JOIN r2 ON i = k", {"r1": ["h"], "r2": ["k"]}),
        ("SELECT h, l FROM r1 JOIN r2 ON i = k", {"r1": ["h"], "r2": ["k"]}),
    ],
)
@pytest.mark.parametrize("change", [{(1, 5): -1}, {(1, 5): -1, (1, 6): 1}, {(2, 5): 1}])
def test_copies_of_a_row_are_found_out(db: Database, sql: str, keys: dict[str, list[str]], change: Any) -> None:
    """Of two rows with one key and the same values, one goes, or another row meets what both meet."""
    rows = {"r1": [(1, 5), (1, 5)], "r2": [(5, 5, 7), (6, 6, 8)]}
    view, guards = answered(db, sql, keys, rows, {"r1": change})
    assert guards & {DUPLICATE, NEW}, f"wrong: {view}"


def test_rows_of_one_key_that_a_new_row_would_meet_alike_are_found_out(db: Database) -> None:
    """The values that only pass through tell both rows of key 5 apart in the view, and not in what a new row adds."""
    rows = {"r1": [(1, 5)], "r2": [(5, 5, 7), (5, 5, 8)]}
    sql = "SELECT h, i, j, k, l FROM r1 JOIN r2 ON i = k"
    view, guards = answered(db, sql, {"r1": ["h"], "r2": ["j"]}, rows, {"r2": {(9, 5, 1): 1}})
    assert guards == {DUPLICATE}, f"wrong: {view}"


@pytest.mark.parametrize(
    ("rows", "change"),
    [
        pytest.param([(1, 5), (1, 6)], {(1, 5): -1, (1, 6): -1, (1, 7): 1}, id="two become one"),
        pytest.param([(1, 5)], {(1, 5): -1, (1, 6): 1, (1, 7): 1}, id="one becomes two"),
        pytest.param([(2, 5)], {(1, 6): 1, (1, 7): 1}, id="two are new"),
        pytest.param([(1, 5), (1, 5)], {(1, 5): -1}, id="one of two copies goes"),
        pytest.param([(1, 5), (1, 6)], {(1, 6): -1, (1, 7): 1}, id="one of two changes"),
    ],
)
def test_rows_of_one_key_are_found_out_without_any_other_key(db: Database, rows: Any, change: Any) -> None:
    """The other table has no key, and meets each row twice: what the view and the log show is enough."""
    tables = {"r1": rows, "r2": [(1, 5, 7), (1, 6, 8), (2, 6, 9)]}
    bound = db.bind("SELECT h, i, l FROM r1 JOIN r2 ON h = j")
    assert Autonomous(bound.plan, {"r1": ["h"]}, bound.types).verifying == ["r1"]
    view, guards = answered(db, "SELECT h, i, l FROM r1 JOIN r2 ON h = j", {"r1": ["h"]}, tables, {"r1": change})
    assert guards & {DUPLICATE, NEW}, f"wrong: {view}"


def test_rows_that_differ_in_a_value_that_is_not_shown_are_not_answered(db: Database) -> None:
    """(1, 5) goes, (1, 6) stays: no row of the view says with which of them it came."""
    keys = {"r1": ["h"], "r2": ["k"]}
    shown = {
        "SELECT h, l FROM r1 JOIN r2 ON i = j": [],
        "SELECT h, l, i + 0 AS x FROM r1 JOIN r2 ON h = j": [],
        "SELECT h, l, i FROM r1 JOIN r2 ON i = j": ["r1"],
        "SELECT h, l, k FROM r1 JOIN r2 ON i = k": ["r1", "r2"],
        "SELECT h, l, j FROM r1 JOIN r2 ON i = j WHERE k > 5": ["r1"],
        "SELECT h, k, l FROM r1 JOIN r2 ON h = l WHERE i = 1 AND j < k": ["r1", "r2"],
    }
    for sql, wanted in shown.items():
        bound = db.bind(sql)
        assert Autonomous(bound.plan, keys, bound.types).verifying == wanted, sql


def test_zeros_of_both_signs_are_two_rows() -> None:
    """SQL equates 0.0 and −0.0, also where rows of one key are told apart."""
    db = Database({"r1": (("h", "int"), ("i", "double")), "r2": (("j", "int"), ("k", "int"))})
    for name, rows in {"r1": [(1, 0.0), (1, -0.0)], "r2": [(1, 2)]}.items():
        db.connection.executemany(f'INSERT INTO "{name}" VALUES (?, ?)', rows)
    bound = db.bind("SELECT h, i, k FROM r1 JOIN r2 ON h = j")
    db.show(bound)
    db.log("r1", {(1, 0.0): -1})
    program = Autonomous(bound.plan, {"r1": ["h"]}, bound.types).program(["r1"])
    assert program is not None
    assert {guard.kind for guard, _ in db.run(program).broken} == {DUPLICATE}
    db.close()


def test_a_view_that_shows_no_key_does_not_answer(db: Database) -> None:
    for sql in ("SELECT i FROM r1 JOIN r2 ON i = j", "SELECT h, COUNT(*) FROM r1 JOIN r2 ON i = j GROUP BY h"):
        bound = db.bind(sql)
        assert Autonomous(bound.plan, {"r1": ["h"]}, bound.types).tables == []


@pytest.mark.parametrize(
    ("rows", "takes_away"),
    [([(1, -1)], True), ([(1, 1)], False), ([(1, -1), (1, 1)], True), ([(1, -1), (2, 1)], False), (None, False)],
)
def test_logs_that_only_take_away(rows: Any, takes_away: bool) -> None:
    table = None if rows is None else pa.table({"id": [k for k, _ in rows], COUNT: [n for _, n in rows]})
    assert _only_takes_away(table, ["id"]) == takes_away
    if table is not None:  # days beyond the year 9999
        days = pa.array([4_000_000 + key for key, _ in rows], pa.int32()).cast(pa.date32())
        assert _only_takes_away(table.set_column(0, "id", days), ["id"]) == takes_away
