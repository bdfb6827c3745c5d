"""replay: a view's past, step by step, in a history table: its rows as of each step, or what changed in each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from deferred.algebra.plan import COUNT
from deferred.errors import InvalidInputError
from deferred.log import ledger
from deferred.log.context import Context
from deferred.log.lease import lease
from deferred.log.transactions import recover
from deferred.maintenance import definition as definitions
from deferred.maintenance.definition import Definition
from deferred.maintenance.operation import Operation, Work, recorded, result
from deferred.maintenance.propagate import sources
from deferred.maintenance.views import query
from deferred.metadata import Cut, TableRecord, ViewRecord
from deferred.spark import bags
from deferred.spark.engine import table
from deferred.sql.dialect import quoted

AS_OF = "_as_of"
KINDS = ("rows", "changes")


def steps(start: datetime, end: datetime, width: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """The intervals [a, b) from start to end; the last one ends at `end`.

    >>> [str(b.time()) for _, b in steps(datetime(2026, 1, 1), datetime(2026, 1, 1, 1), timedelta(minutes=25))]
    ['00:25:00', '00:50:00', '01:00:00']
    """
    if end <= start or width <= timedelta(0):
        raise InvalidInputError(f"The range from {start} to {end} in steps of {width} is empty.")
    while start < end:
        yield start, min(start + width, end)
        start += width


def history_path(context: Context, view: ViewRecord, of: str) -> str:
    """Where the history table of a view is, unless its reader wants it elsewhere."""
    return context.folder("history", f"{view.name}_{of}")


def replay(context: Context, name: str, since: datetime, until: datetime, of: str = "rows") -> Operation:
    """Fill one step of the history table of a view: its rows at `until`, or what changed after `since` up to then.

    The step replaces what the table held for the same moment, in one Delta commit, so that running it again changes
    nothing. MV and the differential tables are not touched; base tables are read at the versions of that time.
    """
    if of not in KINDS:
        raise InvalidInputError(f"replay of {of!r}: it is one of {', '.join(KINDS)}.")
    view = context.metadata.views.get(name)
    with lease(context, f"replay:{view.id}", f"The replay of {view.name}"), \
            recorded(context, "replay", view, since=since.isoformat(), until=until.isoformat(), of=of) as work:
        with work.phase("sync"):
            tables = sources(context, view)
            ledger.sync(context, tables, lambda t: recover(context, t))
            if of == "changes":
                work.from_cut = _cut(context, view, tables, since)
            work.to_cut = _cut(context, view, tables, until)
        definition = definitions.load(context, view)
        with work.phase("write"):
            _write(context, view, definition, work, until, of)
    return result(context, work)


def _cut(context: Context, view: ViewRecord, tables: list[TableRecord], moment: datetime) -> Cut:
    for source in tables:
        if context.metadata.ledger.at(source.id, moment) is None:
            raise InvalidInputError(f"View {view.name} cannot be replayed as of {moment.isoformat()}: nothing is known "
                                    f"of {source.name} at that time. Begin after its first commit that was tracked.")
    return ledger.cut(context, tables, moment, None)


def _write(context: Context, view: ViewRecord, definition: Definition, work: Work, until: datetime, of: str) -> None:
    names = ", ".join(quoted(n) for n, _ in view.columns)
    path = history_path(context, view, of)
    extra = [(AS_OF, "timestamp")] if of == "rows" else [(AS_OF, "timestamp"), ("_change", "string"),
                                                         ("_count", "bigint")]
    listed = ", ".join([names, *(quoted(n) for n, _ in extra)])
    context.engine.sql(f"CREATE TABLE IF NOT EXISTS {table(path)} "
                       f"({', '.join(f'{quoted(n)} {t}' for n, t in [*view.columns, *extra])}) USING delta")
    moment = f"TIMESTAMP'{until.isoformat()}'"
    filled = f"SELECT {listed} FROM ({_step(view, definition, work, moment)}) AS s"
    context.engine.sql(f"INSERT INTO {table(path)} REPLACE WHERE {quoted(AS_OF)} = {moment} {filled}")
    (total,) = context.engine.rows(f"SELECT COUNT(*) AS rows FROM {table(path)} WHERE {quoted(AS_OF)} = {moment}")
    work.rows_inserted, work.strategy = int(total["rows"]), "full"
    work.details["table"] = path


def _step(view: ViewRecord, definition: Definition, work: Work, moment: str) -> str:
    assert work.to_cut is not None
    names = ", ".join(quoted(n) for n, _ in view.columns)
    new = query(definition, view.columns, work.to_cut)
    if work.from_cut is None:
        return f"SELECT {names}, {moment} AS {quoted(AS_OF)} FROM ({new}) AS n"
    count = quoted(COUNT)
    net = bags.net(f"SELECT {names}, 1L AS {count} FROM ({new}) AS n UNION ALL "
                   f"SELECT {names}, -1L AS {count} FROM ({query(definition, view.columns, work.from_cut)}) AS o",
                   view.columns)
    return (f"SELECT {names}, {moment} AS {quoted(AS_OF)}, IF({count} > 0, 'insert', 'delete') AS `_change`, "
            f"ABS({count}) AS `_count` FROM ({net}) AS c")
