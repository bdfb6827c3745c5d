"""That every method of a warehouse that writes is among the operations that are killed, and what is kept of that."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from deferred import Warehouse
from tests.reliability import operations, results
from tests.reliability.crashes import Case
from tests.reliability.results import Results

READING = frozenset(
    {
        "changed_rows",
        "commit_times",
        "histories",
        "unused_references",
        *("open", "close", "tasks", "spark", "tables", "base_tables", "transactions", "views", "view", "find_view"),
        *(
            "suggest_log",
            "positions",
            "log",
            "commits",
            "irrelevant_commits",
            "plan_alteration",
            "plan_files",
            "assess_views",
        ),
        *("read", "read_history", "diff", "verify", "explain", "explain_briefly", "status", "metrics", "is_fresh"),
        *("operation", "history"),
    }
)
"""The methods that change no table and no view: `read` does only as `refresh` does, and `verify` notes what it found."""


def called(name: str, functions: dict[str, ast.AST]) -> set[str]:
    """The methods of a warehouse that a function or OPERATIONS calls or hands on, by way of other functions too."""
    found = set()
    for node in ast.walk(functions.pop(name)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "wh":
            found.add(node.attr)
        elif isinstance(node, ast.Name) and node.id in functions:
            found |= called(node.id, functions)
    return found


def test_every_operation_is_killed() -> None:
    module = ast.parse(inspect.getsource(operations))
    functions: dict[str, ast.AST] = {n.name: n for n in module.body if isinstance(n, ast.FunctionDef)}
    functions |= {
        n.target.id: n for n in module.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }
    methods = {name for name in vars(Warehouse) if not name.startswith("_")}
    killed = called("OPERATIONS", functions)
    assert methods - READING - killed == set(), "kill it in OPERATIONS"
    assert methods >= READING


def test_every_view_is_among_them() -> None:
    """Each kind of view is what some operation works on."""
    followed = {view for operation in operations.OPERATIONS.values() for view in operation.views}
    assert set(operations.VIEWS) <= followed


def test_results_of_other_code_count_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "results.jsonl"
    case = Case("drop", "sqlite", 1, "removal of a folder")
    Results(file).add(case, "a row is missing")
    assert Results(file).violations == 1
    monkeypatch.setattr(results, "code", lambda: "other")
    assert not Results(file).has(case)
    assert Results(file).violations == 0
