"""The warehouse: the Python API. Its methods forward to the modules that do the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from deferred import maintenance
from deferred.config import Settings, parse_timestamp
from deferred.errors import DeferredError
from deferred.log import finding, tracking, transactions, undo
from deferred.log.context import Context
from deferred.log.locating import Given
from deferred.log.sources import is_tracked, suggested
from deferred.maintenance import following, notices, operation
from deferred.maintenance.opening import opened
from deferred.maintenance.operation import Operation
from deferred.maintenance.scenarios import PROPAGATE_FIRST
from deferred.maintenance.showing import Listing
from deferred.metadata import LedgerEntry, TableRecord, TransactionRecord, ViewRecord
from deferred.options import ViewOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    import deferred.maintenance.altering
    import deferred.maintenance.backfill
    import deferred.maintenance.explain
    import deferred.maintenance.foreseeing
    import deferred.maintenance.garbage
    import deferred.maintenance.importing
    import deferred.maintenance.metrics
    import deferred.maintenance.reading
    import deferred.maintenance.recovery
    import deferred.maintenance.status
    import deferred.maintenance.together
    import deferred.maintenance.verify
    import deferred.maintenance.views  # noqa: F401
    from deferred.maintenance.explain import Explanation, Summary
    from deferred.maintenance.foreseeing import Foreseen
    from deferred.maintenance.importing import Assessment
    from deferred.maintenance.recovery import Recovery
    from deferred.maintenance.verify import Verification
    from deferred.sql.viewfile import ViewFile


class Warehouse:
    """Tracked tables and views over them. Opened by a configuration file or a folder; starts Spark when it needs it.

    Threads may share a warehouse: every operation has a Spark session for itself, operations on one view wait for each
    other, and those on different views run at once. A DataFrame that a method returns belongs to the user's session.

    >>> wh = Warehouse.open(path=folder / "warehouse", spark=spark)
    >>> wh.track("sales", folder / "sales").name
    'sales'
    >>> wh.create_view("sold", "SELECT item, SUM(quantity) AS items FROM sales GROUP BY item").name
    'sold'
    >>> with wh.transaction() as tx:
    ...     tx.insert("sales", [("tea", 2)])
    >>> wh.propagate("sold").rows_inserted, wh.read("sold").first().items
    (1, 3)
    >>> wh.partial_refresh("sold").state, wh.read("sold").first().items
    ('succeeded', 5)
    >>> wh.verify("sold").holds
    True
    """

    def __init__(self, settings: Settings, context: Context) -> None:
        self.settings = settings
        self._context = context

    @classmethod
    def open(
        cls,
        config: str | Path | None = None,
        *,
        path: str | Path | None = None,
        metadata_url: str | None = None,
        spark: SparkSession | None = None,
        requested_by: str | None = None,
        patience: float = 120.0,
        listeners: Sequence[notices.Listener] = (),
    ) -> Self:
        """Open a warehouse; a new one is made ready to use.

        `requested_by` is recorded with every operation; `patience` is how many seconds to wait for another process
        that works on the same view. `listeners` are told what happens to views, beside those of the configuration.
        """
        settings = Settings.resolve(config, path, metadata_url)
        return cls(settings, opened(settings, spark, requested_by, patience, listeners))

    def close(self) -> None:
        """Close the metadata database and release Spark, which ends with the process."""
        self._context.engine.release()
        self._context.metadata.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def tasks(self) -> tuple[int, int] | None:
        """Returns how many tasks Spark has done and how many there are, of what runs now; None where nothing does."""
        return self._context.engine.tasks()

    @property
    def spark(self) -> SparkSession:
        """The Spark session, which is started when it is first asked for."""
        return self._context.engine.spark

    # ---- tables

    def track(
        self,
        name: str,
        path_or_name: str | os.PathLike[str] | None = None,
        key: Sequence[str] | None = None,
        references: Mapping[str, str] | None = None,
        log: str = "feed",
        columns: str | None = None,
        updated_at: str | None = None,
        deletions: str | None = None,
    ) -> TableRecord:
        """Register a table; `log` says how it tells its changes, see docs/SOURCES.md.

        A Delta table is given by its path or its name in Spark's catalog; for log='debezium' it is the folder of the
        events, None where they are handed over, and `columns` are declared as DDL. For log='timestamps' it is what
        Spark can read by name or path, `updated_at` the column with the time of a row's last change, and `deletions`
        a table of deleted keys, if there is one.
        """
        options = {"columns": columns, "updated_at": updated_at, "deletions": deletions}
        given = None if path_or_name is None else os.fspath(path_or_name)
        return tracking.track(self._context, name, given, key, references, log, **options)

    def track_all(self, folder_or_schema: str | os.PathLike[str], log: str = "feed") -> Listing[finding.Found]:
        """Track every Delta table below a folder, or of a schema in Spark's catalog, under its own name.

        Returns what became of each: one that cannot be tracked is left as it is, with the reason.
        """
        return Listing(finding.track_all(self._context, os.fspath(folder_or_schema), log))

    def suggest_log(
        self,
        path_or_name: str | os.PathLike[str] | None,
        columns: str | None = None,
        updated_at: str | None = None,
    ) -> tuple[str, str]:
        """Returns the log that track(log='auto') would choose, and why."""
        given = None if path_or_name is None else os.fspath(path_or_name)
        return suggested(self._context, Given(given, columns=columns, updated_at=updated_at))

    def unused_references(self, name: str) -> list[str]:
        """Returns the declared references of a table, or to it, that nothing relies on, each with the reason."""
        return tracking.unused_references(self._context, name)

    def untrack(self, name: str) -> None:
        """Stop tracking a table that no view reads; the table itself stays."""
        tracking.untrack(self._context, name)

    def tables(self) -> Listing[TableRecord]:
        """Returns all tracked tables, by name; the table of every view is one of them."""
        return Listing(self._context.metadata.tables.all())

    def base_tables(self) -> Listing[TableRecord]:
        """The tables that were tracked; the views' own tables are not among them.

        >>> [table.name for table in wh.base_tables()]
        ['sales']
        """
        return Listing(record for record in self.tables() if is_tracked(record))

    def transaction(self) -> transactions.Transaction:
        """Several changes of several tables: one timestamp, all or nothing for every view.

        >>> with wh.transaction() as tx:
        ...     tx.insert("sales", [("tea", 1), ("cake", 1)])
        ...     tx.delete("sales", "quantity = 3")
        """
        return transactions.Transaction(self._context, partial(following.follow, self._context))

    def transactions(self) -> Listing[TransactionRecord]:
        """Returns the transactions that have not ended: running, interrupted, or failed and not yet undone."""
        return Listing(self._context.metadata.transactions.pending())

    def resolve_transaction(self, transaction: str, how: str) -> undo.Resolution:
        """Bring a transaction to its end that could not be undone; `how` is 'retry', 'undo' or 'keep'.

        retry undoes all of it or fails; undo leaves out rows that others have changed since, and returns them; keep
        leaves the tables as they are. Views then show the tables from there on.
        """
        return following.resolve_transaction(self._context, transaction, how)

    def append_changes(self, table_name: str, deletions: Any = None, insertions: Any = None) -> LedgerEntry:
        """Hand over the rows that were deleted from and inserted into a table that is tracked with log='table'."""
        return following.append_changes(self._context, table_name, deletions, insertions)

    def ingest(self, table_name: str, events: Any) -> int:
        """Take in Debezium's events, as JSON texts, objects or rows, for a table that is tracked with log='debezium'.

        Returns how many rows they changed: events that were taken in before change none.
        """
        return following.ingest(self._context, table_name, events)

    def sync(self) -> int:
        """Find new commits of all tracked tables, and bring the views that follow every transaction up to date.

        Returns the number of new commits. If some tables cannot be read, the error that says so comes at the end: only
        the views that read those stay as they are.
        """
        return following.sync(self._context)

    def positions(self) -> dict[str, int]:
        """Returns the newest version that the ledger knows of every tracked table and view."""
        return maintenance.reading.positions(self._context)

    def log(self, table_name: str, since: Any = None, until: Any = None) -> DataFrame:
        """Returns the net base log of a table since a time or since tracking: rows deleted (▼) and inserted (▲).

        >>> wh.log("sales").count()
        4
        """
        return maintenance.reading.net_log(self._context, table_name, since, until)

    def commits(self, table_name: str, since: Any = None, until: Any = None) -> Listing[LedgerEntry]:
        """Returns the commits of a table, oldest first. Starts no Spark."""
        return Listing(maintenance.reading.commits(self._context, table_name, since, until))

    def changed_rows(self, table_name: str, since: Any = None, until: Any = None) -> dict[int, int | None]:
        """Returns about how many rows each version of a table has changed. Starts no Spark."""
        return maintenance.reading.changed_rows(self._context, table_name, since, until)

    def commit_times(self, each: int = 500) -> dict[str, list[datetime]]:
        """Returns when every table and view was last changed, oldest first. Writes nothing and starts no Spark.

        >>> {name: len(times) for name, times in wh.commit_times(each=2).items()}
        {'sales': 2, 'sold': 2}
        """
        return maintenance.reading.commit_times(self._context, each)

    def irrelevant_commits(self, table_name: str, since: Any = None, until: Any = None) -> dict[int, list[str]]:
        """Returns the versions of a table that do not matter to views that read it, with these. Starts no Spark."""
        return maintenance.reading.irrelevant_commits(self._context, table_name, since, until)

    # ---- views

    def create_view(
        self,
        name: str,
        sql: str,
        scenario: str = "combined",
        refresh_policy: str = "auto",
        propagate_every: str | None = None,
        refresh_every: str | None = None,
        policy: int = 1,
        target_lag: str | None = None,
        refresh_on_read: bool = False,
        maintain: str = "auto",
    ) -> ViewRecord:
        """Create a materialized view of a query, filled with its rows at the current cut.

        >>> wh.create_view("kinds", "SELECT DISTINCT item FROM sales", refresh_policy="incremental_strict").name
        'kinds'
        """
        options = ViewOptions(
            scenario, refresh_policy, propagate_every, refresh_every, policy, target_lag, refresh_on_read, maintain
        )
        return maintenance.views.create(self._context, name, sql, options)

    def replace_view(self, name: str, sql: str, **options: Any) -> ViewRecord:
        """Give a view another query and the given options, the others by default; see `alter_view`."""
        maintenance.altering.alter(self._context, name, sql, ViewOptions.of(options).to_dict())
        return self.view(name)

    def alter_view(self, name: str, sql: str, together: Sequence[ViewFile] = (), **options: Any) -> Operation:
        """Give a view another query; its name, place, history, options and the views that read it stay.

        Only the difference of the definitions is computed where it can be told. Readers see the old rows or the new
        ones; if anything fails, the view stays as it is. It is refused if a view that reads it would break, unless one
        of the view files in `together`, which are applied next, gives that view a definition that fits.

        >>> wh.alter_view("kinds", "SELECT DISTINCT item FROM sales WHERE quantity > 0").strategy
        'difference'
        """
        return maintenance.altering.alter(self._context, name, sql, options, together)

    def plan_alteration(self, name: str, sql: str, **options: Any) -> Foreseen:
        """Returns how `alter_view` would do it: the name of the way, why, what it reads and what it writes.

        Nothing is written.

        >>> wh.plan_alteration("kinds", "select distinct item from sales where quantity > 0").name
        'nothing'
        """
        return maintenance.foreseeing.foreseen(self._context, name, sql, options)

    def plan_files(self, files: Sequence[ViewFile]) -> dict[str, str | DeferredError]:
        """Returns how each view of some view files would be created or changed, or why that would be refused.

        They must be in the order in which they would be applied. Nothing is.
        """
        return maintenance.importing.foreseen(self._context, files)

    def assess_views(self, path: str | os.PathLike[str], select: Sequence[str] = ()) -> Listing[Assessment]:
        """Returns how dbt's models, or queries in SQL files, would be maintained as views. Nothing is created.

        `path` is a dbt project, its manifest.json, a .sql file or a folder of such files; `select` are names, patterns
        such as orders_*, or tag:NAME.
        """
        return maintenance.importing.assess(self._context, Path(path), select)

    def drop_view(self, name: str) -> None:
        """Remove a view and its tables."""
        maintenance.views.drop(self._context, self.view(name))

    def views(self) -> Listing[ViewRecord]:
        """Returns all views, by name.

        >>> [view.name for view in wh.views()]
        ['kinds', 'sold']
        """
        return Listing(self._context.metadata.views.all())

    def view(self, name: str) -> ViewRecord:
        """Returns the view of that name; an error names the nearest ones."""
        return self._context.metadata.views.get(name)

    def find_view(self, name: str) -> ViewRecord | None:
        """Returns the view of that name, if there is one; names are compared without case."""
        return self._context.metadata.views.find(name)

    def propagate(self, view: str, until: Any = None, full: bool = False) -> Operation:
        """Compute what has changed into the differential tables; readers notice nothing.

        With `full`, by recomputing the view and taking the difference: the same change, another way.

        >>> done = wh.propagate("sold")
        >>> done.rows_deleted, done.rows_inserted
        (1, 2)
        """
        return following.propagate(self._context, view, _moment(until), full)

    def partial_refresh(self, view: str) -> Operation:
        """Apply the differential tables to the view: one small commit.

        >>> wh.partial_refresh("sold").state
        'succeeded'
        """
        return following.partial_refresh(self._context, view)

    def refresh(self, view: str, until: Any = None, order: str = PROPAGATE_FIRST, full: bool = False) -> Operation:
        """propagate and partial_refresh, in either order: the view then shows the current state.

        >>> wh.sql("INSERT INTO sales VALUES ('cake', 4)")
        >>> wh.refresh("sold").rows_inserted
        1
        """
        return following.refresh(self._context, view, _moment(until), order, full)

    def side_by_side(
        self, views: Sequence[str], work: Callable[[str], Any]
    ) -> tuple[list[Any], dict[str, DeferredError]]:
        """Do some work on many views at the same time, each after those that it reads.

        Returns the results in their order, and the failures by name: the failure of one view leaves out no other.
        """
        return maintenance.together.on_views(self._context, views, work)

    def rebuild(self, view: str) -> Operation:
        """Recompute a view from its tables as they are, in one atomic commit.

        >>> wh.rebuild("kinds").state
        'succeeded'
        """
        return following.rebuild(self._context, view)

    def backfill(self, view: str, start: Any, end: Any, step: Any) -> Listing[Operation]:
        """Step a view through time: after each step it shows exactly the state at that time; it never goes back."""
        return Listing(maintenance.backfill.backfill(self._context, view, start, end, step))

    def replay(self, view: str, start: Any, end: Any, step: Any, of: str = "rows") -> Listing[Operation]:
        """Fill the view's history table: its rows as of each step, or its changes in each. MV stays as it is."""
        return Listing(maintenance.backfill.replay_steps(self._context, view, start, end, step, of))

    def read_history(self, view: str, of: str = "rows") -> DataFrame:
        """Returns the history table of a view that `replay` has filled; `_as_of` is the end of the step."""
        return maintenance.reading.view_history(self._context, view, of)

    def read(self, view: str, fresh: bool = False, where: str | None = None, as_of: Any = None) -> DataFrame:
        """Returns the rows of a view, as MV shows them.

        With `fresh`, as they are at the current cut, without refreshing: (MV ∸ ∇MV) ⊎ ΔMV and the log's delta. With
        `as_of`, as they were at a time. `where` is a condition on the view's columns: only what those rows need is
        read. A plain read of a view with refresh_on_read refreshes it first if it is older than its target_lag.

        >>> wh.sql("INSERT INTO sales VALUES ('cake', 1)")
        >>> [wh.read("sold", fresh=fresh, where="item = 'cake'").first().items for fresh in (False, True)]
        [5, 6]
        """
        return maintenance.reading.rows(self._context, view, fresh, where, _moment(as_of))

    def diff(self, view: str) -> DataFrame:
        """Returns the differential tables ∇MV and ΔMV, netted: changes computed and not yet applied.

        >>> wh.diff("sold").count()
        0
        """
        return maintenance.reading.pending_changes(self._context, view)

    def verify(self, view: str) -> Verification:
        """Check the scenario's invariant and the minimality conditions; an error shows the first rows that differ."""
        return maintenance.verify.verify(self._context, view)

    def explain(self, view: str) -> Explanation:
        """How a view is maintained: plan, equations, SQL, strategy and why."""
        return maintenance.explain.explain(self._context, self.view(view))

    def explain_briefly(self, view: str) -> Summary:
        """The same in words alone: what is maintained how, what it costs, what would be cheaper. Starts no Spark."""
        return maintenance.explain.summary(self._context, self.view(view))

    def status(self) -> Listing[dict[str, Any]]:
        """Returns every view with its cuts, its lag and what is pending. Starts no Spark."""
        return Listing(maintenance.status.status(self._context))

    def metrics(self) -> str:
        """Returns lag, rows, seconds, downtime and failures by view, as OpenMetrics text. Starts no Spark."""
        return maintenance.metrics.metrics(self._context)

    def is_fresh(self, view: str, moment: Any) -> bool:
        """Whether a view shows at least the state of a time, and so do the views that it reads. Starts no Spark."""
        return maintenance.status.is_fresh(self._context, self.view(view), parse_timestamp(moment))

    def operation(self, operation_id: str) -> Operation:
        """Returns one operation by its id."""
        return operation.by_id(self._context, operation_id)

    def history(self, view: str | None = None, limit: int = 50) -> Listing[Operation]:
        """Returns the last operations, newest first.

        >>> [operation.kind for operation in wh.history("kinds", limit=2)]
        ['rebuild', 'alter']
        """
        return Listing(operation.recent(self._context, view, limit))

    def histories(self, each: int = 50) -> dict[str, Listing[Operation]]:
        """Returns the last operations of every view, newest first, by its name: one look for all views.

        >>> wh.histories(each=1)["kinds"][0].kind
        'rebuild'
        """
        return {view: Listing(found) for view, found in operation.latest(self._context, each).items()}

    def sql(self, statement: str) -> DataFrame | None:
        """Run SQL on tracked tables and views by name: a query returns a DataFrame, a change is a transaction.

        >>> wh.sql("SELECT SUM(items) AS items FROM fresh(sold)").first().items
        9
        """
        return maintenance.reading.run(self._context, statement, self.transaction)

    def recover(self) -> Recovery:
        """Make the metadata database again, after it was lost or restored from an old backup.

        What the catalog and Delta's logs say is brought back; `notes` are what they cannot say.
        """
        return maintenance.recovery.recover(self._context)

    def gc(self, retain_hours: float = 168.0) -> dict[str, int]:
        """Remove what nothing needs any more; returns how many of each kind.

        Older than `retain_hours`: rows staged by finished transactions, folders that belong to no view, records of
        operations and transactions, and ledger entries before every cut of a view.
        """
        return maintenance.garbage.gc(self._context, retain_hours)


def _moment(until: Any) -> datetime | None:
    return None if until is None else parse_timestamp(until)
