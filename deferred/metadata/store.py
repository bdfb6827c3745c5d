"""The front of the metadata room: one store per concern. It opens a database and never migrates one silently."""

from __future__ import annotations

from types import TracebackType

from deferred.errors import MetadataError
from deferred.metadata.database import Database
from deferred.metadata.journal import Journal, NoJournal
from deferred.metadata.leases import LeaseStore
from deferred.metadata.ledger import LedgerStore
from deferred.metadata.models import REVISION
from deferred.metadata.operations import OperationStore
from deferred.metadata.tables import TableStore
from deferred.metadata.transactions import TransactionStore
from deferred.metadata.views import ViewStore


class Metadata:
    """The metadata of one warehouse. Threads may share it; processes share it through the database."""

    def __init__(self, database: Database, journal: Journal) -> None:
        self._database = database
        self.tables = TableStore(database, journal)
        self.ledger = LedgerStore(database)
        self.transactions = TransactionStore(database)
        self.views = ViewStore(database, journal)
        self.operations = OperationStore(database)
        self.leases = LeaseStore(database)

    @classmethod
    def open(cls, url: str, *, create: bool = False, journal: Journal | None = None) -> Metadata:
        """Opens the metadata at a URL; with `create`, an empty database first gets its schema."""
        database = Database(url)
        try:
            if create:
                database.make_folder()
            elif database.file is not None and not database.file.exists():
                raise MetadataError(f"There is no metadata database {database}; create it with `deferred init`.")
            if database.revision() != REVISION:
                _create_or_refuse(database, create)
        except BaseException:
            database.close()
            raise
        return cls(database, journal or NoJournal())

    @property
    def url(self) -> str:
        """Where the metadata is kept, without any password."""
        return str(self._database)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Metadata:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _create_or_refuse(database: Database, create: bool) -> None:
    from deferred.metadata import migrate  # Alembic takes a moment to load, and most commands do without it

    if create:
        migrate.create_if_empty(database)
    if database.revision() != REVISION:
        raise migrate.unusable(database)
