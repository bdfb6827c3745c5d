"""docs/ERRORS.md, from the classes of deferred/errors.py: `make errors` writes it, a test tells whether it is current.

The examples are run: each is a command of the command line, in a folder with two tracked tables, and what it prints is
what the page shows. None of them starts Spark. Errors that only Spark or several processes can cause have no example.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from unittest import mock

from deferred import errors
from deferred.errors import DeferredError, all_errors

PAGE = Path(__file__).parents[1] / "docs" / "ERRORS.md"

HEAD = """# Errors

An error has a code, says what happened and what to do, and shows the part of the SQL that it is about. `--json` prints
it as one document: `code`, `message`, `where`, `why`, `remedy`. In Python, every one is a `DeferredError` with a `code`
and a `place`. The examples are run by the tests, in a folder where `sales` and `customer` are tracked.

| code | class | what happened |
|---|---|---|
"""

TABLES = {
    "sales": {"custId": [1, 2], "itemNo": [101, 102], "quantity": [2, 1]},
    "customer": {"custId": [1, 2], "name": ["Ada", "Ben"], "score": ["High", "Low"]},
}


@dataclass(frozen=True)
class Example:
    """Commands of which the last fails; before them, files that are written and tables that are made again."""

    commands: tuple[tuple[str, ...], ...]
    files: Mapping[str, str] = field(default_factory=dict)
    recreated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def introduction(self) -> str:
        said = [f"`{text.strip()}` in {name}" for name, text in self.files.items()]
        said += [f"after the table {name} was deleted and written again" for name in self.recreated]
        said += [f"while the folder of the table {name} cannot be found" for name in self.removed]
        return f"For example, {' and '.join(said)}:" if said else "For example:"


def _command(*arguments: str) -> Example:
    return Example((arguments,))


EXAMPLES: dict[type[DeferredError], Example] = {
    errors.ConfigurationError: Example((("status",),), {"conf/deferred.toml": "[warehous]\n"}),
    errors.MetadataError: Example((("db", "downgrade", "base"), ("status",))),
    errors.UnknownObjectError: _command("create", "v", "SELECT custId, quantty\nFROM sales"),
    errors.NameTakenError: _command("track", "sales", "customer", "--log", "files"),
    errors.InvalidNameError: _command("track", "my sales", "sales", "--log", "files"),
    errors.InvalidSQLError: _command("create", "v", "SELECT custId, SUM(quantity AS total\nFROM sales GROUP BY custId"),
    errors.UnsupportedSQLError: _command(
        *(
            "create",
            "v",
            "SELECT schema_of_variant_agg(to_variant_object(struct(quantity))) AS s FROM sales",
            "--refresh-policy",
            "incremental_strict",
        )
    ),
    errors.NondeterministicSQLError: _command("create", "v", "SELECT custId FROM sales\nWHERE rand() < 0.1"),
    errors.UnsafeSQLError: _command("create", "v", "SELECT value FROM text.`/etc/passwd`"),
    errors.InvalidInputError: _command("propagate", "v", "--until", "tomorrow"),
    errors.LogLostError: Example((("sync",),), recreated=("sales",)),
    errors.StorageError: Example((("sync",),), removed=("sales",)),
}


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEFERRED_")}
    os.chdir(folder)
    try:
        with mock.patch.dict(os.environ, kept, clear=True):
            yield
    finally:
        os.chdir(before)


def run(*arguments: str) -> tuple[int, str]:
    """Runs a command in this process; returns its exit code and what it wrote to standard error."""
    from deferred import cli, terminal
    from deferred.spark import session

    written: list[str] = []

    def fail(error: DeferredError, as_json: bool) -> NoReturn:
        written.append(f"deferred: {terminal.explained(error)}")
        raise SystemExit(1)

    with (
        mock.patch.object(terminal, "fail", fail),
        mock.patch.object(session, "start", side_effect=AssertionError("an example must not start Spark")),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            cli.main(list(arguments))
        except SystemExit as ended:
            return int(ended.code or 0), "\n".join(written)


def output(example: Example, folder: Path) -> str:
    """Returns what an example prints, run in a new folder."""
    import pyarrow as pa
    from deltalake import write_deltalake

    folder.mkdir()
    with _inside(folder):
        run("init")
        for name, rows in TABLES.items():
            write_deltalake(folder / name, pa.table(rows))
            run("track", name, name, "--log", "files")
        run("sync")
        for name, text in example.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name in (*example.recreated, *example.removed):
            shutil.rmtree(folder / name)
        for name in example.recreated:
            write_deltalake(folder / name, pa.table(TABLES[name]))
        *before, last = example.commands
        for command in before:
            assert run(*command)[0] == 0, command
        code, written = run(*last)
    assert code == 1, f"{last} should fail"
    return written.replace(str(folder), "/shop")


def _shell(argument: str) -> str:
    return f'"{argument}"' if any(character in argument for character in " \n`*(") else argument


def _what(error: type[DeferredError]) -> str:
    return " ".join((error.__doc__ or "").split())


def _linked(error: type[DeferredError]) -> str:
    return f"[{error.code}](#{error.code.lower()}-{error.__name__.lower()})"


def section(error: type[DeferredError], folder: Path) -> str:
    """Returns the section of one class of errors."""
    parts = [
        f"## {error.code} {error.__name__}",
        _what(error),
        f"**Why.** {error.why}",
        f"**What to do.** {error.remedy}",
    ]
    example = EXAMPLES.get(error)
    if example is not None:
        lines = [f"$ deferred {' '.join(map(_shell, command))}" for command in example.commands]
        parts += [example.introduction(), "\n".join(["```", *lines, output(example, folder / error.code), "```"])]
    return "\n\n".join(parts)


def page() -> str:
    """Returns the page as it should be."""
    with tempfile.TemporaryDirectory(prefix="deferred-errors-") as folder:
        sections = [section(error, Path(folder).resolve()) for error in all_errors()]
    rows = [f"| {_linked(error)} | `{error.__name__}` | {_what(error)} |" for error in all_errors()]
    return HEAD + "\n".join(rows) + "\n\n" + "\n\n".join(sections) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
