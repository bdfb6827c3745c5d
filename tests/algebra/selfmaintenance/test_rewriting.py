"""Views that need no base table: the example of Quass et al. 1996 with its tables and figures, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from deferred.algebra.notation import notation
from deferred.algebra.operators.promised_join import PromisedJoin
from deferred.algebra.program import DANGLING, DUPLICATE, EXPOSED, LATE
from deferred.algebra.selfmaintenance import Promises, base_reads, described
from deferred.algebra.selfmaintenance.graph import Edge, JoinGraph
from deferred.algebra.selfmaintenance.promises import unused
from deferred.algebra.strategy import support_tables
from deferred.errors import UnsupportedSQLError
from tests.fuzz.duck import Database, added

SCHEMAS = {
    "store": (("store_id", "int"), ("city", "string"), ("state", "string"), ("manager", "string")),
    "sale": (("sale_id", "int"), ("store_id", "int"), ("day", "int"), ("month", "int"), ("year", "int")),
    "line": (("line_id", "int"), ("sale_id", "int"), ("item_id", "int"), ("sales_price", "int")),
    "item": (("item_id", "int"), ("item_name", "string"), ("category", "string"), ("supplier_name", "string")),
}
KEYS = {name: [schema[0][0]] for name, schema in SCHEMAS.items()}
REFERENCES = {
    "sale": {"store_id": "store.store_id"},
    "line": {"sale_id": "sale.sale_id", "item_id": "item.item_id"},
}
PROMISES = Promises.of(KEYS, REFERENCES)
FROM = """
FROM store, sale, line, item
WHERE store.store_id = sale.store_id AND sale.sale_id = line.sale_id AND line.item_id = item.item_id
  AND store.state = 'CA' AND sale.year = 1996 AND item.category = 'toy'
"""
CAL_TOY_SALES = f"""
SELECT store.manager, sale.sale_id, sale.month, item.item_id, item.item_name, line.line_id, line.sales_price {FROM}
"""
STORE, SALE, LINE, ITEM = range(4)


@pytest.fixture
def db() -> Any:
    database = Database(SCHEMAS)
    yield database
    database.close()


def test_dep_and_need_are_those_of_table_2() -> None:
    graph = JoinGraph(
        4,
        (Edge(SALE, STORE, (), True), Edge(LINE, SALE, (), True), Edge(LINE, ITEM, (), True)),
        frozenset({SALE, LINE, ITEM}),
    )
    assert [set(graph.dep(i)) for i in range(4)] == [set(), {STORE}, {SALE, ITEM}, set()]
    assert [set(graph.dep_plus(i)) for i in range(4)] == [set(), {STORE}, {SALE, ITEM, STORE}, set()]
    assert [[set(each) for each in graph.need(i)] for i in range(4)] == [[{SALE}], [set()], [set()], [set()]]
    assert [graph.needs_auxiliary(i) for i in range(4)] == [True, True, False, True]
    assert graph.root == LINE
    assert graph.referring_first() == [LINE, SALE, STORE, ITEM]


def test_a_key_that_the_view_does_not_show_is_found_through_what_refers_to_it() -> None:
    graph = JoinGraph(3, (Edge(2, 1, (), True), Edge(1, 0, (), True)), frozenset({2}))
    assert [set(map(frozenset, graph.need(0)))] == [{frozenset({1, 2})}]
    assert graph.needs_auxiliary(2), "the root is in Need of the others"
    none = JoinGraph(2, (Edge(1, 0, (), True),))
    assert set(none.need(1)) == {frozenset({0})}, "without any key all others are needed"


def test_general_join_graphs() -> None:
    """Appendix B: two roots, two ways to a table, and references in a circle, which are not relied on."""
    diamond = JoinGraph(
        4, (Edge(0, 1, (), True), Edge(0, 2, (), True), Edge(1, 3, (), True), Edge(2, 3, (), True)), frozenset({1, 2})
    )
    assert set(diamond.need(3)) == {frozenset({1}), frozenset({2})}
    assert diamond.root == 0
    two_roots = JoinGraph(3, (Edge(0, 2, (), True), Edge(1, 2, (), True)))
    assert two_roots.root is None
    assert all(two_roots.needs_auxiliary(i) for i in range(3))
    circle = JoinGraph(3, (Edge(0, 1, (), True), Edge(1, 0, (), True), Edge(1, 2, (), True)))
    assert [(e.start, e.end) for e in circle.links] == [(1, 2)]


def test_auxiliary_views_are_those_of_table_3(db: Database) -> None:
    bound = db.bind(CAL_TOY_SALES, promises=PROMISES)
    assert base_reads(bound.plan, bound.types) == set()
    lines = [line for line in described(bound.plan) if "kept" in line]
    store = "Π[store.store_id, manager](σ[state = 'CA'](store))"
    assert [line.partition(" in ")[2].partition(" as ")[2] for line in lines[1:]] == [
        f"Π[sale.sale_id, sale.store_id, month](σ[year = 1996](sale)) ⋉[sale.store_id = store.store_id] {store}",
        store,
        "Π[item.item_id, item_name](σ[category = 'toy'](item))",
    ]
    assert lines[0] == "line: not kept; it refers to all others, and the view shows its rows"


def test_two_columns_may_refer_to_one_key() -> None:
    """An order's address of delivery and its address of billing: both are references, and both are relied on."""
    schemas = {
        "orders": (("id", "int"), ("ship", "int"), ("bill", "int")),
        "address": (("id", "int"), ("city", "string")),
    }
    promises = Promises.of(
        {name: ["id"] for name in schemas}, {"orders": {"ship": "address.id", "bill": "Address.ID", "id": "adress.id"}}
    )
    database = Database(schemas)
    bound = database.bind(
        "SELECT o.id, s.city AS ship, b.city AS bill FROM orders o JOIN address s ON o.ship = s.id "
        "JOIN address b ON o.bill = b.id",
        promises=promises,
    )
    (join,) = [node for node in bound.plan.walk() if isinstance(node, PromisedJoin)]
    assert [(link.referring, link.referred) for link in join.links] == [(0, 1), (0, 2)]
    database.close()


def test_columns_that_refer_to_parts_of_a_key() -> None:
    """By the order in which they are declared; where a part is missing, nothing is relied on."""
    keys = {"place": ["land", "code"], "trip": ["id"]}
    ways = {"from_land": "place.land", "from_code": "place.code", "to_land": "place.land", "to_code": "place.code"}
    found = Promises.of(keys, {"trip": ways}).references["trip"]
    assert [reference.columns for reference in found] == [("from_land", "from_code"), ("to_land", "to_code")]
    del ways["to_code"]
    assert "trip" not in Promises.of(keys, {"trip": ways}).references
    ((_, _, why),) = unused(keys, {"trip": ways})
    assert why.endswith("but the key of place is (land, code), and not each part of it is referred to equally often")


def test_a_table_that_only_filters_lets_the_root_be_left_out(db: Database) -> None:
    """Nothing above reads what an update of store, sale or item could change: no update of them matters."""
    bound = db.bind(f"SELECT SUM(line.sales_price) AS total, COUNT(*) AS n {FROM}", promises=PROMISES)
    assert "line: not kept; no change of another table can meet its rows" in described(bound.plan)
    assert base_reads(bound.plan, bound.types) == set()


def test_rows_of_which_only_sums_matter_are_kept_aggregated(db: Database) -> None:
    """By manager: of line one row for each sale, with its sums; an update of a manager moves these."""
    bound = db.bind(
        f"SELECT store.manager, SUM(line.sales_price) AS total, COUNT(*) AS n {FROM} GROUP BY 1", promises=PROMISES
    )
    assert "line: kept in support2, aggregated to line.sale_id, line.item_id" in described(bound.plan)
    assert base_reads(bound.plan, bound.types) == set()
    for name, rows in INITIAL.items():
        db.replace(name, Counter(rows))
    db.replace("line", Counter([*INITIAL["line"], (104, 10, 7, 2), (105, 10, 7, None)]))
    db.keep(bound)
    assert db.connection.execute('SELECT COUNT(*) FROM "support2"').fetchall() == [(1,)]
    assert db.evaluate(bound) == Counter([("Ann", 7, 3)])
    db.log("store", {(1, "x", "CA", "Ann"): -1, (1, "x", "CA", "Eve"): 1})
    assert db.preview(bound, ["store"]) == Counter({("Ann", 7, 3): -1, ("Eve", 7, 3): 1})
    smallest = db.bind(f"SELECT store.manager, MIN(line.sales_price) AS low {FROM} GROUP BY 1", promises=PROMISES)
    assert not any("aggregated" in line for line in described(smallest.plan)), "the next minimum is found in rows"


def test_without_a_reference_rows_are_kept_as_they_are(db: Database) -> None:
    """Algorithm 3.1 without RI: an inserted store can meet sales that are there already."""
    keys_only = Promises.of(KEYS, {"line": REFERENCES["line"]})
    bound = db.bind(CAL_TOY_SALES, promises=keys_only)
    kept = [notation(node) for node in bound.plan.walk() if "auxiliary" in node.strategy.name]
    assert "Π[sale_id, store_id, month](σ[year = 1996](sale))" in kept
    assert len(kept) == 4, "line too: an old sale may enter the view with a new store"


def test_the_sizes_of_table_1_at_a_thousandth(db: Database) -> None:
    """883,000 base rows: sale and line a thousandth, store and item whole. Auxiliary tables of 40, 400, none and 50."""
    run = db.connection.execute
    run("INSERT INTO store SELECT i, 'x', CASE WHEN i < 40 THEN 'CA' ELSE 'NY' END, 'm' FROM range(2000) t(i)")
    run("INSERT INTO item SELECT i, 'n', CASE WHEN i < 50 THEN 'toy' ELSE 'pen' END, 's' FROM range(1000) t(i)")
    run("INSERT INTO sale SELECT i, (i // 4) % 2000, 1, 1, 1993 + i % 4 FROM range(80000) t(i)")
    run("INSERT INTO line SELECT i, i % 80000, i % 1000, 1 FROM range(800000) t(i)")
    bound = db.bind(CAL_TOY_SALES, promises=PROMISES)
    db.connection.execute("PRAGMA enable_optimizer")
    db.keep(bound)
    names = {line.partition(":")[0]: line.split()[3] for line in described(bound.plan) if "kept in" in line}
    sizes = {table: run(f'SELECT SUM("_deferred_n") FROM "{name}"').fetchall()[0][0] for table, name in names.items()}
    assert sizes == {"store": 40, "sale": 400, "item": 50}
    unmet = support_tables(bound.plan).keys() - names.values()
    assert len(support_tables(bound.plan)) == 3 + len(unmet)
    assert [run(f'SELECT COUNT(*) FROM "{name}"').fetchall() for name in unmet] == 3 * [[(0,)]]


def test_a_map_cannot_be_kept(db: Database) -> None:
    database = Database({"t": (("a", "int"), ("m", "map<int,int>")), "u": (("a", "int"),)})
    with pytest.raises(UnsupportedSQLError, match=r"rows of t have to be kept, and of type map<int,int>"):
        database.bind("SELECT t.a, t.m FROM t JOIN u ON t.a = u.a", promises=Promises())
    database.close()


INITIAL = {
    "store": [(1, "x", "CA", "Ann"), (2, "x", "NY", "Bob")],
    "sale": [(10, 1, 1, 1, 1996), (11, 2, 1, 1, 1996), (12, 1, 1, 1, 1995)],
    "item": [(7, "duck", "toy", "s"), (8, "pen", "office", "s")],
    "line": [(100, 10, 7, 5), (101, 10, 8, 5), (102, 11, 7, 5), (103, 12, 7, 5)],
}


@pytest.mark.parametrize(
    ("table", "deleted", "inserted", "kinds"),
    [
        ("sale", (12, 1, 1, 1, 1995), (12, 1, 1, 1, 1996), {EXPOSED}),
        ("sale", (10, 1, 1, 1, 1996), (10, 2, 1, 1, 1996), {EXPOSED}),
        ("store", (1, "x", "CA", "Ann"), (1, "x", "NY", "Ann"), {EXPOSED}),
        ("store", (1, "x", "CA", "Ann"), (1, "y", "CA", "Eve"), set()),
        ("sale", (12, 1, 1, 1, 1995), (12, 2, 1, 1, 1994), set()),
        ("store", None, (1, "x", "CA", "Dan"), {DUPLICATE}),
        ("item", (7, "duck", "toy", "s"), None, {DANGLING}),
        ("store", (1, "x", "CA", "Ann"), None, {DANGLING}),
        ("line", (100, 10, 7, 5), None, set()),
        ("item", None, (9, "kite", "toy", "s"), set()),
    ],
)
def test_a_log_tells_exposed_updates_and_broken_promises(
    db: Database, table: str, deleted: Any, inserted: Any, kinds: set[str]
) -> None:
    for name, rows in INITIAL.items():
        db.replace(name, Counter(rows))
    bound = db.bind(CAL_TOY_SALES, promises=PROMISES)
    db.keep(bound)
    db.show(bound)
    db.log(table, {row: n for row, n in ((deleted, -1), (inserted, 1)) if row is not None})
    db.preview(bound, [table])
    assert {guard.kind for guard, _ in db.guarded(bound, [table])} == kinds


def _stepped(db: Database, bound: Any, changes: dict[str, dict[Any, int]]) -> list[tuple[str, str, list[Any]]]:
    """One propagate: what guards find, after which nothing moves; or nothing, and the change is right."""
    shown = db.rows_of(bound.plan)
    db.show(bound)
    for name in SCHEMAS:
        log = changes.get(name, {})
        db.log(name, log)
        new = Counter(db.state[name])
        new.update(log)
        db.replace(name, +new)
    with db.out_of_reach():
        change = db.preview(bound, SCHEMAS)
        found = [(guard.kind, guard.table, sorted(rows)) for guard, rows in db.guarded(bound, SCHEMAS)]
        if not found:
            db.move(bound, SCHEMAS)
    assert found or added(shown, change) == db.rows_of(bound.plan)
    return found


KITE = (9, "kite", "toy", "s")
A_LINE = (104, 10, 9, 5)


@pytest.mark.parametrize("sums", [False, True])
def test_a_row_that_comes_later_than_what_refers_to_it_is_noticed(db: Database, sums: bool) -> None:
    """The line refers to an item that is not there, or no toy: which, no log says. When the item comes, it is known."""
    sql = (
        f"SELECT store.manager, SUM(line.sales_price) AS x, COUNT(*) AS n {FROM} GROUP BY 1" if sums else CAL_TOY_SALES
    )
    for name, rows in INITIAL.items():
        db.replace(name, Counter(rows))
    bound = db.bind(sql, promises=PROMISES)
    db.keep(bound)
    assert _stepped(db, bound, {"line": {A_LINE: 1}}) == []
    assert _stepped(db, bound, {"line": {(105, 10, 8, 5): 1, (106, None, None, 5): 1}}) == []
    assert _stepped(db, bound, {"item": {KITE: 1}}) == [(LATE, "line", [(9,)])]


def test_rows_that_come_together_or_after_what_was_there_are_right(db: Database) -> None:
    """A line with its item; a key that comes back after the row that had it went with all that referred to it."""
    for name, rows in INITIAL.items():
        db.replace(name, Counter(rows))
    bound = db.bind(CAL_TOY_SALES, promises=PROMISES)
    db.keep(bound)
    pen, line = (8, "pen", "office", "s"), (105, 10, 8, 5)
    for changes in (
        {"line": {A_LINE: 1}, "item": {KITE: 1}},
        {"line": {line: 1}},
        {"item": {pen: -1}, "line": {line: -1, (101, 10, 8, 5): -1}},
        {"item": {(8, "bear", "toy", "s"): 1}},
        {"line": {(107, 10, 8, 1): 1}},
    ):
        assert _stepped(db, bound, changes) == []
        assert db.wrong_support_tables(bound) == {}
    assert len(db.query(CAL_TOY_SALES)) == 3


def test_an_insertion_into_a_referenced_table_has_no_term(db: Database) -> None:
    """Rule 4.1: what refers to store is read only for updated rows of store."""
    bound = db.bind(CAL_TOY_SALES, promises=PROMISES)
    (join,) = (node for node in bound.plan.walk() if isinstance(node, PromisedJoin))
    assert [join.key(j) is not None for j in range(4)] == [False, True, True, True]
    for name, rows in INITIAL.items():
        db.replace(name, Counter(rows))
    db.keep(bound)
    db.show(bound)
    db.log("store", {(3, "x", "CA", "Eve"): 1})
    assert db.preview(bound, ["store"]) == Counter()
    assert all(not rows for name, rows in db.ran.rows.items() if name not in _with_the_change(db))


def _with_the_change(db: Database) -> set[str]:
    """The steps that hold the inserted row itself."""
    found = set()
    for name in db.ran.rows:
        text = str(db.connection.execute(f'SELECT * FROM "{name}"').fetchall())
        if "Eve" in text or "(3, 1)" in text or "(3, 1," in text:
            found.add(name)
    return found
