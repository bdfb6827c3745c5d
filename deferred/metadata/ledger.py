"""The store of the ledger: the commits of tracked tables in time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import delete, func, select

from deferred.metadata import leases
from deferred.metadata.database import Database
from deferred.metadata.models import LedgerRow
from deferred.metadata.records import Lease, LedgerEntry


class LedgerStore:
    """When each version of a tracked table was committed, and by which transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def last(self, table_id: int) -> LedgerEntry | None:
        """Returns the newest known commit of a table."""
        return self._newest(LedgerRow.table_id == table_id)

    def at(self, table_id: int, timestamp: datetime) -> LedgerEntry | None:
        """Returns the commit of the greatest version that existed at a moment."""
        return self._newest(LedgerRow.table_id == table_id, LedgerRow.timestamp <= timestamp)

    def between(self, table_id: int, after: int, upto: int) -> list[LedgerEntry]:
        """Returns the commits with after < version <= upto, oldest first."""
        statement = (
            select(LedgerRow)
            .where(LedgerRow.table_id == table_id, LedgerRow.version > after, LedgerRow.version <= upto)
            .order_by(LedgerRow.version)
        )
        with self._database.read() as session:
            return [row.record() for row in session.scalars(statement)]

    def times(self, each: int) -> dict[int, list[tuple[int, datetime]]]:
        """Returns version and time of the newest commits of every table, oldest first: one query for all tables."""
        row = LedgerRow
        place = func.row_number().over(partition_by=row.table_id, order_by=row.version.desc())
        ranked = select(row.table_id, row.version, row.timestamp, place.label("place")).subquery()
        statement = select(ranked.c.table_id, ranked.c.version, ranked.c.timestamp).where(ranked.c.place <= each)
        found: dict[int, list[tuple[int, datetime]]] = {}
        with self._database.read() as session:
            for table, version, moment in session.execute(statement.order_by(ranked.c.table_id, ranked.c.version)):
                found.setdefault(table, []).append((version, moment))
        return found

    def append(self, entries: Sequence[LedgerEntry], under: Iterable[Lease] = ()) -> None:
        """Add commits in one transaction; an existing version stays as it is: two processes may sync at once.

        LeaseLostError, and nothing is added, if one of the leases `under` which it is done was taken over.
        """
        statement = self._database.insert(LedgerRow).on_conflict_do_nothing(index_elements=["table_id", "version"])
        # One order for all writers: two that insert the same versions crosswise would deadlock on PostgreSQL.
        ordered = sorted(entries, key=lambda entry: (entry.table_id, entry.version))
        rows = [dataclasses.asdict(entry) for entry in ordered]
        if not rows:
            return
        with self._database.write() as session:
            leases.check(session, under)
            session.connection().execute(statement, rows)

    def prune(self, table_id: int, before_version: int) -> int:
        """Remove the commits before a version; returns how many there were."""
        statement = delete(LedgerRow).where(LedgerRow.table_id == table_id, LedgerRow.version < before_version)
        with self._database.write() as session:
            return session.connection().execute(statement).rowcount

    def _newest(self, *conditions: object) -> LedgerEntry | None:
        statement = select(LedgerRow).where(*conditions).order_by(LedgerRow.version.desc()).limit(1)  # type: ignore[arg-type]
        with self._database.read() as session:
            row = session.scalar(statement)
            return row.record() if row else None
