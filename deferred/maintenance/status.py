"""What there is and how fresh it is, from the metadata and Delta's logs alone; and clearing away what is done with."""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timedelta
from typing import Any

from deferred.errors import DeferredError
from deferred.log import ledger
from deferred.log.context import Context
from deferred.log.history import DeltaLog
from deferred.log.transactions import recover
from deferred.maintenance.settle import settled
from deferred.metadata import ViewRecord, utc_now


def status(context: Context) -> list[dict[str, Any]]:
    """One entry a view. Reads Delta's logs through delta-rs, so it takes milliseconds and starts no JVM."""
    newest = {table.id: _newest(context, table.id) for table in context.metadata.tables.all()}
    return [_view(context, view, newest) for view in context.metadata.views.all()]


def _view(context: Context, view: ViewRecord, newest: dict[int, int | None]) -> dict[str, Any]:
    propagated = view.propagated.versions if view.propagated else {}
    commits = {context.metadata.tables.by_id(t).name: latest - propagated.get(t, 0)
               for t in view.depends_on if (latest := newest.get(t)) is not None}
    behind = sum(n for n in commits.values() if n > 0)
    now = utc_now()
    return {
        "name": view.name, "scenario": view.scenario, "refresh_policy": view.refresh_policy, "state": view.state,
        "problem": view.problem,
        "reads": [context.metadata.tables.by_id(t).name for t in view.depends_on],
        "shown": view.shown.timestamp.isoformat() if view.shown else None,
        "propagated": view.propagated.timestamp.isoformat() if view.propagated else None,
        "pending_commits": behind,
        "pending_batches": view.propagated_batch - view.applied_batch,
        "fresh": behind == 0 and view.propagated_batch == view.applied_batch,
        "lag_seconds": round((now - view.shown.timestamp).total_seconds(), 3) if view.shown else None,
        "propagate_every": view.propagate_every, "refresh_every": view.refresh_every, "policy": view.policy,
        "location": f"{view.location}/mv",
    }


def is_fresh(context: Context, view: ViewRecord, moment: datetime) -> bool:
    """Whether MV shows what its tables held at a time; so must the views among them, for what they read."""
    tables = [context.metadata.tables.by_id(t) for t in view.depends_on]
    by_table = {v.table_id: v for v in context.metadata.views.all()}
    if not all(is_fresh(context, by_table[t.id], moment) for t in tables if t.id in by_table):
        return False
    view = settled(context, view)
    if view.shown is None or view.state != "active":
        return False
    ledger.sync(context, tables, lambda t: recover(context, t))
    held = ledger.cut(context, tables, moment, None).versions
    return moment <= utc_now() and all(view.shown.versions.get(t, -1) >= version for t, version in held.items())


def _newest(context: Context, table_id: int) -> int | None:
    record = context.metadata.tables.by_id(table_id)
    if record.kind == "log":
        last = context.metadata.ledger.last(table_id)
        return last.version if last else record.first_version
    try:
        return DeltaLog(record.location).version
    except DeferredError:
        return None


def gc(context: Context, retain: timedelta) -> dict[str, int]:
    """Remove staged rows of ended transactions, folders that belong to no view, and records older than `retain`."""
    before = utc_now() - retain
    pending = {record.id for record in context.metadata.transactions.pending()}
    removed = {"staged": 0, "folders": 0}
    for kind, keep in (("transactions", pending), ("views", {os.path.basename(v.location)
                                                             for v in context.metadata.views.all()})):
        folder = context.folder(kind)
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            path = os.path.join(folder, name)
            if name not in keep and os.path.getmtime(path) < before.timestamp():
                shutil.rmtree(path, ignore_errors=True)
                removed["staged" if kind == "transactions" else "folders"] += 1
    removed["operations"] = context.metadata.operations.prune(before)
    removed["transaction records"] = context.metadata.transactions.prune(before)
    for table in context.metadata.tables.all():
        needed = [v.propagated.versions.get(table.id, 0) for v in context.metadata.views.dependents(table.id)
                  if v.propagated] + [v.shown.versions.get(table.id, 0)
                                      for v in context.metadata.views.dependents(table.id) if v.shown]
        last = context.metadata.ledger.last(table.id)
        entry = context.metadata.ledger.at(table.id, before)
        if last and entry:
            floor = min([entry.version, *needed])
            removed["ledger"] = removed.get("ledger", 0) + context.metadata.ledger.prune(table.id, floor)
    return removed
