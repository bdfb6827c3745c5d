"""Transactions over several Delta tables: one timestamp, all or nothing for every view, safe to crash in.

The redo record comes first: the statements, and the rows they insert, are durable before the first table changes.
Each statement is one Delta commit that Delta makes at most once, so running them again completes what was begun.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from sqlglot import exp

from deferred.algebra.plan import COUNT
from deferred.errors import (
    DeferredError,
    InvalidInputError,
    InvalidSQLError,
    LogLostError,
    TransactionError,
    UnknownObjectError,
    UnsupportedSQLError,
    nearest,
)
from deferred.log.changes import BATCH
from deferred.log.context import Context
from deferred.log.history import Commit, DeltaLog, last_mark
from deferred.log.lease import alive, lease
from deferred.log.ledger import TICK
from deferred.metadata import LedgerEntry, TableRecord, TransactionRecord, utc_now
from deferred.spark import bags
from deferred.spark.engine import Mark, changes, table
from deferred.spark.rows import frame, staged
from deferred.sql.dialect import parse_scalar, parse_statement, quoted, text
from deferred.sql.pin import pinned

UNDO = 1_000_000
"""Marks of undoing commits are numbered from here, after any statement's."""


class Transaction:
    """Statements collected in a `with` block and run when it ends; nothing happens when the block raises."""

    def __init__(self, context: Context, after: Callable[[Sequence[TableRecord]], None]) -> None:
        self._context = context
        self._after = after
        self._statements: list[dict[str, Any]] = []
        self._open = True
        self.id = uuid.uuid4().hex

    def insert(self, name: str, rows: Any) -> None:
        """Insert the rows of a DataFrame, or rows given as mappings or tuples."""
        source = self._target(name)
        path = self._context.folder("transactions", self.id, str(len(self._statements)))
        columns = staged(self._context.engine, frame(self._context.engine, rows, source), source, path)
        listed = ", ".join(quoted(c) for c in columns)
        rows_ = f"SELECT {listed} FROM parquet.{quoted(path)}"
        self._add(source, f"INSERT INTO {table(source.location)} ({listed}) {rows_}")

    def delete(self, name: str, where: str) -> None:
        """Delete the rows for which a condition is true."""
        source = self._target(name)
        self._add(source, f"DELETE FROM {table(source.location)} WHERE {text(parse_scalar(where))}")

    def update(self, name: str, assignments: Mapping[str, str], where: str = "TRUE") -> None:
        """Set columns to expressions in the rows for which a condition is true."""
        source = self._target(name)
        if not assignments:
            raise InvalidInputError(f"update({name!r}): no column to set was given.")
        known = {column.casefold(): column for column, _ in source.columns}
        parts = []
        for column, value in assignments.items():
            if column.casefold() not in known:
                raise UnknownObjectError(f"Table {name} has no column {column}{nearest(column, known.values())}")
            parts.append(f"{quoted(known[column.casefold()])} = {text(parse_scalar(str(value)))}")
        condition = text(parse_scalar(where))
        self._add(source, f"UPDATE {table(source.location)} SET {', '.join(parts)} WHERE {condition}")

    def sql(self, statement: str) -> None:
        """An INSERT, UPDATE, DELETE or MERGE in SQL; tables by their tracked names."""
        parsed = parse_statement(statement)
        if not isinstance(parsed, (exp.Insert, exp.Update, exp.Delete, exp.Merge)):
            raise UnsupportedSQLError(f"A transaction takes INSERT, UPDATE, DELETE, MERGE, not {parsed.key.upper()}.")
        target = parsed.this.this if isinstance(parsed.this, exp.Schema) else parsed.this
        if not isinstance(target, exp.Table):
            raise InvalidSQLError(f"The statement names no table to change: {statement[:80]}")
        if isinstance(parsed, exp.Insert) and parsed.args.get("overwrite"):
            raise UnsupportedSQLError("INSERT OVERWRITE is not taken in a transaction; DELETE and INSERT instead.")
        source = self._target(".".join(part.name for part in target.parts))
        self._add(source, pinned(statement, self._read))

    # ---- the end

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._open = False
        if kind is None and self._statements:
            self._commit()

    def _commit(self) -> None:
        context = self._context
        for statement in self._statements:
            context.engine.check(statement["sql"])
        with lease(context, lease_name(self.id), f"Transaction {self.id}"):
            record = TransactionRecord(self.id, "prepared", context.owner, self._statements)
            context.metadata.transactions.add(record)
            finish(context, record)
        tables = {s["table"]: context.metadata.tables.get(s["table"]) for s in self._statements}
        self._after(list(tables.values()))

    def _add(self, source: TableRecord, statement: str) -> None:
        if not self._open:
            raise TransactionError("This transaction has ended; begin another with wh.transaction().")
        self._statements.append({"table": source.name, "sql": statement})

    def _target(self, name: str) -> TableRecord:
        if not self._open:
            raise TransactionError("This transaction has ended; begin another with wh.transaction().")
        record = self._context.metadata.tables.find(name)
        if record is None:
            names = [t.name for t in self._context.metadata.tables.all() if t.kind == "feed"]
            raise UnknownObjectError(f"No tracked table {name}{nearest(name, names)}")
        if record.kind == "view":
            raise InvalidInputError(f"{name} is a view: its rows come from its query. Change its base tables.")
        if record.kind == "log":
            raise InvalidInputError(f"{name} has no change feed: its owner writes it and hands over the changes with "
                                    f"append_changes.")
        return replace(record, columns=DeltaLog(record.location).columns)  # columns may have come since the last sync

    def _read(self, path: tuple[str, ...]) -> str:
        record = self._context.metadata.tables.find(path[0]) if len(path) == 1 else None
        if record is None:
            names = [t.name for t in self._context.metadata.tables.all()]
            raise UnknownObjectError(f"No tracked table {'.'.join(path)}{nearest(path[-1], names)}")
        return table(record.location)


def lease_name(transaction: str) -> str:
    return f"transaction:{transaction}"


def recover(context: Context, transaction: str) -> TransactionRecord | None:
    """Bring a transaction that was interrupted to its end, unless its process is still at it."""
    try:
        record = context.metadata.transactions.get(transaction)
    except UnknownObjectError:
        return None
    if record.state in ("committed", "aborted") or alive(context, lease_name(transaction)):
        return record
    with lease(context, lease_name(transaction), f"Transaction {transaction}"):
        record = context.metadata.transactions.get(transaction)
        if record.state in ("prepared", "aborting"):
            with suppress(TransactionError):  # undone then; whoever began it is gone, and no view ever saw it
                finish(context, record)
    return context.metadata.transactions.get(transaction)


def recover_all(context: Context) -> None:
    for record in context.metadata.transactions.pending():
        recover(context, record.id)


def finish(context: Context, record: TransactionRecord) -> None:
    """Run what a redo record says, or undo it when a statement fails. Any number of times, with one result."""
    transactions = context.metadata.transactions
    if record.state == "prepared":
        # A statement that changed no row leaves no commit; but it ran, when one after it did.
        done = max((c.mark["version"] for c in _commits(context, record) if c.mark), default=0)
        try:
            for number, statement in enumerate(record.statements, start=1):
                if number > done:
                    context.engine.commit(statement["sql"], _mark(record.id, number))
        except DeferredError as error:
            record = transactions.set_state(record.id, "aborting", error=str(error))
        else:
            transactions.set_state(record.id, "committed", timestamp=_moment(context, record))
            return
    try:
        _undo(context, record)
    except DeferredError as error:
        raise TransactionError(f"The transaction failed ({record.error}) and could not be undone: {error} No view sees "
                               f"it, nor what is written to its tables after it, until an operation undoes it."
                               ) from error
    transactions.set_state(record.id, "aborted", timestamp=_moment(context, record))
    raise TransactionError(f"The transaction was undone, nothing is changed: {record.error}")


def _mark(transaction: str, number: int) -> Mark:
    return Mark(f"deferred-transaction-{transaction}", number, {"kind": "transaction", "transaction": transaction})


def _touched(context: Context, record: TransactionRecord) -> list[TableRecord]:
    names = dict.fromkeys(statement["table"] for statement in record.statements)
    return [found for name in names if (found := context.metadata.tables.find(name)) is not None]


def _moment(context: Context, record: TransactionRecord) -> Any:
    """The one time of a transaction: that of its last commit, later than all that the ledger knows of its tables."""
    known = [last.timestamp + TICK for source in _touched(context, record)
             if (last := context.metadata.ledger.last(source.id)) is not None]
    return max([record.created_at, *known, *(c.timestamp for c in _commits(context, record))])


def _commits(context: Context, record: TransactionRecord) -> list[Commit]:
    """The commits that a transaction has made so far."""
    return [commit for source in _touched(context, record) for commit in _commits_to(context, record, source)]


def _commits_to(context: Context, record: TransactionRecord, source: TableRecord) -> list[Commit]:
    last = context.metadata.ledger.last(source.id)
    known = last.version if last else source.first_version - 1
    return [c for c in DeltaLog(source.location).commits(known) if (c.mark or {}).get("transaction") == record.id]


def _undo(context: Context, record: TransactionRecord) -> None:
    """Take back what the statements before the failed one did: R := (R ∸ ▲R) ⊎ ▼R, from the change feed."""
    for number, source in enumerate(_touched(context, record), start=UNDO):
        log = DeltaLog(source.location)
        mine = _commits_to(context, record, source)
        if not mine or any((c.mark or {}).get("version") == number for c in mine):
            continue
        names = [name for name, _ in log.columns]
        raw = " UNION ALL ".join(f"SELECT {', '.join(map(quoted, names))}, -{quoted(COUNT)} AS {quoted(COUNT)} FROM "
                                 f"({changes(source.location, c.version, c.version, names, COUNT)})" for c in mine)
        with context.engine.temporaries() as temporaries:
            inverse = temporaries.keep("inverse", bags.net(raw, log.columns))
            bags.apply(context.engine, temporaries, source.location, log.columns, inverse, _mark(record.id, number))


def append_changes(context: Context, name: str, deletions: Any, insertions: Any) -> LedgerEntry:
    """Enter changes that the owner of a table has already made: ▼R and ▲R of one step, the paper's own setting."""
    source = context.metadata.tables.get(name)
    if source.kind != "log":
        raise InvalidInputError(f"{name} is tracked by its change feed, which records every write already. A table "
                                f"whose changes are handed over is tracked with track(…, log='table').")
    with lease(context, f"log:{source.id}", f"The log of {name}"):
        log = DeltaLog(source.location)
        if log.id != source.delta_id:
            raise LogLostError(f"Table {name} was dropped and made anew. Untrack and track it again, then rebuild.")
        last = context.metadata.ledger.last(source.id)
        # A handover whose process died before the ledger had it counts for nothing: its number is not used again.
        written = last_mark(source.log_location or "", "log")
        batch = (int(written["batch"]) if written else 0) + 1
        if last is not None and log.version <= last.version:
            raise InvalidInputError(f"Table {name} has not changed since version {last.version}, the last that was "
                                    f"handed over. Write the table first, then hand over what was changed.")
        parts = []
        with context.engine.temporaries() as temporaries:
            for label, rows, sign in (("deletions", deletions, -1), ("insertions", insertions, 1)):
                given = frame(context.engine, [] if rows is None else rows, source)
                listed = ", ".join(quoted(c) for c, _ in source.columns)
                kept = temporaries.keep_frame(label, given)
                parts.append(f"SELECT {listed}, CAST({sign} AS BIGINT) AS {quoted(COUNT)} FROM {kept}")
            rows_ = bags.net(" UNION ALL ".join(parts), source.columns)
            mark = Mark(f"deferred-log-{source.id}", batch, {"kind": "log", "batch": batch})
            context.engine.commit(f"INSERT INTO {table(source.log_location or '')} SELECT *, "
                                  f"CAST({batch} AS BIGINT) AS {quoted(BATCH)} FROM ({rows_})", mark)
        moment = max(utc_now(), last.timestamp + TICK) if last else utc_now()
        entry = LedgerEntry(source.id, log.version, moment, None, "HANDED OVER", batch)
        context.metadata.ledger.append([entry])
        return entry
