"""Reading by name: the rows of a view, its history, the commits of a table, and any SQL statement."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.bags import described, net, select, signed
from deferred.config import parse_duration, parse_timestamp
from deferred.errors import InvalidInputError
from deferred.log import ledger, tracking, transactions
from deferred.log.context import Context
from deferred.log.sources import is_tracked, source_of
from deferred.log.transactions import Transaction
from deferred.maintenance import following, relevance
from deferred.maintenance.fresh import chosen, fresh_rows
from deferred.maintenance.settle import settled
from deferred.maintenance.view_tables import applied_version, history_path, mv_path, pending
from deferred.metadata import LedgerEntry, TableRecord, utc_now
from deferred.sql.dialect import delta_table, parse_statement, text
from deferred.sql.pin import pinned, tables, with_fresh_views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    """Bring a view up to date whose options ask for that before a read."""
    if is_due(context, name):
        following.refresh(context, name)


def is_due(context: Context, name: str) -> bool:
    """Whether a read of a view is to refresh it first: it has refresh_on_read, and is older than its target_lag."""
    view = context.metadata.views.get(name)
    options = view.options
    if not options.refresh_on_read or options.target_lag is None or view.shown is None:
        return False
    return utc_now() - view.shown.timestamp > parse_duration(options.target_lag)


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

    A view that the query reads is refreshed first where a read of it by name would be.
    """
    parsed = parse_statement(statement)
    if isinstance(parsed, (exp.Insert, exp.Update, exp.Delete, exp.Merge)):
        with begin() as transaction:
            transaction.sql(statement)
        return None
    if not isinstance(parsed, exp.Query):
        raise InvalidInputError(f"sql() takes a query or INSERT, UPDATE, DELETE, MERGE, not {parsed.key.upper()}.")
    statement, views = with_fresh_views(statement)
    for path in tables(statement):
        if path[0] not in views and not is_tracked(record := tracking.find(context, path)):
            _refresh_if_due(context, record.name)
    frames = {name: fresh_rows(context, view.name, view.where) for name, view in views.items()}

    def table(path: tuple[str, ...]) -> str:
        return path[0] if path[0] in frames else text(delta_table(tracking.find(context, path).location))

    return context.engine.sql(pinned(statement, table), frames)


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
