"""A hook of MkDocs: pages that are elsewhere in the repository, and those that are made from the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ELSEWHERE = {"index.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
"""Pages of the site that are not in docs/."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Every page has a place: what the navigation does not name comes at the end of the reference."""
    named = set(re.findall(r"[\w/]+\.md", str(config.nav)))
    reference = next(part["Reference"] for part in config.nav or [] if "Reference" in part)
    for file in sorted((ROOT / "docs").glob("*.md")):
        if file.name not in named:
            title = file.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
            reference.append({title: file.name})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, source in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_at_home(text)))
    files.append(
        File.generated(config, "LICENSE.md", content=f"# License\n\n```\n{(ROOT / 'LICENSE').read_text()}\n```\n")
    )
    files.append(File.generated(config, "CLI.md", content="\n".join(command_line())))
    files.append(File.generated(config, "API.md", content="\n".join(python())))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links out of docs/ lead to the pages that are made of those files."""
    return markdown.replace("](../CONTRIBUTING.md", "](CONTRIBUTING.md").replace("](../README.md", "](index.md")


def _at_home(text: str) -> str:
    """A file from the top of the repository, as a page among those of docs/."""
    return text.replace("](docs/", "](").replace("](LICENSE)", "](LICENSE.md)").replace("](README.md", "](index.md")


# ---- the command line


def command_line() -> Iterator[str]:
    """Every command with its arguments and options, as --help has them."""
    from typer import Context
    from typer.main import get_command

    from deferred.cli import app

    yield "# Command line"
    yield ""
    yield "Made from the program: `deferred COMMAND --help` says the same."
    top = get_command(app)
    yield from _command("deferred", top, Context(top, info_name="deferred"))


def _command(name: str, command: Any, context: Any) -> Iterator[str]:
    from typer import Context

    yield ""
    yield f"## `{name}`"
    yield ""
    yield inspect.cleandoc(command.help or "")
    rows = [row for parameter in command.get_params(context) if (row := _parameter(parameter, context))]
    if rows:
        yield ""
        yield "| | |"
        yield "|---|---|"
        yield from rows
    for child, sub in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {child}", sub, Context(sub, parent=context, info_name=child))


def _parameter(parameter: Any, context: Any) -> str | None:
    record = parameter.get_help_record(context)
    return None if record is None or parameter.name == "help" else f"| `{_cell(record[0])}` | {_cell(record[1])} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# ---- Python


def python() -> Iterator[str]:
    """The public classes: every method with its signature and what it says of itself."""
    from deferred import Warehouse, errors
    from deferred.log.finding import Found
    from deferred.log.transactions import Transaction
    from deferred.maintenance.explain import Explanation
    from deferred.maintenance.importing import Assessment
    from deferred.maintenance.operation import Operation
    from deferred.maintenance.verify import Verification

    yield "# Python"
    yield ""
    yield "Made from the code. `from deferred import Warehouse, DeferredError`; methods return the other classes."
    for kind in (Warehouse, Transaction, Operation, Verification, Explanation, Assessment, Found):
        yield from _class(kind)
    yield "\n## Errors\n"
    yield "Every error that a user can cause is a `DeferredError`.\n"
    yield "| error | means |"
    yield "|---|---|"
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, errors.DeferredError):
            yield f"| `{kind.__name__}` | {_cell(inspect.getdoc(kind) or '')} |"


def _class(kind: type) -> Iterator[str]:
    yield f"\n## {kind.__name__}\n"
    yield _documented(kind)
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        function = member.__func__ if isinstance(member, classmethod) else member
        if isinstance(member, property):
            yield f"\n### `{kind.__name__}.{name}`\n\n{_documented(member)}"
        elif inspect.isfunction(function):
            yield f"\n### `{kind.__name__}.{name}`\n\n```py\n{name}{_signature(function)}\n```\n"
            yield _documented(function)


def _signature(function: Any) -> str:
    """A signature as it was written, each parameter on a line of its own where they are many."""
    signature = inspect.signature(function)
    parameters = [_shown(p) for name, p in signature.parameters.items() if name not in ("self", "cls")]
    keywords = [n for n, p in enumerate(signature.parameters.values()) if p.kind is inspect.Parameter.KEYWORD_ONLY]
    if keywords:
        parameters.insert(keywords[0] - len(signature.parameters) + len(parameters), "*")
    returns = f" -> {signature.return_annotation}"
    line = f"({', '.join(parameters)}){returns}"
    return line if len(line) < 90 else "".join(["(", *(f"\n    {p}," for p in parameters), "\n)", returns])


def _shown(parameter: inspect.Parameter) -> str:
    star = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
    default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
    return f"{star}{parameter.name}: {parameter.annotation}{default}"


def _documented(thing: Any) -> str:
    """A docstring; its examples are code."""
    text = inspect.getdoc(thing) or ""
    return re.sub(
        r"(?:^>>>.*\n?(?:^(?!\n).+\n?)*)+", lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text, flags=re.M
    )
