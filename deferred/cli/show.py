"""Commands that show things: rows, changes, plans, states, operations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deferred import terminal
from deferred.cli.common import Json, Limit, ViewName, app, check_moments, opened, views_beginning

if TYPE_CHECKING:
    from deferred.metadata import TableRecord


@app.command()
def read(
    view: ViewName,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="As of now: with what is pending and what is in the log; nothing is refreshed."),
    ] = False,
    where: Annotated[str | None, typer.Option(help="Only rows for which this condition holds.")] = None,
    as_of: Annotated[str | None, typer.Option(help="As of a moment in the past, ISO 8601.")] = None,
    past: Annotated[
        str | None, typer.Option("--history", help="Show the history that replay has written: rows or changes.")
    ] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Show the rows of a view."""
    check_moments(**{"as-of": as_of})
    if past is not None and (fresh or where or as_of):
        raise typer.BadParameter("--history shows rows as they were written; leave out --fresh, --where and --as-of.")
    with opened(f"Reading {view}") as warehouse:
        found = warehouse.read(view, fresh, where, as_of) if past is None else warehouse.read_history(view, past)
        rows = terminal.Rows.of(found, limit, own=where)
    terminal.answer({"view": view, **rows.document()}, as_json, lambda: rows.show(view))


@app.command()
def diff(view: ViewName, limit: Limit = 50, as_json: Json = False) -> None:
    """Show the differential tables: changes computed (∇, Δ) and not yet applied."""
    with opened(f"Reading the differential tables of {view}") as warehouse:
        rows = terminal.Rows.of(warehouse.diff(view), limit)
    terminal.answer(
        {"view": view, **rows.document()}, as_json, lambda: rows.signed("∇", "Δ").show(f"Differential tables of {view}")
    )


@app.command()
def explain(
    view: ViewName,
    against: Annotated[
        Path | None, typer.Option(help="A view file: show how the view would be changed to what it says.")
    ] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Also the equations, and the SQL that a propagate runs.")] = False,
    as_json: Json = False,
) -> None:
    """Show in words how a view is maintained, what that costs now, and what would be cheaper."""
    if against is not None:
        _explain_against(view, against, as_json)
        return
    with opened(f"Explaining {view}") as warehouse:
        explanation = warehouse.explain(view)
    terminal.answer(
        explanation.to_dict(), as_json, lambda: terminal.say(str(explanation) if sql else explanation.words())
    )


def _explain_against(view: str, file: Path, as_json: bool) -> None:
    from deferred.maintenance import files
    from deferred.sql.viewfile import read_definition

    definition = read_definition(file, view)
    with opened(f"Comparing {view} with {file}") as warehouse:
        foreseen = warehouse.plan_alteration(view, definition.query, **files.stated(definition))
    terminal.answer(
        {"view": view, **foreseen.to_dict()},
        as_json,
        lambda: terminal.say(f"View {view} would be changed: {foreseen}"),
    )


@app.command()
def status(
    view: Annotated[
        str | None,
        typer.Argument(
            metavar="VIEW", help="One view, with its lineage.", show_default=False, autocompletion=views_beginning
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks of --watch.")] = 5.0,
    as_json: Json = False,
) -> None:
    """Show every view, its health, how stale it is and what is pending. Starts no Spark."""
    if watch:
        if view is not None or as_json:
            raise typer.BadParameter("--watch shows all views on a terminal; leave out VIEW and --json.")
        terminal.watch(lambda: _named(*_look()), every)
        return
    views, tables = _look()
    if view is None:
        terminal.answer({"views": views, "tables": tables}, as_json, lambda: terminal.status(*_named(views, tables)))
        return
    from deferred.maintenance import lineage

    reads, read_by = lineage.reads(views, view), lineage.read_by(views, view)
    found = next(entry for entry in views if entry["name"] == reads.name)
    terminal.answer(
        {**found, "lineage": {"reads": reads.to_dict(), "read_by": read_by.to_dict()}},
        as_json,
        lambda: terminal.view_status(found, reads, read_by),
    )


def _look() -> tuple[list[dict[str, Any]], list[TableRecord]]:
    with opened() as warehouse:
        return warehouse.status(), warehouse.base_tables()


def _named(views: list[dict[str, Any]], tables: list[TableRecord]) -> tuple[list[dict[str, Any]], list[str]]:
    return views, [table.name for table in tables]


@app.command()
def history(
    view: Annotated[
        str | None, typer.Argument(metavar="VIEW", show_default=False, autocompletion=views_beginning)
    ] = None,
    limit: Annotated[int, typer.Option(min=1)] = 20,
    as_json: Json = False,
) -> None:
    """Show the last operations, newest first. Starts no Spark."""
    with opened() as warehouse:
        found = warehouse.history(view, limit)
    terminal.answer({"operations": found}, as_json, lambda: terminal.history(found))


@app.command()
def report(
    views: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VIEW",
            help="In detail; all by default.",
            show_default=False,
            autocompletion=views_beginning,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("deferred-report.html"),
    as_json: Json = False,
) -> None:
    """Write a page about all views: health, lineage, cuts, operations, downtime. Starts no Spark."""
    from deferred.report.facts import gather
    from deferred.report.page import page

    with opened(f"Writing {output}") as warehouse:
        facts = gather(warehouse, views or None)
    terminal.write_file(output, page(facts))
    terminal.answer(
        {"file": str(output.absolute()), "views": list(facts.details)},
        as_json,
        lambda: terminal.say(f"{output}: {terminal.plural(len(facts.details), 'view')}. Open it in a browser."),
    )


@app.command()
def metrics(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file to write, such as one that node_exporter collects.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print lag, rows, seconds, downtime and failures by view in the OpenMetrics format. Starts no Spark."""
    with opened() as warehouse:
        text = warehouse.metrics()
    if output is not None:
        terminal.write_file(output, text)
    elif as_json:
        terminal.answer({"metrics": text}, as_json, lambda: None)
    else:
        terminal.say(text.rstrip("\n"))
