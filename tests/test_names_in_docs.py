"""docs/ARCHITECTURE.md and CONTRIBUTING.md name modules, functions, files and constants that are there."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("docs/ARCHITECTURE.md", "CONTRIBUTING.md")
CODE = ("deferred", "tests", "bench", "tools")

EXAMPLES = {
    "deferred/algebra/operators/sample.py",
    "tests/algebra/operators/test_sample.py",
    "deferred/log/sources/exports.py",
    "tests/log/test_exports.py",
    "ViewRecord.owner",
    "Warehouse.pause",
}
"""What the worked examples of CONTRIBUTING.md would add."""

OBJECTS = {"tx.warnings": "Transaction.warnings", "d.supports": "Differentiator.supports"}
"""Attributes of what the text calls by another name than its class."""

OPEN = ("NAME", "NNNN")
"""Parts of a name for which a reader puts something else."""

PATH = re.compile(r"[\w.-]+(/[\w.-]+)*(/|\.(py|md|yml|toml|tar\.gz))")
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
CONSTANT = re.compile(r"_?[A-Z]+(_[A-Z]+)+")


@cache
def modules() -> dict[str, dict[str, set[str]]]:
    """For each module, by its dotted name, what it defines: each name with the names inside it."""
    found = {}
    for folder in CODE:
        for file in (ROOT / folder).rglob("*.py"):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = defined(ast.parse(file.read_text(encoding="utf-8")).body)
    return found


def defined(body: list[ast.stmt]) -> dict[str, set[str]]:
    names: dict[str, set[str]] = defaultdict(set)
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] |= {*defined(node.body), *attributes(node)} if isinstance(node, ast.ClassDef) else set()
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        names[part.id] |= set()
    return names


def attributes(node: ast.ClassDef) -> Iterator[str]:
    """What the methods of a class assign to its objects."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) == "self":
            yield part.attr


def backticked(page: str) -> Iterator[str]:
    """Words between backticks, outside of blocks of code."""
    text = re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"`([^`\s]+)`", text)


def is_there(name: str) -> bool:
    """Whether a path, a dotted name or a constant is of this repository.

    The first parts of a dotted name may be left out: `ledger.cut` is a function of `deferred.log.ledger`.
    """
    if PATH.fullmatch(name):
        places = [ROOT, *(ROOT / folder for folder in CODE)]
        return any((place / name).exists() for place in places) or any(
            f"/{file.relative_to(ROOT).as_posix()}".endswith(f"/{name}")
            for folder in CODE
            for file in (ROOT / folder).rglob("*.py")
        )
    if CONSTANT.fullmatch(name):
        return any(name in names for names in modules().values())
    parts = OBJECTS.get(name, name).split(".")
    for module, names in modules().items():
        for size in range(len(parts) + 1):
            of, inside = parts[:size], parts[size:]
            if size and not f".{module}".endswith(f".{'.'.join(of)}"):
                continue
            if not inside or (inside[0] in names and (len(inside) == 1 or inside[1] in names[inside[0]])):
                return bool(size) or len(inside) > 1
    return False


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    named = {n for n in backticked(page) if any(form.fullmatch(n) for form in (PATH, DOTTED, CONSTANT))}
    assert len(named) > 20
    named = {name for name in named - EXAMPLES if not any(part in name for part in OPEN)}
    assert sorted(name for name in named if not is_there(name)) == []


def test_what_is_not_there_is_found() -> None:
    for name in ("sql.comparing", "WITH_LEVELS", "ledger.cat", "Engine.meanings", "deferred/none.py"):
        assert not is_there(name)
    for name in (
        "sql.altered_query",
        "ledger.cut",
        "log.ledger.cut",
        "Engine.meaning",
        "deferred/schedule.py",
        "docs/",
    ):
        assert is_there(name)
