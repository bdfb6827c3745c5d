"""The net base log of a table between two versions: ▲R − ▼R as a signed query, from whichever log the table has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from deferred.algebra.plan import COUNT
from deferred.errors import DeferredError, LogLostError
from deferred.log.context import Context
from deferred.log.history import DeltaLog, lost
from deferred.metadata import TableRecord
from deferred.spark import bags
from deferred.spark.engine import changes, table
from deferred.sql.dialect import quoted

BATCH = "_deferred_batch"
Columns = Sequence[tuple[str, str]]

_GONE = ("DELTA_MISSING_CHANGE_DATA", "DELTA_CHANGE_DATA_FILE_NOT_FOUND", "DELTA_CHANGE_TABLE_FEED_DISABLED",
         "FAILED_READ_FILE", "FileNotFound", "DELTA_VERSION_NOT_FOUND", "DELTA_LOG_FILE_NOT_FOUND", "does not exist",
         "DELTA_TRUNCATED_TRANSACTION_LOG", "VersionNotFound", "DELTA_MISSING_TRANSACTION_LOG",
         "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE", "DELTA_FILE_NOT_FOUND", "_change_data")


def net(context: Context, source: TableRecord, after: int, upto: int, columns: Columns) -> str:
    """▲R − ▼R from version `after` (excluded) to `upto`, netted over the given columns, so that ▲R ⊆ R."""
    names = [name for name, _ in columns]
    if source.kind == "log":
        raw = _handed_over(context, source, after, upto, names)
    else:
        raw = changes(source.location, after + 1, upto, names, COUNT)
    return bags.net(raw, columns)


def _handed_over(context: Context, source: TableRecord, after: int, upto: int, names: Sequence[str]) -> str:
    """The rows that the owner of a table without a change feed has handed over between two versions."""
    entries = context.metadata.ledger.between(source.id, after, upto)
    batches = ", ".join(str(int(e.batch)) for e in entries if e.batch is not None) or "-1"
    listed = ", ".join(quoted(n) for n in names)
    return (f"SELECT {listed}, {quoted(COUNT)} FROM {table(source.log_location or '')} "
            f"WHERE {quoted(BATCH)} IN ({batches})")


@contextmanager
def guarded(source: TableRecord, after: int, upto: int) -> Iterator[None]:
    """A log that cannot be read any more is an error of its own, with the table, the versions and the remedy."""
    try:
        yield
    except LogLostError:
        raise
    except DeferredError as error:
        chain = f"{error} {error.__cause__}"
        if any(sign in chain for sign in _GONE):
            raise lost(source.name, after + 1, upto, f"Delta no longer has it ({str(error)[:160]})") from error
        raise


def check_columns(source: TableRecord, columns: Columns) -> None:
    """Refuse to go on when a column that a view reads was dropped, renamed or given another type."""
    current = {name.casefold(): type_ for name, type_ in DeltaLog(source.location).columns}
    for name, type_ in columns:
        now = current.get(name.casefold())
        if now is None:
            raise LogLostError(f"Column {name} of table {source.name} is gone (dropped or renamed), and a view reads "
                               f"it. Bring it back, or drop the view and create it anew.")
        if now != type_:
            raise LogLostError(f"Column {name} of table {source.name} was {type_} and is now {now}, and a view reads "
                               f"it. Drop the view and create it anew.")
