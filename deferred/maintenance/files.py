"""Creating views from files: what a view file asks of a warehouse, and doing it, for the command line and Airflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deferred.errors import DeferredError
from deferred.sql.viewfile import ViewFile, read_view

if TYPE_CHECKING:
    from deferred.maintenance.warehouse import Warehouse
    from deferred.metadata import ViewRecord


class Outcome(StrEnum):
    """What became, or would become, of the view of a file."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    EXISTS = "exists already"
    ALTERED = "changed"
    DROPPED = "dropped"
    TO_CREATE = "to be created"
    TO_REPLACE = "to be replaced"
    TO_ALTER = "to be changed"
    TO_DROP = "to be dropped"
    REFUSED = "refused"
    WITHOUT_FILE = "has no file"


@dataclass(frozen=True)
class Planned:
    """What `apply` would do with a view, and how or why."""

    view: str
    outcome: Outcome
    how: str = ""


def plan(warehouse: Warehouse, views: Sequence[ViewFile]) -> tuple[list[Planned], dict[str, DeferredError]]:
    """What `apply` would do with each view file, and which views have none; and what it would refuse.

    The files come in the order in which they are applied, each after those that it reads. Nothing is written.
    """
    outcomes = {view.name: apply(warehouse, view, dry_run=True) for view in views}
    changing = [view for view in views if outcomes[view.name] in (*_CHANGED, Outcome.TO_CREATE)]
    how: dict[str, str | DeferredError] = {**warehouse.plan_files(changing)} if changing else {}
    refused = {name: told for name, told in how.items() if isinstance(told, DeferredError)}
    found = [
        Planned(name, Outcome.REFUSED if name in refused else outcome, str(how.get(name, "")))
        for name, outcome in outcomes.items()
    ]
    rest = without_file(warehouse, views)
    found += [Planned(name, Outcome.WITHOUT_FILE, "stays, unless apply --drop is used") for name in rest]
    return found, refused


_CHANGED = (Outcome.TO_ALTER, Outcome.TO_REPLACE)


def without_file(warehouse: Warehouse, views: Sequence[ViewFile]) -> list[str]:
    """Returns the views that no file defines, each before those that it reads."""
    from deferred.maintenance.following import in_order

    named = {view.name.casefold() for view in views}
    return [view.name for view in reversed(in_order(warehouse.views())) if view.name.casefold() not in named]


def drop_without_file(warehouse: Warehouse, views: Sequence[ViewFile]) -> list[str]:
    """Drop the views that no file defines; returns their names."""
    rest = without_file(warehouse, views)
    for name in rest:
        warehouse.drop_view(name)
    return rest


def find(source: str, folder: Path, options: Mapping[str, Any] | None = None) -> ViewFile:
    """Returns the view file of a path that ends in .sql, or of a name in the folder of views.

    `options` replace what the file says of them.
    """
    file = Path(source) if source.endswith(".sql") else folder / f"{source}.sql"
    return read_view(file).stating(options or {})


def apply(warehouse: Warehouse, view: ViewFile, dry_run: bool = False, together: Sequence[ViewFile] = ()) -> Outcome:
    """Make the warehouse agree with a view file: create the view, or alter the one that there is.

    `together` are all files that are applied, each after those that it reads: what a view above one reads of it is told
    by its file. With `dry_run`, only say what would be done.
    """
    existing = warehouse.find_view(view.name)
    if existing is not None and _agrees(existing, view):
        return Outcome.UNCHANGED
    if existing is None:
        return Outcome.TO_CREATE if dry_run else create(warehouse, view)
    if not dry_run:
        warehouse.alter_view(existing.name, view.query, together, **stated(view))
    done = (Outcome.TO_REPLACE, Outcome.REPLACED) if view.or_replace else (Outcome.TO_ALTER, Outcome.ALTERED)
    return done[not dry_run]


def create(warehouse: Warehouse, view: ViewFile) -> Outcome:
    """Run the statement of a view file: CREATE [OR REPLACE] MATERIALIZED VIEW [IF NOT EXISTS].

    Without either clause, a view of that name is an error.
    """
    existing = warehouse.find_view(view.name)
    if existing is not None and view.or_replace:
        if _agrees(existing, view):
            return Outcome.UNCHANGED
        warehouse.replace_view(existing.name, view.query, **view.options.to_dict())
        return Outcome.REPLACED
    if existing is not None and view.if_not_exists:
        return Outcome.EXISTS
    warehouse.create_view(view.name, view.query, **view.options.to_dict())
    return Outcome.CREATED


def stated(view: ViewFile) -> dict[str, Any]:
    """The options that a file sets: only those that it states, or all of them where it replaces the view."""
    options = view.options.to_dict()
    return options if view.or_replace else {name: options[name] for name in view.stated}


def _agrees(existing: ViewRecord, view: ViewFile) -> bool:
    """Whether a view has the query of a file and the options that the file states."""
    return existing.sql.strip() == view.query.strip() and all(
        getattr(existing.options, name) == getattr(view.options, name) for name in view.stated
    )
