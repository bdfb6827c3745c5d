"""The store of leases: who may work on what, and until when. Every change is one atomic statement."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import case, delete, or_, update

from deferred.metadata.database import Database
from deferred.metadata.models import LeaseRow
from deferred.metadata.records import Lease, utc_now


class LeaseStore:
    """Keeps two processes off one thing. A lease that is not renewed expires, so a dead owner blocks nobody long."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(self, name: str, owner: str, ttl_seconds: float) -> Lease | None:
        """Take a free or expired lease; None when another owner holds it.

        Its owner may acquire it again, which prolongs it; one release then gives it back.
        """
        now = utc_now()
        insert = self._database.insert(LeaseRow).values(
            name=name, owner=owner, acquired_at=now, expires_at=now + timedelta(seconds=ttl_seconds)
        )
        statement = insert.on_conflict_do_update(
            index_elements=["name"],
            set_={
                "owner": insert.excluded.owner,
                "acquired_at": case((LeaseRow.owner == owner, LeaseRow.acquired_at), else_=insert.excluded.acquired_at),
                "expires_at": insert.excluded.expires_at,
            },
            where=or_(LeaseRow.owner == owner, LeaseRow.expires_at <= now),
        ).returning(LeaseRow.name)
        with self._database.write() as session:
            taken = session.scalar(statement)
            return session.get_one(LeaseRow, name).record() if taken is not None else None

    def renew(self, name: str, owner: str, ttl_seconds: float) -> bool:
        """Prolong a lease; False when another owner has taken it over."""
        expires_at = utc_now() + timedelta(seconds=ttl_seconds)
        return self._changed(
            update(LeaseRow).where(LeaseRow.name == name, LeaseRow.owner == owner).values(expires_at=expires_at)
        )

    def release(self, name: str, owner: str) -> bool:
        """Give a lease back; False when the owner no longer had it."""
        return self._changed(delete(LeaseRow).where(LeaseRow.name == name, LeaseRow.owner == owner))

    def holder(self, name: str) -> Lease | None:
        """The lease, while somebody holds it."""
        with self._database.read() as session:
            row = session.get(LeaseRow, name)
            return row.record() if row and row.expires_at > utc_now() else None

    def steal(self, name: str, dead_owner: str, owner: str, ttl_seconds: float) -> bool:
        """Take the lease of an owner known to be dead; False when it is no longer that owner's."""
        now = utc_now()
        return self._changed(
            update(LeaseRow)
            .where(LeaseRow.name == name, LeaseRow.owner == dead_owner)
            .values(owner=owner, acquired_at=now, expires_at=now + timedelta(seconds=ttl_seconds))
        )

    def _changed(self, statement: object) -> bool:
        with self._database.write() as session:
            return session.connection().execute(statement).rowcount == 1  # type: ignore[call-overload,no-any-return]
