"""Views that need no base table, on Spark: after their creation the files of the base tables are out of reach."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deferred.errors import InvariantError, PromiseBrokenError
from tests.engine.support import assert_fresh, bag, make

STORES = "store_id INT, city STRING, state STRING, manager STRING"
SALES = "sale_id INT, store_id INT, day INT, month INT, year INT"
LINES = "line_id INT, sale_id INT, item_id INT, sales_price DECIMAL(8,2)"
ITEMS = "item_id INT, item_name STRING, category STRING, supplier_name STRING"
TABLES = {
    "store": (STORES, "(1, 'LA', 'CA', 'Ann'), (2, 'SF', 'CA', 'Bob'), (3, 'NY', 'NY', 'Eve')", {}),
    "sale": (
        SALES,
        "(10, 1, 1, 1, 1996), (11, 2, 2, 2, 1996), (12, 3, 3, 3, 1996), (13, 1, 4, 4, 1995)",
        {"store_id": "store.store_id"},
    ),
    "item": (ITEMS, "(7, 'duck', 'toy', 'x'), (8, 'bear', 'toy', 'y'), (9, 'pen', 'office', 'z')", {}),
    "line": (
        LINES,
        "(100, 10, 7, 1.50), (101, 10, 9, 2), (102, 11, 8, 3), (103, 12, 7, 4), (104, 13, 8, 5)",
        {"sale_id": "sale.sale_id", "item_id": "item.item_id"},
    ),
}
CAL_TOY_SALES = """
SELECT store.manager, sale.sale_id, sale.month, item.item_id, item.item_name, line.line_id, line.sales_price
FROM store, sale, line, item
WHERE store.store_id = sale.store_id AND sale.sale_id = line.sale_id AND line.item_id = item.item_id
  AND store.state = 'CA' AND sale.year = 1996 AND item.category = 'toy'
"""
BY_MANAGER = """
SELECT s.manager, COUNT(*) AS lines, SUM(l.sales_price) AS total FROM line l JOIN sale a ON l.sale_id = a.sale_id
JOIN store s ON a.store_id = s.store_id WHERE s.state = 'CA' GROUP BY s.manager
"""
WITHOUT_KEYS = (
    "SELECT i.category, MAX(l.sales_price) AS top FROM item i LEFT JOIN line l ON l.line_id = i.item_id + 93 GROUP BY 1"
)


class Shop:
    """Four tables whose owner hands over their changes; their files can be taken away."""

    def __init__(self, wh: Any, folder: Path) -> None:
        self.wh, self.folder = wh, folder
        for name, (columns, values, references) in TABLES.items():
            make(wh.spark, folder / name, columns, values)
            key = [columns.partition(" ")[0]]
            wh.track(name, folder / name, key=key, references=references, log="table")

    def change(self, name: str, deleted: str = "", inserted: str = "") -> None:
        """Delete and insert rows, given as VALUES, and hand them over."""
        spark, at = self.wh.spark, f"delta.`{self.folder / name}`"
        columns = [c.split()[0] for c in TABLES[name][0].split(", ")]
        parts = {
            values: spark.sql(f"SELECT * FROM VALUES {values} AS v({', '.join(columns)})")
            for values in (deleted, inserted)
            if values
        }
        if deleted:
            keys = ", ".join(str(row[0]) for row in parts[deleted].collect())
            spark.sql(f"DELETE FROM {at} WHERE {columns[0]} IN ({keys})")
        if inserted:
            spark.sql(f"INSERT INTO {at} VALUES {inserted}")
        self.wh.append_changes(name, parts.get(deleted), parts.get(inserted))

    @contextmanager
    def out_of_reach(self) -> Iterator[None]:
        """The base tables without their rows: only their logs are left."""
        moved = [(path, path.with_suffix(".away")) for path in self.folder.glob("*/*.parquet")]
        assert moved
        for path, away in moved:
            shutil.move(path, away)
        try:
            yield
        finally:
            for path, away in moved:
                shutil.move(away, path)

    def refreshed(self, *views: str) -> list[Any]:
        """Refresh views without the base tables, then compare with what these give."""
        with self.out_of_reach():
            done = [self.wh.refresh(view) for view in views]
        assert_fresh(self.wh, *views)
        return done


@pytest.fixture
def shop(warehouse: Any, tmp_path: Path) -> Shop:
    return Shop(warehouse, tmp_path / "tables")


def test_the_view_of_the_paper(shop: Shop) -> None:
    wh = shop.wh
    wh.create_view("cal_toy_sales", CAL_TOY_SALES, maintain="self")
    wh.create_view("by_manager", BY_MANAGER, maintain="self")
    wh.create_view("without_keys", WITHOUT_KEYS, maintain="self")
    views = ("cal_toy_sales", "by_manager", "without_keys")
    explained = wh.explain("cal_toy_sales")
    assert explained.strategy == "self"
    text = "\n".join(explained.plan)
    assert "store: kept in" in text
    assert "as Π[store.store_id, manager](σ[state = 'CA'](store))" in text
    assert "line: not kept; it refers to all others, and the view shows its rows" in text
    # Insertions: of rows that nothing refers to yet, then of rows that refer to old and to new ones.
    shop.change("store", inserted="(4, 'LA', 'CA', 'Dan')")
    shop.change("item", inserted="(6, 'kite', 'toy', 'x')")
    done = shop.refreshed(*views)
    assert [operation.rows_inserted for operation in done] == [0, 0, 0]
    shop.change("sale", inserted="(14, 4, 5, 5, 1996)")
    shop.change("line", inserted="(105, 14, 6, 6), (106, 10, 8, 7), (107, 12, 6, 8)")
    shop.refreshed(*views)
    assert bag(wh.read("cal_toy_sales").select("line_id")).keys() == {(n,) for n in (100, 102, 105, 106)}
    # Protected updates, one level away from the view's rows and two.
    shop.change("item", deleted="(7, 'duck', 'toy', 'x')", inserted="(7, 'goose', 'toy', 'x')")
    shop.change("store", deleted="(1, 'LA', 'CA', 'Ann')", inserted="(1, 'LA', 'CA', 'Anna')")
    done = shop.refreshed(*views)
    assert (done[0].rows_deleted, done[0].rows_inserted) == (2, 2)
    # Deletions, of rows and of what they refer to at once.
    shop.change("line", deleted="(102, 11, 8, 3)")
    shop.change("sale", deleted="(11, 2, 2, 2, 1996)")
    shop.change("store", deleted="(2, 'SF', 'CA', 'Bob')")
    shop.refreshed(*views)
    assert bag(wh.read("cal_toy_sales", fresh=True)) == bag(wh.read("cal_toy_sales"))
    for view in views:
        wh.verify(view)


def test_an_exposed_update_reads_the_base_tables_once(shop: Shop) -> None:
    wh = shop.wh
    wh.create_view("v", CAL_TOY_SALES, maintain="self")
    shop.change("sale", deleted="(13, 1, 4, 4, 1995)", inserted="(13, 1, 4, 4, 1996)")
    done = wh.propagate("v")
    assert done.strategy == "full"
    assert "Rows of sale with sale_id = (13,) were updated in columns on which" in done.warnings[0]
    wh.partial_refresh("v")
    assert_fresh(wh, "v")
    shop.change("line", inserted="(108, 13, 7, 9)")
    assert shop.refreshed("v")[0].rows_inserted == 1


def test_a_broken_promise_marks_the_view(shop: Shop) -> None:
    wh = shop.wh
    wh.create_view("v", CAL_TOY_SALES, maintain="self")
    shop.change("item", deleted="(7, 'duck', 'toy', 'x')")
    with pytest.raises(PromiseBrokenError, match=r"line\(item_id\) was tracked as a reference to item, .* \(7,\)"):
        wh.propagate("v")
    (view,) = wh.views()
    assert view.state == "broken"
    assert "rebuild('v')" in view.problem
    wh.rebuild("v")
    with pytest.raises(InvariantError, match=r"line\(item_id\) refers to item does not hold"):
        wh.verify("v")
    shop.change("item", inserted="(7, 'duck', 'toy', 'x')")
    shop.change("store", inserted="(1, 'LA', 'CA', 'Ann again')")
    with pytest.raises(PromiseBrokenError, match=r"store was tracked with the key \(store_id\), .* \(1,\)"):
        wh.propagate("v")


def test_a_view_answers_deletions_and_modifications_itself(shop: Shop) -> None:
    """An ordinary view, which may read its base tables: here it does not (Blakeley 1987, chapter 4)."""
    wh = shop.wh
    wh.create_view("v", CAL_TOY_SALES)
    assert "Deletions from sale, line, item are answered from the view's own rows" in wh.explain("v").reason
    shop.change("line", deleted="(102, 11, 8, 3)")
    shop.change("item", deleted="(7, 'duck', 'toy', 'x')", inserted="(7, 'goose', 'toy', 'x')")
    with shop.out_of_reach():
        done = wh.propagate("v")
    assert (done.strategy, done.rows_deleted, done.rows_inserted) == ("from the view", 2, 1)
    shop.change("item", deleted="(8, 'bear', 'toy', 'y')", inserted="(8, 'bear', 'office', 'y')")
    shop.change("sale", deleted="(13, 1, 4, 4, 1995)", inserted="(13, 1, 4, 4, 1996)")
    done = wh.refresh("v")
    assert done.strategy == "incremental"
    assert_fresh(wh, "v")
    wh.verify("v")
