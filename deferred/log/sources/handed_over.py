"""A table without a change feed: its owner writes it and hands over the changes, which a log table keeps."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from deferred.algebra.bags import BATCH, COUNT, alias, bigint, column, net, select, signed, union_all
from deferred.algebra.types import as_read
from deferred.errors import InvalidInputError, LogLostError
from deferred.log.context import Context
from deferred.log.delta_log import TICK, Commit, DeltaLog, last_mark
from deferred.log.lease import bar, lease
from deferred.log.sources.source import Source
from deferred.metadata import LedgerEntry, utc_now
from deferred.spark import bags
from deferred.spark.engine import Mark
from deferred.spark.rows import frame, staged
from deferred.sql.dialect import delta_table, parquet_files, text

if TYPE_CHECKING:
    from deferred.log.touched import Touched


class HandedOver(Source):
    """▼R and ▲R are the rows that the owner handed over, the paper's own setting."""

    kind: ClassVar[str] = "log"
    option: ClassVar[str | None] = "table"
    summary: ClassVar[str] = "rows that its owner hands over with append_changes"
    noun: ClassVar[str] = "tracked table"

    @property
    def version(self) -> int:
        last = self.context.metadata.ledger.last(self.record.id)
        return last.version if last else self.record.first_version

    def commits(self, after: int) -> list[Commit]:
        """None: append_changes has entered them in the ledger itself."""
        return []

    def changes(self, after: int, upto: int, names: Sequence[str]) -> exp.Select:
        entries = self.context.metadata.ledger.between(self.record.id, after, upto)
        batches = [entry.batch for entry in entries if entry.batch is not None]
        rows = select([*map(column, names), column(COUNT)], self._log_table)
        return rows.where(column(BATCH).isin(*batches) if batches else exp.false())

    def rows_by_version(self, after: int, upto: int) -> dict[int, int | None]:
        entries = self.context.metadata.ledger.between(self.record.id, after, upto)
        counts = {batch: [file["num_records"] for file in listed] for batch, listed in self._files_by_batch.items()}
        known = {batch: None if None in rows else sum(rows) for batch, rows in counts.items()}
        return {entry.version: known.get(entry.batch) for entry in entries}

    def touched(self, after: int, upto: int) -> Iterator[list[Touched] | None]:
        """Of each batch all files: a row in them is one that was deleted or inserted."""
        from deferred.log.touched import Commits  # it decides with a solver, which most commands do without

        log, files = DeltaLog(str(self.record.location)), self._files_by_batch
        commits = Commits(log, log.version, {name: as_read(type_) for name, type_ in self.record.columns})
        for entry in self.context.metadata.ledger.between(self.record.id, after, upto):
            listed = files.get(entry.batch)
            yield None if listed is None else commits.of_files(listed)  # one without rows, or one that is gone

    @cached_property
    def _files_by_batch(self) -> dict[int | None, list[dict[str, Any]]]:
        """The files of the log table by the batch that they hold; none where delta-rs cannot tell."""
        log = DeltaLog(str(self.record.log_location))
        found: dict[int | None, list[dict[str, Any]]] = {}
        for file in log.files_at(log.version):
            found.setdefault(file[f"partition.{BATCH}"], []).append(file)
        return found

    @property
    def _log_table(self) -> exp.Table:
        assert self.record.log_location is not None
        return delta_table(self.record.log_location)

    def _lost_file(self, after: int, upto: int) -> str | None:
        assert self.record.log_location is not None
        return DeltaLog(self.record.log_location).missing_now()

    @property
    def write_refusal(self) -> str | None:
        return (
            f"{self.record.name} has no change feed: its owner writes it and hands over the changes with "
            f"append_changes."
        )

    def append_changes(self, deletions: Any, insertions: Any) -> LedgerEntry:
        name, ledger = self.record.name, self.context.metadata.ledger
        with lease(self.context, f"log:{self.record.id}", f"The log of {name}", self._shut_out) as held:
            if self.was_recreated:
                raise LogLostError(
                    f"Table {name} was dropped and recreated, so its log no longer covers the old rows. Untrack it "
                    f"and track it again, then rebuild the views that read it."
                )
            last = ledger.last(self.record.id)
            if last is not None and self.log.version <= last.version:
                raise InvalidInputError(
                    f"Table {name} has not changed since version {last.version}, the last one whose changes were "
                    f"handed over. Write the table first, then hand over what was changed."
                )
            batch = self._append(deletions, insertions, held.lease.committing)
            moment = max(utc_now(), last.timestamp + TICK) if last else utc_now()
            entry = LedgerEntry(self.record.id, self.log.version, moment, None, "HANDED OVER", batch)
            ledger.append([entry], [held.lease])
            return entry

    @property
    def _application(self) -> str:
        return f"deferred-log-{self.record.id}"

    def _shut_out(self, number: int) -> None:
        assert self.record.log_location is not None
        bar(self.context, self.record.log_location, Mark(self._application, number, {"kind": "bar"}))

    def _append(self, deletions: Any, insertions: Any, number: int) -> int:
        """Write the changes to the log table, netted, in one commit; returns the number of the batch."""
        assert self.record.log_location is not None
        # Changes whose process died before they were in the ledger do not count, and their number is not used again.
        written = last_mark(self.record.log_location, "log")
        batch = (int(written["batch"]) if written else 0) + 1
        engine, columns = self.context.engine, self.record.columns
        names = [column_name for column_name, _ in columns]
        parts: list[exp.Query] = []
        folder = f"log-{uuid.uuid4().hex}"
        for label, rows, times in (("deletions", deletions, -1), ("insertions", insertions, 1)):
            path = self.context.folder("transactions", folder, label)
            staged(frame(engine, [] if rows is None else rows, self.record), self.record, path)
            parts.append(signed(parquet_files(path), names, times))
        outputs = [exp.Star(), alias(bigint(batch), BATCH)]
        rows_ = exp.Insert(this=self._log_table, expression=select(outputs, net(union_all(parts), columns)))
        mark = Mark(self._application, number, {"kind": "log", "batch": batch})
        engine.commit(text(rows_), mark)
        return batch

    @classmethod
    def set_up(cls, context: Context, name: str, location: str) -> str | None:
        log_location = context.folder("logs", f"{name}-{uuid.uuid4().hex[:8]}")
        columns = [*DeltaLog(location).columns, (COUNT, "bigint"), (BATCH, "bigint")]
        bags.create(context.engine, log_location, columns, [BATCH])
        return log_location

    def resume(self) -> str | None:
        """A log table says nothing of a table that replaced the tracked one, which gets a new log table."""
        if not self.was_replaced:
            return self.record.log_location
        return self.set_up(self.context, self.record.name, self.record.location)

    def serve(self) -> None:
        """Nothing to do: the log table was created when the table was tracked."""
