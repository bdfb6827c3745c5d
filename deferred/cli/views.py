"""Commands that define views: create, drop, apply."""

from __future__ import annotations

from typing import Annotated

import typer

from deferred import terminal
from deferred.cli.common import Json, ViewName, app, errors_of, exit_with, opened, settings
from deferred.errors import DeferredError
from deferred.options import MAINTAIN, OPTION_NAMES, REFRESH_POLICIES, SCENARIOS


@app.command()
def create(
    source: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="A view file, or the name of one in the views folder, or of a new view with its query.",
        ),
    ],
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="SELECT …", show_default=False)] = None,
    scenario: Annotated[str | None, typer.Option(help=f"One of {', '.join(SCENARIOS)}.")] = None,
    refresh_policy: Annotated[str | None, typer.Option(help=f"One of {', '.join(REFRESH_POLICIES)}.")] = None,
    propagate_every: Annotated[str | None, typer.Option(help="Such as 1h.")] = None,
    refresh_every: Annotated[str | None, typer.Option(help="Such as 24h.")] = None,
    policy: Annotated[
        int | None, typer.Option(help="What is done every refresh_every: 1 (refresh) or 2 (partial_refresh).")
    ] = None,
    target_lag: Annotated[str | None, typer.Option(help="Such as 30m.")] = None,
    refresh_on_read: Annotated[
        bool | None, typer.Option("--refresh-on-read", help="A read of rows older than target_lag refreshes first.")
    ] = None,
    maintain: Annotated[
        str | None,
        typer.Option(help=f"One of {', '.join(MAINTAIN)}: tree keeps good rows, self reads no base table."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a materialized view and fill it."""
    options = {name: value for name, value in locals().items() if name in OPTION_NAMES and value is not None}
    from deferred.maintenance import files
    from deferred.sql.viewfile import ViewFile

    if query is not None:
        view = ViewFile(source, query).stating(options)
    else:
        view = files.find(source, settings().views_folder, options)
    with opened(f"Creating {view.name}") as warehouse:
        outcome = files.create(warehouse, view)
    terminal.answer(
        {"view": view.name, "outcome": outcome}, as_json, lambda: terminal.say(f"View {view.name}: {outcome}.")
    )


@app.command()
def drop(name: ViewName, as_json: Json = False) -> None:
    """Remove a view and its tables."""
    with opened(f"Dropping {name}") as warehouse:
        warehouse.drop_view(name)
    terminal.answer({"dropped": name}, as_json, lambda: terminal.say(f"View {name} was dropped."))


@app.command()
def plan(as_json: Json = False) -> None:
    """Show what apply would do with each view: nothing, create, change, refuse, and how or why."""
    from deferred.maintenance import files
    from deferred.sql.viewfile import load_views

    with opened("Comparing views with their files") as warehouse:
        folder = warehouse.settings.views_folder
        planned, refused = files.plan(warehouse, load_views(folder))

    def show() -> None:
        terminal.table(None, ("view", "outcome", "how"), [(p.view, p.outcome, p.how) for p in planned])
        if not planned:
            terminal.say(f"There is no view file in {folder}: write NAME.sql, with CREATE MATERIALIZED VIEW NAME AS …")

    terminal.answer({"views": planned, **errors_of(refused)}, as_json, show)
    exit_with(refused)


@app.command()
def apply(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Also drop the views that have no file.")] = False,
    as_json: Json = False,
) -> None:
    """Make the warehouse agree with the view files: create new views, change those whose files have changed."""
    from deferred.maintenance import files
    from deferred.sql.viewfile import load_views

    outcomes: dict[str, str] = {}
    failed: dict[str, DeferredError] = {}
    with opened("Applying view files") as warehouse:
        views = load_views(warehouse.settings.views_folder)
        for view in views:
            try:
                outcomes[view.name] = files.apply(warehouse, view, dry_run, views)
            except DeferredError as error:
                outcomes[view.name], failed[view.name] = "failed", error
        if drop and dry_run:
            outcomes |= dict.fromkeys(files.without_file(warehouse, views), files.Outcome.TO_DROP)
        elif drop and not failed:
            outcomes |= dict.fromkeys(files.drop_without_file(warehouse, views), files.Outcome.DROPPED)
    terminal.answer(
        {"views": outcomes, **errors_of(failed)},
        as_json,
        lambda: terminal.table(None, ("view", "outcome"), list(outcomes.items())),
    )
    exit_with(failed)
