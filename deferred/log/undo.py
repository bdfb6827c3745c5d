"""Undoing a transaction: its late statements are shut out, and what the others did is taken back from its changes.

An undo may be impossible: another job has changed a row that the transaction inserted, or the table's rows cannot be
compared. Then somebody decides, and the ledger goes on from there: see `resolve`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sqlglot import exp

from deferred.algebra.bags import (
    COUNT,
    PRESENT,
    alias,
    bigint,
    call,
    column,
    multiplicities,
    negated,
    net,
    positive,
    select,
    union_all,
)
from deferred.errors import DeferredError, InvalidInputError, LeaseLostError, TransactionError, not_one_of
from deferred.log.context import Context
from deferred.log.delta_log import TICK, Commit
from deferred.log.lease import Held, alive, bar, lease
from deferred.log.sources import source_of
from deferred.metadata import TableRecord, TransactionRecord
from deferred.spark import bags
from deferred.spark.engine import Mark
from deferred.spark.temporaries import Temporaries
from deferred.sql.dialect import delta_table

BARS = 500_000
"""The number of the commit that shuts out the statements of a transaction: above that of every statement."""

UNDO = 1_000_000
"""Marks of undoing commits are numbered from here."""

WAYS = ("retry", "undo", "keep")
EXAMPLES = 20
"""How many rows that an undo has to leave are listed for each table."""


@dataclass(frozen=True)
class Undone:
    """What an undo did to a table, and which of the transaction's rows were no longer there to be deleted."""

    table: str
    rows_deleted: int
    rows_inserted: int
    missing: tuple[dict[str, Any], ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Resolution:
    """How a transaction that could not be undone was brought to an end."""

    transaction: str
    how: str
    tables: tuple[Undone, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def lease_name(transaction: str) -> str:
    return f"transaction:{transaction}"


def mark(transaction: str, number: int, **more: Any) -> Mark:
    details = {"kind": "transaction", "transaction": transaction, **more}
    return Mark(f"deferred-transaction-{transaction}", number, details)


def touched(context: Context, record: TransactionRecord) -> list[TableRecord]:
    """The tables that a transaction's statements change."""
    names = dict.fromkeys(statement["table"] for statement in record.statements)
    return [found for name in names if (found := context.metadata.tables.find(name)) is not None]


def moment(context: Context, record: TransactionRecord) -> Any:
    """The one time of a transaction: that of its last commit, later than all that the ledger knows of its tables."""
    known = [
        last.timestamp + TICK
        for table in touched(context, record)
        if (last := context.metadata.ledger.last(table.id)) is not None
    ]
    made: list[Commit] = []
    for table in touched(context, record):
        with suppress(DeferredError):  # a table that is gone has no commits; whoever reads it next says so
            made += commits_to(context, record, table)
    return max([record.created_at, *known, *(commit.timestamp for commit in made)])


def commits(context: Context, record: TransactionRecord) -> list[Commit]:
    """The commits that a transaction has made so far."""
    return [commit for table in touched(context, record) for commit in commits_to(context, record, table)]


def last_statement(context: Context, record: TransactionRecord) -> int:
    """The number of the last statement that has run; one before it that changed no row may have left no commit."""
    return max((c.mark["version"] for c in commits(context, record) if c.mark), default=0)


def commits_to(context: Context, record: TransactionRecord, table: TableRecord) -> list[Commit]:
    last = context.metadata.ledger.last(table.id)
    known = last.version if last else table.first_version - 1
    found = source_of(context, table).log.commits(known)
    return [c for c in found if (c.mark or {}).get("transaction") == record.id]


def shut_out(context: Context, record: TransactionRecord) -> None:
    """Make Delta refuse statements of a transaction that come late, in every table that one of them may change.

    A Spark server goes on with a statement whose client was killed, and a statement may not have begun to commit.
    """
    for table in touched(context, record):
        _shut_out_of(context, record, table)


def _shut_out_of(context: Context, record: TransactionRecord, table: TableRecord) -> None:
    if not any((c.mark or {})["version"] >= BARS for c in commits_to(context, record, table)):
        bar(context, table.location, mark(record.id, BARS))


def undo(context: Context, record: TransactionRecord, as_far_as_possible: bool) -> list[Undone]:
    """Take back what the statements did: R := (R ∸ ▲R) ⊎ ▼R, from the changes of their commits. Safe to repeat.

    Rows that are no longer there to be deleted are left out and listed, or make it fail.
    """
    shut_out(context, record)
    done = []
    for number, table in enumerate(touched(context, record), start=UNDO):
        source = source_of(context, table)
        mine = commits_to(context, record, table)
        statements = [c for c in mine if (c.mark or {})["version"] < BARS]
        if not statements or any((c.mark or {})["version"] == number for c in mine):
            continue
        names = [name for name, _ in source.columns]
        taken_back = union_all([negated(source.changes(c.version - 1, c.version, names), names) for c in statements])
        with context.engine.temporaries() as temporaries:
            inverse = temporaries.compute("inverse", net(taken_back, source.columns))
            missing: tuple[dict[str, Any], ...] = ()
            if as_far_as_possible:
                inverse, missing = _possible(context, temporaries, table, source.columns, inverse)
            rows = bags.apply(
                context.engine, temporaries, table.location, source.columns, inverse, mark(record.id, number)
            )
        done.append(Undone(table.name, *rows, missing))
    return done


def _possible(
    context: Context, temporaries: Temporaries, table: TableRecord, columns: Any, inverse: exp.Table
) -> tuple[exp.Table, tuple[dict[str, Any], ...]]:
    """The part of an inverse that can be applied, and the rows to be deleted that are not there so often."""
    names = [name for name, _ in columns]
    held = temporaries.compute("held", multiplicities(delta_table(table.location), columns, inverse))
    fewer = alias(bigint(call("GREATEST", column(COUNT), exp.Neg(this=column(PRESENT)))), COUNT)
    present = exp.GT(this=column(PRESENT), expression=exp.Literal.number(0))
    deletions = select([*map(column, names), fewer], held).where(present, copy=False)
    possible = temporaries.compute("possible", union_all([deletions, positive(inverse, names)]))
    absent = exp.LT(this=exp.Add(this=column(PRESENT), expression=column(COUNT)), expression=exp.Literal.number(0))
    rows = context.engine.rows(select([*map(column, names)], held).where(absent, copy=False).limit(EXAMPLES))
    return possible, tuple(row.asDict(recursive=True) for row in rows)


def stuck(context: Context, tables: list[TableRecord]) -> list[TransactionRecord]:
    """The transactions that changed one of the tables, and could neither be finished nor undone so far."""
    names = {table.name for table in tables}
    return [
        record
        for record in context.metadata.transactions.pending()
        if (record.state == "aborting" or record.error is not None)
        and names & {statement["table"] for statement in record.statements}
        and not alive(context, lease_name(record.id))
    ]


def explained(record: TransactionRecord) -> str:
    """What a stuck transaction means for the views of its tables, and the way out."""
    tables = ", ".join(dict.fromkeys(statement["table"] for statement in record.statements))
    interrupted = record.state == "prepared"
    what = "was interrupted and could not be finished" if interrupted else "failed and could not be undone"
    return (
        f"Transaction {record.id} {what}: {record.error} Views show {tables} as of before it. "
        f"`deferred transaction retry {record.id}` tries again, `… undo` undoes what can be undone, `… keep` leaves "
        f"the tables as they are."
    )


def resolve(context: Context, transaction: str, how: Literal["retry", "undo", "keep"] | str) -> Resolution:
    """Bring a transaction that was interrupted or could not be undone to its end; the ledger goes on from there.

    retry: undo all of it or fail. undo: undo what can be; the rows of the transaction that another job has changed or
    deleted since are left out and returned. keep: what its statements did so far stays.
    """
    if how not in WAYS:
        raise not_one_of("how", how, WAYS)
    with lease(context, lease_name(transaction), f"Transaction {transaction}") as held:
        record = context.metadata.transactions.get(transaction)
        if record.state in ("committed", "aborted"):
            raise InvalidInputError(f"Transaction {transaction} has ended already: it was {record.state}.")
        context.metadata.transactions.set_state(transaction, "aborting", error=record.error, under=[held.lease])
        done = _kept(context, record) if how == "keep" else _undone(context, record, how)
        ended(context, record, held, f"{record.error or 'It was interrupted.'} Resolved by {how!r}.")
    return Resolution(transaction, how, tuple(done))


def ended(context: Context, record: TransactionRecord, held: Held, error: str | None = None) -> None:
    """Record that a transaction was undone, at a time that all its commits have in the ledger."""
    at = moment(context, record)
    context.metadata.transactions.set_state(record.id, "aborted", timestamp=at, error=error, under=[held.lease])


def _undone(context: Context, record: TransactionRecord, how: str) -> list[Undone]:
    try:
        return undo(context, record, as_far_as_possible=how == "undo")
    except LeaseLostError:
        raise
    except DeferredError as error:
        other = "undo` undoes what can be undone, `… keep" if how == "retry" else "keep"
        raise TransactionError(
            f"Transaction {record.id} could not be undone: {error} `deferred transaction {other}` is the way out."
        ) from error


def _kept(context: Context, record: TransactionRecord) -> list[Undone]:
    """Shut out what has not run. A table that cannot be changed at all takes no late statement either."""
    done = []
    for table in touched(context, record):
        try:
            _shut_out_of(context, record, table)
        except LeaseLostError:
            raise
        except DeferredError as error:
            done.append(Undone(table.name, 0, 0, problem=str(error)))
        else:
            done.append(Undone(table.name, 0, 0))
    return done
