"""Random views that need no base table, on Spark: in a warehouse, while the files of the base tables are out of reach.

Their owner hands over what has changed, or Debezium sends it. DEFERRED_FUZZ_SELF=30 runs that many views of each kind,
through more changes.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deferred.errors import DeferredError
from tests.engine.support import assert_fresh
from tests.engine.test_self_maintained import moved_away, out_of_reach
from tests.fuzz.case import Row
from tests.fuzz.promised import NAMES, State, Tables, query

pytestmark = pytest.mark.slow

FIRST = int(os.environ.get("DEFERRED_FUZZ_SEED", "700"))
WANTED = int(os.environ.get("DEFERRED_FUZZ_SELF", "2"))
TOGETHER, STEPS = 8, 2 if WANTED > 2 else 1
"""So many views over the same tables, and changes of these."""
VERIFIED = 5
"""One in so many views is verified, too; all are compared with their recomputation."""


class Shop:
    """Four tables in a warehouse, whose owner hands over what has changed."""

    def __init__(self, wh: Any, folder: Path, random: Random) -> None:
        self.wh, self.folder = wh, folder
        self.tables = Tables.drawn(random)
        self.state: State = self.tables.filled(random)
        self.track(*self.tables.declared(random))

    def track(self, keys: dict[str, tuple[str, ...]], references: dict[str, dict[str, str]]) -> None:
        for name in reversed(NAMES):
            self._frame(name, self.state[name]).write.format("delta").save(str(self.folder / name))
            self.wh.track(name, self.folder / name, key=keys.get(name, ()), references=references[name], log="table")

    def out_of_reach(self) -> AbstractContextManager[None]:
        return out_of_reach(self.folder)

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


class Sending(Shop):
    """The same, whose tables are known by Debezium's events alone: these come in any order, and more than once."""

    def track(self, keys: dict[str, tuple[str, ...]], references: dict[str, dict[str, str]]) -> None:
        self.positions, self.sent = count(1), dict[str, list[str]]()
        for name in reversed(NAMES):
            columns = ", ".join(f"{c} {t}" for c, t in self.tables.schemas[name])
            self.wh.track(name, key=["id"], references=references[name], log="debezium", columns=columns)
            self.sent[name] = [self._event(name, "r", None, row) for row in self.state[name]]
            self.wh.ingest(name, self.sent[name])

    def out_of_reach(self) -> AbstractContextManager[None]:
        return moved_away(self.old)

    def change(self, random: Random) -> None:
        copies = [Path(table.location) for table in self.wh.tables() if table.name in NAMES]
        self.old = [path for copy in copies for path in copy.glob("*.parquet")]
        new = self.tables.changed(random, self.state)
        for name in NAMES:
            before, after = ({row[0]: row for row in state[name]} for state in (self.state, new))
            events = [
                self._event(name, "d" if row is None else "u" if old is not None else "c", old, row)
                for key in sorted(before.keys() | after.keys())
                if (old := before.get(key)) != (row := after.get(key))
            ]
            again = random.sample(self.sent[name], min(2, len(self.sent[name])))
            self.sent[name] += events
            if events:
                self.wh.ingest(name, random.sample([*events, *again], len(events) + len(again)))
        self.state = new

    def _event(self, name: str, op: str, before: Row | None, after: Row | None) -> str:
        names = [c for c, _ in self.tables.schemas[name]]
        old, new = (None if row is None else dict(zip(names, row, strict=True)) for row in (before, after))
        return json.dumps({"op": op, "before": old, "after": new, "source": {"lsn": next(self.positions)}})


@pytest.mark.parametrize("kind", [Shop, Sending])
def test_views_equal_their_recomputation_without_base_tables(warehouse: Any, tmp_path: Path, kind: type[Shop]) -> None:
    seed, left, steps, exposed = FIRST, WANTED, 0, 0
    while left:
        random, number = Random(seed), min(left, TOGETHER)
        shop = kind(warehouse, tmp_path / f"tables{seed}", random)
        views = {f"v{seed}_{i}": query(random, shop.tables) for i in range(number)}
        for name, sql in views.items():
            warehouse.create_view(name, sql, maintain="self")
        for _ in range(STEPS):
            shop.change(random)
            for name, sql in views.items():
                steps += 1
                with shop.out_of_reach():
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
        for place, name in enumerate(views):
            if place % VERIFIED == 0:
                warehouse.verify(name)
            warehouse.drop_view(name)
        for name in NAMES:
            warehouse.untrack(name)
        left, seed = left - number, seed + 1
    print(
        f"{kind.__name__}, seeds {FIRST} to {seed - 1}: {WANTED} views, {steps} steps, {exposed} with exposed updates"
    )
    assert exposed < steps / 2
