"""The command line: the verbs of the warehouse.

Commands compute within `opened()` and print after it: within, the terminal's output belongs to nobody, so that what
Spark writes there of its own accord is not seen.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from deferred import __version__, terminal
from deferred.config import DEFAULT_FILE, Settings, parse_timestamp
from deferred.errors import ConfigurationError, DeferredError, InvalidInputError

if TYPE_CHECKING:

    from deferred.maintenance.operation import Operation
    from deferred.maintenance.warehouse import Warehouse
    from deferred.metadata import ViewRecord
    from deferred.sql.viewfile import ViewFile

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
                  help="Materialized views on Spark and Delta Lake, kept up to date incrementally.")
engine = typer.Typer(no_args_is_help=True, help="A local Spark Connect server that stays warm between commands.")
database = typer.Typer(no_args_is_help=True, help="The schema of the metadata database.")
app.add_typer(engine, name="engine")
app.add_typer(database, name="db")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
ViewName = Annotated[str, typer.Argument(metavar="VIEW", help="Name of a view.", show_default=False)]
ViewNames = Annotated[list[str] | None, typer.Argument(metavar="VIEW...", help="Names of views.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All views, each after those that it reads.")]
Full = Annotated[bool, typer.Option("--full", help="Recompute the view and take the difference.")]
Of = Annotated[str, typer.Option(help="rows: as of each step; changes: in each step.")]
Until = Annotated[str | None, typer.Option(help="A moment in the past, ISO 8601; the present by default.")]
Limit = Annotated[int, typer.Option(min=0, help="At most so many rows; 0 for all of them.")]


@dataclass
class _Invocation:
    """What the command line says for all commands."""

    config: Path | None = None


_invocation = _Invocation()


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit: 0 when it succeeded, 1 when it failed, 2 when it was not understood."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(args=given, prog_name="deferred")
    except DeferredError as error:
        terminal.fail(error, "--json" in given)
    sys.exit(0)


def _version(wanted: bool) -> None:
    if wanted:
        terminal.say(f"deferred {__version__}")
        raise typer.Exit


@app.callback()
def options(
    config: Annotated[Path | None, typer.Option(
        help=f"The configuration file. [default: DEFERRED_CONFIG, or {DEFAULT_FILE}]", show_default=False)] = None,
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version,
                                          help="Print the version and exit.")] = False,
) -> None:
    _invocation.config = config


# ---- the warehouse and its tables


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="The folder of the project.")] = Path(),
         as_json: Json = False) -> None:
    """Make a project ready: conf/deferred.toml, the warehouse folder, the metadata database."""
    from deferred import demo
    from deferred.maintenance.warehouse import Warehouse
    from deferred.metadata import Metadata

    file = _invocation.config or (Path(os.environ["DEFERRED_CONFIG"]) if os.environ.get("DEFERRED_CONFIG") else None)
    if file is None:
        file = folder / DEFAULT_FILE
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(demo.examples() / "deferred.toml", file)
    with Warehouse.open(file) as warehouse:
        settings = warehouse.settings
    settings.views_folder.mkdir(parents=True, exist_ok=True)
    with Metadata.open(settings.metadata_url) as metadata:
        answer = {"config": str(file), "warehouse": settings.path, "metadata": metadata.url,
                  "views": str(settings.views_folder)}
    terminal.answer(answer, as_json, lambda: terminal.pairs("The warehouse is ready.", answer))


@app.command()
def track(name: Annotated[str, typer.Argument(help="The name that views use.")],
          location: Annotated[str, typer.Argument(help="Path of the Delta table, or its name in Spark's catalog.")],
          key: Annotated[list[str] | None, typer.Option(help="A column of the key; several, or a,b.")] = None,
          references: Annotated[list[str] | None, typer.Option(
              "--references", metavar="COLUMN=TABLE.COLUMN", help="A column that refers to another table's.")] = None,
          log: Annotated[str, typer.Option(help="feed: the table's change feed; table: changes are handed over.")] =
          "feed", as_json: Json = False) -> None:
    """Track a Delta table, so that views can read it."""
    keys = [part.strip() for given in key or [] for part in given.split(",") if part.strip()]
    with opened(f"Tracking {name}") as warehouse:
        record = warehouse.track(name, location, keys or None, _references(references or []) or None, log)
    terminal.answer({"table": record}, as_json,
                    lambda: terminal.say(f"Table {record.name} is tracked: {record.location}"))


@app.command()
def untrack(name: Annotated[str, typer.Argument(help="A tracked table.")], as_json: Json = False) -> None:
    """Forget a table that no view reads; the table itself stays."""
    with opened() as warehouse:
        warehouse.untrack(name)
    terminal.answer({"untracked": name}, as_json, lambda: terminal.say(f"Table {name} is no longer tracked."))


@app.command()
def sync(as_json: Json = False) -> None:
    """Find new commits of the tracked tables."""
    with opened("Reading the logs") as warehouse:
        found = warehouse.sync()
    terminal.answer({"commits": found}, as_json, lambda: terminal.say(f"{terminal.plural(found, 'new commit')}."))


@app.command()
def sql(statement: Annotated[str, typer.Argument(help="A query, or INSERT, UPDATE, DELETE, MERGE.")],
        limit: Limit = 50, as_json: Json = False) -> None:
    """Run SQL on tracked tables and views by their names; a change is a transaction."""
    with opened("Running the statement") as warehouse:
        found = warehouse.sql(statement)
        rows = None if found is None else terminal.Rows.of(found, limit)
    if rows is None:
        terminal.answer({"committed": True}, as_json, lambda: terminal.say("Done."))
    else:
        terminal.answer(rows.document(), as_json, rows.show)


@app.command()
def log(table: Annotated[str, typer.Argument(help="A tracked table.")],
        since: Annotated[str | None, typer.Option(help="From this moment; since tracking by default.")] = None,
        until: Until = None,
        counts: Annotated[bool, typer.Option("--counts", help="Only the commits, without starting Spark.")] = False,
        limit: Limit = 50, as_json: Json = False) -> None:
    """Show the net log of a table: the rows deleted (▼) and inserted (▲)."""
    _check_moments(since=since, until=until)
    if counts:
        with opened() as warehouse:
            commits = warehouse.commits(table, since, until)
        terminal.answer({"table": table, "commits": commits}, as_json, lambda: terminal.table(
            f"Commits of {table}", ("version", "time", "operation", "transaction"),
            [(c.version, terminal.moment(c.timestamp), c.operation, c.transaction_id) for c in commits]))
        return
    with opened(f"Reading the log of {table}") as warehouse:
        rows = terminal.Rows.of(warehouse.log(table, since, until), limit)
    terminal.answer({"table": table, **rows.document()}, as_json,
                    lambda: rows.signed("▼", "▲").show(f"Net log of {table}"))


# ---- views


@app.command()
def create(source: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A view file, or the name of one in the "
                                                 "views folder, or of a new view with its query.")],
           query: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="SELECT …", show_default=False)] = None,
           scenario: Annotated[str | None, typer.Option(help="immediate, base_log, differential, combined.")] = None,
           refresh_policy: Annotated[str | None, typer.Option(help="auto, incremental, incremental_strict, full.")] =
           None, propagate_every: Annotated[str | None, typer.Option(help="Such as 1h.")] = None,
           refresh_every: Annotated[str | None, typer.Option(help="Such as 24h.")] = None,
           policy: Annotated[int | None, typer.Option(help="1 or 2: how a scheduled refresh goes.")] = None,
           target_lag: Annotated[str | None, typer.Option(help="Such as 30m.")] = None, as_json: Json = False) -> None:
    """Create a materialized view and fill it."""
    given = {"scenario": scenario, "refresh_policy": refresh_policy, "propagate_every": propagate_every,
             "refresh_every": refresh_every, "policy": policy, "target_lag": target_lag}
    view = _view_file(source, query, {name: value for name, value in given.items() if value is not None})
    with opened(f"Creating {view.name}") as warehouse:
        outcome = _create(warehouse, view)
    terminal.answer({"view": view.name, "outcome": outcome}, as_json,
                    lambda: terminal.say(f"View {view.name}: {outcome}."))


@app.command()
def drop(name: ViewName, as_json: Json = False) -> None:
    """Remove a view and its tables."""
    with opened(f"Dropping {name}") as warehouse:
        warehouse.drop_view(name)
    terminal.answer({"dropped": name}, as_json, lambda: terminal.say(f"View {name} is dropped."))


@app.command()
def apply(dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
          as_json: Json = False) -> None:
    """Create the views of the views folder that do not exist yet."""
    from deferred.sql.viewfile import load_views

    outcomes: dict[str, str] = {}
    failed: dict[str, DeferredError] = {}
    with opened("Creating views") as warehouse:
        for view in load_views(warehouse.settings.views_folder):
            try:
                outcomes[view.name] = _applied(warehouse, view, dry_run)
            except DeferredError as error:
                outcomes[view.name], failed[view.name] = "failed", error
    terminal.answer({"views": outcomes, **_errors(failed)}, as_json,
                    lambda: terminal.table(None, ("view", "outcome"), list(outcomes.items())))
    _exit_with(failed)


@app.command()
def propagate(views: ViewNames = None, every: All = False, until: Until = None, full: Full = False,
              as_json: Json = False) -> None:
    """Compute what has changed into the differential tables; readers notice nothing."""
    _check_moments(until=until)
    _operate(views, every, "Propagating", lambda w, view: w.propagate(view, until, full), as_json)


@app.command("partial-refresh")
def partial_refresh(views: ViewNames = None, every: All = False, as_json: Json = False) -> None:
    """Apply the differential tables to the view: one small commit."""
    _operate(views, every, "Applying changes to", lambda w, view: w.partial_refresh(view), as_json)


@app.command()
def refresh(views: ViewNames = None, every: All = False, until: Until = None,
            order: Annotated[str, typer.Option(help="propagate_first or partial_first.")] = "propagate_first",
            full: Full = False, as_json: Json = False) -> None:
    """Bring views up to date: propagate and partial-refresh."""
    _check_moments(until=until)
    _operate(views, every, "Refreshing", lambda w, view: w.refresh(view, until, order, full), as_json)


@app.command()
def rebuild(views: ViewNames = None, every: All = False, as_json: Json = False) -> None:
    """Recompute views from their tables as they are, each in one atomic commit."""
    _operate(views, every, "Rebuilding", lambda w, view: w.rebuild(view), as_json)


@app.command()
def backfill(view: ViewName, start: Annotated[str, typer.Argument(help="ISO 8601.")],
             end: Annotated[str, typer.Argument(help="ISO 8601, or now.")],
             step: Annotated[str, typer.Argument(help="Such as 1d.")], as_json: Json = False) -> None:
    """Step a view through time, from one moment to another."""
    with opened(f"Backfilling {view}") as warehouse:
        done = warehouse.backfill(view, start, end, step)
    terminal.answer({"operations": done}, as_json, lambda: terminal.operations(done))


@app.command()
def replay(view: ViewName, start: Annotated[str, typer.Argument(help="ISO 8601.")],
           end: Annotated[str, typer.Argument(help="ISO 8601, or now.")],
           step: Annotated[str, typer.Argument(help="Such as 1d.")], of: Of = "rows", as_json: Json = False) -> None:
    """Fill the history table of a view with its past; the view stays as it is."""
    with opened(f"Replaying {view}") as warehouse:
        done = warehouse.replay(view, start, end, step, of)
    terminal.answer({"operations": done}, as_json, lambda: terminal.operations(done))


@app.command()
def read(view: ViewName, past: Annotated[str | None, typer.Option(
        "--history", help="What replay has filled instead: rows or changes.")] = None,
         limit: Limit = 20, as_json: Json = False) -> None:
    """Show the rows of a view."""
    with opened(f"Reading {view}") as warehouse:
        rows = terminal.Rows.of(warehouse.read(view) if past is None else warehouse.read_history(view, past), limit)
    terminal.answer({"view": view, **rows.document()}, as_json, lambda: rows.show(view))


@app.command()
def diff(view: ViewName, limit: Limit = 50, as_json: Json = False) -> None:
    """Show the differential tables: changes computed (∇, Δ) and not yet applied."""
    with opened(f"Reading the differential tables of {view}") as warehouse:
        rows = terminal.Rows.of(warehouse.diff(view), limit)
    terminal.answer({"view": view, **rows.document()}, as_json,
                    lambda: rows.signed("∇", "Δ").show(f"Differential tables of {view}"))


@app.command()
def verify(views: ViewNames = None, every: All = False, as_json: Json = False) -> None:
    """Check that the scenario's invariant and both minimality conditions hold."""
    with opened("Verifying") as warehouse:
        done, failed = _each(_named(warehouse, views, every), warehouse.verify)
    rows = [(v.view, v.scenario, "holds" if check.holds else "DOES NOT HOLD", check.condition)
            for v in done for check in v.checks]
    terminal.answer({"verifications": [v.to_dict() for v in done], **_errors(failed)}, as_json,
                    lambda: terminal.table(None, ("view", "scenario", "", "condition"), rows))
    _exit_with(failed)


@app.command()
def explain(view: ViewName, as_json: Json = False) -> None:
    """Show how a view is maintained: plan, equations, SQL, strategy and why."""
    with opened(f"Explaining {view}") as warehouse:
        explanation = warehouse.explain(view)
    terminal.answer(explanation.to_dict(), as_json, lambda: terminal.say(str(explanation)))


@app.command()
def status(as_json: Json = False) -> None:
    """Show every view, what it shows, how far it lags and what is pending. Starts no Spark."""
    with opened() as warehouse:
        views = warehouse.status()
        tables = [table for table in warehouse.tables() if table.kind != "view"]
    terminal.answer({"views": views, "tables": tables}, as_json,
                    lambda: terminal.status(views, [table.name for table in tables]))


@app.command()
def history(view: Annotated[str | None, typer.Argument(metavar="[VIEW]", show_default=False)] = None,
            limit: Annotated[int, typer.Option(min=1)] = 20, as_json: Json = False) -> None:
    """Show the last operations, newest first. Starts no Spark."""
    with opened() as warehouse:
        found = warehouse.history(view, limit)
    terminal.answer({"operations": found}, as_json, lambda: terminal.operations(found))


@app.command()
def gc(retain_hours: Annotated[float, typer.Option(min=0, help="Keep what is younger.")] = 168.0,
       as_json: Json = False) -> None:
    """Remove what nothing needs any more: applied batches, old records, staged rows, folders of no view."""
    with opened("Clearing away") as warehouse:
        removed = warehouse.gc(retain_hours)
    terminal.answer({"removed": removed}, as_json, lambda: terminal.pairs("Removed:", removed))


@app.command()
def demo(path: Annotated[Path | None, typer.Option(help="A folder that is kept; a temporary one by default.")] = None,
         as_json: Json = False) -> None:
    """See it work on the paper's example: tables, a view, changes, propagate, partial refresh, verify."""
    from deferred import demo as story

    folder = Path(tempfile.mkdtemp(prefix="deferred-demo-")) if path is None else path
    steps = []
    try:
        with terminal.quiet("Starting Spark") as noise:
            for number, step in enumerate(story.play(folder), start=1):
                steps.append(step)
                if not as_json:
                    with noise.lifted():
                        terminal.step(number, step)
    finally:
        if path is None:
            shutil.rmtree(folder, ignore_errors=True)
    terminal.answer({"steps": steps}, as_json, lambda: None if path is None else terminal.say(
        f"Look around: deferred --config {folder / DEFAULT_FILE} status"))


# ---- engine and db


@engine.command("start")
def engine_start(port: Annotated[int | None, typer.Option(help="A port of this machine; any free one by default.")] =
                 None, as_json: Json = False) -> None:
    """Start a local Spark Connect server; commands of this warehouse use it from then on."""
    from deferred.spark import server

    settings = _settings()
    if settings.spark_remote:
        raise ConfigurationError(f"The configuration names a Spark Connect server already "
                                 f"({settings.spark_remote.split(';')[0]}); remove spark.remote to have a local one.")
    with terminal.quiet("Starting a Spark Connect server"):
        running = server.start(settings.local_folder, settings.spark_master, settings.spark_conf, port)
    terminal.answer({"running": True, "address": running.address, "pid": running.pid}, as_json,
                    lambda: terminal.say(f"The engine runs at {running.address} (process {running.pid})."))


@engine.command("stop")
def engine_stop(as_json: Json = False) -> None:
    """Stop the local Spark Connect server."""
    from deferred.spark import server

    stopped = server.stop(_settings().local_folder)
    terminal.answer({"running": False, "stopped": stopped.pid if stopped else None}, as_json,
                    lambda: terminal.say("The engine is stopped." if stopped else "No engine runs."))


@engine.command("status")
def engine_status(as_json: Json = False) -> None:
    """Say whether the local Spark Connect server runs."""
    from deferred.spark import server

    running = server.find(_settings().local_folder)
    found = {"running": running is not None, "address": running.address if running else None,
             "pid": running.pid if running else None}
    terminal.answer(found, as_json, lambda: terminal.say(
        f"The engine runs at {running.address} (process {running.pid})." if running else "No engine runs."))


@database.command("upgrade")
def db_upgrade(revision: Annotated[str, typer.Argument()] = "head", as_json: Json = False) -> None:
    """Bring the metadata database to a newer revision."""
    from deferred.metadata import migrate

    url = _settings().metadata_url
    migrate.upgrade(url, revision)
    _revision(url, as_json)


@database.command("downgrade")
def db_downgrade(revision: Annotated[str, typer.Argument(help="A revision, or base for none.")],
                 as_json: Json = False) -> None:
    """Bring the metadata database back to an older revision."""
    from deferred.metadata import migrate

    url = _settings().metadata_url
    migrate.downgrade(url, revision)
    _revision(url, as_json)


@database.command("current")
def db_current(as_json: Json = False) -> None:
    """Show the revision of the metadata database and the newest one."""
    _revision(_settings().metadata_url, as_json)


def _revision(url: str, as_json: bool) -> None:
    from deferred.metadata import migrate

    answer = {"current": migrate.current(url), "head": migrate.head()}
    terminal.answer(answer, as_json, lambda: terminal.say(
        f"The metadata database is at revision {answer['current'] or 'none'}; the newest is {answer['head']}."))


# ---- working with the warehouse


def _settings() -> Settings:
    return Settings.resolve(_invocation.config)


@contextmanager
def opened(doing: str = "") -> Iterator[Warehouse]:
    """The warehouse of the configuration, which must exist. Nothing may be printed within the block."""
    from deferred.maintenance.warehouse import Warehouse
    from deferred.metadata import Metadata

    Metadata.open(_settings().metadata_url).close()
    asking = os.environ.get("DEFERRED_REQUESTED_BY") or "command line"
    with terminal.quiet(doing), Warehouse.open(_invocation.config, requested_by=asking) as warehouse:
        yield warehouse


def _references(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        column, _, target = text.partition("=")
        if not column.strip() or "." not in target:
            raise InvalidInputError(f"--references {text}: write COLUMN=TABLE.COLUMN, such as "
                                    f"custId=customer.custId.")
        found[column.strip()] = target.strip()
    return found


def _check_moments(**moments: str | None) -> None:
    """Fail on a timestamp that cannot be read before anything starts."""
    for name, moment in moments.items():
        if moment is not None:
            parse_timestamp(moment, f"--{name}")


def _view_file(source: str, query: str | None, given: dict[str, Any]) -> ViewFile:
    """The view to create: from a query, a file, or a name in the views folder; what is given on the line wins."""
    from dataclasses import replace

    from deferred.sql.viewfile import ViewFile, read_view

    if query is not None:
        return ViewFile(source, query, given)
    file = Path(source) if source.endswith(".sql") else _settings().views_folder / f"{source}.sql"
    view = read_view(file)
    return replace(view, options={**view.options, **given})


def _existing(warehouse: Warehouse, name: str) -> ViewRecord | None:
    return next((view for view in warehouse.views() if view.name.casefold() == name.casefold()), None)


def _same(existing: ViewRecord, view: ViewFile) -> bool:
    return existing.sql.strip() == view.query.strip() and all(
        getattr(existing, option) == value for option, value in view.options.items())


def _applied(warehouse: Warehouse, view: ViewFile, dry_run: bool) -> str:
    """What became, or would become, of the view of a file."""
    existing = _existing(warehouse, view.name)
    if existing is not None and _same(existing, view):
        return "unchanged"
    if existing is not None and not view.or_replace:
        return "differs from its file; drop it and apply again, or write CREATE OR REPLACE"
    if dry_run:
        return "to be created" if existing is None else "to be replaced"
    return _create(warehouse, view)


def _create(warehouse: Warehouse, view: ViewFile) -> str:
    existing = _existing(warehouse, view.name)
    if existing is not None and view.or_replace:
        if _same(existing, view):
            return "unchanged"
        _replace(warehouse, existing, view)
        return "replaced"
    if existing is not None and view.if_not_exists:
        return "exists already"
    warehouse.create_view(view.name, view.query, **view.options)
    return "created"


def _replace(warehouse: Warehouse, existing: ViewRecord, view: ViewFile) -> None:
    """Drop and create; when the new one cannot be created, the old one comes back."""
    warehouse.drop_view(existing.name)
    try:
        warehouse.create_view(view.name, view.query, **view.options)
    except DeferredError:
        warehouse.create_view(
            existing.name, existing.sql, existing.scenario, existing.refresh_policy, existing.propagate_every,
            existing.refresh_every, existing.policy, existing.target_lag)
        raise


def _named(warehouse: Warehouse, views: list[str] | None, every: bool) -> list[str]:
    if every:
        # A view is created after those that it reads, and its number is greater.
        return [view.name for view in sorted(warehouse.views(), key=lambda view: view.id)]
    if not views:
        raise typer.BadParameter("name one or more views, or say --all.")
    return list(dict.fromkeys(views))


def _each(views: Sequence[str], work: Callable[[str], Any]) -> tuple[list[Any], dict[str, DeferredError]]:
    """Do something with every view; with several, a failure does not keep it from the others."""
    done: list[Any] = []
    failed: dict[str, DeferredError] = {}
    for view in views:
        try:
            done.append(work(view))
        except DeferredError as error:
            if len(views) == 1:
                raise
            failed[view] = error
    return done, failed


def _operate(views: list[str] | None, every: bool, doing: str, work: Callable[[Warehouse, str], Operation],
             as_json: bool) -> None:
    with opened(f"{doing} {', '.join(views or ['all views'])}") as warehouse:
        done, failed = _each(_named(warehouse, views, every), lambda view: work(warehouse, view))
    terminal.answer({"operations": done, **_errors(failed)}, as_json, lambda: terminal.operations(done))
    _exit_with(failed)


def _errors(failed: dict[str, DeferredError]) -> dict[str, Any]:
    return {"errors": {view: terminal.problem(error) for view, error in failed.items()}} if failed else {}


def _exit_with(failed: dict[str, DeferredError]) -> None:
    for view, error in failed.items():
        terminal.complain(f"{view}: {error}")
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    main()
