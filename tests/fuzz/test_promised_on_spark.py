"""Random views that need no base table, on Spark: in a warehouse, while the files of the base tables are out of reach.

DEFERRED_FUZZ_SELF=30 runs that many views.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deferred.errors import DeferredError
from tests.engine.support import assert_fresh
from tests.engine.test_self_maintained import out_of_reach
from tests.fuzz.case import Row
from tests.fuzz.promised import NAMES, State, Tables, query

pytestmark = pytest.mark.slow

FIRST = int(os.environ.get("DEFERRED_FUZZ_SEED", "700"))
WANTED = int(os.environ.get("DEFERRED_FUZZ_SELF", "2"))
TOGETHER, STEPS = 6, 2 if WANTED > 2 else 1
"""So many views over the same tables, and changes of these."""


class Shop:
    """Four tables in a warehouse, whose owner hands over what has changed."""

    def __init__(self, wh: Any, folder: Path, random: Random) -> None:
        self.wh, self.folder = wh, folder
        self.tables = Tables.drawn(random)
        self.state: State = self.tables.filled(random)
        keys, references = self.tables.declared(random)
        for name in reversed(NAMES):
            self._frame(name, self.state[name]).write.format("delta").save(str(folder / name))
            wh.track(name, folder / name, key=keys.get(name, ()), references=references[name], log="table")

    def change(self, random: Random) -> None:
        new = self.tables.changed(random, self.state)
        for name in NAMES:
            before, after = Counter(self.state[name]), Counter(new[name])
            deleted, inserted = before - after, after - before
            if deleted or inserted:
                frame = self._frame(name, new[name])
                frame.write.format("delta").mode("overwrite").save(str(self.folder / name))
                parts = [self._frame(name, sorted(part.elements(), key=repr)) for part in (deleted, inserted)]
                self.wh.append_changes(name, *parts)
        self.state = new

    def _frame(self, name: str, rows: list[Row]) -> Any:
        columns = ", ".join(f"{c} {t}" for c, t in self.tables.schemas[name])
        return self.wh.spark.createDataFrame(rows, columns)


def test_views_equal_their_recomputation_without_base_tables(warehouse: Any, tmp_path: Path) -> None:
    seed, left, steps, exposed = FIRST, WANTED, 0, 0
    while left:
        random, number = Random(seed), min(left, TOGETHER)
        shop = Shop(warehouse, tmp_path / f"tables{seed}", random)
        views = {f"v{seed}_{i}": query(random, shop.tables) for i in range(number)}
        for name, sql in views.items():
            warehouse.create_view(name, sql, maintain="self")
        for _ in range(STEPS):
            shop.change(random)
            for name, sql in views.items():
                steps += 1
                with out_of_reach(shop.folder):
                    try:
                        done = warehouse.refresh(name)
                        assert done.strategy in ("self", None), f"seed {seed}: {sql}: {done.strategy}"
                        continue
                    except DeferredError:
                        pass  # an exposed update asks the base tables: then they must be there
                done = warehouse.refresh(name)
                assert done.strategy == "full", f"seed {seed}: {sql}"
                assert "were updated in columns" in done.warnings[0]
                exposed += 1
            assert_fresh(warehouse, *views)
        for name in views:
            warehouse.verify(name)
            warehouse.drop_view(name)
        for name in NAMES:
            warehouse.untrack(name)
        left, seed = left - number, seed + 1
    print(f"seeds {FIRST} to {seed - 1}: {WANTED} views, {steps} steps, {exposed} with exposed updates")
    assert exposed < steps / 2
