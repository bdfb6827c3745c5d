"""All 22 TPC-H queries as views on Spark: right after each of five refreshes of the benchmark's own kind.

They take long, so `make tpch` runs them and `make test` does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine.support import bag, recomputed
from tests.tpch.data import as_delta, generate, refresh
from tests.tpch.test_tpch import QUERIES

REFRESHES = int(os.environ.get("DEFERRED_TPCH_REFRESHES", "0"))
pytestmark = [pytest.mark.spark, pytest.mark.slow,
              pytest.mark.skipif(not REFRESHES, reason="`make tpch` runs it (DEFERRED_TPCH_REFRESHES=5)")]

SCALE = 0.01


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


def test_every_query_follows_the_refreshes(wh: Any) -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in QUERIES}
    _each(lambda name: wh.create_view(name, texts[name], refresh_policy="incremental_strict"), list(texts))
    for name, sql in texts.items():
        assert bag(wh.read(name)) == bag(recomputed(wh, sql)), name
    moved: set[str] = set()
    for step in range(1, REFRESHES + 1):
        with wh.transaction() as tx:
            for statement in refresh(step):
                tx.sql(statement)
        before = {name: bag(wh.read(name)) for name in texts}
        _each(wh.refresh, list(texts))
        for name, sql in texts.items():
            shown, wanted = bag(wh.read(name)), bag(recomputed(wh, sql))
            assert shown == wanted, f"{name}, refresh {step}: too many {shown - wanted}, missing {wanted - shown}"
            if shown != before[name]:
                moved.add(name)
    print(f"{len(moved)} of the views have changed in {REFRESHES} refreshes")
    assert len(moved) >= 9, f"only these views have changed at all: {sorted(moved)}"
