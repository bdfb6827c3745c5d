"""Views that follow every transaction (makesafe_IM and makesafe_DT): which ones, in which order, and after what.

So here is what changes a table or a view and is over only when these views have followed.
"""

from __future__ import annotations

import graphlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from deferred.errors import DeferredError
from deferred.log import ledger, transactions, undo
from deferred.log.context import Context
from deferred.log.sources import source_of
from deferred.maintenance.operation import Operation
from deferred.maintenance.scenarios import CHANGES_MV, PROPAGATE_FIRST, scenario_of
from deferred.metadata import LedgerEntry, TableRecord, ViewRecord

log = logging.getLogger(__name__)


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


def propagate(context: Context, name: str, until: datetime | None = None, full: bool = False) -> Operation:
    """propagate a view as its scenario does."""
    view = context.metadata.views.get(name)
    return followed(context, scenario_of(view).propagate(context, view, until, full))


def partial_refresh(context: Context, name: str) -> Operation:
    """partial_refresh a view as its scenario does, and the views that follow it."""
    view = context.metadata.views.get(name)
    return followed(context, scenario_of(view).partial_refresh(context, view))


def refresh(
    context: Context,
    name: str,
    until: datetime | None = None,
    order: str = PROPAGATE_FIRST,
    full: bool = False,
) -> Operation:
    """Refresh a view as its scenario does, and the views that follow it."""
    view = context.metadata.views.get(name)
    return followed(context, scenario_of(view).refresh(context, view, until, order, full))


def rebuild(context: Context, name: str) -> Operation:
    """Rebuild a view, and refresh the views that follow it."""
    from deferred.maintenance import refresh

    return followed(context, refresh.rebuild(context, name))


def append_changes(context: Context, table: str, deletions: Any, insertions: Any) -> LedgerEntry:
    """Hand over the changes of a table to its log, and to the views that follow it."""
    record = context.metadata.tables.get(table)
    entry = source_of(context, record).append_changes(deletions, insertions)
    follow(context, [record])
    return entry


def ingest(context: Context, table: str, events: Any) -> int:
    """Take in events of a table, for the views that follow it too; returns how many rows they changed."""
    record = context.metadata.tables.get(table)
    changed = source_of(context, record).ingest(events)
    ledger.sync(context, [record], lambda t: transactions.recover(context, t))
    follow(context, [record])
    return changed


def sync(context: Context) -> int:
    """Find new commits of all tracked tables, for the views that follow them too; returns how many.

    If some tables cannot be read, the error that says so comes at the end: only the views that read those stay as they
    are.
    """
    found, failures = sync_reachable(context)
    for first in failures.values():
        listed = " ".join(f"{name}: {error}" for name, error in failures.items())
        raise type(first)(f"Not all tracked tables could be read; the others are up to date. {listed}")
    return found


def sync_reachable(context: Context) -> tuple[int, dict[str, DeferredError]]:
    """The same for the tables that can be read; returns how many new commits they have, and why the others cannot."""
    transactions.recover_all(context)
    tables = context.metadata.tables.all()
    found, failures = ledger.sync_reachable(context, tables, lambda t: transactions.recover(context, t))
    catch_up(context)
    return found, failures


def resolve_transaction(context: Context, transaction: str, how: str) -> undo.Resolution:
    """Bring a transaction to its end that could not be undone; the views then show the tables from there on."""
    resolution = undo.resolve(context, transaction, how)
    sync_reachable(context)
    return resolution


def followed(context: Context, done: Operation) -> Operation:
    """The operation, with what went wrong in views that follow it."""
    return replace(done, warnings=(*done.warnings, *catch_up(context, done)))


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
