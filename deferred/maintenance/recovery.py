"""recover: make the metadata database again from what is beside the tables.

The catalog says which tables and views there are, Delta's logs which state each view shows and which transactions were
made. So it does not matter whether the database is empty or was restored from an old backup: what is missing is added,
what is older is brought up to date, and what neither says is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any

from deferred.errors import DeferredError, StorageError
from deferred.log import ledger, transactions, undo
from deferred.log.catalog import Catalog
from deferred.log.context import Context
from deferred.log.delta_log import Commit, DeltaLog, last_mark, readable
from deferred.log.lease import lease
from deferred.log.storage import is_gone
from deferred.maintenance.following import in_order
from deferred.maintenance.settle import altered, propagated_to, settled
from deferred.maintenance.view_tables import differential_path, mv_path
from deferred.metadata import Cut, Lease, TableRecord, TransactionRecord, ViewRecord


@dataclass
class Recovery:
    """What was brought back, and what nothing says any more."""

    tables: list[str] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    transactions: int = 0
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def recover(context: Context) -> Recovery:
    """Bring back tables, views, their states and transactions. Running it again changes nothing."""
    done, catalog = Recovery(), Catalog(context.root)
    with lease(context, "recover", "The recovery of the metadata") as held:
        under = [held.lease]
        found = [(table.id, _recover_table(context, table, done)) for table in catalog.tables()]
        sound = {table for table, _ in found} - {table for table, is_there in found if not is_there}
        for view in in_order(catalog.views()):
            _recover_view(context, view, sound, done, under)
        _recover_transactions(context, done)
        for view in context.metadata.views.all():
            _recover_state(context, view, done, under)
        for table in context.metadata.tables.all():
            try:
                ledger.sync(context, [table], lambda t: transactions.recover(context, t))
            except DeferredError as error:
                done.notes.append(f"The commits of {table.name} could not be read: {error}")
        catalog.complete([*context.metadata.tables.all(), *context.metadata.views.all()])
    done.notes.append(
        "Operations before the recovery are not in the history, nor are the statements of transactions that were not "
        "finished then."
    )
    return done


def _recover_table(context: Context, table: TableRecord, done: Recovery) -> bool:
    """Returns whether the database then has the table, under the id that views know."""
    tables = context.metadata.tables
    by_id = {known.id: known for known in tables.all()}
    known, same_name = by_id.get(table.id), tables.find(table.name)
    if known is None and same_name is None:
        tables.restore(table)
        done.tables.append(table.name)
    elif known is None or known.name != table.name:
        other = (known or same_name or table).name
        done.notes.append(
            f"Table {table.name} of the catalog is not recovered: the database has {other} in its place. Untrack or "
            f"drop {other} and run recover again, or track {table.name} again."
        )
        return False
    elif _is_later(table, known):
        fields = {"delta_id": table.delta_id, "first_version": table.first_version, "location": table.location}
        tables.update(table.id, **fields, log_location=table.log_location)
        done.tables.append(table.name)
    return True


def _is_later(table: TableRecord, known: TableRecord) -> bool:
    """Whether the catalog knows the table that is there now, and the database one that was there before."""
    if (known.delta_id, known.first_version) == (table.delta_id, table.first_version) or not readable(table.location):
        return False
    is_there = DeltaLog(table.location).id == table.delta_id
    return is_there and (known.delta_id != table.delta_id or known.first_version < table.first_version)


def _recover_view(context: Context, view: ViewRecord, sound: Set[int], done: Recovery, under: Sequence[Lease]) -> None:
    """What a view is: as the catalog says, unless the database has it from a later time."""
    views = context.metadata.views
    known = next((v for v in views.all() if v.id == view.id or v.name.casefold() == view.name.casefold()), None)
    if known is not None and (known.id, known.location) != (view.id, view.location):
        done.notes.append(
            f"View {view.name} of the catalog is not recovered: the database has view {known.name} in its place. Drop "
            f"that one and run recover again, or create {view.name} again."
        )
    elif not {*view.depends_on, view.table_id} <= sound:
        done.notes.append(f"View {view.name} is not recovered: tables that it reads are missing. Create it again.")
    elif known is None:
        views.restore(view)
        done.views.append(view.name)
    elif known.updated_at < view.updated_at and known.definition != view.definition:
        fields = {"sql": view.sql, **view.options.to_dict(), "columns": [list(c) for c in view.columns]}
        views.update(view.id, under, known.definition, **fields, definition=view.definition, depends_on=view.depends_on)
        done.views.append(view.name)


def _recover_state(context: Context, view: ViewRecord, done: Recovery, under: Sequence[Lease]) -> None:
    """The cuts and batches of a view, by the marks in its tables' logs."""
    views = context.metadata.views
    try:
        shown = last_mark(mv_path(view.location), "refresh")
    except StorageError as error:
        if not is_gone(mv_path(view.location), context.root):
            _note_outage(view, error, done)
            return
        done.notes.append(
            f"The tables of view {view.name} are gone: it was dropped since, or lost. Drop it, or rebuild it. {error}"
        )
        views.update(view.id, under, state="broken", problem="Its tables are gone.")
        return
    if shown is None:
        problem = "Delta's log no longer says which state it shows."
        done.notes.append(f"View {view.name}: {problem} Rebuild it.")
        views.update(view.id, under, state="broken", problem=problem)
        return
    view = _with_alteration(context, view, under)
    if view.shown is None or shown["batch"] > view.applied_batch:
        cut = Cut.from_json(shown["cut"])
        view = views.update(view.id, under, shown=cut, applied_batch=shown["batch"])
    waiting = differential_path(view.workings)
    try:
        led = last_mark(waiting, "propagate")
    except StorageError as error:
        if not is_gone(waiting, context.root):
            _note_outage(view, error, done)
            return
        led = None
    if led is not None and led["batch"] > view.applied_batch and led["batch"] >= view.propagated_batch:
        propagated_to(context, view, led, under)
    elif view.propagated is None or view.propagated_batch < view.applied_batch:
        views.update(view.id, under, propagated=view.shown, propagated_batch=view.applied_batch)
    settled(context, views.by_id(view.id), under)


def _note_outage(view: ViewRecord, error: StorageError, done: Recovery) -> None:
    """Nothing is known to be lost, so nothing is changed."""
    done.notes.append(
        f"The tables of view {view.name} cannot be read now, so its state is not recovered: run recover again when "
        f"they can be. {error}"
    )


def _with_alteration(context: Context, view: ViewRecord, under: Sequence[Lease]) -> ViewRecord:
    """A view with the definition that it was being given, if MV has it."""
    coming = view.definition.alteration
    if coming is None:
        return view
    for commit in DeltaLog(mv_path(view.location)).newest_first():
        if commit.mark is not None and commit.mark.get("alteration") == coming.id:
            return altered(context, view, Cut.from_json(commit.mark["cut"]), commit.mark["batch"], under)
    return view


def _recover_transactions(context: Context, done: Recovery) -> None:
    """The transactions that the database does not know, from their commits: all of one have the time of its last."""
    known = context.metadata.transactions
    found: dict[str, list[tuple[TableRecord, Commit]]] = defaultdict(list)
    for table in context.metadata.tables.all():
        last = context.metadata.ledger.last(table.id)
        try:
            commits = DeltaLog(table.location).commits(last.version if last else table.first_version - 1)
        except StorageError:
            continue
        for commit in commits:
            if (commit.mark or {}).get("kind") == "transaction":
                found[str((commit.mark or {})["transaction"])].append((table, commit))
    for name, made in found.items():
        if known.has(name):
            continue
        at = max(commit.timestamp for _, commit in made)
        numbers = {int(commit.mark["version"]) for _, commit in made if commit.mark}
        undone = any(number >= undo.UNDO for number in numbers)
        known.add(TransactionRecord(name, "aborted" if undone else "committed", "recovered", [], at, at))
        done.transactions += 1
        of = max((int(commit.mark.get("of") or 0) for _, commit in made if commit.mark), default=0)
        if not undone and max((n for n in numbers if n < undo.BARS), default=0) < of:
            tables = ", ".join(sorted({table.name for table, _ in made}))
            done.notes.append(
                f"Transaction {name} may not be complete: of its {of} statements the last in the logs of {tables} is "
                f"the {max(numbers)}th. Its statements are lost; see whether the tables are as they should be."
            )
