"""Making the Delta tables of a view, making them again where they are gone or damaged, and removing them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from deferred.algebra.types import Columns
from deferred.log.context import Context
from deferred.log.delta_log import is_delta, readable
from deferred.log.storage import Storage
from deferred.log.tracking import trusted_again
from deferred.maintenance.view_tables import (
    DIFFERENTIAL_BATCH,
    DIFFERENTIAL_COUNT,
    HISTORY,
    differential_path,
    earlier_history,
    mv_path,
)
from deferred.metadata import Lease, ViewRecord
from deferred.options import HISTORIES
from deferred.spark import bags
from deferred.spark.engine import Engine, Mark

# Without deletion vectors, which other readers may not know: MV is a plain Delta table.
_PLAIN = {"delta.enableDeletionVectors": "false"}


def make_differential(engine: Engine, location: str, columns: Columns) -> None:
    """Create the differential table of a view, empty."""
    more = [(DIFFERENTIAL_COUNT, "bigint"), (DIFFERENTIAL_BATCH, "bigint")]
    bags.create(engine, differential_path(location), [*columns, *more], [DIFFERENTIAL_BATCH], _PLAIN)


def make_mv(engine: Engine, location: str, columns: Columns) -> None:
    """Create MV, empty."""
    bags.create(engine, mv_path(location), columns, (), _PLAIN)


def make_filled_mv(engine: Engine, location: str, columns: Columns, rows: exp.Query, mark: Mark) -> None:
    """Create MV with the rows of a query."""
    bags.create_filled(engine, mv_path(location), columns, rows, mark, _PLAIN)


def repair(context: Context, view: ViewRecord, under: Iterable[Lease]) -> list[ViewRecord]:
    """Create those tables of a view again, empty, that cannot be read: the caller fills them.

    The views that read such an MV are marked: the versions in their cuts are those of a table that no longer exists.
    Returns those that were not broken before.
    """
    if not readable(differential_path(view.workings)):
        remove_folder(differential_path(view.workings))
        make_differential(context.engine, view.workings, view.columns)
        if view.replacement_batch > view.applied_batch:  # its rows are gone, and with them all that MV should show
            problem = "Its differential table was made again, and held the whole view."
            context.metadata.views.update(view.id, under, state="broken", problem=problem)
    if not readable(mv_path(view.location)):
        remove_folder(mv_path(view.location))
        make_mv(context.engine, view.location, view.columns)
        return trusted_again(context, context.metadata.tables.by_id(view.table_id), under)
    return []


def remove_earlier_histories(context: Context, name: str) -> None:
    """Remove the history tables that version 0.1 has kept for a view of some name; later ones are in its folder."""
    for of in HISTORIES:
        path = context.folder(HISTORY, earlier_history(name, of))
        if is_delta(path):
            remove_folder(path)


def remove_folder(location: str) -> None:
    """Remove a folder of the warehouse, on a local disk or in an object store."""
    Storage(location).remove()
