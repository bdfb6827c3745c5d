"""The ledger: every commit of a tracked table, whoever made it, with its place in time; and cuts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from deferred.errors import DeferredError, MetadataError
from deferred.log.context import Context
from deferred.log.delta_log import TICK, Commit
from deferred.log.sources import source_of
from deferred.metadata import Cut, LedgerEntry, TableRecord, TransactionRecord, utc_now

Recover = Callable[[str], TransactionRecord | None]
"""Finishes a transaction that was interrupted, unless its process is still running; returns its record, None for a
transaction of another warehouse on the same table."""


def sync(context: Context, tables: Iterable[TableRecord], recover: Recover) -> int:
    """Enter the new commits of the tables into the ledger. Returns the number of new commits."""
    found, failures = sync_reachable(context, tables, recover)
    for error in failures.values():
        raise error
    return found


def sync_reachable(
    context: Context, tables: Iterable[TableRecord], recover: Recover
) -> tuple[int, dict[str, DeferredError]]:
    """Enter the new commits of those tables that can be read. Returns their number, and why others cannot, by name.

    A transaction that ends while the tables are read one by one would be seen only in the later ones. So the tables
    are read again until no new transaction is found: then the ledger has all commits of every transaction it has. Of a
    transaction in a table that cannot be read it may lack some; but no cut is made of that table without reading it.
    """
    listed, failures = list(tables), dict[str, DeferredError]()

    @contextmanager
    def noting(table: TableRecord) -> Iterator[None]:
        try:
            yield
        except MetadataError:
            raise  # concerns all tables
        except DeferredError as error:
            failures[table.name] = error

    for table in listed:
        with noting(table):
            source_of(context, table).pull()
    total, fresh = 0, True
    while fresh:
        entries: list[LedgerEntry] = []
        for table in listed:
            if table.name not in failures:
                with noting(table):
                    entries += _sync_table(context, table, recover)
        total += len(entries)
        fresh = any(entry.transaction_id for entry in entries)
    return total, failures


def _sync_table(context: Context, table: TableRecord, recover: Recover) -> list[LedgerEntry]:
    source = source_of(context, table)
    last = context.metadata.ledger.last(table.id)
    known = last.version if last else table.first_version - 1
    commits = source.commits(known)
    if not commits:
        return []
    names = {name for commit in commits if (name := _transaction(commit))}
    transactions = {name: record for name in names if (record := recover(name)) is not None}
    forgotten = [c for c in commits if c.mark and _transaction(c) not in transactions and c.mark.get("warehouse")]
    if any(commit.mark["warehouse"] == context.root for commit in forgotten if commit.mark):
        raise MetadataError(
            f"Table {table.name} has commits of transactions of this warehouse that the metadata database does not "
            f"know: the database is older than the tables. Run `deferred recover`, which brings it up to date."
        )
    if names:
        commits = _settled(source_of(context, table).commits(known), transactions)  # recovering may have added some
    if source.columns != table.columns:
        context.metadata.tables.update(table.id, columns=source.columns)
    entries = placed(table.id, commits, transactions, last.timestamp if last else None)
    context.metadata.ledger.append(entries)
    return entries


def _transaction(commit: Commit) -> str | None:
    return (commit.mark or {}).get("transaction")


def _settled(commits: Sequence[Commit], transactions: dict[str, TransactionRecord]) -> list[Commit]:
    """The commits before the first one of a transaction that is still running."""
    result = []
    for commit in commits:
        record = transactions.get(_transaction(commit) or "")
        if record is not None and (record.timestamp is None or record.state not in ("committed", "aborted")):
            break
        result.append(commit)
    return result


def placed(
    table_id: int, commits: Sequence[Commit], transactions: dict[str, TransactionRecord], before: datetime | None
) -> list[LedgerEntry]:
    """Commits with times that never go back, and one time for all commits from a transaction's first to its last."""
    ends = {_transaction(c): i for i, c in enumerate(commits) if _transaction(c)}
    entries: list[LedgerEntry] = []
    i = 0
    while i < len(commits):
        end = ends.get(_transaction(commits[i]), i)
        j = i
        while j <= end:
            end = max(end, ends.get(_transaction(commits[j]), j))
            j += 1
        span = commits[i : end + 1]
        moment = max(_moment(c, transactions) for c in span)
        if before is not None:
            moment = max(moment, before + TICK)
        entries.extend(LedgerEntry(table_id, c.version, moment, _transaction(c), c.operation) for c in span)
        before, i = moment, end + 1
    return entries


def _moment(commit: Commit, transactions: dict[str, TransactionRecord]) -> datetime:
    if commit.mark is not None and "cut" in commit.mark:
        # A refresh has the time of the cut that it shows, not that of its commit.
        return Cut.from_json(commit.mark["cut"]).timestamp
    name = _transaction(commit)
    record = transactions.get(name) if name else None
    return record.timestamp if record is not None and record.timestamp is not None else commit.timestamp


def cut(context: Context, tables: Sequence[TableRecord], until: datetime | None, since: Cut | None) -> Cut:
    """The cut at a time, by default the latest: one version per table, no transaction split, never before `since`."""
    ledger = context.metadata.ledger
    newest = [entry.timestamp for table in tables if (entry := ledger.last(table.id))]
    now = max([utc_now(), *newest])
    moment = now if until is None else min(until, now)
    versions: dict[int, int] = {}
    for table in tables:
        entry = ledger.at(table.id, moment)
        floor = since.versions.get(table.id) if since else None
        version = entry.version if entry else table.first_version
        versions[table.id] = max(version, floor) if floor is not None else version
    _unsplit(context, tables, versions, since)
    if since is not None:
        moment = max(moment, since.timestamp)
    return Cut(moment, versions)


def _unsplit(context: Context, tables: Sequence[TableRecord], versions: dict[int, int], since: Cut | None) -> None:
    """Step back before every transaction that has commits after the cut in another table."""
    ledger = context.metadata.ledger
    newest = {table.id: last.version for table in tables if (last := ledger.last(table.id)) is not None}
    changed = any(version > versions[table] for table, version in newest.items())  # else no commit is after the cut
    while changed:
        changed = False
        for table in tables:
            floor = since.versions.get(table.id, table.first_version) if since else table.first_version
            for entry in ledger.between(table.id, floor, versions[table.id]):
                if entry.transaction_id is None:
                    continue
                if any(_reaches_past(context, entry.transaction_id, t.id, versions[t.id]) for t in tables):
                    versions[table.id] = entry.version - 1
                    changed = True
                    break


def _reaches_past(context: Context, transaction: str, table_id: int, version: int) -> bool:
    """Whether a transaction has commits in a table after a version."""
    last = context.metadata.ledger.last(table_id)
    return last is not None and any(
        entry.transaction_id == transaction
        for entry in context.metadata.ledger.between(table_id, version, last.version)
    )
