"""How a warehouse starts Spark, seen without starting it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deferred.config import Settings
from deferred.maintenance.opening import engine_of
from deferred.spark import session


def test_tables_by_name_are_kept_in_the_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a folder spark-warehouse, in whatever folder a process happens to run."""
    given: list[Any] = []

    def start(*arguments: Any) -> None:
        given.extend(arguments)
        raise InterruptedError

    monkeypatch.setattr(session, "start", start)
    with pytest.raises(InterruptedError):
        _ = engine_of(Settings.resolve(None, tmp_path / "warehouse", None), None).spark
    assert given[-1] == str(tmp_path / "warehouse" / "catalog")
