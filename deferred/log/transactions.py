"""Transactions over several Delta tables: one timestamp, all or nothing for every view, safe against crashes.

The redo record comes first: the statements, and the rows they insert, are durable before the first table changes.
Each statement is one Delta commit that Delta makes at most once, so running them again completes the transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.bags import column, insert_into, select
from deferred.errors import (
    DeferredError,
    InvalidInputError,
    InvalidSQLError,
    LeaseLostError,
    MetadataError,
    StorageError,
    TransactionError,
    UnknownObjectError,
    UnsupportedSQLError,
    nearest,
)
from deferred.log import given_rows
from deferred.log import undo as undoing
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog
from deferred.log.lease import Held, alive, lease
from deferred.log.sources import source_of
from deferred.metadata import TableRecord, TransactionRecord
from deferred.spark.engine import Mark
from deferred.spark.rows import frames, matched, staged
from deferred.spark.sizing import settings_for
from deferred.sql.dialect import delta_table, own_scalar, parquet_files, parse_statement, text
from deferred.sql.pin import pinned

if TYPE_CHECKING:
    import pyarrow as pa


FILES = 20_000
"""To a table with more files Spark appends, which has their list already; delta-rs would read it each time."""


class Transaction:
    """Statements collected in a `with` block and run when it ends; nothing happens when the block raises."""

    def __init__(self, context: Context, after: Callable[[Sequence[TableRecord]], list[str]]) -> None:
        self._context = context
        self._after = after
        self._statements: list[dict[str, Any]] = []
        self._open = True
        self.id = uuid.uuid4().hex
        self.warnings: list[str] = []
        """After the block: which views could not follow, and why. The transaction itself has succeeded."""

    def insert(self, name: str, rows: Any) -> None:
        """Insert the rows of a DataFrame, or rows given as mappings or tuples."""
        target = self._target(name)
        engine = self._context.engine
        filled = source_of(self._context, target).log.filled
        if isinstance(rows, Iterator):
            rows = list(rows)
        given = None if filled or _is_frame(rows) else _given(rows, target)
        if given is not None and given_rows.stage(given, target.name, self._staging):
            self._add_staged(target, given.column_names, given.num_rows)
            return
        for part in frames(engine, rows, target, filled):
            self._add_staged(target, staged(part, target, self._staging))

    def delete(self, name: str, where: str) -> None:
        """Delete the rows for which a condition is true."""
        target = self._target(name)
        condition = exp.Where(this=own_scalar(where))
        # Without the alias, Spark takes WHERE (TRUE) for an alias with a column.
        rows = exp.alias_(delta_table(target.location), target.name, table=True, quoted=True)
        self._add(target, text(exp.Delete(this=rows, where=condition)))

    def update(self, name: str, assignments: Mapping[str, str], where: str = "TRUE") -> None:
        """Set columns to expressions in the rows for which a condition is true."""
        target = self._target(name)
        if not assignments:
            raise InvalidInputError(f"update({name!r}): no column to set was given.")
        known = {known_name.casefold(): known_name for known_name, _ in target.columns}
        parts = []
        for given, value in assignments.items():
            if given.casefold() not in known:
                raise UnknownObjectError(f"Table {name} has no column {given}{nearest(given, known.values())}")
            parts.append(exp.EQ(this=column(known[given.casefold()]), expression=own_scalar(str(value))))
        condition = exp.Where(this=own_scalar(where))
        self._add(target, text(exp.Update(this=delta_table(target.location), expressions=parts, where=condition)))

    def sql(self, statement: str) -> None:
        """An INSERT, UPDATE, DELETE or MERGE in SQL; tables by their tracked names."""
        parsed = parse_statement(statement)
        if not isinstance(parsed, (exp.Insert, exp.Update, exp.Delete, exp.Merge)):
            raise UnsupportedSQLError(
                f"A statement of a transaction must be INSERT, UPDATE, DELETE or MERGE, not {parsed.key.upper()}."
            )
        target = parsed.this.this if isinstance(parsed.this, exp.Schema) else parsed.this
        if not isinstance(target, exp.Table):
            raise InvalidSQLError(f"The statement names no table to change: {statement[:80]}")
        if isinstance(parsed, exp.Insert) and parsed.args.get("overwrite"):
            raise UnsupportedSQLError("INSERT OVERWRITE is not supported in a transaction; use DELETE and INSERT.")
        given = parsed.expression if isinstance(parsed, exp.Insert) else None
        record = self._target(".".join(part.name for part in target.parts))
        written = pinned(statement, self._read)
        if isinstance(given, exp.Values):
            self._add(record, written, rows=len(given.expressions), into=record.location)
        else:
            self._add(record, written)

    # ---- the end

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        if kind is None and self._statements:
            self._commit()

    def _commit(self) -> None:
        context = self._context
        settings = context.engine.settings()  # the statements mean the same when another process finishes them
        self._statements = [{**statement, "settings": settings} for statement in self._statements]
        if len(self._statements) > 1:  # a single one is refused when it runs, and nothing has happened then either
            with context.engine.meaning(settings):
                for statement in self._statements:
                    context.engine.check(statement["sql"])
        try:
            with lease(context, undoing.lease_name(self.id), f"Transaction {self.id}") as held:
                record = TransactionRecord(self.id, "prepared", context.owner, self._statements)
                context.metadata.transactions.add(record)
                finish(context, record, held, 0)
        except LeaseLostError as error:
            raise TransactionError(
                f"Another process has taken over transaction {self.id}, and completes it: do not repeat it. "
                f"`deferred transaction list` shows it until it has ended."
            ) from error
        tables = {s["table"]: context.metadata.tables.get(s["table"]) for s in self._statements}
        self.warnings = self._after(list(tables.values()))

    def _add(self, target: TableRecord, statement: str, **known: Any) -> None:
        """Takes a statement, with what is known of it.

        `rows` is how many rows it changes; `into` is the table to which it appends rows that it gives itself, and
        `staged` is where they are, if they are not in its text.
        """
        if not self._open:
            raise TransactionError("This transaction has ended. Begin another one with wh.transaction().")
        self._statements.append({"table": target.name, "sql": statement, **known})

    def _add_staged(self, target: TableRecord, names: Sequence[str], rows: int | None = None) -> None:
        """Takes the insertion of rows that are staged; with their number, if the driver can append them."""
        staged_ = select(map(column, names), parquet_files(self._staging))
        insertion = text(insert_into(delta_table(target.location), names, staged_))
        known = {} if rows is None else {"rows": rows, "into": target.location, "staged": self._staging}
        self._add(target, insertion, **known)

    @property
    def _staging(self) -> str:
        """Where the rows of the next statement are staged."""
        return self._context.folder("transactions", self.id, str(len(self._statements)))

    def _target(self, name: str) -> TableRecord:
        if not self._open:
            raise TransactionError("This transaction has ended. Begin another one with wh.transaction().")
        tables = self._context.metadata.tables
        record = tables.find(name)
        if record is None:
            names = [t.name for t in tables.all() if source_of(self._context, t).write_refusal is None]
            raise UnknownObjectError(f"No tracked table {name}{nearest(name, names)}")
        source = source_of(self._context, record)
        if source.write_refusal is not None:
            raise InvalidInputError(source.write_refusal)
        return replace(record, columns=source.columns)  # columns may have come since the last sync

    def _read(self, path: tuple[str, ...]) -> str:
        record = self._context.metadata.tables.find(path[0]) if len(path) == 1 else None
        if record is None:
            names = [t.name for t in self._context.metadata.tables.all()]
            raise UnknownObjectError(f"No tracked table {'.'.join(path)}{nearest(path[-1], names)}")
        return text(source_of(self._context, record).rows_at())


def _is_frame(rows: Any) -> bool:
    """Whether rows are a DataFrame, of Spark or pandas."""
    return hasattr(rows, "schema") or hasattr(rows, "to_dict")


def _given(rows: Any, target: TableRecord) -> pa.Table | None:
    """Rows of plain values for a table; None where Spark must say what becomes of them."""
    return given_rows.of_python(matched(rows, [name for name, _ in target.columns], target.name), target.columns)


def _run(context: Context, statement: Mapping[str, Any], mark: Mark) -> None:
    """Run a statement in one commit with a mark; without Spark, if it only appends rows that it gives itself."""
    if _appended(context, statement, mark):
        return
    rows = statement.get("rows")
    sized = settings_for(rows, None if rows is None else _rows_of(context, statement["table"]))
    with context.engine.meaning(statement.get("settings")), context.engine.operation(sized):
        context.engine.commit(statement["sql"], mark)


def _appended(context: Context, statement: Mapping[str, Any], mark: Mark) -> bool:
    """Append the rows that a statement gives itself. False where Spark must run it: nothing was done."""
    location, path = statement.get("into"), statement.get("staged")
    if location is None:
        return False
    try:
        log = DeltaLog(location)
    except StorageError:
        return False
    if log.partitions or log.about_files > FILES:  # Spark writes partitions' values in its own way
        return False
    columns = log.columns
    if path is None:
        rows = given_rows.of_values(statement["sql"], columns, statement.get("settings") or {})
    else:
        rows = given_rows.staged(path, columns)
    return rows is not None and context.engine.append_rows(location, rows, mark)


def _rows_of(context: Context, table: str) -> int | None:
    """The number of rows of a tracked table; None where it is not known, or the table is no longer there."""
    record = context.metadata.tables.find(table)
    return None if record is None else source_of(context, record).row_count()


def recover(context: Context, transaction: str) -> TransactionRecord | None:
    """Finish a transaction that was interrupted, unless its process is still running.

    Where that is not possible, nothing else fails: the ledger ends before it, and `undo.stuck` lists it.
    """
    try:
        record = context.metadata.transactions.get(transaction)
    except UnknownObjectError:
        return None
    name = undoing.lease_name(transaction)
    if record.state in ("committed", "aborted") or alive(context, name):
        return record
    with lease(context, name, f"Transaction {transaction}") as held:
        record = context.metadata.transactions.get(transaction)
        if record.state in ("prepared", "aborting"):
            _finish_begun(context, record, held)
    return context.metadata.transactions.get(transaction)


def _finish_begun(context: Context, record: TransactionRecord, held: Held) -> None:
    """Finish what another process has begun. What goes wrong concerns this transaction alone."""
    try:
        done = undoing.last_statement(context, record) if record.state == "prepared" else 0
    except (LeaseLostError, MetadataError):
        raise
    except DeferredError as error:  # a table cannot be read now: tried again when somebody next looks
        context.metadata.transactions.set_state(record.id, "prepared", error=str(error), under=[held.lease])
        return
    try:
        finish(context, record, held, done)
    except (LeaseLostError, MetadataError):
        raise
    except DeferredError:  # it was undone, or will be: no view has seen it
        return


def _was_refused(context: Context, record: TransactionRecord, held: Held, error: DeferredError) -> bool:
    """Whether Spark has refused the only statement of a transaction: then there is nothing to undo or to shut out."""
    alone = len(record.statements) == 1 and record.owner == context.owner and not held.lease.left_by
    return alone and isinstance(error, InvalidSQLError) and not undoing.commits(context, record)


def recover_all(context: Context) -> None:
    for record in context.metadata.transactions.pending():
        recover(context, record.id)


def finish(context: Context, record: TransactionRecord, held: Held, done: int) -> None:
    """Run the statements of a redo record after the first `done`, or undo all when one fails. Safe to repeat."""
    transactions = context.metadata.transactions
    if record.state == "prepared":
        origin = {"of": len(record.statements), "warehouse": context.root}
        try:
            for number, statement in enumerate(record.statements, start=1):
                if number > done:
                    _run(context, statement, undoing.mark(record.id, number, **origin))
            if held.lease.left_by or record.owner != context.owner:
                undoing.shut_out(context, record)  # the process before may have sent one that changed no row here
        except LeaseLostError:
            raise
        except DeferredError as error:
            if _was_refused(context, record, held, error):
                undoing.ended(context, record, held, str(error))
                raise
            record = transactions.set_state(record.id, "aborting", error=str(error), under=[held.lease])
        else:
            at = undoing.moment(context, record)
            transactions.set_state(record.id, "committed", timestamp=at, under=[held.lease])
            return
    try:
        undoing.undo(context, record, as_far_as_possible=False)
    except LeaseLostError:
        raise
    except DeferredError as error:
        raise TransactionError(
            f"The transaction failed ({record.error}) and could not be undone: {error} No view sees it, nor what is "
            f"written to its tables after it, until an operation undoes it. {undoing.explained(record)}"
        ) from error
    undoing.ended(context, record, held)
    raise TransactionError(f"The transaction was undone, nothing is changed: {record.error}")
