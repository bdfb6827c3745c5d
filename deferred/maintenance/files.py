"""Creating views from files: what a view file asks of a warehouse, and doing it, for the command line and Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    DIFFERS = "differs from its file; drop it and apply again, or write CREATE OR REPLACE"
    TO_CREATE = "to be created"
    TO_REPLACE = "to be replaced"


def find(source: str, folder: Path, options: Mapping[str, Any] | None = None) -> ViewFile:
    """Returns the view file of a path that ends in .sql, or of a name in the folder of views.

    `options` replace what the file says of them.
    """
    file = Path(source) if source.endswith(".sql") else folder / f"{source}.sql"
    return read_view(file).stating(options or {})


def apply(warehouse: Warehouse, view: ViewFile, dry_run: bool = False) -> Outcome:
    """Make the warehouse agree with a view file, without taking anything away unless the file says OR REPLACE.

    With `dry_run`, only say what would be done.
    """
    existing = warehouse.find_view(view.name)
    if existing is not None and _agrees(existing, view):
        return Outcome.UNCHANGED
    if existing is not None and not view.or_replace:
        return Outcome.DIFFERS
    if dry_run:
        return Outcome.TO_CREATE if existing is None else Outcome.TO_REPLACE
    return create(warehouse, view)


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


def _agrees(existing: ViewRecord, view: ViewFile) -> bool:
    """Whether a view has the query of a file and the options that the file states."""
    return existing.sql.strip() == view.query.strip() and all(
        getattr(existing.options, name) == getattr(view.options, name) for name in view.stated
    )
