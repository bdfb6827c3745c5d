"""What an installation carries: every package, the migrations, and nothing that only a checkout has."""

from __future__ import annotations

import configparser
from pathlib import Path

ROOT = Path(__file__).parents[1]


def package_names(folder: Path, name: str) -> set[str]:
    return {".".join((name, *file.relative_to(folder).parts[:-1])) for file in folder.rglob("__init__.py")}


def test_setup_lists_every_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    listed = set(setup["options"]["packages"].split())
    existing = package_names(ROOT / "deferred", "deferred") | package_names(ROOT / "migrations", "deferred.migrations")
    assert existing | {"deferred.examples"} == listed  # conf/ holds no code, and so no __init__.py
