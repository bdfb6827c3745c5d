"""What an installation carries: every package, the migrations, and nothing that only a checkout has."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def package_names(folder: Path, name: str) -> set[str]:
    return {".".join((name, *file.relative_to(folder).parts[:-1])) for file in folder.rglob("__init__.py")}


def test_setup_lists_every_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    listed = set(setup["options"]["packages"].split())
    existing = package_names(ROOT / "deferred", "deferred") | package_names(ROOT / "migrations", "deferred.migrations")
    assert existing | {"deferred.examples"} == listed  # conf/ holds no code, and so no __init__.py


@pytest.mark.parametrize(("lock", "extras"), [("demo", []), ("test", ["airflow", "postgres", "dev"])])
def test_the_locked_requirements_are_those_of_setup(lock: str, extras: list[str]) -> None:
    """And each has a hash; after a change of setup.cfg, `make lock` writes them anew."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    assert "://" not in text
    locked = dict(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([^\s;]+)", text, re.MULTILINE))
    assert len(re.findall(r"^[\w.-]+.*\\\n    --hash=sha256:", text, re.MULTILINE)) == len(
        re.findall(r"^\w", text, re.MULTILINE)
    )
    wanted = setup["options"]["install_requires"].splitlines()
    for extra in extras:
        wanted += setup["options.extras_require"][extra].splitlines()
    for line in filter(None, (line.split("#")[0].strip() for line in wanted)):
        requirement = Requirement(line)
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), line
