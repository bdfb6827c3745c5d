"""The views and how fresh they are, from the metadata and Delta's logs alone; and removing what nothing needs."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from deferred.errors import DeferredError
from deferred.log import ledger
from deferred.log.catalog import Catalog
from deferred.log.context import Context
from deferred.log.sources import source_of
from deferred.log.storage import Storage
from deferred.log.undo import explained, stuck
from deferred.maintenance.base_logs import base_tables, synced_tables
from deferred.maintenance.making import remove_folder
from deferred.maintenance.settle import settled
from deferred.maintenance.view_tables import mv_path
from deferred.metadata import ViewRecord, utc_now


def status(context: Context) -> list[dict[str, Any]]:
    """One entry per view. Reads Delta's logs through delta-rs, so it takes milliseconds and starts no JVM."""
    newest = {table.id: _newest(context, table.id) for table in context.metadata.tables.all()}
    return [_view(context, view, newest) for view in context.metadata.views.all()]


def _view(context: Context, view: ViewRecord, newest: dict[int, int | None]) -> dict[str, Any]:
    propagated = view.propagated.versions if view.propagated else {}
    commits = {
        context.metadata.tables.by_id(t).name: latest - propagated.get(t, 0)
        for t in view.depends_on
        if (latest := newest.get(t)) is not None
    }
    behind = sum(n for n in commits.values() if n > 0)
    now = utc_now()
    return {
        "name": view.name,
        "scenario": view.options.scenario,
        "refresh_policy": view.options.refresh_policy,
        "state": view.state,
        "problem": view.problem or " ".join(map(explained, stuck(context, base_tables(context, view)))) or None,
        "failure": _failure(context, view),
        "reads": [table.name for table in base_tables(context, view)],
        "shown": view.shown.timestamp.isoformat() if view.shown else None,
        "propagated": view.propagated.timestamp.isoformat() if view.propagated else None,
        "pending_commits": behind,
        "pending_batches": view.propagated_batch - view.applied_batch,
        **_irrelevant(context, view),
        "fresh": behind == 0 and view.propagated_batch == view.applied_batch,
        "lag_seconds": round((now - view.shown.timestamp).total_seconds(), 3) if view.shown else None,
        "propagate_every": view.options.propagate_every,
        "refresh_every": view.options.refresh_every,
        "policy": view.options.policy,
        "location": mv_path(view.location),
    }


def _irrelevant(context: Context, view: ViewRecord) -> dict[str, int | None]:
    """What did not matter to a view of the commits that were last propagated."""
    recent = context.metadata.operations.recent(view.name, limit=10)
    details = next((op.details for op in recent if "relevance" in op.seconds), {})
    return {f"irrelevant_{of}": details.get(f"{of}_irrelevant", 0) for of in ("commits", "rows")}


def _failure(context: Context, view: ViewRecord) -> str | None:
    """How the last operation on a view failed, None if it did not."""
    last = next(iter(context.metadata.operations.recent(view.name, limit=1)), None)
    if last is None or last.state != "failed":
        return None
    return f"{last.kind} failed at {last.started_at:%Y-%m-%d %H:%M:%S} UTC: {last.error}"


def is_fresh(context: Context, view: ViewRecord, moment: datetime) -> bool:
    """Whether MV shows what its tables held at a time; so must the views among them, for what they read."""
    by_table = {v.table_id: v for v in context.metadata.views.all()}
    read = [by_table[table] for table in view.depends_on if table in by_table]
    if not all(is_fresh(context, upstream, moment) for upstream in read):
        return False
    view = settled(context, view)
    if view.shown is None or view.state != "active":
        return False
    tables = synced_tables(context, view)
    if stuck(context, tables):  # the ledger ends before it
        return False
    held = ledger.cut(context, tables, moment, None).versions
    return moment <= utc_now() and all(view.shown.versions.get(t, -1) >= version for t, version in held.items())


def _newest(context: Context, table_id: int) -> int | None:
    """The newest version of a table whose changes are known, None where the table cannot be read."""
    try:
        return source_of(context, context.metadata.tables.by_id(table_id)).version
    except DeferredError:
        return None


def gc(context: Context, retain: timedelta) -> dict[str, int]:
    """Remove what is older than `retain` and what nothing needs any more; returns how many of each kind.

    These are rows staged by finished transactions, folders that belong to no view or log, records of operations and
    transactions, and ledger entries before every cut of a view. Batches that MV shows are removed by propagate itself.
    What the catalog names is kept, although the database may not know it: that may be an old one, see `recover`.
    """
    before = utc_now() - retain
    catalog = Catalog(context.root)
    catalog.complete([*context.metadata.tables.all(), *context.metadata.views.all()])
    pending = {record.id for record in context.metadata.transactions.pending()}
    removed = {"staged": 0, "folders": 0}
    for kind, keep in (
        ("transactions", pending),
        ("views", {os.path.basename(v.location) for v in catalog.views()}),
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
    kept = view.definition
    if not (kept.generation or kept.alteration):
        return 0
    coming = str((kept.alteration or {}).get("definition", {}).get("generation", ""))
    own = {"mv", kept.generation or "differential", coming}
    old = [
        f"{view.location}/{name}"
        for name, changed in Storage(view.location).folders().items()
        if name not in own and (kept.generation or not name.startswith("support")) and changed < before
    ]
    for path in old:
        remove_folder(path)
    return len(old)
