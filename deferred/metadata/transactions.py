"""The store of transactions over several tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import delete, select

from deferred.errors import NameTakenError, UnknownObjectError
from deferred.metadata import leases
from deferred.metadata.database import Database
from deferred.metadata.models import TransactionRow
from deferred.metadata.records import Lease, TransactionRecord, TransactionState


class TransactionStore:
    """Which transactions were begun, with what statements, and how they ended."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, record: TransactionRecord) -> TransactionRecord:
        """Record a transaction before it changes anything."""
        statement = (
            self._database.insert(TransactionRow)
            .values(**dataclasses.asdict(record))
            .on_conflict_do_nothing(index_elements=["id"])
            .returning(TransactionRow.id)
        )
        with self._database.write() as session:
            if session.scalar(statement) is None:
                raise NameTakenError(f"The transaction {record.id} exists already; begin a new one.")
            return session.get_one(TransactionRow, record.id).record()

    def get(self, transaction_id: str) -> TransactionRecord:
        """Returns the transaction with that id."""
        with self._database.read() as session:
            row = session.get(TransactionRow, transaction_id)
            if row is None:
                raise _no_id(transaction_id)
            return row.record()

    def has(self, transaction_id: str) -> bool:
        """Whether the transaction is known."""
        with self._database.read() as session:
            return session.get(TransactionRow, transaction_id) is not None

    def set_state(
        self,
        transaction_id: str,
        state: TransactionState,
        timestamp: datetime | None = None,
        error: str | None = None,
        under: Iterable[Lease] = (),
    ) -> TransactionRecord:
        """Change the state of a transaction; a timestamp or error that is not given stays as it was.

        LeaseLostError, and nothing is changed, if one of the leases `under` which it is done was taken over.
        """
        with self._database.write() as session:
            leases.check(session, under)
            row = session.get(TransactionRow, transaction_id, with_for_update=True)
            if row is None:
                raise _no_id(transaction_id)
            row.state = state
            row.timestamp = timestamp or row.timestamp
            row.error = error or row.error
            session.flush()
            return row.record()

    def pending(self) -> list[TransactionRecord]:
        """Returns the transactions that are neither committed nor aborted, oldest first: someone has to finish them."""
        statement = (
            select(TransactionRow)
            .where(TransactionRow.state.in_(("prepared", "aborting")))
            .order_by(TransactionRow.created_at, TransactionRow.id)
        )
        with self._database.read() as session:
            return [row.record() for row in session.scalars(statement)]

    def prune(self, before: datetime) -> int:
        """Remove the finished transactions that were begun before a moment; returns how many there were."""
        statement = delete(TransactionRow).where(
            TransactionRow.state.in_(("committed", "aborted")), TransactionRow.created_at < before
        )
        with self._database.write() as session:
            return session.connection().execute(statement).rowcount


def _no_id(transaction_id: str) -> UnknownObjectError:
    return UnknownObjectError(f"There is no transaction {transaction_id}; it may have been removed by `gc`.")
