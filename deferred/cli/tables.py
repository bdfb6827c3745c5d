"""Commands on base tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from deferred import terminal
from deferred.cli.common import Json, Limit, Until, app, check_moments, opened
from deferred.errors import DeferredError, InvalidInputError

PLAIN = "feed"
"""The log of a table that is tracked without saying which."""


class _Track(TyperCommand):
    """Its help lists the kinds of logs; they are looked up only then, since the import takes longer than the help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from deferred.log.sources import options

        (log,) = (option for option in self.params if option.name == "log")
        kinds = "; ".join(f"{name}: {source.summary}" for name, source in options().items())
        log.help = f"{kinds}; auto: what suits the table, said with the reason. {PLAIN} by default."  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


@app.command(cls=_Track)
def track(
    name: Annotated[str | None, typer.Argument(help="The name that views use.", show_default=False)] = None,
    location: Annotated[
        str | None, typer.Argument(help="Path of the table, or its name in Spark's catalog.", show_default=False)
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--all",
            metavar="FOLDER|SCHEMA",
            help="Every Delta table below a folder, or of a schema in Spark's catalog, under its own name.",
        ),
    ] = None,
    key: Annotated[list[str] | None, typer.Option(help="A column of the key; repeat it, or write a,b.")] = None,
    references: Annotated[
        list[str] | None,
        typer.Option(
            "--references", metavar="COLUMN=TABLE.COLUMN", help="A column that refers to a column of another table."
        ),
    ] = None,
    log: Annotated[str | None, typer.Option(help="Where its changes come from.")] = None,
    columns: Annotated[str | None, typer.Option(help="Its columns as DDL, for --log debezium.")] = None,
    updated_at: Annotated[
        str | None, typer.Option(help="The column with the time of a row's last change, for --log timestamps.")
    ] = None,
    deletions: Annotated[
        str | None, typer.Option(help="A table of deleted keys and the times of that, for --log timestamps.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Track a table, so that views can read it; or every table of a folder or schema."""
    if every is not None:
        if name is not None or key or references or columns or updated_at or deletions:
            raise typer.BadParameter("--all takes a folder or schema, and nothing of one table but --log.")
        _track_all(every, log or PLAIN, as_json)
        return
    if name is None or (location is None and columns is None):  # events may be handed over with ingest
        raise typer.BadParameter("Name a table and its path, or use --all with a folder or a schema.")
    keys = [part.strip() for given in key or [] for part in given.split(",") if part.strip()]
    refers = _references(references or []) or None
    with opened(f"Tracking {name}") as warehouse:
        from deferred.log.sources import AUTO

        suits = reason = None
        with nullcontext() if log == AUTO else suppress(DeferredError):  # what is wrong, track says
            if log in (None, AUTO):
                suits, reason = warehouse.suggest_log(location, columns, updated_at)
        chosen = suits if log == AUTO and suits is not None else log or PLAIN
        record = warehouse.track(name, location, keys or None, refers, chosen, columns, updated_at, deletions)
        notes = warehouse.unused_references(record.name)
    said = [f"Table {record.name} is tracked: {record.location}."]
    if reason is not None:
        said[0] += f" Its changes are read with --log {chosen}"
        said[0] += f": {reason}." if suits == chosen else f"; --log auto would choose {suits}: {reason}."
    found = {"table": record, "log": chosen, "suits": suits, "reason": reason, "notes": notes}
    terminal.answer(
        {key: value for key, value in found.items() if value is not None},
        as_json,
        lambda: terminal.say("\n".join([*said, *(f"Note: {note}" for note in notes)])),
    )


def _track_all(where: str, log: str, as_json: bool) -> None:
    with opened(f"Tracking the tables of {where}") as warehouse:
        found = warehouse.track_all(where, log)
    terminal.answer(
        {"tables": found},
        as_json,
        lambda: terminal.table(
            None, ("table", "outcome", "location", ""), [(f.name, f.outcome, f.location, f.reason) for f in found]
        ),
    )


@app.command()
def untrack(name: Annotated[str, typer.Argument(help="A tracked table.")], as_json: Json = False) -> None:
    """Stop tracking a table that no view reads; the table itself stays."""
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
def ingest(
    table: Annotated[str, typer.Argument(help="A table that is tracked with --log debezium.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Files of events; standard input by default.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Take in Debezium's events, one per line or an array of them, in one delivery."""
    from deferred.log.debezium import lines

    texts = [(str(file), terminal.read_file(file)) for file in files or []] or [("standard input", sys.stdin.read())]
    events = [event for name, text in texts for event in lines(text, name)]
    with opened(f"Taking in the events of {table}") as warehouse:
        changed = warehouse.ingest(table, events)
    said = f"{terminal.plural(changed, 'changed row')}."
    terminal.answer({"table": table, "changed": changed}, as_json, lambda: terminal.say(said))


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="A query, or INSERT, UPDATE, DELETE, MERGE.")],
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Run SQL on tracked tables and views by their names; a change is a transaction."""
    with opened("Running the statement") as warehouse:
        found = warehouse.sql(statement)
        rows = None if found is None else terminal.Rows.of(found, limit, own=statement)
    if rows is None:
        terminal.answer({"committed": True}, as_json, lambda: terminal.say("Done."))
    else:
        terminal.answer(rows.document(), as_json, rows.show)


@app.command()
def log(
    table: Annotated[str, typer.Argument(help="A tracked table.")],
    since: Annotated[str | None, typer.Option(help="From this moment; since tracking by default.")] = None,
    until: Until = None,
    counts: Annotated[bool, typer.Option("--counts", help="Only the commits, without starting Spark.")] = False,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Show the net log of a table: the rows deleted (▼) and inserted (▲)."""
    check_moments(since=since, until=until)
    if counts:
        with opened() as warehouse:
            commits = warehouse.commits(table, since, until)
            irrelevant = warehouse.irrelevant_commits(table, since, until)
            rows = warehouse.changed_rows(table, since, until)
        terminal.answer(
            {"table": table, "commits": commits, "rows": rows, "irrelevant": irrelevant},
            as_json,
            lambda: terminal.table(
                f"Commits of {table}",
                ("version", "time", "operation", "rows", "transaction", "does not matter to"),
                [
                    (
                        c.version,
                        terminal.moment(c.timestamp),
                        c.operation,
                        rows.get(c.version),
                        c.transaction_id,
                        ", ".join(irrelevant.get(c.version, [])),
                    )
                    for c in commits
                ],
            ),
        )
        return
    with opened(f"Reading the log of {table}") as warehouse:
        net = terminal.Rows.of(warehouse.log(table, since, until), limit)
    terminal.answer(
        {"table": table, **net.document()}, as_json, lambda: net.signed("▼", "▲").show(f"Net log of {table}")
    )


def _references(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        column, _, target = text.partition("=")
        if not column.strip() or "." not in target:
            raise InvalidInputError(f"--references {text}: write COLUMN=TABLE.COLUMN, such as custId=customer.custId.")
        found[column.strip()] = target.strip()
    return found
