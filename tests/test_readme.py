"""The README: what it shows is run as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deferred import cli, demo
from deferred.sql.viewfile import parse_view, read_view
from tests.conftest import ConnectServer

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, containing: str = "") -> str:
    """The first block of code in a language that contains something."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return next(text for text in found if containing in text)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`deferred` on the PATH, as an installation would put it there."""
    command = tmp_path / "bin" / "deferred"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m deferred.cli "$@"\n')
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEFERRED_", "SPARK_CONNECT_"))}
    return {**kept, "PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def test_the_view_is_the_example(tmp_path: Path) -> None:
    shown, example = parse_view(block("sql")), read_view(demo.examples() / "views" / "high_value_sales.sql")
    assert (shown.name, shown.sql, shown.options) == (example.name, example.sql, example.options)


def test_every_command_is_in_the_table() -> None:
    table = README.split("## Commands")[1].split("## Limits")[0]
    names = [command.name or command.callback.__name__ for command in cli.app.registered_commands if command.callback]
    for command in [*names, "engine", "db"]:
        assert re.search(rf"`{command}[ `]", table), command


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.slow
def test_the_python_example_runs(environment: dict[str, str], server: ConnectServer) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("python")],
        cwd=server.folder,  # where the server runs too: it writes the example's tables, whose paths are relative
        env={**environment, "DEFERRED_SPARK_REMOTE": server.remote},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "|     2| Ben|   103|       5|" in done.stdout


@pytest.mark.spark
@pytest.mark.slow
def test_the_commands_run(tmp_path: Path, environment: dict[str, str]) -> None:
    script = block("sh", "engine start")
    try:
        done = subprocess.run(
            ["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
    finally:
        subprocess.run(["deferred", "engine", "stop"], cwd=tmp_path / "shop", env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "DOES NOT HOLD" not in done.stdout
    assert "sales_by_score" in done.stdout
