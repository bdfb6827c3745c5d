"""Commands beside the warehouse: the demo, the local Spark server, the schema of the metadata database."""

from __future__ import annotations

import shlex
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from deferred import terminal
from deferred.cli.common import Json, app, opened, settings, this_command
from deferred.demo import MANY
from deferred.errors import ConfigurationError
from deferred.progress import Progress

engine = typer.Typer(no_args_is_help=True, help="A local Spark Connect server that stays warm between commands.")
database = typer.Typer(no_args_is_help=True, help="The schema of the metadata database.")
app.add_typer(engine, name="engine")
app.add_typer(database, name="db")


@app.command()
def demo(
    path: Annotated[
        Path | None, typer.Option(help="An empty or new folder for its tables; a temporary one by default.")
    ] = None,
    sales: Annotated[int, typer.Option(min=0, help="How many sales the second act has; 0 leaves it out.")] = MANY,
    as_json: Json = False,
) -> None:
    """See it work: the paper's example on a few rows, then its four scenarios over a million, measured."""
    from deferred import demo as story

    folder = (Path(tempfile.mkdtemp(prefix="deferred-demo-")) if path is None else path).absolute()
    steps = []
    progress = Progress(
        "Starting Spark", again=f"What the demo has made is in {folder}; it begins anew in another folder."
    )
    try:
        with terminal.quiet(progress) as noise, closing(story.play(folder, sales, progress)) as played:
            for number, step in enumerate(played, start=1):
                steps.append(step)
                progress.doing = f"Step {number + 1}"
                if not as_json:
                    with noise.lifted():
                        terminal.step(number, step)
    except KeyboardInterrupt:
        terminal.stop(progress)

    def show() -> None:
        terminal.say(f"Everything is in {folder}: remove it when you like, or go on with it:")
        insertion = "INSERT INTO sales VALUES (9, 105, 4, 5.40)"
        for command in (
            f"cd {shlex.quote(str(folder))}",
            f'{this_command()} sql "{insertion}"',
            f"{this_command()} refresh high_value_sales",
        ):
            terminal.say(f"  {command}")

    terminal.answer({"steps": steps, "folder": str(folder)}, as_json, show)


@app.command()
def recover(as_json: Json = False) -> None:
    """Make the metadata database again, after it was lost or restored from an old backup."""
    with opened("Reading the catalog and Delta's logs") as warehouse:
        done = warehouse.recover()

    def show() -> None:
        for what, names in (("Tables", done.tables), ("Views", done.views)):
            terminal.say(f"{what}: {', '.join(names) or 'none was missing'}.")
        terminal.say(f"Transactions: {done.transactions}.")
        for note in done.notes:
            terminal.say(note)

    terminal.answer(done.to_dict(), as_json, show)


@engine.command("start")
def engine_start(
    port: Annotated[int | None, typer.Option(help="The port to listen on; any free one by default.")] = None,
    as_json: Json = False,
) -> None:
    """Start a local Spark Connect server; commands of this warehouse use it from then on."""
    from deferred.spark import server

    configured = settings()
    if configured.spark_remote:
        raise ConfigurationError(
            f"The configuration names a Spark Connect server already ({configured.spark_remote.split(';')[0]}). "
            f"Remove spark.remote to start a local one."
        )
    with terminal.quiet(Progress("Starting a Spark Connect server")):
        running = server.start(configured.local_folder, configured.spark_master, configured.spark_conf, port)
    terminal.answer(
        {"running": True, "address": running.address, "pid": running.pid},
        as_json,
        lambda: terminal.say(f"The engine is running at {running.address} (process {running.pid})."),
    )


@engine.command("stop")
def engine_stop(as_json: Json = False) -> None:
    """Stop the local Spark Connect server."""
    from deferred.spark import server

    stopped = server.stop(settings().local_folder)
    terminal.answer(
        {"running": False, "stopped": stopped.pid if stopped else None},
        as_json,
        lambda: terminal.say("The engine was stopped." if stopped else "No engine is running."),
    )


@engine.command("status")
def engine_status(as_json: Json = False) -> None:
    """Show whether the local Spark Connect server is running."""
    from deferred.spark import server

    running = server.find(settings().local_folder)
    found = {
        "running": running is not None,
        "address": running.address if running else None,
        "pid": running.pid if running else None,
    }
    terminal.answer(
        found,
        as_json,
        lambda: terminal.say(
            f"The engine is running at {running.address} (process {running.pid})."
            if running
            else "No engine is running."
        ),
    )


@database.command("upgrade")
def db_upgrade(revision: Annotated[str, typer.Argument()] = "head", as_json: Json = False) -> None:
    """Bring the metadata database to a newer revision."""
    from deferred.metadata import migrate

    url = settings().metadata_url
    migrate.upgrade(url, revision)
    _revision(url, as_json)


@database.command("downgrade")
def db_downgrade(
    revision: Annotated[str, typer.Argument(help="A revision, or base for none.")], as_json: Json = False
) -> None:
    """Bring the metadata database back to an older revision."""
    from deferred.metadata import migrate

    url = settings().metadata_url
    migrate.downgrade(url, revision)
    _revision(url, as_json)


@database.command("current")
def db_current(as_json: Json = False) -> None:
    """Show the revision of the metadata database and the newest one."""
    _revision(settings().metadata_url, as_json)


def _revision(url: str, as_json: bool) -> None:
    from deferred.metadata import migrate

    answer = {"current": migrate.current(url), "head": migrate.head()}
    terminal.answer(
        answer,
        as_json,
        lambda: terminal.say(
            f"The metadata database is at revision {answer['current'] or 'none'}; the newest is {answer['head']}."
        ),
    )
