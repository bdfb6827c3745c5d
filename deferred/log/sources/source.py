"""What the engine asks of a base table: the one protocol that every kind of source implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from deferred.algebra.bags import COUNT, alias, column, net, select
from deferred.algebra.nested import extends, narrowed
from deferred.algebra.types import Columns, as_read
from deferred.errors import DeferredError, InvalidInputError, LogLostError, StorageError
from deferred.log.context import Context
from deferred.log.delta_log import Commit, DeltaLog
from deferred.log.file_changes import FileRange
from deferred.log.locating import Given, Place, located
from deferred.metadata import LedgerEntry, TableRecord
from deferred.sql.dialect import delta_table

if TYPE_CHECKING:
    import pyarrow as pa

    from deferred.log.touched import Touched

_NEVER_WRITTEN = (
    "DELTA_MISSING_CHANGE_DATA",
    "DELTA_CHANGE_TABLE_FEED_DISABLED",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE",
)
"""What Spark's errors contain when Delta's log says that changes were not recorded: they are lost for good."""

_OUT_OF_REACH = (
    "DELTA_CHANGE_DATA_FILE_NOT_FOUND",
    "FAILED_READ_FILE",
    "FileNotFound",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_LOG_FILE_NOT_FOUND",
    "does not exist",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "VersionNotFound",
    "DELTA_MISSING_TRANSACTION_LOG",
    "DELTA_FILE_NOT_FOUND",
    "_change_data",
)
"""What Spark's errors contain when a file or a version that a log needs cannot be read: is it gone, or the storage?"""


def in_types(rows: exp.Expr, record: TableRecord, columns: Columns, others: Sequence[str] = ()) -> exp.Expr:
    """Rows of a table in the types that a view knows, without fields added to structs since; and other columns."""
    now = {name.casefold(): as_read(type_) for name, type_ in record.columns}
    columns = [(name, as_read(type_)) for name, type_ in columns]
    extended = {
        name: now[name.casefold()]
        for name, type_ in columns
        if name.casefold() in now and now[name.casefold()] != type_ and extends(now[name.casefold()], type_)
    }
    if not extended:
        return rows
    outputs = [
        alias(narrowed(column(name), extended[name], type_), name) if name in extended else column(name)
        for name, type_ in columns
    ]
    return select([*outputs, *map(column, others)], rows)


TRACKED = ("locate", "resume", "suits", "write_refusal")
"""What a kind of source that users track says itself, where the kind that it inherits from says something else."""


@dataclass(frozen=True)
class Source(ABC):
    """A base table R as one operation sees it: its rows are a Delta table, its changes come from the subclass.

    Delta's log is read once, when something is first asked; a new source sees later commits.
    """

    context: Context
    record: TableRecord

    kind: ClassVar[str]
    """What the metadata database stores for a table of this source."""
    option: ClassVar[str | None]
    """The value of track(log=…) that asks for this source; None where users do not track such a table."""
    summary: ClassVar[str]
    """Where the changes come from, in a few words for messages."""
    noun: ClassVar[str]
    """What a user calls such a table."""

    def __init_subclass__(cls) -> None:
        """A kind of source says all of this itself: one that it inherited would hide the kind it inherits from."""
        super().__init_subclass__()
        missing = [name for name in ("kind", "option", "summary", "noun") if name not in vars(cls)]
        methods = sorted(Source.__abstractmethods__)
        missing += [name for name in methods if getattr(getattr(cls, name), "__isabstractmethod__", False)]
        if getattr(cls, "option", None) is not None:
            kinds = [kind for kind in cls.__mro__[1:] if issubclass(kind, Source) and kind is not Source]
            missing += [n for n in TRACKED if n not in vars(cls) and any(n in vars(kind) for kind in kinds)]
        if missing:
            raise TypeError(f"The source {cls.__name__} does not define {', '.join(missing)}.")

    # ---- the table

    @cached_property
    def log(self) -> DeltaLog:
        """Delta's own log of the table, as it was when this source first looked."""
        try:
            return DeltaLog(self.record.location)
        except StorageError as error:
            raise StorageError(f"Table {self.record.name} cannot be read: {error}") from None

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """(name, type as DDL) of every column."""
        return self.log.columns

    def rows_at(self, version: int | None = None) -> exp.Table:
        """R at a version, as an item of FROM; without a version, R as it is when the query runs."""
        return delta_table(self.record.location, version)

    def row_count(self) -> int | None:
        """The number of rows by the statistics of the files, None where they are missing."""
        return self.log.row_count()

    def check_columns(self, columns: Columns) -> None:
        """Refuse to go on when a column that a view reads was dropped, renamed or given another type.

        Fields that were added to a struct do no harm: the view goes on without them, see `in_types`.
        """
        current = {name.casefold(): type_ for name, type_ in self.columns}
        for name, type_ in columns:
            now = current.get(name.casefold())
            if now is None:
                raise LogLostError(
                    f"Column {name} of table {self.record.name}, which a view reads, was dropped or renamed. "
                    f"Restore the column, or drop the view and create it again."
                )
            if not extends(as_read(now), as_read(type_)):
                raise LogLostError(
                    f"Column {name} of table {self.record.name}, which a view reads, was {type_} and is now {now}. "
                    f"Drop the view and create it again."
                )

    # ---- versions and changes

    @property
    def version(self) -> int:
        """The newest version whose changes are known."""
        return self.log.version

    def commits(self, after: int) -> list[Commit]:
        """The commits after a version that the ledger has to enter, oldest first: those of the Delta table.

        Raises LogLostError where the log no longer says what became of the rows of that version.
        """
        self.check_covers(after)
        return self.log.commits(after)

    def check_covers(self, after: int) -> None:
        """Raises LogLostError where the table is another one, or an older copy, than the one that had a version."""
        version = self.log.version
        if self.was_recreated:
            raise LogLostError(
                f"Table {self.record.name} at {self.record.location} was dropped and recreated, so its log no longer "
                f"covers the old rows. `rebuild` the views that read it."
            )
        if version < after:
            raise LogLostError(
                f"Table {self.record.name} is at version {version}, older than version {after} that was seen before: "
                f"it was replaced by an older copy. `rebuild` the views that read it."
            )

    @abstractmethod
    def changes(self, after: int, upto: int, names: Sequence[str]) -> exp.Query:
        """The changes from version `after` (excluded) to `upto` as a signed bag, not netted."""

    def small_changes(self, after: int, upto: int, columns: Columns, most: int) -> pa.Table | None:
        """The same as at most so many rows at the driver, read without Spark; None where Spark must read them."""
        return None

    def rows_by_version(self, after: int, upto: int) -> dict[int, int | None]:
        """About how many rows each commit has changed, None where that is not known without reading them."""
        return {commit.version: commit.changed_rows for commit in self.log.commits(after) if commit.version <= upto}

    def changed_rows(self, after: int, upto: int) -> int | None:
        """About how many rows were changed, None where that is not known without reading them."""
        rows = self.rows_by_version(after, upto).values()
        return None if None in rows else sum(filter(None, rows))

    def changed_files(self, after: int, upto: int) -> list[FileRange] | None:
        """The ranges of the columns in the files that hold the changed rows, None where they are not known."""
        return None

    def touched(self, after: int, upto: int) -> Iterator[list[Touched] | None]:
        """What is known, without reading them, of the rows that each commit changed; None where nothing is.

        Commits are the entries of the ledger, in their order.
        """
        yield None

    def net_changes(self, after: int, upto: int, columns: Columns, where: exp.Expr | None = None) -> exp.Select:
        """▲R − ▼R from version `after` (excluded) to `upto`, netted over the given columns, so that ▲R ⊆ R.

        With `where`, only of the rows for which that is true: a condition over these columns commutes with netting.
        """
        changes = self.changes(after, upto, [name for name, _ in columns])
        rows = in_types(changes, self.record, columns, [COUNT])
        return net(rows if where is None else select([exp.Star()], rows).where(where), columns)

    @contextmanager
    def guarded(self, after: int, upto: int) -> Iterator[None]:
        """Turn failures to read changes into LogLostError where these no longer exist: table, versions, what to do.

        Only what is known to be lost for good counts. Spark says the same of a storage that is out of reach for a
        moment, so the files themselves are looked for; if they are there, it is a StorageError, and nothing changes.
        """
        try:
            yield
        except LogLostError:
            raise
        except DeferredError as error:
            chain = f"{error} {error.__cause__}"
            if any(sign in chain for sign in _NEVER_WRITTEN):
                reason = str(error)[:160]
            elif not any(sign in chain for sign in _OUT_OF_REACH):
                raise
            elif (gone := self._looked_for(after, upto)) is None:
                raise StorageError(
                    f"The log of {self.record.name} from version {after + 1} to {upto} cannot be read at present: "
                    f"{str(error)[:160]} Its files are there. Nothing was changed; try again, and `rebuild` the "
                    f"view if this goes on."
                ) from error
            else:
                reason = f"{gone} does not exist"
            raise LogLostError(
                f"The log of {self.record.name} from version {after + 1} to {upto} is lost: Delta no longer has it "
                f"({reason}). The view cannot be brought up to date from it; `rebuild` recomputes it from "
                f"the tables as they are."
            ) from error

    def _lost_file(self, after: int, upto: int) -> str | None:
        """A file that these changes need and that no longer exists, None if all exist."""
        log = DeltaLog(self.record.location)
        lost = (log.missing(version) for version in range(after + 1, upto + 1))
        return next((path for path in lost if path is not None), None)

    def _looked_for(self, after: int, upto: int) -> str | None:
        """The same; StorageError if the storage does not say."""
        try:
            return self._lost_file(after, upto)
        except OSError as error:
            raise StorageError(
                f"The files of {self.record.name} cannot be looked for at present: {error}. Nothing was changed; try "
                f"again."
            ) from error

    @property
    def was_recreated(self) -> bool:
        """Whether another table lies at the location of the one that was tracked."""
        return self.record.delta_id is not None and self.log.id != self.record.delta_id

    @property
    def was_replaced(self) -> bool:
        """Whether the table is another one, or an older copy, than the one that the ledger knows."""
        last = self.context.metadata.ledger.last(self.record.id)
        return self.was_recreated or (last is not None and self.log.version < last.version)

    # ---- writing

    @property
    @abstractmethod
    def write_refusal(self) -> str | None:
        """Why a transaction may not write the table, None where it may."""

    @abstractmethod
    def append_changes(self, deletions: Any, insertions: Any) -> LedgerEntry:
        """Enter ▼R and ▲R of one step that the owner of the table has made already."""

    # ---- tracking

    @classmethod
    def locate(cls, context: Context, name: str, given: Given) -> Place:
        """The Delta table that the engine will read: the one that is given, or a copy that is made here."""
        given.refuse(name, str(cls.option), "columns", "updated_at", "deletions")
        return Place(located(context, given.path_or_name, name))

    @classmethod
    def suits(cls, context: Context, given: Given) -> str | None:
        """Why track(log='auto') chooses this source for what is given; None where it does not."""
        return None

    def pull(self) -> int:
        """Take in what a source has changed that does not write the Delta table itself; returns how many rows."""
        return 0

    def ingest(self, events: Any) -> int:
        """Take in events that a source has sent; returns how many rows they changed."""
        raise InvalidInputError(
            f"{self.record.name} is tracked by {self.summary}. Events are taken in for a table that is tracked with "
            f"track(…, log='debezium')."
        )

    @classmethod
    @abstractmethod
    def set_up(cls, context: Context, name: str, location: str) -> str | None:
        """Make sure that changes are recorded from now on; returns the location of a separate log table, if any."""

    @abstractmethod
    def resume(self) -> str | None:
        """The same for a table that is tracked already, after its log was lost."""

    @abstractmethod
    def serve(self) -> None:
        """Prepare the table for being read by a new view."""
