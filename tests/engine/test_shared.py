"""Auxiliary tables that several views share, at different cuts, through all that can happen to a view."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deferred import Warehouse
from deferred.maintenance import shared
from tests.engine.support import assert_fresh, dying, dying_after
from tests.engine.test_self_maintained import CAL_TOY_SALES, Shop, out_of_reach
from tests.engine.test_until_backfill import moment

TOYS = "SELECT l.line_id, i.item_name, l.sales_price FROM line l JOIN item i ON l.item_id = i.item_id"
TOY_LINES = f"{TOYS} WHERE i.category = 'toy'"
DUCKS = f"{TOYS} WHERE i.category = 'toy' AND i.item_name <> 'bear'"
PENS = f"{TOYS} WHERE i.category = 'office'"


@pytest.fixture
def shop(warehouse: Any, tmp_path: Path) -> Shop:
    return Shop(warehouse, tmp_path / "tables")


def folders(wh: Any) -> list[str]:
    """The tables that the shared ones are about."""
    found = Path(str(wh.settings.path)) / "shared"
    return sorted(path.name.rpartition("-")[0] for path in found.iterdir()) if found.exists() else []


def test_views_at_different_cuts_share_tables(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    wh = shop.wh
    wh.create_view("sales", CAL_TOY_SALES, maintain="self")
    wh.create_view("ducks", DUCKS, maintain="self")
    assert folders(wh) == ["item", "store"], "what ducks needs of item is part of what sales keeps"
    assert "which views share, as Π[item.item_id, item_name](σ[" in "\n".join(wh.explain("ducks").plan)
    # One view goes ahead; the other follows to a time between its cuts, then past them.
    shop.change("item", deleted="(7, 'duck', 'toy', 'x')", inserted="(7, 'goose', 'toy', 'x'), (6, 'kite', 'toy', 'x')")
    between, _ = moment(wh)
    shop.change("item", deleted="(7, 'goose', 'toy', 'x')", inserted="(7, 'duck', 'toy', 'x')")
    shop.change("line", inserted="(105, 10, 6, 6), (106, 11, 7, 7)")
    with out_of_reach(shop.folder):
        assert wh.refresh("sales").strategy == "self"
        assert wh.refresh("ducks", until=between).strategy == "self"
    shop.change("line", inserted="(107, 10, 7, 1)")
    with out_of_reach(shop.folder):
        assert wh.refresh("ducks").strategy == "self"
    assert_fresh(wh, "ducks")
    wh.refresh("sales")
    assert_fresh(wh, "sales")
    # Nothing that matters to ducks: its cut moves on, and the shared table follows when it is needed.
    shop.change("item", inserted="(5, 'ruler', 'office', 'z')")
    wh.refresh("ducks")
    monkeypatch.setattr(shared, "REWRITE_AFTER", 3)
    shop.change("item", deleted="(6, 'kite', 'toy', 'x')", inserted="(6, 'dragon', 'toy', 'x')")
    with out_of_reach(shop.folder):
        done = [wh.refresh(view) for view in ("ducks", "sales")]
    assert [(each.rows_deleted, each.rows_inserted) for each in done] == [(1, 1), (1, 1)]
    assert_fresh(wh, "ducks", "sales")
    shop.change("line", inserted="(108, 10, 6, 2)")
    assert sorted(map(tuple, wh.read("ducks", fresh=True).collect())) == sorted(
        map(tuple, wh.spark.sql(_over_files(shop, DUCKS)).collect())
    )
    wh.refresh("ducks")
    wh.verify("ducks")
    # Of a view that goes, what others need stays.
    wh.drop_view("sales")
    wh.gc(retain_hours=0)
    assert folders(wh) == ["item"]
    shop.change("line", inserted="(109, 10, 7, 2)")
    shop.refreshed("ducks")
    wh.drop_view("ducks")
    assert folders(wh) == []


def test_shared_tables_through_crashes_and_other_definitions(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh = shop.wh
    wh.create_view("toys", TOY_LINES, maintain="self")
    wh.create_view("ducks", DUCKS, maintain="self")
    assert folders(wh) == ["item"]
    names = ("duck", "egret", "goose")
    for count in (0, 1):  # before the shared table has the change, and after it, before the batch
        old, new = names[count : count + 2]
        shop.change("item", deleted=f"(7, '{old}', 'toy', 'x')", inserted=f"(7, '{new}', 'toy', 'x')")
        with monkeypatch.context() as patch:
            dying_after(patch, count)
            with dying():
                wh.propagate("toys")
        shop.refreshed("ducks", "toys")
    wh.alter_view("ducks", PENS)
    assert folders(wh) == ["item", "item"]
    wh.alter_view("ducks", DUCKS)
    assert folders(wh) == ["item"]
    shop.change("item", deleted="(7, 'goose', 'toy', 'x')", inserted="(7, 'swan', 'toy', 'x')")
    wh.rebuild("toys")
    shop.refreshed("ducks", "toys")
    # The table is lost: each view is computed anew, once.
    folder = next((Path(str(wh.settings.path)) / "shared").iterdir())
    folder.rename(tmp_path / "lost")
    shop.change("item", deleted="(7, 'swan', 'toy', 'x')", inserted="(7, 'crane', 'toy', 'x')")
    assert [wh.refresh(view).strategy for view in ("toys", "ducks")] == ["full", "full"]
    shop.change("line", inserted="(110, 10, 7, 2)")
    assert [each.strategy for each in shop.refreshed("toys", "ducks")] == ["self", "self"]
    # The database is lost.
    (Path(str(wh.settings.path)) / "deferred.db").unlink()
    with Warehouse.open(path=wh.settings.path, spark=wh.spark) as again:
        again.recover()
        again.gc(retain_hours=0)
        shop.wh = again
        shop.change("item", deleted="(7, 'crane', 'toy', 'x')", inserted="(7, 'heron', 'toy', 'x')")
        assert [each.strategy for each in shop.refreshed("toys", "ducks")] == ["self", "self"]


def test_a_rebuild_corrects_what_a_log_has_left_out(shop: Shop) -> None:
    """The owner has forgotten to hand over a row: a rebuilt view is right, and stays so without the base tables."""
    wh = shop.wh
    wh.create_view("toys", TOY_LINES, maintain="self")
    wh.create_view("ducks", DUCKS, maintain="self")
    at, rows = f"delta.`{shop.folder / 'item'}`", "(6, 'kite', 'toy', 'x'), (5, 'swan', 'toy', 'x')"
    wh.spark.sql(f"INSERT INTO {at} VALUES {rows}")
    wh.append_changes("item", None, wh.spark.sql(f"SELECT * FROM {at} WHERE item_id = 6"))
    shop.change("line", inserted="(105, 10, 6, 6)")
    wh.refresh("toys")
    wh.rebuild("toys")
    wh.refresh("ducks", full=True)
    shop.change("line", inserted="(106, 10, 5, 7), (107, 11, 6, 8)")
    assert [(each.strategy, each.rows_inserted) for each in shop.refreshed("toys", "ducks")] == [("self", 2)] * 2


def test_a_table_that_a_later_version_would_read_otherwise_is_not_read(shop: Shop) -> None:
    """It writes a condition in other words, say: the view gets a table of its own, once."""
    wh, store = shop.wh, shop.wh._context.metadata.views
    wh.create_view("toys", TOY_LINES, maintain="self")
    view = wh.find_view("toys")
    ((name, table),) = view.definition.shared.items()
    other = replace(table, conditions=tuple(f"({text})" for text in table.conditions))
    store.update(view.id, definition=replace(view.definition, shared={name: other}))
    shop.change("line", inserted="(105, 10, 7, 6)")
    assert wh.refresh("toys").strategy == "full"
    shop.change("line", inserted="(106, 10, 9, 6), (107, 10, 8, 6)")
    assert [(each.strategy, each.rows_inserted) for each in shop.refreshed("toys")] == [("self", 1)]


def _over_files(shop: Shop, sql: str) -> str:
    for name in ("line", "item"):
        sql = sql.replace(f" {name} ", f" delta.`{shop.folder / name}` ")
    return sql
