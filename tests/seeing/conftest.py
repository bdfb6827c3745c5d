"""The shop, and commands run in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.seeing.shop import Shop, small_shop
from tests.test_cli import Project


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with small_shop(tmp_path / "shop") as made:
        yield made


@pytest.fixture
def project(shop: Shop, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Project:
    for name in ("CONFIG", "PATH", "METADATA_URL", "SPARK_REMOTE", "SPARK_MASTER", "DEBUG"):
        monkeypatch.delenv(f"DEFERRED_{name}", raising=False)
    monkeypatch.chdir(shop.folder)
    return Project(shop.folder, capfd)
