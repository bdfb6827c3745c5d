"""The documentation: every block of every page runs, or says why not; the site builds without a warning."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from deferred import Warehouse, cli
from tests.docs import Reader, blocks, unmarked_commands

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))

TESTED_ELSEWHERE = {
    "SQL.md": "each of its lines is a test: tests/sql/test_families.py",
    "AIRFLOW.md": "its Python makes DAGs in tests/airflow/test_dags.py",
    "PERFORMANCE.md": "made by make bench-report, and names make bench",
}


OTHERS = ("../README.md", "../CONTRIBUTING.md")
"""Pages that are no part of the site; the README is followed by tests/test_readme.py."""


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def runs(page: str) -> bool:
    return page not in TESTED_ELSEWHERE and any(block.reason is None for block in blocks(text(page)))


@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)])
def test_every_block_runs(page: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Reader(tmp_path, spark, monkeypatch).follow(text(page))


def test_the_notebook_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells in order, each with what it shows: results are tables there."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    tempfile.tempdir = None
    try:
        shown = Reader(tmp_path, spark, monkeypatch).cells(DOCS / "notebooks" / "first_view.ipynb")
    finally:
        tempfile.tempdir = None
    *_, explanation, status, propagated, _, verification, rows, history = shown
    for result in (explanation, status, propagated, verification, history):
        assert result._repr_html_()
    assert "holds" in verification._repr_html_()
    assert "time_by_page" in status._repr_html_()
    assert set(rows["page"]) == {"home", "prices", "docs"}
    assert list(history["kind"]) == ["verify", "partial_refresh", "propagate"]


def test_the_examples_of_the_warehouse_run(spark: Any, tmp_path: Path) -> None:
    """Those in its docstring and in those of its methods, one after the other, over a table with three of tea."""
    spark.createDataFrame([("tea", 3)], "item STRING, quantity INT").write.format("delta").save(str(tmp_path / "sales"))
    names: dict[str, Any] = {"Warehouse": Warehouse, "spark": spark, "folder": tmp_path}
    documented = [("Warehouse", Warehouse), *((n, m) for n, m in vars(Warehouse).items() if inspect.isfunction(m))]
    finder, runner, run = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(), 0
    for name, documented_ in documented:
        for example in finder.find(documented_, name, globs=names):
            example.globs = names  # what one example makes is there for the next
            run += len(example.examples)
            assert runner.run(example, clear_globs=False).failed == 0, name
    assert run >= 25
    names["wh"].close()


def test_every_example_in_a_docstring_runs(pytestconfig: pytest.Config) -> None:
    """That of the warehouse needs Spark and runs above."""
    tested = [ROOT / path for path in pytestconfig.getini("testpaths")]
    modules = [path for folder in ("deferred", "bench") for path in sorted((ROOT / folder).rglob("*.py"))]
    forgotten = [
        module.relative_to(ROOT).as_posix()
        for module in modules
        if re.search(r"^\s*>>> ", module.read_text(encoding="utf-8"), re.MULTILINE)
        and not any(module == path or path in module.parents for path in tested)
    ]
    assert forgotten == ["deferred/maintenance/warehouse.py"]


@pytest.mark.parametrize("page", [*PAGES, *OTHERS])
def test_a_block_that_does_not_run_says_why(page: str) -> None:
    for block in blocks(text(page)):
        assert block.reason is None or len(block.reason.split()) > 1, f"line {block.line}"
    assert unmarked_commands(text(page)) == []


def test_what_contributors_are_shown_runs() -> None:
    """A view that is wrong, as a case of the fuzzer: it finds nothing wrong with it."""
    found = [block for block in blocks(text("../CONTRIBUTING.md")) if block.reason is None]
    assert [block.language for block in found] == ["python"]
    exec(compile(found[0].text, "CONTRIBUTING.md", "exec"), {})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does: strictly, so that a broken link fails. (With --quiet nothing would.)"""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_the_site_builds(built: Path) -> None:
    for page in PAGES:
        assert (built / page).with_suffix(".html").exists(), page
    assert not re.search(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)"', (built / "index.html").read_text())


@pytest.mark.slow
def test_commands_and_methods_are_in_the_reference(built: Path) -> None:
    """These pages are made from the code when the site is built."""
    shown = (built / "CLI.html").read_text()
    for command in cli.app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        assert f"deferred {name}</code>" in shown, name
    shown = (built / "API.html").read_text()
    for name, member in vars(Warehouse).items():
        if callable(member) and not name.startswith("_"):
            assert f"Warehouse.{name}</code>" in shown, name
