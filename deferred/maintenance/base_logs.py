"""The base tables of a view and their net logs between two cuts: where every operation begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.bags import COUNT, net, select
from deferred.algebra.types import Columns
from deferred.errors import InvalidInputError
from deferred.log import ledger
from deferred.log.context import Context
from deferred.log.file_changes import FileRange
from deferred.log.small_changes import meeting
from deferred.log.sources import Source, source_of
from deferred.log.transactions import recover
from deferred.metadata import Cut, TableRecord, ViewRecord
from deferred.spark.local_bags import netted
from deferred.spark.sizing import settings_for
from deferred.spark.temporaries import UNKNOWN, Temporaries, local_rows
from deferred.sql.ddl import column_list

if TYPE_CHECKING:
    import pyarrow as pa

    from deferred.maintenance.definition import Definition


def base_tables(context: Context, view: ViewRecord) -> list[TableRecord]:
    """The tables that a view reads."""
    return [context.metadata.tables.by_id(table_id) for table_id in view.depends_on]


def synced_tables(context: Context, view: ViewRecord) -> list[TableRecord]:
    """The tables that a view reads, after the ledger has taken in their new commits."""
    tables = base_tables(context, view)
    ledger.sync(context, tables, lambda table: recover(context, table))
    return tables


def cut_at(context: Context, view: ViewRecord, tables: Sequence[TableRecord], moment: datetime) -> Cut:
    """The cut at a time in the past of the tables that a view reads; refused where nothing is known of that time."""
    for source in tables:
        if context.metadata.ledger.at(source.id, moment) is None:
            raise InvalidInputError(
                f"View {view.name} is not known as of {moment.isoformat()}: nothing is known of {source.name} at that "
                f"time. Choose a time after its first commit that was tracked."
            )
    return ledger.cut(context, tables, moment, None)


@dataclass(frozen=True)
class Logs:
    """▲R − ▼R of each base table with commits between two cuts: netted, kept as temporary results."""

    tables: Mapping[str, exp.Table]
    rows: Mapping[str, int]
    local: Mapping[str, pa.Table] = field(default_factory=dict)
    """The rows of those that are at the driver."""
    files: Mapping[str, Sequence[FileRange]] = field(default_factory=dict)
    """Of those whose rows were not read, what is known of the files that hold them."""

    @property
    def changed(self) -> dict[str, exp.Table]:
        """The logs that are not empty."""
        return {name: log for name, log in self.tables.items() if self.rows[name]}

    @property
    def total(self) -> int:
        """The number of changed rows in all tables."""
        return sum(self.rows.values())


@dataclass(frozen=True)
class Size:
    """How much there is to do: about how many rows were changed, and how many there are; None where it is not known."""

    changed_rows: int | None
    table_rows: int | None

    @property
    def expected(self) -> int:
        """The number of changed rows to expect: an unknown one is assumed to be small, and is counted on reading."""
        return 0 if self.changed_rows is None else self.changed_rows

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a Spark session that suit the work."""
        return settings_for(self.expected, self.table_rows)


def size(context: Context, definition: Definition, since: Cut, cut: Cut) -> Size:
    """The size of the work between two cuts, from Delta's logs: nothing is read."""
    changed: list[int | None] = [0]
    rows: list[int | None] = [0]
    for table in definition.tables.values():
        source = source_of(context, table)
        rows.append(source.row_count())
        after, upto = since.versions[table.id], cut.versions[table.id]
        if upto > after:
            changed.append(source.changed_rows(after, upto))
    return Size(_total(changed), _total(rows))


def unread(context: Context, definition: Definition, since: Cut, cut: Cut | None = None) -> Logs | None:
    """About how many rows of each table have changed between two cuts, by Delta's logs; no row is read.

    Without `cut`, up to now.
    """
    rows, files = {}, {}
    for name, table in definition.tables.items():
        source, after = source_of(context, table), since.versions[table.id]
        upto = source.version if cut is None else cut.versions[table.id]
        found = source.changed_rows(after, upto) if upto > after else 0
        if found is None:
            return None
        rows[name] = found
        if found and (touched := source.changed_files(after, upto)) is not None:
            files[name] = touched
    return Logs({}, rows, files=files)


def _total(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def net_logs(
    context: Context,
    definition: Definition,
    since: Cut,
    cut: Cut,
    temporaries: Temporaries,
    expected: int = UNKNOWN,
    relevant: Mapping[str, exp.Expr | None] | None = None,
) -> Logs:
    """The net logs between two cuts, of the columns that the view reads; `expected` is about how many rows.

    With `relevant`, only those of its tables, and of them the rows for which its condition is true.
    """
    logs: dict[str, exp.Table] = {}
    for number, (name, table) in enumerate(definition.tables.items()):
        after, upto = since.versions[table.id], cut.versions[table.id]
        columns = definition.read_columns(name)
        if upto <= after or not columns:  # the text may name a table that nothing in the plan reads
            continue
        if relevant is not None and name not in relevant:
            continue
        source = source_of(context, table)
        with source.guarded(after, upto):
            where = None if relevant is None else relevant[name]
            logs[name] = _net_log(source, after, upto, columns, where, temporaries, f"log{number}", expected)
    local = {name: rows for name, log in logs.items() if (rows := temporaries.local(log)) is not None}
    return Logs(logs, {name: temporaries.rows(log) for name, log in logs.items()}, local)


def _net_log(
    source: Source,
    after: int,
    upto: int,
    columns: Columns,
    where: exp.Expr | None,
    temporaries: Temporaries,
    name: str,
    expected: int,
) -> exp.Table:
    """One net log. Few rows are read at the driver, and netted there if nothing has to be evaluated for that."""
    most = local_rows(type_ for _, type_ in columns)
    rows = source.small_changes(after, upto, columns, most) if expected <= most else None
    if rows is None:
        return temporaries.compute(name, source.net_changes(after, upto, columns, where), expected)
    types = column_list([*columns, (COUNT, "bigint")])
    meant = meeting(rows, where)
    few = None if meant is None else netted(meant)
    if few is not None:
        return temporaries.hold(name, few, types)
    all_ = temporaries.put(f"{name}_rows", rows, types)
    return temporaries.compute(
        name, net(all_ if where is None else select([exp.Star()], all_).where(where), columns), expected
    )
