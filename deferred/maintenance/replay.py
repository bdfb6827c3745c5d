"""replay: a view's past, step by step, in a history table: its rows as of each step, or what changed in each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from sqlglot import exp

from deferred.algebra.bags import alias, call, change_columns, column, described, difference, select, signed
from deferred.errors import InvalidInputError
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog, is_delta
from deferred.log.lease import lease
from deferred.maintenance import definition as definitions
from deferred.maintenance.base_logs import cut_at, synced_tables
from deferred.maintenance.definition import Definition, query
from deferred.maintenance.operation import Operation, Work, recorded, result
from deferred.maintenance.rounds import at_cut
from deferred.maintenance.strategies import RECOMPUTE
from deferred.maintenance.view_tables import history_path
from deferred.metadata import ViewRecord
from deferred.spark import bags
from deferred.sql.dialect import cast, delta_table

AS_OF = "_as_of"


def replay(context: Context, name: str, since: datetime, until: datetime, of: str = "rows") -> Operation:
    """Fill one step of the history table of a view: its rows at `until`, or what changed after `since` up to then.

    The step replaces what the table held for the same moment, in one Delta commit, so that running it again changes
    nothing. MV and the differential tables are not touched; base tables are read at the versions of that time.
    """
    view = context.metadata.views.get(name)
    path = history_path(context, view, of)
    with (
        lease(context, f"replay:{view.id}", f"The replay of {view.name}"),
        recorded(context, "replay", view, since=since.isoformat(), until=until.isoformat(), of=of) as work,
    ):
        with work.phase("sync"):
            tables = synced_tables(context, view)
            if of == "changes":
                work.from_cut = cut_at(context, view, tables, since)
            work.to_cut = cut_at(context, view, tables, until)
        definition = definitions.load(context, view)
        with work.phase("write"):
            _write(context, view, definition, work, path, until, of)
    return result(context, work)


def _write(
    context: Context, view: ViewRecord, definition: Definition, work: Work, path: str, until: datetime, of: str
) -> None:
    """Replace the rows of the step at `until` in the history table."""
    extra = [(AS_OF, "timestamp")]
    if of == "changes":
        change, count = change_columns(view.columns)
        extra += [(change, "string"), (count, "bigint")]
    names = [name for name, _ in [*view.columns, *extra]]
    if not is_delta(path):
        bags.create(context.engine, path, [*view.columns, *extra])
    elif (held := [name for name, _ in DeltaLog(path).columns]) != names:
        raise InvalidInputError(
            f"The history table of view {view.name} has the columns {', '.join(held)}, those of an earlier definition. "
            f"Move its folder {path} away, or remove it: then replay begins a new one."
        )
    table = delta_table(path)
    moment = cast(exp.Literal.string(until.isoformat()), "timestamp")
    at_moment = exp.EQ(this=column(AS_OF), expression=moment)
    outputs = [alias(moment.copy(), AS_OF) if name == AS_OF else column(name) for name in names]
    with _step(context, view, definition, work) as step:
        context.engine.write(exp.Insert(this=table, where=at_moment, expression=select(outputs, step)))
    number = select([exp.alias_(call("COUNT", exp.Star()), "n")], table).where(at_moment)
    (total,) = context.engine.rows(number)
    work.rows_inserted, work.strategy = int(total["n"]), RECOMPUTE.name
    work.details["table"] = path


@contextmanager
def _step(context: Context, view: ViewRecord, definition: Definition, work: Work) -> Iterator[exp.Select]:
    """The view's rows at a cut, or its changes between two cuts."""
    assert work.to_cut is not None
    with at_cut(context, definition, work.to_cut) as then:
        new = query(then, view.columns, work.to_cut)
        if work.from_cut is None:
            yield new
            return
        names = [name for name, _ in view.columns]
        with at_cut(context, definition, work.from_cut) as before:
            old = query(before, view.columns, work.from_cut)
            yield described(difference(signed(new, names), signed(old, names), view.columns), view.columns)
