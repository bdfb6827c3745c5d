"""What all commands share: the application, the configuration file, opening the warehouse, work on several views.

Commands compute within `opened()` and print after it. Within, standard output is hidden, so that what Spark
itself writes there is not seen.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deferred import __version__, terminal
from deferred.config import DEFAULT_FILE, Settings, parse_timestamp
from deferred.errors import DeferredError, StaleReadWarning
from deferred.progress import Progress

if TYPE_CHECKING:
    from deferred.maintenance.warehouse import Warehouse

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Materialized views on Spark and Delta Lake, kept up to date incrementally.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def views_beginning(incomplete: str) -> list[str]:
    """The names of views, for the completion of a shell: none where there is no warehouse."""
    from deferred.metadata import Metadata

    try:
        with Metadata.open(settings().metadata_url) as metadata:
            return [view.name for view in metadata.views.all() if view.name.startswith(incomplete)]
    except DeferredError:
        return []


ViewName = Annotated[
    str,
    typer.Argument(metavar="VIEW", help="Name of a view.", show_default=False, autocompletion=views_beginning),
]
ViewNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="VIEW", help="Names of views.", show_default=False, autocompletion=views_beginning),
]
All = Annotated[bool, typer.Option("--all", help="All views, each after those that it reads.")]
Until = Annotated[str | None, typer.Option(help="A moment in the past, ISO 8601; the present by default.")]
Limit = Annotated[int, typer.Option(min=0, help="Show at most this many rows; 0 shows all.")]


@dataclass
class Invocation:
    """What the command line says for all commands."""

    config: Path | None = None


invocation = Invocation()


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        parts = {"Spark": "pyspark", "Delta": "delta-spark", "delta-rs": "deltalake"}
        terminal.say(f"deferred {__version__} ({', '.join(f'{name} {version(of)}' for name, of in parts.items())})")
        raise typer.Exit


@app.callback()
def options(
    config: Annotated[
        Path | None,
        typer.Option(help=f"The configuration file. [default: DEFERRED_CONFIG, or {DEFAULT_FILE}]", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    invocation.config = config
    terminal.invocation.quiet = quiet


def this_command() -> str:
    """Returns how this program is called from any folder: by its name where a shell finds it, otherwise by its path."""
    called = Path(sys.argv[0])
    if called.name != "deferred":  # python -m deferred.cli
        return f"{shlex.quote(sys.executable)} -m deferred.cli"
    found = shutil.which("deferred")
    if found is not None and Path(found).resolve() == called.resolve():
        return "deferred"
    return shlex.quote(os.path.abspath(called))


def settings() -> Settings:
    """The settings that hold for this command."""
    return Settings.resolve(invocation.config)


@contextmanager
def opened(doing: str = "") -> Iterator[Warehouse]:
    """The warehouse of the configuration, which must exist already. Nothing may be printed within the block."""
    from deferred.maintenance.warehouse import Warehouse
    from deferred.metadata import Metadata

    Metadata.open(settings().metadata_url).close()
    requested_by = os.environ.get("DEFERRED_REQUESTED_BY") or "command line"
    progress = Progress(doing)
    listeners = [progress] if doing else []
    try:
        with (
            warnings.catch_warnings(record=True) as noticed,
            terminal.quiet(progress),
            Warehouse.open(invocation.config, requested_by=requested_by, listeners=listeners) as warehouse,
        ):
            warnings.simplefilter("always", StaleReadWarning)
            progress.tasks = warehouse.tasks
            yield warehouse
    except KeyboardInterrupt:
        if not doing:
            raise
        terminal.stop(progress)
    for warning in noticed:
        if issubclass(warning.category, StaleReadWarning):
            terminal.complain(str(warning.message))
        elif os.environ.get("DEFERRED_DEBUG"):
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)


def check_moments(**moments: str | None) -> None:
    """Refuse a timestamp that cannot be read before anything starts."""
    for name, moment in moments.items():
        if moment is not None:
            parse_timestamp(moment, f"--{name}")


def view_names(warehouse: Warehouse, views: list[str] | None, every: bool) -> list[str]:
    """Returns the views that a command is to work on, each once; with `every`, each after those that it reads."""
    if every:
        from deferred.maintenance.following import in_order

        return [view.name for view in in_order(warehouse.views())]
    if not views:
        raise typer.BadParameter("Name one or more views, or use --all.")
    return list(dict.fromkeys(views))


def each(
    warehouse: Warehouse, views: Sequence[str], work: Callable[[str], Any]
) -> tuple[list[Any], dict[str, DeferredError]]:
    """Returns the results and the failures of some work on every view; the failure of a single view is raised."""
    if len(views) == 1:
        return [work(views[0])], {}
    return warehouse.side_by_side(views, work)


def errors_of(failed: dict[str, DeferredError]) -> dict[str, Any]:
    """Returns the part of a JSON document that says which views failed and why; nothing when none failed."""
    return {"errors": {view: error.to_dict() for view, error in failed.items()}} if failed else {}


def exit_with(failed: dict[str, DeferredError]) -> None:
    """Say which views failed and why, and exit with 1 if any did."""
    for view, error in failed.items():
        terminal.complain(f"{view}: {terminal.explained(error)}")
    if failed:
        raise typer.Exit(1)
