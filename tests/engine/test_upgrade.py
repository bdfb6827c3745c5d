"""A warehouse that a released version made and left in the middle of its work is opened and carried on with.

The archives and the script that makes them are in tests/fixtures. Only what a user can call is used here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import assert_fresh
from tests.fixtures.make_warehouse import ROOT, VIEWS, relocate

FEW = ("counted", "first_rows", "above", "less", "named")
"""Kept groups, kept rows, a view over another one, and views of two more scenarios."""

FIXTURES = Path(__file__).parents[1] / "fixtures"
VERSIONS = sorted(archive.name.removeprefix("warehouse-") for archive in FIXTURES.glob("warehouse-*.tar.gz"))


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks a warehouse and puts its new place into the metadata; returns the folder of the warehouse."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    relocate(folder / "warehouse" / "deferred.db", ROOT, str(folder))
    return folder / "warehouse"


@pytest.fixture(params=VERSIONS)
def opened(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Iterator[Any]:
    from deferred import Warehouse

    path = unpack(FIXTURES / f"warehouse-{request.param}", tmp_path)
    command = [sys.executable, "-m", "deferred.cli", "db", "upgrade"]
    environment = {**os.environ, "DEFERRED_PATH": str(path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with Warehouse.open(path=path, spark=spark) as wh:
        yield wh


def names_of(wh: Any) -> list[str]:
    """The views, each after those that it reads."""
    names = [view.name for view in sorted(wh.views(), key=lambda view: view.id)]
    assert set(names) == set(VIEWS)
    return names


def change_all(wh: Any) -> None:
    with wh.transaction() as tx:
        tx.insert("r", [(2, 3, "new"), (1, 1, "x"), (None, None, None)])
        tx.delete("r", "b = 9")
        tx.update("t", {"d": "d * 2", "f": "NULL"}, "a = 1")
        tx.sql("DELETE FROM t WHERE d < 0")
    owned = next(table.location for table in wh.tables() if table.name == "h")
    wh.spark.sql(f"UPDATE delta.`{owned}` SET s = 'uno' WHERE a = 1")
    wh.append_changes("h", deletions=[(1, "one")], insertions=[(1, "uno")])


def test_a_few_views_of_an_older_warehouse_are_carried_on_with(opened: Any) -> None:
    """What is left is propagated, applied, and compared; then changes of all tables."""
    wh = opened
    names = [name for name in names_of(wh) if name in FEW]
    for name in names:
        wh.refresh(name)
    assert_fresh(wh, *names)
    change_all(wh)
    for name in names:
        wh.refresh(name)
    assert_fresh(wh, *names)


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("DEFERRED_TEST_UPGRADE"), reason="takes many minutes; run it with DEFERRED_TEST_UPGRADE=1"
)
def test_an_older_warehouse_is_carried_on_with(opened: Any) -> None:
    wh = opened
    names = names_of(wh)
    assert {status["name"]: status["scenario"] for status in wh.status()} == {n: v[0] for n, v in VIEWS.items()}
    assert {operation.state for operation in wh.history(limit=500)} == {"succeeded", "nothing"}
    history = wh.read_history("joined").collect()
    for name in names:  # as it was left: batches that are not applied, commits that are not propagated
        wh.verify(name)

    for name in names:
        wh.propagate(name)
        wh.verify(name)
    for name in names:
        wh.partial_refresh(name)
        wh.verify(name)

    change_all(wh)
    for name in names:
        wh.refresh(name)
    for name in names:
        wh.verify(name)
    assert_fresh(wh, *names)
    assert wh.read_history("joined").collect() == history

    for name in names:
        wh.explain(name)
        wh.rebuild(name)
    assert_fresh(wh, *names)
