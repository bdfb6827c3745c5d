"""The rooms of docs/ARCHITECTURE.md: who may import whom, and which room owns which library.

Imports inside functions and under TYPE_CHECKING count too: they say as much about who knows whom.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from deferred.log.sources import SOURCES
from deferred.options import SCENARIOS

PACKAGE = Path(__file__).parents[1] / "deferred"
FILES = sorted(PACKAGE.rglob("*.py"))

FOUNDATION = {"config", "errors", "failpoints", "options", "schedule"}
"""Modules that every room may use, the algebra only errors; they use nothing but each other."""

ROOMS: dict[str, set[str]] = {
    "algebra": set(),
    "sql": {"algebra"},
    "spark": {"algebra", "sql"},
    "metadata": {"algebra", "sql"},
    "log": {"algebra", "sql", "spark", "metadata"},
    "maintenance": {"algebra", "sql", "spark", "metadata", "log"},
    "progress": {"algebra", "sql", "spark", "metadata", "log", "maintenance"},
    "terminal": {"algebra", "sql", "spark", "metadata", "log", "maintenance", "progress"},
    "demo": {"algebra", "sql", "spark", "metadata", "log", "maintenance", "progress", "terminal"},
    "report": {"algebra", "sql", "spark", "metadata", "log", "maintenance", "progress", "terminal"},
    "airflow": {"algebra", "sql", "spark", "metadata", "log", "maintenance", "progress", "terminal", "report", "demo"},
    "cli": {
        "algebra",
        "sql",
        "spark",
        "metadata",
        "log",
        "maintenance",
        "progress",
        "terminal",
        "report",
        "demo",
        "airflow",
    },
}
"""Each room with the rooms that it may import."""

OWNERS = {
    "pyspark": "spark",
    "py4j": "spark",
    "delta": "spark",
    "sqlalchemy": "metadata",
    "alembic": "metadata",
    "airflow": "airflow",
}
"""Libraries that only one room may import."""

EXCEPTIONS = {
    ("__init__.py", "deferred.maintenance.warehouse"): "the public name Warehouse, loaded on first use",
    ("maintenance/warehouse.py", "pyspark.sql"): "the types of public methods",
    ("maintenance/opening.py", "pyspark.sql"): "the type of a session that is given",
    ("maintenance/reading.py", "pyspark.sql"): "the types of what it returns",
    ("maintenance/fresh.py", "pyspark.sql"): "the types of what it returns",
    ("terminal.py", "pyspark.sql"): "the type of what is printed",
    ("demo/many.py", "pyspark.sql"): "the type of its rows",
}
"""Imports that go another way, each with its reason."""

MAPPED = ("algebra", "sql", "spark", "log", "maintenance")
"""The rooms of which docs/ARCHITECTURE.md names every module."""

LONGEST = 600
"""Lines of a file."""


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(file: Path, for_types: bool = True) -> Iterator[str]:
    """The dotted names that a file imports; `from x import y` gives x.y, which may be a module."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    unloaded = {
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not for_types
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in unloaded:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.relative_to(PACKAGE)}:{node.lineno} imports by a relative name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def allowed(file: Path, name: str) -> bool:
    room, (top, *rest) = room_of(file), name.split(".")
    if any(file.relative_to(PACKAGE).as_posix() == f and f"{name}.".startswith(f"{n}.") for f, n in EXCEPTIONS):
        return True
    if top in OWNERS:
        return OWNERS[top] == room
    if top != "deferred":
        return True
    target = rest[0]
    if target == "__version__" or target == room:
        return True
    if target in FOUNDATION:
        return room != "algebra" or target == "errors"
    if target in ("DeferredError", "Warehouse"):  # the public names
        return room in ("airflow", "cli", "demo")
    return target in ROOMS.get(room, set())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_imports_point_one_way(file: Path) -> None:
    assert [name for name in imports(file) if not allowed(file, name)] == []


REFERENCE = "deferred.algebra.paper"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_nothing_that_runs_imports_the_reference(file: Path) -> None:
    """Its types may be named: a node defines its own evaluation."""
    if "paper" not in file.parts:
        assert [name for name in imports(file, for_types=False) if name.startswith(REFERENCE)] == []


def test_every_room_has_its_place() -> None:
    """A new folder or module must be placed in the order before anything imports it."""
    assert {room_of(file) for file in FILES} <= {*ROOMS, *FOUNDATION, "__init__"}


def named_in_the_map(room: str) -> Iterator[str]:
    """The modules and folders that the map of docs/ARCHITECTURE.md names in a room: those with which its lines begin."""
    text = (PACKAGE.parent / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    lines = re.split(rf"^  {room}/.*$", text, flags=re.MULTILINE)[1].splitlines()[1:]
    for line in takewhile(lambda line: line.startswith(" " * 4), lines):
        if not line.startswith(" " * 5):
            first, *others = (name.rstrip("/") for name in line.split())
            yield first
            yield from takewhile(modules(room).__contains__, others)


def modules(room: str) -> set[str]:
    """The modules of a room, and its folders."""
    files = (file.relative_to(PACKAGE / room).parts[0] for file in (PACKAGE / room).rglob("*.py"))
    return {name.removesuffix(".py") for name in files} - {"__init__"}


@pytest.mark.parametrize("room", MAPPED)
def test_the_map_names_what_is_there(room: str) -> None:
    assert set(named_in_the_map(room)) == modules(room)


def test_the_exceptions_are_needed() -> None:
    for file, name in EXCEPTIONS:
        assert any(found.startswith(name) for found in imports(PACKAGE / file)), f"{file} no longer imports {name}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_a_file_can_be_read_in_one_sitting(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST


CHOICES = {
    # What may be compared in one place only: the values, the name under which they are compared if they have other
    # meanings too, that place, and what to do instead.
    "kind of a source": (set(SOURCES), "kind", "log/sources", "ask the source instead"),
    "scenario": (set(SCENARIOS), None, "maintenance/scenarios", "ask the scenario instead"),
}


def compared(tree: ast.AST) -> Iterator[tuple[int, list[ast.expr]]]:
    """The comparisons by ==, !=, in and not in, with the line of each and what is compared, members of lists one by one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(
            isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) for op in node.ops
        ):
            sides = [node.left, *node.comparators]
            listed = [side.elts if isinstance(side, (ast.Tuple, ast.List, ast.Set)) else [side] for side in sides]
            yield node.lineno, [each for members in listed for each in members]


def chooses(operands: list[ast.expr], values: set[str], name: str | None) -> bool:
    """Whether what is compared is one of some values: written out, or as an attribute of a class, as ViewTable.kind."""
    written = any(isinstance(each, ast.Constant) and each.value in values for each in operands)
    named = [ast.unparse(each) for each in operands if isinstance(each, (ast.Name, ast.Attribute))]
    if name is None:
        return written
    alike = [each for each in named if each.split(".")[-1] == name]
    classes = {f"{source.__name__}.{name}" for source in SOURCES.values()}
    return bool(alike) and (written or not classes.isdisjoint(alike))


def test_a_choice_is_seen_however_it_is_written() -> None:
    values, name, *_ = CHOICES["kind of a source"]
    for code, seen in (
        ('found(x).kind == "view"', True),
        ('(r := find(x)).kind != "view"', True),
        ('"feed" == kind', True),
        ('t.kind not in ["feed", "files"]', True),
        ("record.kind == ViewTable.kind", True),
        ('join.kind == "LEFT"', False),
        ('path == "view"', False),
    ):
        assert any(chooses(operands, values, name) for _, operands in compared(ast.parse(code))) == seen, code


@pytest.mark.parametrize("choice", CHOICES)
def test_a_choice_is_made_in_one_place(choice: str) -> None:
    values, name, place, instead = CHOICES[choice]
    found = [
        f"{file.relative_to(PACKAGE)}:{line}"
        for file in FILES
        if room_of(file) not in ("algebra", "sql") and not file.relative_to(PACKAGE).as_posix().startswith(place)
        for line, operands in compared(ast.parse(file.read_text(encoding="utf-8")))
        if chooses(operands, values, name)
    ]
    assert found == [], instead


EFFECTS = {
    # What makes a durable effect: the pattern, the files that announce it to the failpoints, and those that need not.
    "a statement of Spark": (
        r"\bspark\.sql\(",
        {"spark/engine.py"},
        {
            "spark/rows.py": "reads",
            "spark/server.py": "writes a temporary table, to load classes",
            "demo/retail.py": "is another job",
            "demo/many.py": "is another job",
        },
    ),
    "a statement that is not announced": (
        r"\bengine\.sql\(",
        set(),
        {
            "maintenance/reading.py": "reads",
            "maintenance/fresh.py": "reads",
            "log/finding.py": "reads",
            "log/locating.py": "reads",
            "log/sources/timestamps.py": "reads",
        },
    ),
    "rows written by Spark": (
        r"\.(save|saveAsTable|insertInto|parquet|writeTo)\(",
        {"spark/rows.py", "spark/engine.py"},
        {
            "demo/retail.py": "makes example tables",
            "demo/many.py": "makes example tables",
            "demo/plot.py": "makes a plot",
            "airflow/__main__.py": "makes example tables",
            "log/locating.py": "names it in a message",
        },
    ),
    "a commit of delta-rs": (
        r"\b(write_deltalake|create_write_transaction|DeltaTable\.create)\(|\.(vacuum|compact|z_order|create_checkpoint)\(",
        set(),
        {
            "spark/driver.py": "announced by Engine.create_table and Engine.append_rows, its only callers",
            "spark/copy_on_write.py": "announced by Engine.rewrite_rows, its only caller",
        },
    ),
    "a call of what commits by delta-rs": (
        r"\bdriver\.(create|append)\(|\brewriting\.commit\(",
        {"spark/engine.py"},
        {},
    ),
    "a data file": (
        r"\b(write_table|ParquetWriter|write_dataset)\(|\bos\.(link|symlink|rename|replace)\(|\bshutil\.(move|copy)\(",
        {"spark/copy_on_write.py", "log/given_rows.py"},
        {"airflow/__main__.py": "makes an example"},
    ),
    "a connection to the metadata database": (
        r"\bSession\(|\bcreate_engine\b|\.begin\(",
        {"metadata/database.py"},
        {},
    ),
    "a removal": (
        r"\b(rmtree|unlink|rmdir|removedirs|delete_dir|delete_file)\b|\bos\.remove\b",
        {"log/storage.py"},
        {
            "spark/server.py": "its own file, which is only a hint",
            "airflow/local.py": "the demo's own folder",
            "terminal.py": "its own file, which it has written beside the one that the user names",
        },
    ),
    "a folder or file": (
        r"\b(mkdir|makedirs|write_text|write_bytes|copyfile|copytree|create_dir)\b|open_output_stream",
        {
            "maintenance/opening.py",
            "metadata/database.py",
            "cli/project.py",
            "log/storage.py",
            "log/given_rows.py",
            "maintenance/importing.py",
        },
        {
            "spark/server.py": "its own file, which is only a hint",
            "spark/jars.py": "Ivy's cache, fetched again when it is missing",
            "airflow/local.py": "the demo's own folder",
            "airflow/decide.py": "a cache, written again when it is missing",
            "demo/__init__.py": "makes an example",
            "airflow/__main__.py": "makes an example",
            "terminal.py": "what is shown, in a file that the user names",
        },
    ),
}


@pytest.mark.parametrize("effect", EFFECTS)
def test_durable_effects_are_made_in_few_places(effect: str) -> None:
    """So that every operation can be killed between any two of its effects, see deferred/failpoints.py."""
    pattern, announced, exempt = EFFECTS[effect]
    texts = {file.relative_to(PACKAGE).as_posix(): file.read_text(encoding="utf-8") for file in FILES}
    found = {
        name
        for name, text in texts.items()
        if room_of(PACKAGE / name) not in ("algebra", "sql") and re.search(pattern, text)
    }
    assert found == announced | set(exempt), "announce it with failpoints.reached, or give the reason"
    assert [name for name in announced if "failpoints.reached(" not in texts[name]] == []
