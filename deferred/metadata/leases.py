"""The store of leases: who may work on what, and until when by the database's own clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, delete, func, select, text, update
from sqlalchemy.orm import Session

from deferred.errors import LeaseLostError
from deferred.metadata.database import Database
from deferred.metadata.models import LeaseRow
from deferred.metadata.records import Lease


class LeaseStore:
    """Lets one process at a time work on a thing. A lease that is not renewed expires, so no dead owner blocks it.

    Each acquisition has a greater token than those before it: by the token, a holder that was away for too long is told
    from the one that took over. The tokens begin with the time, so that they go on growing after the database was
    restored from an old backup. A lease that was released keeps its row, and with it its token.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(self, name: str, owner: str, ttl_seconds: float) -> Lease | None:
        """Take a free or expired lease; returns None when another owner holds it.

        Its owner may acquire it again, which extends it; one release then releases it.
        """
        with self._database.write() as session:
            row = _locked(session, name)
            now = _now(session)
            if row is None:
                insert = self._database.insert(LeaseRow).values(
                    name=name, owner="", token=0, acquired_at=now, expires_at=now
                )
                session.execute(insert.on_conflict_do_nothing(index_elements=["name"]))
                row = _locked(session, name)
                assert row is not None
            if row.owner == owner:
                row.expires_at = now + timedelta(seconds=ttl_seconds)
                return row.record()
            if row.owner and row.expires_at > now:
                return None
            return _taken(row, owner, now, ttl_seconds)

    def steal(self, name: str, dead_owner: str, owner: str, ttl_seconds: float) -> Lease | None:
        """Take the lease of an owner known to be dead; returns None when that owner no longer has it."""
        with self._database.write() as session:
            row = _locked(session, name)
            if row is None or row.owner != dead_owner:
                return None
            return _taken(row, owner, _now(session), ttl_seconds)

    def renew(self, lease: Lease, ttl_seconds: float) -> bool:
        """Extend a lease; returns False when another owner has taken it over.

        One that has expired, and that nobody has taken, is still its owner's.
        """
        with self._database.write() as session:
            values = {"expires_at": _now(session) + timedelta(seconds=ttl_seconds)}
            return session.connection().execute(update(LeaseRow).where(_same(lease)).values(values)).rowcount == 1

    def release(self, lease: Lease) -> bool:
        """Release a lease; returns False when the owner no longer had it."""
        statement = update(LeaseRow).where(_same(lease)).values(owner="")
        with self._database.write() as session:
            return session.connection().execute(statement).rowcount == 1

    def abandon(self, lease: Lease) -> bool:
        """Let anybody take a lease over, as one whose holder may still be at work."""
        with self._database.write() as session:
            statement = update(LeaseRow).where(_same(lease)).values(expires_at=_now(session))
            return session.connection().execute(statement).rowcount == 1

    def holder(self, name: str) -> Lease | None:
        """Returns the lease, while somebody holds it."""
        with self._database.read() as session:
            row = session.get(LeaseRow, name)
            return row.record() if row and row.owner and row.expires_at > _now(session) else None

    def prune(self, before: datetime) -> int:
        """Remove the leases that nobody holds and that expired before a moment; returns how many there were."""
        statement = delete(LeaseRow).where(LeaseRow.owner == "", LeaseRow.expires_at < before)
        with self._database.write() as session:
            return session.connection().execute(statement).rowcount


def check(session: Session, leases: Iterable[Lease]) -> None:
    """Refuse a write whose leases were taken over; in the transaction of the write, so that nothing comes between."""
    for lease in leases:
        if session.scalar(select(LeaseRow.name).where(_same(lease)).with_for_update()) is None:
            raise lost(lease)


def lost(lease: Lease) -> LeaseLostError:
    """The error that a lease was taken over."""
    return LeaseLostError(
        f"The lease {lease.name} was lost: it was not renewed in time, and another process has taken over. Nothing "
        f"more was written. Run the same command again; if this repeats, check the connection to the metadata database."
    )


def _same(lease: Lease) -> ColumnElement[bool]:
    return (LeaseRow.name == lease.name) & (LeaseRow.owner == lease.owner) & (LeaseRow.token == lease.token)


def _locked(session: Session, name: str) -> LeaseRow | None:
    return session.get(LeaseRow, name, with_for_update=True, populate_existing=True)


def _taken(row: LeaseRow, owner: str, now: datetime, ttl_seconds: float) -> Lease:
    left_by = row.owner
    row.owner = owner
    row.token = max(row.token + 1, int(now.timestamp()))
    row.acquired_at, row.expires_at = now, now + timedelta(seconds=ttl_seconds)
    return row.record(left_by)


def _now(session: Session) -> datetime:
    """The present by the database's clock: the clocks of the hosts that use it may differ."""
    if session.get_bind().dialect.name == "postgresql":
        moment: datetime = session.scalar(select(func.clock_timestamp()))  # type: ignore[assignment]
        return moment.astimezone(UTC)
    told = session.scalar(text("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')"))
    return datetime.fromisoformat(str(told)).replace(tzinfo=UTC)
