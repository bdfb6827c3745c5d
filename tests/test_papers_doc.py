"""docs/PAPERS.md: the modules and tests that it names are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = re.findall(
    r"^\| (?!in the |---)(.+?) \| (.+?) \| (.+?) \|$", (ROOT / "docs" / "PAPERS.md").read_text(encoding="utf-8"), re.M
)


def functions(file: Path) -> set[str]:
    """The functions and methods of a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("what", "modules", "tests"), ROWS, ids=[what for what, _, _ in ROWS])
def test_what_is_named_is_there(what: str, modules: str, tests: str) -> None:
    named = re.findall(r"`([^`]+)`", modules)
    assert named
    assert [name for name in named if not (name.startswith("deferred/") and (ROOT / name).is_file())] == []
    checked = re.findall(r"`([^`]+)`", tests)
    assert checked
    for name in checked:
        path, _, function = name.partition("::")
        assert path.startswith("tests/")
        assert (ROOT / path).is_file(), path
        assert not function or function in functions(ROOT / path), name


def test_no_row_is_left_out() -> None:
    assert len(ROWS) > 20
