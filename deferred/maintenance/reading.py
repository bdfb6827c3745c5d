"""Reading by name: the rows of a view, its history, the commits of a table, and any SQL statement."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.bags import described, net, select, signed
from deferred.config import parse_duration, parse_timestamp
from deferred.errors import DeferredError, InvalidInputError, StaleReadWarning
from deferred.log import ledger, tracking, transactions
from deferred.log.context import Context
from deferred.log.sources import is_tracked, source_of
from deferred.log.transactions import Transaction
from deferred.maintenance import following, relevance
from deferred.maintenance.fresh import chosen, fresh_rows, fresh_together
from deferred.maintenance.settle import settled
from deferred.maintenance.view_tables import applied_version, history_path, mv_path, pending
from deferred.metadata import LedgerEntry, TableRecord, utc_now
from deferred.sql.dialect import delta_table, parse_statement, text
from deferred.sql.pin import pinned, tables, with_fresh_views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READ_PATIENCE = 5.0
"""Seconds for which a read with refresh_on_read waits for another process that works on the view."""


def rows(context: Context, name: str, fresh: bool, where: str | None, as_of: datetime | None) -> DataFrame:
    """Returns the rows of a view: as MV shows them, as they are now, or as they were; see `Warehouse.read`."""
    if fresh or as_of is not None:
        return fresh_rows(context, name, where, as_of)
    _refresh_if_due(context, name)
    return view_rows(context, name, where)


def view_rows(context: Context, name: str, where: str | None = None) -> DataFrame:
    """Returns the rows of a view, as MV shows them, for which a condition holds."""
    view = context.metadata.views.get(name)
    if view.definition.alteration is not None:  # being made, or made and not yet noted
        view = settled(context, view)
    return chosen(context, view, delta_table(mv_path(view.location)), where)


def _refresh_if_due(context: Context, name: str) -> None:
    """Bring a view up to date whose options ask for that before a read, after the views that it reads.

    Where that fails, or would wait for long, the view is read as MV shows it: readers are never blocked.
    """
    hurried = replace(context, patience=min(context.patience, READ_PATIENCE))
    try:
        for view in due(context, name):
            following.refresh(hurried, view)
    except DeferredError as error:
        shown = context.metadata.views.get(name).shown
        since = "" if shown is None else f" of {shown.timestamp:%Y-%m-%d %H:%M:%S} UTC"
        message = f"View {name} is shown in its state{since}: it could not be refreshed before it was read. {error}"
        warnings.warn(message, StaleReadWarning, stacklevel=4)


def due(context: Context, name: str) -> list[str]:
    """Returns the views that a read of a view refreshes first, each after those that it reads.

    None, unless the view has refresh_on_read. Then what is older than its target_lag: the view itself, and what it is
    made of, since its rows are not younger than theirs. And what reads such a view.
    """
    view = context.metadata.views.get(name)
    if not view.options.refresh_on_read or view.options.target_lag is None:
        return []
    by_table = {other.table_id: other for other in context.metadata.views.all()}
    made_of, left = {view.table_id: view}, [view]
    while left:
        read = {table: by_table[table] for table in left.pop().depends_on if table in by_table.keys() - made_of.keys()}
        made_of |= read
        left += read.values()
    eldest = utc_now() - parse_duration(view.options.target_lag)
    late: dict[int, str] = {}
    for part in following.in_order(list(made_of.values())):
        if part.shown is not None and (part.shown.timestamp < eldest or late.keys() & set(part.depends_on)):
            late[part.table_id] = part.name
    return list(late.values())


def pending_changes(context: Context, name: str) -> DataFrame:
    """Returns ∇MV and ΔMV, netted: changes that are computed and not yet applied."""
    view = context.metadata.views.get(name)
    version, batch = applied_version(view)
    change = net(pending(view, batch, view.propagated_batch, mv_version=version), view.columns)
    return context.engine.sql(described(change, view.columns))


def view_history(context: Context, name: str, of: str) -> DataFrame:
    """Returns the history table of a view that `replay` has filled."""
    view = context.metadata.views.get(name)
    return context.engine.sql(select([exp.Star()], delta_table(history_path(context, view, of))))


def run(context: Context, statement: str, begin: Callable[[], Transaction]) -> DataFrame | None:
    """Run a query on tracked tables and views and return its rows, or a change of tables as one transaction.

    A view that the query reads is refreshed first where a read of it by name would be. With fresh(…) in a query, all
    that it reads is read at one cut.
    """
    parsed = parse_statement(statement)
    if isinstance(parsed, (exp.Insert, exp.Update, exp.Delete, exp.Merge)):
        with begin() as transaction:
            transaction.sql(statement)
        return None
    if not isinstance(parsed, exp.Query):
        raise InvalidInputError(f"sql() takes a query or INSERT, UPDATE, DELETE, MERGE, not {parsed.key.upper()}.")
    query, views = with_fresh_views(statement)
    named = {path: tracking.find(context, path) for path in tables(query) if path[0] not in views}
    for record in named.values():
        if not is_tracked(record):
            _refresh_if_due(context, record.name)
    frames, cut = fresh_together(context, views, list(named.values())) if views else ({}, None)

    def table(path: tuple[str, ...]) -> str:
        if path[0] in frames:
            return path[0]
        record = named[path]
        return text(delta_table(record.location, None if cut is None else cut.versions[record.id]))

    return context.engine.sql(pinned(query, table), frames, own=statement)


def net_log(context: Context, name: str, since: Any, until: Any) -> DataFrame:
    """Returns ▼R and ▲R of a table between two moments, netted; without variants, which cannot be compared."""
    record, after, upto = version_range(context, name, since, until)
    source = source_of(context, record)
    columns = tuple(c for c in record.columns if not c[1].startswith("variant"))
    if upto <= after:
        nothing = signed(delta_table(record.location), [n for n, _ in columns]).where(exp.false(), copy=False)
        return context.engine.sql(described(nothing, columns))
    with source.guarded(after, upto):
        return context.engine.sql(described(source.net_changes(after, upto, columns), columns))


def commits(context: Context, name: str, since: Any, until: Any) -> list[LedgerEntry]:
    """Returns the commits of a table between two moments, oldest first. Starts no Spark."""
    record, after, upto = version_range(context, name, since, until)
    return context.metadata.ledger.between(record.id, after, upto)


def changed_rows(context: Context, name: str, since: Any, until: Any) -> dict[int, int | None]:
    """Returns about how many rows each commit of a table has changed, None where its log does not say."""
    record, after, upto = version_range(context, name, since, until)
    return source_of(context, record).rows_by_version(after, upto)


def commit_times(context: Context, each: int) -> dict[str, list[datetime]]:
    """Returns when every table and view was changed of late, oldest first; nothing is written.

    What the ledger does not know yet is in Delta's own log; of a table whose log cannot be read, it is left out.
    """
    known, found = context.metadata.ledger.times(each), dict[str, list[datetime]]()
    for record in context.metadata.tables.all():
        entries = known.get(record.id, [])
        times = [moment for _, moment in entries]
        with suppress(DeferredError, OSError):
            after = entries[-1][0] if entries else record.first_version - 1
            times += [commit.timestamp for commit in source_of(context, record).commits(after)]
        found[record.name] = times[-each:]
    return found


def irrelevant_commits(context: Context, name: str, since: Any, until: Any) -> dict[int, list[str]]:
    """Returns the versions of a table that do not matter to some views, and these. Starts no Spark."""
    record, after, upto = version_range(context, name, since, until)
    return relevance.irrelevant_to(context, record, after, upto)


def version_range(context: Context, name: str, since: Any, until: Any) -> tuple[TableRecord, int, int]:
    """Returns a table and its versions at two moments: by default when it was tracked, and the newest one."""
    record = context.metadata.tables.get(name)
    ledger.sync(context, [record], lambda t: transactions.recover(context, t))
    known = context.metadata.ledger
    first = known.at(record.id, parse_timestamp(since)) if since is not None else None
    last = known.at(record.id, parse_timestamp(until)) if until is not None else known.last(record.id)
    return record, first.version if first else record.first_version, last.version if last else record.first_version


def positions(context: Context) -> dict[str, int]:
    """Returns the newest version that the ledger knows of every tracked table and view."""
    known = ((t.name, context.metadata.ledger.last(t.id)) for t in context.metadata.tables.all())
    return {name: entry.version for name, entry in known if entry is not None}
