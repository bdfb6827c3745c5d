"""Random histories of views that share auxiliary tables: whatever is done with one of them, each stays what it is.

Views go to different cuts, also to times between those of others, die in the middle, are rebuilt, altered, dropped and
created again; now and then a shared table is lost. `verify` compares each with Spark's own answer at its cut.
DEFERRED_FUZZ_SHARED=20 does that many things, DEFERRED_FUZZ_SEED=2 does others.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deferred.errors import InvalidInputError
from deferred.maintenance import shared
from tests.engine.support import Death, assert_fresh, bag, dying_after, make, recomputed
from tests.engine.test_until_backfill import moment

SEED = int(os.environ.get("DEFERRED_FUZZ_SEED", "1"))
WANTED = int(os.environ.get("DEFERRED_FUZZ_SHARED", "0"))

ITEM = "item_id INT, name STRING, category STRING, code CHAR(4), price DECIMAL(8,2), at TIMESTAMP, tags ARRAY<STRING>"
LINE = "line_id INT, item_id INT, qty INT"
TOYS = "FROM line l JOIN item i ON l.item_id = i.item_id WHERE i.category = 'toy'"
QUERIES = (
    f"SELECT l.line_id, i.name, i.code, i.price, i.at {TOYS}",
    f"SELECT l.line_id, i.name, i.price {TOYS} AND i.name <> 'bear'",
    f"SELECT l.line_id, i.name, i.at {TOYS} AND i.price > 1.5",
    f"SELECT i.name, i.code, COUNT(*) AS n, SUM(l.qty) AS qty {TOYS} GROUP BY i.name, i.code",
    "SELECT l.line_id, l.qty, i.tags, i.category FROM line l JOIN item i ON l.item_id = i.item_id",
    "SELECT a.item_id AS one, b.item_id AS other, a.price FROM item a JOIN item b ON a.name = b.name",
)


class History:
    """Two tables, some views over them, and what can happen to all of these."""

    def __init__(self, wh: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wh, self.random, self.patch = wh, Random(SEED), monkeypatch
        self.paths = {"item": make(wh.spark, folder / "item", ITEM), "line": make(wh.spark, folder / "line", LINE)}
        self.items: set[int] = set()
        self.lines: dict[int, int] = {}
        self.moments: list[datetime] = []
        wh.track("item", self.paths["item"], key=["item_id"])
        wh.track("line", self.paths["line"], key=["line_id"], references={"item_id": "item.item_id"})
        for _ in range(4):
            self.insert_items()
        self.insert_lines()
        self.views = {f"v{number}": sql for number, sql in enumerate(self.random.sample(QUERIES, 3))}
        for name, sql in self.views.items():
            wh.create_view(name, sql, maintain="self")

    def one(self) -> str:
        return self.random.choice(sorted(self.views))

    # ---- changes, after each of which every line refers to an item

    def write(self, statement: str) -> None:
        self.wh.spark.sql(statement)
        self.moments.append(moment(self.wh)[0])

    def item(self, key: int) -> str:
        choice = self.random.choice
        name, category = choice(["'duck'", "'bear'", "'kite'", "NULL"]), choice(["'toy'", "'toy'", "'pen'", "NULL"])
        code, price = choice(["'a'", "'ab'", "'a   '", "NULL"]), choice(["1.5", "2", "9.99", "NULL"])
        at = choice(["TIMESTAMP'2024-03-31 02:30:00'", "TIMESTAMP'1960-01-01 00:00:00.000001'", "NULL"])
        tags = choice(["ARRAY()", "ARRAY('x', NULL)", "NULL"])
        return f"({key}, {name}, {category}, {code}, {price}, {at}, {tags})"

    def insert_items(self) -> None:
        new = [n for n in self.random.sample(range(30), 3) if n not in self.items]
        if new:
            self.items.update(new)
            self.write(f"INSERT INTO delta.`{self.paths['item']}` VALUES {', '.join(map(self.item, new))}")

    def insert_lines(self) -> None:
        items = self.random.choices(sorted(self.items), k=4)
        new = {max(self.lines, default=0) + n: item for n, item in enumerate(items, start=1)}
        self.lines.update(new)
        rows = ", ".join(f"({line}, {item}, {self.random.randint(0, 3)})" for line, item in new.items())
        self.write(f"INSERT INTO delta.`{self.paths['line']}` VALUES {rows}")

    def update_items(self) -> None:
        column, value = self.random.choice(
            [("name", "'swan'"), ("name", "'bear'"), ("price", "price + 1"), ("code", "'zz'"), ("category", "'toy'")]
        )
        where = f"item_id % 4 = {self.random.randint(0, 3)}"
        self.write(f"UPDATE delta.`{self.paths['item']}` SET {column} = {value} WHERE {where}")

    def delete_items(self) -> None:
        gone = self.random.choice(sorted(self.items))
        self.items.discard(gone)
        self.lines = {line: item for line, item in self.lines.items() if item != gone}
        for name in ("line", "item"):
            self.write(f"DELETE FROM delta.`{self.paths[name]}` WHERE item_id = {gone}")
        if not self.items:
            self.insert_items()

    # ---- what is done with views

    def refresh(self) -> None:
        self.wh.refresh(self.one())

    def go_back_a_little(self) -> None:
        """To a time that others may have passed already."""
        with suppress(InvalidInputError):  # the view itself has passed it, too
            self.wh.propagate(self.one(), until=self.random.choice(self.moments[-6:]))

    def die(self) -> None:
        with self.patch.context() as patch:
            dying_after(patch, self.random.randint(0, 3))
            with suppress(Death):
                self.wh.refresh(self.one())

    def rebuild(self) -> None:
        self.wh.rebuild(self.one())

    def alter(self) -> None:
        name, sql = self.one(), self.random.choice(QUERIES)
        if self.random.random() < 0.3:
            with self.patch.context() as patch:
                dying_after(patch, self.random.randint(0, 4))
                try:
                    self.wh.alter_view(name, sql)
                except Death:
                    self.wh.verify(name)  # settles what was done
        else:
            self.wh.alter_view(name, sql)
        self.views[name] = self.wh.find_view(name).sql

    def create_again(self) -> None:
        name = self.one()
        self.wh.drop_view(name)
        self.views[name] = self.random.choice(QUERIES)
        self.wh.create_view(name, self.views[name], maintain="self")

    def collect_garbage(self) -> None:
        self.wh.gc(retain_hours=0)

    def lose_a_table(self) -> None:
        for folder in list((Path(str(self.wh.settings.path)) / "shared").iterdir())[:1]:
            shutil.rmtree(folder)

    def read_fresh(self) -> None:
        name = self.one()
        assert bag(self.wh.read(name, fresh=True)) == bag(recomputed(self.wh, self.views[name])), name

    @property
    def changes(self) -> list[Callable[[], None]]:
        return [self.insert_items, self.insert_lines, self.insert_lines, self.update_items, self.delete_items]

    @property
    def deeds(self) -> list[Callable[[], None]]:
        usual = [self.refresh, self.refresh, self.go_back_a_little, self.go_back_a_little, self.die, self.die]
        rare = [self.rebuild, self.alter, self.create_again, self.collect_garbage, self.lose_a_table, self.read_fresh]
        return [*usual, *usual, *rare]


@pytest.mark.skipif(not WANTED, reason="DEFERRED_FUZZ_SHARED=20 does twenty things, in some minutes")
def test_views_that_share_tables_stay_right(warehouse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "REWRITE_AFTER", 4)
    history = History(warehouse, tmp_path, monkeypatch)
    done: list[str] = []
    for _ in range(WANTED):
        for deed in [
            *history.random.choices(history.changes, k=history.random.randint(0, 2)),
            history.random.choice(history.deeds),
        ]:
            done.append(deed.__name__)
            deed()
        name = history.one()
        try:
            warehouse.verify(name)
        except Exception as error:
            raise AssertionError(f"seed {SEED}: {name}: {history.views[name]} after {done}") from error
    for name in history.views:
        warehouse.refresh(name)
        warehouse.verify(name)
    assert_fresh(warehouse, *history.views)
    print(f"seed {SEED}: {', '.join(done)}")
