"""The README: what it shows is run as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deferred import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, containing: str = "") -> str:
    """The first block of code in a language that contains something."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return next(text for text in found if containing in text)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`deferred` and its Python on the PATH, as an environment would put them there."""
    command = tmp_path / "bin" / "deferred"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m deferred.cli "$@"\n')
    command.chmod(0o755)
    (command.parent / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (command.parent / "python").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEFERRED_", "SPARK_CONNECT_"))}
    return {**kept, "PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def test_it_is_one_screen() -> None:
    """What it is, that it works, how to try it, where to read on: details are in docs/."""
    assert len(README.splitlines()) <= 80
    assert len(README) < 7000


def test_every_command_is_in_the_table() -> None:
    table = (ROOT / "docs" / "COMMANDS.md").read_text(encoding="utf-8")
    names = [command.name or command.callback.__name__ for command in cli.app.registered_commands if command.callback]
    for command in [*names, "engine", "db"]:
        assert re.search(rf"`{command}[ `]", table), command


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.spark
@pytest.mark.slow
def test_the_commands_run(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    script = block("sh", "engine start")
    try:
        done = subprocess.run(
            ["bash", "-euc", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    finally:
        subprocess.run(["deferred", "engine", "stop"], cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "DOES NOT HOLD" not in done.stdout
    assert re.search(r"docs +2 +100\b", done.stdout), "the row that was inserted is in the view"
