"""The paper's retail application as small tables, for tests that need no others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import make

TABLES = (
    ("r", "a INT, b INT, s STRING", "(1, 1, 'x'), (1, 1, 'x'), (2, NULL, 'y')"),
    ("t", "a INT, d DECIMAL(8,2)", "(1, 1.50), (2, 2.25)"),
)


def with_tables(wh: Any, folder: Path) -> Any:
    """A warehouse with r and t, made and tracked: versions 0 and 1, and 2 with the change feed."""
    for name, columns, values in TABLES:
        wh.track(name, make(wh.spark, folder / name, columns, values))
    return wh


@pytest.fixture(scope="session")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with r and t: copying files is quicker than having Spark write them for every test."""
    from deferred import Warehouse

    folder = tmp_path_factory.mktemp("made")
    with Warehouse.open(path=folder / "warehouse", spark=spark) as wh:
        with_tables(wh, folder / "tables")
    return folder / "tables"


def with_copies(wh: Any, made: Path, folder: Path) -> Any:
    shutil.copytree(made, folder)
    for name, _, _ in TABLES:
        wh.track(name, folder / name)
    return wh


@pytest.fixture
def tables(warehouse: Any, made: Path, tmp_path: Path) -> Any:
    """A warehouse that tracks r and t."""
    return with_copies(warehouse, made, tmp_path / "tables")


@pytest.fixture(scope="module")
def shared(spark: Any, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One warehouse for a module whose tests leave it as it was."""
    from deferred import Warehouse

    folder = tmp_path_factory.mktemp("shared")
    with Warehouse.open(path=folder / "warehouse", spark=spark) as wh:
        yield with_copies(wh, made, folder / "tables")
