"""TPC-H queries as views on Spark: right after each refresh of the benchmark's own kind.

`make test` takes a few of them, one for each family of operators, through one refresh that changes most tables;
`make tpch` takes all 22 through five refreshes, at five times the scale.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine.support import bag, recomputed
from tests.tpch.data import UPDATES, as_delta, generate, refresh
from tests.tpch.test_tpch import QUERIES

REFRESHES = int(os.environ.get("DEFERRED_TPCH_REFRESHES", "0"))
SCALE = 0.01 if REFRESHES else 0.002
FEW = {
    "q01": "aggregates of one table",
    "q03": "joins, groups and the first ten of them",
    "q13": "an outer join, and groups of groups",
    "q15": "a common table expression compared with its own maximum",
    "q21": "EXISTS and NOT EXISTS",
}
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in QUERIES if REFRESHES or path.stem in FEW}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wh(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A warehouse with the tables tracked."""
    from deferred import Warehouse

    folder = tmp_path_factory.mktemp("tpch")
    generate(folder / "parquet", SCALE)
    with Warehouse.open(path=folder / "warehouse", spark=spark) as opened:
        for name, path in as_delta(spark, folder / "parquet", folder / "tables").items():
            opened.track(name, path)
        yield opened


def _each(work: Any, names: list[str]) -> None:
    """Two at a time, as two tasks of a scheduler would."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, names))


def test_queries_follow_the_refreshes(wh: Any) -> None:
    _each(lambda name: wh.create_view(name, TEXTS[name], refresh_policy="incremental_strict"), list(TEXTS))
    before = {name: bag(wh.read(name)) for name in TEXTS}
    for name, sql in TEXTS.items():
        assert before[name] == bag(recomputed(wh, sql)), name
    moved: set[str] = set()
    for step in range(1, (REFRESHES or 1) + 1):
        updates = (UPDATES[step % len(UPDATES)],) if REFRESHES else (UPDATES[0], UPDATES[1], UPDATES[4])
        with wh.transaction() as tx:
            for statement in refresh(step, SCALE, updates):
                tx.sql(statement)
        _each(wh.refresh, list(TEXTS))
        for name, sql in TEXTS.items():
            shown, wanted = bag(wh.read(name)), bag(recomputed(wh, sql))
            assert shown == wanted, f"{name}, refresh {step}: too many {shown - wanted}, missing {wanted - shown}"
            if shown != before[name]:
                moved.add(name)
            before[name] = shown
    print(f"{len(moved)} of {len(TEXTS)} views have changed: {', '.join(sorted(moved))}")
    assert len(moved) >= (9 if REFRESHES else len(FEW)), f"only these views have changed at all: {sorted(moved)}"
