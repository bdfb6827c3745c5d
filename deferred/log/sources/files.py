"""A Delta table without a change feed, which stays as it is: its changes are read from the files that commits touch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from deferred.algebra.bags import signed, union_all
from deferred.algebra.types import as_read
from deferred.errors import InvalidInputError
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog
from deferred.log.file_changes import Action, FileChanges, FileRange, file_changes, file_ranges, log_of_files
from deferred.log.heads import commit_file
from deferred.log.locating import Given
from deferred.log.sources.source import Source
from deferred.log.storage import Storage
from deferred.metadata import LedgerEntry
from deferred.sql.dialect import delta_table

if TYPE_CHECKING:
    from deferred.log.touched import Touched


class Files(Source):
    """▲R − ▼R is the rows of the files that commits added minus those of the files that they removed, netted.

    A commit replaces a file to change one of its rows, or gives it another deletion vector: the rows that stay are in
    both files and cancel out. Only these files are read. Nothing is written to the table, no property is set.
    """

    kind: ClassVar[str] = "files"
    option: ClassVar[str | None] = "files"
    summary: ClassVar[str] = "the files that its commits add and remove"
    noun: ClassVar[str] = "tracked table"

    def changes(self, after: int, upto: int, names: Sequence[str]) -> exp.Query:
        """The rows of the files that the versions do not share; of both versions where the log does not say enough.

        It does not where its commits were cleaned up, or where a commit gave the columns another meaning without
        touching a file, such as one that was dropped and added again.
        """
        files = self._file_changes(after, upto)
        reshapings = self.log.reshapings(after, self.log.version)
        if files is None or not all(r.after.keeps(r.before, names) for r in reshapings):
            return union_all([signed(self.rows_at(upto), names), signed(self.rows_at(after), names, -1)])
        sides = ((files.added, 1), (files.removed, -1))
        parts = [signed(self._table_of(side), names, times) for side, times in sides if side]
        return union_all(parts or [signed(self.rows_at(upto), names).where(exp.false())])

    def changed_files(self, after: int, upto: int) -> list[FileRange] | None:
        return file_ranges(self.log, after, upto)

    def touched(self, after: int, upto: int) -> Iterator[list[Touched] | None]:
        from deferred.log.touched import Commits  # it decides with a solver, which most commands do without

        commits = Commits(self.log, after, {name: as_read(type_) for name, type_ in self.columns})
        return map(commits.touched, range(after + 1, upto + 1))

    def _file_changes(self, after: int, upto: int) -> FileChanges | None:
        commits = self.log.all_actions(after, upto)
        return None if commits is None else file_changes(commits)

    def _table_of(self, files: Sequence[Action]) -> exp.Table:
        """A Delta table in the warehouse that consists of some files of the table; `gc` removes it.

        Spark reads all files where a condition names those to be read (_metadata.file_path): Delta prunes none by it.
        """
        folder = self.context.folder("logs", f"files-{uuid.uuid4().hex}")
        log = log_of_files(self.record.location, files, self.log.metadata, self.log.features)
        Storage(folder).write(commit_file(0), log)
        return delta_table(folder)

    def _lost_file(self, after: int, upto: int) -> str | None:
        log = DeltaLog(self.record.location)
        files = self._file_changes(after, upto)
        if files is not None and not self.log.reshapings(after, self.log.version):
            return log.absent(files.files)
        return log.missing_at(after) or log.missing_at(upto)

    @property
    def write_refusal(self) -> str | None:
        return None

    def append_changes(self, deletions: Any, insertions: Any) -> LedgerEntry:
        raise InvalidInputError(
            f"The changes of {self.record.name} are read from the files of its commits. Only the changes of a table "
            f"that is tracked with track(…, log='table') are handed over."
        )

    @classmethod
    def suits(cls, context: Context, given: Given) -> str | None:
        location = given.delta_table(context)
        if location is None or DeltaLog(location).has_feed:
            return None
        return "it is a Delta table whose change data feed is off; log='feed' would alter it, and read less"

    @classmethod
    def set_up(cls, context: Context, name: str, location: str) -> str | None:
        """Nothing to do: Delta's log has the files of every commit."""
        return None

    def resume(self) -> str | None:
        return None

    def serve(self) -> None:
        """Nothing to do: the table stays as it is."""
