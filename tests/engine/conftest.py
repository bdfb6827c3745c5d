"""The paper's retail application as small tables, for tests that need no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import make


@pytest.fixture
def tables(warehouse: Any, tmp_path: Path) -> Any:
    """A warehouse that tracks r and t."""
    return with_tables(warehouse, tmp_path / "tables")


def with_tables(wh: Any, folder: Path) -> Any:
    for name, columns, values in (("r", "a INT, b INT, s STRING", "(1, 1, 'x'), (1, 1, 'x'), (2, NULL, 'y')"),
                                  ("t", "a INT, d DECIMAL(8,2)", "(1, 1.50), (2, 2.25)")):
        wh.track(name, make(wh.spark, folder / name, columns, values))
    return wh


@pytest.fixture(scope="module")
def shared(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One warehouse for a module whose tests leave it as it was."""
    from deferred import Warehouse

    folder = tmp_path_factory.mktemp("shared")
    with Warehouse.open(path=folder / "warehouse", spark=spark) as wh:
        yield with_tables(wh, folder / "tables")
