"""A table whose changes are Delta's change data feed: written with every commit, by whoever makes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from deferred.algebra.bags import COUNT, alias, bigint, column, select, signed, union_all
from deferred.algebra.types import Columns, as_read
from deferred.errors import DeferredError, InvalidInputError, SparkFailure
from deferred.log.context import Context
from deferred.log.delta_log import FEED, DeltaLog
from deferred.log.file_changes import FileRange, file_ranges
from deferred.log.locating import Given
from deferred.log.small_changes import small_changes
from deferred.log.sources.source import Source
from deferred.metadata import LedgerEntry
from deferred.sql.ddl import set_properties
from deferred.sql.dialect import delta_table

if TYPE_CHECKING:
    import pyarrow as pa

    from deferred.log.touched import Touched


class ChangeFeed(Source):
    """▼R and ▲R are what the change feed says was deleted and inserted."""

    kind: ClassVar[str] = "feed"
    option: ClassVar[str | None] = "feed"
    summary: ClassVar[str] = "its change data feed"
    noun: ClassVar[str] = "tracked table"

    def changes(self, after: int, upto: int, names: Sequence[str]) -> exp.Query:
        """The feed; but where a commit gave the table another shape, the difference of its rows after and before.

        Delta reads the feed of all commits with the columns and partitions that the table has now: rows of files from
        before it was repartitioned have NULL for its partition columns. A column that was dropped and added again is
        another one, and the feed cannot be read across such a commit; nor can what was before it, where columns have no
        names of their own in the files.
        """
        reshapings = self.log.reshapings(after, self.log.version)
        breaks = {r.version for r in reshapings if r.breaks_feed and r.version <= upto}
        moved = [
            r.version
            for r in reshapings
            if r.version <= upto and (not r.after.keeps(r.before, names) or (r.changed_rows and r.version in breaks))
        ]
        unread = [
            r.version
            for r in reshapings
            if r.before.partitions != r.after.partitions or (r.breaks_feed and r.after.mapping == "none")
        ]
        if unread:
            moved += [after + 1, min(unread[-1], upto)]
        parts: list[exp.Query] = []
        if moved:
            first, last = min(moved), max(moved)
            parts += [signed(self.rows_at(last), names), signed(self.rows_at(first - 1), names, -1)]
            breaks |= set(range(first, last + 1))
        begin = after + 1
        for end in (*sorted(breaks), upto + 1):
            if begin < end:
                parts.append(self._feed(begin, end - 1, names))
            begin = end + 1
        return union_all(parts or [signed(self.rows_at(upto), names).where(exp.false())])

    def small_changes(self, after: int, upto: int, columns: Columns, most: int) -> pa.Table | None:
        return small_changes(self.log, after, upto, columns, most)

    @contextmanager
    def guarded(self, after: int, upto: int) -> Iterator[None]:
        """Refuse also what was read while the table was repartitioned, see `changes`."""
        with super().guarded(after, upto):
            yield
        if DeltaLog(self.record.location).partitions != self.log.partitions:
            raise SparkFailure(
                f"Table {self.record.name} was repartitioned while its changes were read. Nothing is lost; run the "
                f"same command again."
            )

    def _feed(self, first: int, last: int, names: Sequence[str]) -> exp.Select:
        arguments = [exp.Literal.string(self.record.location), *map(exp.Literal.number, (first, last))]
        feed = exp.Table(this=exp.Anonymous(this="table_changes_by_path", expressions=arguments))
        inserted = column("_change_type").isin("insert", "update_postimage")
        sign = exp.Case().when(inserted, bigint(1)).else_(bigint(-1))
        return select([*map(column, names), alias(sign, COUNT)], feed)

    def changed_files(self, after: int, upto: int) -> list[FileRange] | None:
        return file_ranges(self.log, after, upto)

    def touched(self, after: int, upto: int) -> Iterator[list[Touched] | None]:
        from deferred.log.touched import Commits  # it decides with a solver, which most commands do without

        commits = Commits(self.log, after, {name: as_read(type_) for name, type_ in self.columns})
        return map(commits.touched, range(after + 1, upto + 1))

    @property
    def write_refusal(self) -> str | None:
        return None

    def append_changes(self, deletions: Any, insertions: Any) -> LedgerEntry:
        raise InvalidInputError(
            f"{self.record.name} is tracked by its change feed, which records every write already. Only the changes "
            f"of a table that is tracked with track(…, log='table') are handed over."
        )

    @classmethod
    def suits(cls, context: Context, given: Given) -> str | None:
        location = given.delta_table(context)
        return "its change data feed is on" if location and DeltaLog(location).has_feed else None

    @classmethod
    def set_up(cls, context: Context, name: str, location: str) -> str | None:
        if not DeltaLog(location).has_feed:
            try:
                context.engine.write(set_properties(delta_table(location), {FEED: "true"}))
            except DeferredError as error:
                raise type(error)(
                    f"The change data feed of {name} could not be turned on: {error} With log='files' the table is "
                    f"tracked as it is: its changes are then read from the files that its commits add and remove."
                ) from error
        return None

    def resume(self) -> str | None:
        return self.set_up(self.context, self.record.name, self.record.location)

    def serve(self) -> None:
        """Nothing to do: the feed was turned on when the table was tracked."""
