"""Commands that maintain views: propagate, refresh and the like, verify, gc."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from deferred import terminal
from deferred.cli.common import (
    All,
    Json,
    Until,
    ViewName,
    ViewNames,
    app,
    check_moments,
    each,
    errors_of,
    exit_with,
    opened,
    view_names,
)

if TYPE_CHECKING:
    from deferred.maintenance.operation import Operation
    from deferred.maintenance.warehouse import Warehouse

Full = Annotated[bool, typer.Option("--full", help="Recompute the view and take the difference.")]
Of = Annotated[str, typer.Option(help="rows: as of each step; changes: in each step.")]
Start = Annotated[str, typer.Argument(help="ISO 8601.")]
End = Annotated[str, typer.Argument(help="ISO 8601, or now.")]
Step = Annotated[str, typer.Argument(help="Such as 1d.")]


@app.command()
def propagate(
    views: ViewNames = None, every: All = False, until: Until = None, full: Full = False, as_json: Json = False
) -> None:
    """Compute what has changed into the differential tables; readers notice nothing."""
    check_moments(until=until)
    _operate(views, every, "Propagating", lambda w, view: w.propagate(view, until, full), as_json)


@app.command("partial-refresh")
def partial_refresh(views: ViewNames = None, every: All = False, as_json: Json = False) -> None:
    """Apply the differential tables to the view: one small commit."""
    _operate(views, every, "Applying changes to", lambda w, view: w.partial_refresh(view), as_json)


@app.command()
def refresh(
    views: ViewNames = None,
    every: All = False,
    until: Until = None,
    order: Annotated[str, typer.Option(help="propagate_first or partial_first.")] = "propagate_first",
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Bring views up to date: propagate and partial-refresh."""
    check_moments(until=until)
    _operate(views, every, "Refreshing", lambda w, view: w.refresh(view, until, order, full), as_json)


@app.command()
def rebuild(views: ViewNames = None, every: All = False, as_json: Json = False) -> None:
    """Recompute views from their tables as they are, each in one atomic commit."""
    _operate(views, every, "Rebuilding", lambda w, view: w.rebuild(view), as_json)


@app.command()
def backfill(
    view: ViewName,
    start: Start,
    end: End,
    step: Step,
    as_json: Json = False,
) -> None:
    """Step a view through time, from one moment to another."""
    with opened(f"Backfilling {view}") as warehouse:
        done = warehouse.backfill(view, start, end, step)
    terminal.answer({"operations": done}, as_json, lambda: terminal.operations(done))


@app.command()
def replay(
    view: ViewName,
    start: Start,
    end: End,
    step: Step,
    of: Of = "rows",
    as_json: Json = False,
) -> None:
    """Fill the history table of a view with its past; the view stays as it is."""
    with opened(f"Replaying {view}") as warehouse:
        done = warehouse.replay(view, start, end, step, of)
    terminal.answer({"operations": done}, as_json, lambda: terminal.operations(done))


@app.command()
def verify(views: ViewNames = None, every: All = False, as_json: Json = False) -> None:
    """Check that the scenario's invariant and both minimality conditions hold."""
    with opened("Verifying") as warehouse:
        done, failed = each(warehouse, view_names(warehouse, views, every), warehouse.verify)
    rows = [
        (v.view, v.scenario, "holds" if check.holds else "DOES NOT HOLD", check.condition)
        for v in done
        for check in v.checks
    ]
    terminal.answer(
        {"verifications": [v.to_dict() for v in done], **errors_of(failed)},
        as_json,
        lambda: terminal.table(None, ("view", "scenario", "", "condition"), rows),
    )
    exit_with(failed)


@app.command()
def gc(
    retain_hours: Annotated[float, typer.Option(min=0, help="Keep what is younger than this.")] = 168.0,
    as_json: Json = False,
) -> None:
    """Remove what nothing needs any more: staged rows, folders of no view, old records and ledger entries."""
    with opened("Removing what nothing needs") as warehouse:
        removed = warehouse.gc(retain_hours)
    terminal.answer({"removed": removed}, as_json, lambda: terminal.pairs("Removed:", removed))


def _operate(
    views: list[str] | None, every: bool, doing: str, work: Callable[[Warehouse, str], Operation], as_json: bool
) -> None:
    with opened(f"{doing} {', '.join(views or ['all views'])}") as warehouse:
        done, failed = each(warehouse, view_names(warehouse, views, every), lambda view: work(warehouse, view))
    terminal.answer({"operations": done, **errors_of(failed)}, as_json, lambda: terminal.operations(done))
    exit_with(failed)
