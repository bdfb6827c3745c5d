"""Removing what nothing needs any more: staged rows, folders of no view, old records."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime, timedelta

from deferred.errors import DeferredError, InvalidInputError
from deferred.log.catalog import Catalog
from deferred.log.context import Context
from deferred.log.storage import Storage
from deferred.maintenance import shared
from deferred.maintenance.making import remove_folder
from deferred.maintenance.settle import settled
from deferred.maintenance.view_tables import HISTORY, belongs, earlier_history
from deferred.metadata import ViewRecord, utc_now
from deferred.options import HISTORIES

LONGEST_RETENTION = 1_000_000
"""Hours: a hundred years."""


def gc(context: Context, retain_hours: float) -> dict[str, int]:
    """Remove what is older than `retain_hours` and what nothing needs any more; returns how many of each kind.

    These are rows staged by finished transactions, folders that belong to no view or log, records of operations and
    transactions, and ledger entries before every cut of a view. Batches that MV shows are removed by propagate itself.
    What the catalog names is kept, although the database may not know it: that may be an old one, see `recover`.
    """
    if not isinstance(retain_hours, (int, float)) or not 0 <= retain_hours <= LONGEST_RETENTION:
        raise InvalidInputError(f"retain_hours must be a number from 0 to {LONGEST_RETENTION:,}, not {retain_hours!r}.")
    before = utc_now() - timedelta(hours=retain_hours)
    catalog = Catalog(context.root)
    catalog.complete([*context.metadata.tables.all(), *context.metadata.views.all()])
    pending = {record.id for record in context.metadata.transactions.pending()}
    removed = {"staged": 0, "folders": 0}
    for kind, keep in (
        ("transactions", pending),
        ("views", {os.path.basename(v.location) for v in catalog.views()}),
        (HISTORY, {earlier_history(v.name, of) for v in catalog.views() for of in HISTORIES}),
        (shared.FOLDER, shared.in_use(catalog.views())),
        ("copies", {os.path.basename(os.path.dirname(t.location)) for t in catalog.tables()}),
        ("logs", {os.path.basename(t.log_location) for t in catalog.tables() if t.log_location}),
    ):
        folder = context.folder(kind)
        for name, changed in Storage(folder).folders().items():
            if name not in keep and changed < before:
                remove_folder(f"{folder}/{name}")
                removed["staged" if kind == "transactions" else "folders"] += 1
    removed["folders"] += sum(_remove_generations(view, before) for view in context.metadata.views.all())
    for view in context.metadata.views.all():
        with suppress(DeferredError):  # what a failed operation has done is noted as long as the operation is known
            settled(context, view)
    removed["operations"] = context.metadata.operations.prune(before)
    removed["leases"] = context.metadata.leases.prune(before)
    removed["transaction records"] = context.metadata.transactions.prune(before)
    for table in context.metadata.tables.all():
        needed = [
            v.propagated.versions.get(table.id, 0) for v in context.metadata.views.dependents(table.id) if v.propagated
        ] + [v.shown.versions.get(table.id, 0) for v in context.metadata.views.dependents(table.id) if v.shown]
        last = context.metadata.ledger.last(table.id)
        entry = context.metadata.ledger.at(table.id, before)
        if last and entry:
            floor = min([entry.version, *needed])
            removed["ledger"] = removed.get("ledger", 0) + context.metadata.ledger.prune(table.id, floor)
    return removed


def _remove_generations(view: ViewRecord, before: datetime) -> int:
    """Remove what an interrupted alteration of a view has left in its folder: tables of no definition that it has."""
    if not (view.definition.generation or view.definition.alteration):
        return 0
    old = [
        f"{view.location}/{name}"
        for name, changed in Storage(view.location).folders().items()
        if not belongs(view, name) and changed < before
    ]
    for path in old:
        remove_folder(path)
    return len(old)
