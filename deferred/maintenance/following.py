"""Views that follow every transaction (makesafe_IM and makesafe_DT): which ones, and in which order."""

from __future__ import annotations

import graphlib
import logging
from collections.abc import Sequence

from deferred.errors import DeferredError
from deferred.log.context import Context
from deferred.maintenance.operation import Operation
from deferred.maintenance.scenarios import scenario_of
from deferred.metadata import TableRecord, ViewRecord

log = logging.getLogger(__name__)

CHANGES_MV = ("partial_refresh", "refresh", "rebuild", "alter")
"""Operations after which MV may hold other rows, which the views that read it follow."""


def follow(context: Context, tables: Sequence[TableRecord]) -> list[str]:
    """Run makesafe for the views that read tables which have changed, and for those that read such views.

    What was changed has succeeded already, and one view has nothing to do with another: a view that fails stays behind,
    the others go on. Returns what went wrong; the operation that failed is recorded, and `status` shows it.
    """
    changed = {table.id for table in tables}
    failures = []
    for view in _followers(context):
        if not changed & set(view.depends_on):
            continue
        try:
            if scenario_of(view).makesafe(context, view):
                changed.add(view.table_id)
        except Exception as error:
            reason = str(error) if isinstance(error, DeferredError) else f"{type(error).__name__}: {error}"
            failures.append(f"View {view.name} does not show the change yet: {reason}")
            log.warning("%s", failures[-1])
    return failures


def catch_up(context: Context, after: Operation | None = None) -> list[str]:
    """Bring the followers to what the ledger knows by now, and to the view that an operation has changed.

    Returns what went wrong with views other than that one.
    """
    metadata = context.metadata
    ahead = {
        table
        for view in _followers(context)
        for table in view.depends_on
        if (last := metadata.ledger.last(table))
        and view.propagated
        and last.version > view.propagated.versions.get(table, -1)
    }
    if after is not None and after.view is not None and after.kind in CHANGES_MV:
        ahead.add(metadata.views.get(after.view).table_id)
    return follow(context, [metadata.tables.by_id(table) for table in ahead])


def in_order(views: Sequence[ViewRecord]) -> list[ViewRecord]:
    """Views, each after those that it reads."""
    by_table = {view.table_id: view for view in sorted(views, key=lambda view: view.id)}
    reads = {table: [t for t in view.depends_on if t in by_table] for table, view in by_table.items()}
    return [by_table[table] for table in graphlib.TopologicalSorter(reads).static_order()]


def _followers(context: Context) -> list[ViewRecord]:
    """The active views that follow every transaction, each after those that it reads."""
    views = in_order(context.metadata.views.all())
    return [view for view in views if scenario_of(view).follows_transactions and view.state == "active"]
