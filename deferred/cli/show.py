"""Commands that show things: rows, changes, plans, states, operations."""

from __future__ import annotations

from typing import Annotated

import typer

from deferred import terminal
from deferred.cli.common import Json, Limit, ViewName, app, opened


@app.command()
def read(
    view: ViewName,
    past: Annotated[
        str | None, typer.Option("--history", help="Show the history that replay has written: rows or changes.")
    ] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Show the rows of a view."""
    with opened(f"Reading {view}") as warehouse:
        rows = terminal.Rows.of(warehouse.read(view) if past is None else warehouse.read_history(view, past), limit)
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
def explain(view: ViewName, as_json: Json = False) -> None:
    """Show how a view is maintained: plan, equations, SQL, strategy and why."""
    with opened(f"Explaining {view}") as warehouse:
        explanation = warehouse.explain(view)
    terminal.answer(explanation.to_dict(), as_json, lambda: terminal.say(str(explanation)))


@app.command()
def status(as_json: Json = False) -> None:
    """Show every view, its state, its lag and what is pending. Starts no Spark."""
    with opened() as warehouse:
        views = warehouse.status()
        tables = warehouse.base_tables()
    terminal.answer(
        {"views": views, "tables": tables}, as_json, lambda: terminal.status(views, [table.name for table in tables])
    )


@app.command()
def history(
    view: Annotated[str | None, typer.Argument(metavar="[VIEW]", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1)] = 20,
    as_json: Json = False,
) -> None:
    """Show the last operations, newest first. Starts no Spark."""
    with opened() as warehouse:
        found = warehouse.history(view, limit)
    terminal.answer({"operations": found}, as_json, lambda: terminal.operations(found))
