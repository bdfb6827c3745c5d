"""propagate: compute the changes from s_i to s_c into the differential tables. The slow part; touches no reader.

cut → logs → strategy → differential batch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint, column, insert_into, select
from deferred.errors import DeferredError, LogLostError, PromiseBrokenError
from deferred.log import ledger, undo
from deferred.log.context import Context
from deferred.log.lease import Held
from deferred.log.sources import source_of
from deferred.maintenance.base_logs import Logs, Size, net_logs, size, synced_tables, unread
from deferred.maintenance.operation import Operation, Work, recorded, result
from deferred.maintenance.settle import confirm, settled, usable
from deferred.maintenance.view_tables import (
    DIFFERENTIAL_BATCH,
    DIFFERENTIAL_COUNT,
    differential_application,
    differential_path,
)
from deferred.maintenance.working import propagating
from deferred.metadata import Cut, ViewRecord
from deferred.spark import bags
from deferred.spark.engine import Mark
from deferred.spark.temporaries import BROADCAST_ROWS, Temporaries
from deferred.sql.dialect import delta_table

if TYPE_CHECKING:
    import pyarrow as pa

    from deferred.maintenance.definition import Definition
    from deferred.maintenance.strategies import Change, Choice

BATCHES_LEFT = 8
"""This many batches that MV shows already may stay in the differential table: removing them is a commit of its own."""


def propagate(
    context: Context, name: str, until: datetime | None = None, kind: str = "propagate", full: bool = False
) -> Operation:
    """Bring the differential tables of a view from s_i to the cut at `until` (now, by default)."""
    view = context.metadata.views.get(name)
    with propagating(context, view) as held:
        view = usable(settled(context, context.metadata.views.get(name)))
        with recorded(context, kind, view, until=until.isoformat() if until else None) as work:
            work.from_cut = view.propagated
            try:
                _propagate(context, view, until, work, full, held)
            except (LogLostError, PromiseBrokenError) as error:
                context.metadata.views.update(view.id, [held.lease], state="broken", problem=str(error))
                raise
        return result(context, work)


def _propagate(context: Context, view: ViewRecord, until: datetime | None, work: Work, full: bool, held: Held) -> None:
    since = view.propagated
    assert since is not None
    with work.phase("sync"):
        tables = synced_tables(context, view)
        cut = ledger.cut(context, tables, until, since)
        work.warnings += [undo.explained(transaction) for transaction in undo.stuck(context, tables)]
    work.to_cut = cut
    if dict(cut.versions) == dict(since.versions) and not full:
        _nothing(context, view, cut, work, held, work.warnings[0] if work.warnings else "No base table has changed.")
        return
    # Most propagates of a schedule find nothing new: what computes is loaded when there is something to compute.
    from deferred.maintenance import definition as definitions
    from deferred.maintenance import shared, support
    from deferred.maintenance.relevance import relevant
    from deferred.maintenance.rounds import Overestimated
    from deferred.maintenance.strategies import RECOMPUTE, Choice, Job, choose, reconsidered

    definition = definitions.load(context, view)
    for source in tables:
        source_of(context, source).check_columns(definition.read_columns(source.name))
    incrementally = not full and definition.bound is not None
    found = None
    if incrementally:
        with work.phase("relevance"):
            found = relevant(context, definition, since, cut)
        work.commits_irrelevant, work.rows_irrelevant = found.irrelevant_commits, found.irrelevant_rows(0)
        if not found.tables:
            _nothing(context, view, cut, work, held, found.why_nothing)
            return
    expected = size(context, definition, since, cut) if incrementally else Size(None, None)
    with context.engine.temporaries(expected.settings if incrementally else {}) as temporaries:
        logs, choice = Logs({}, {}), _whatever_changed(context, view, definition, since, cut, expected)
        if choice is not None:
            work.rows_read = expected.expected
        elif found is not None:
            with work.phase("log"):
                logs = net_logs(context, definition, since, cut, temporaries, expected.expected, found.tables)
            work.rows_read, work.rows_irrelevant = logs.total, found.irrelevant_rows(logs.total)
            if not logs.total:
                message = "The changes cancel out, or are in rows or columns that do not matter to the view."
                _nothing(context, view, cut, work, held, message)
                return
        with work.phase("compute"):
            supports = support.restore(context, view, definition)
            shared.catch_up(context, definition, since)
            kept = shared.held_at(context, definition, since)
            if choice is None:
                has_support = supports.states is not None and kept is not None
                choice = choose(context, view, definition, logs, full, has_support=has_support)
            states, batch = supports.states or {}, supports.next_batch
            job = Job(
                context,
                view,
                definition,
                cut,
                logs,
                states,
                temporaries,
                batch,
                shared=kept or {},
                operation=work.id,
                tell=work.tell,
            )
            choice = reconsidered(job, choice)
            work.costs = choice.costs
            try:
                change = choice.strategy.run(job)
            except Overestimated as error:
                choice = Choice(RECOMPUTE, str(error))
                change = choice.strategy.run(job)
            work.strategy, work.details["reason"] = choice.strategy.name, choice.reason
            if change.instead is not None:
                work.strategy, work.details["reason"] = change.instead.strategy.name, change.instead.reason
                work.warnings += [change.instead.reason] if change.instead.strategy is RECOMPUTE else []
            if change.recursions:
                work.details["recursions"] = change.recursions
            work.rows_deleted, work.rows_inserted = bags.count_changes(context.engine, temporaries, change.rows)
        with work.phase("write"):
            (shared.correct if full else shared.bring_along)(context, definition, cut)
            _write_batch(context, view, change, temporaries, cut, batch, work, held)
    _remove_applied_batches(context, view)


def _whatever_changed(
    context: Context, view: ViewRecord, definition: Definition, since: Cut, cut: Cut, expected: Size
) -> Choice | None:
    """The recomputation, if so much has changed that it is chosen by the number of changed rows alone.

    Then the logs, which may be as large as the tables, need not be read.
    """
    if expected.expected <= BROADCAST_ROWS:
        return None
    from deferred.maintenance.strategies import RECOMPUTE, choose

    counted = unread(context, definition, since, cut)
    choice = None if counted is None else choose(context, view, definition, counted)
    return choice if choice is not None and choice.strategy is RECOMPUTE else None


def _nothing(context: Context, view: ViewRecord, cut: Cut, work: Work, held: Held, message: str) -> None:
    work.nothing(message)
    context.metadata.views.update(view.id, [held.lease], propagated=cut)


def _write_batch(
    context: Context,
    view: ViewRecord,
    change: Change,
    temporaries: Temporaries,
    cut: Cut,
    batch: int,
    work: Work,
    held: Held,
) -> None:
    """Append the change as one batch: one Delta commit, which names the cut that it leads to.

    The support tables advance before it; if the batch does not follow, the next propagate restores them.
    """
    change.advance_supports(work.id, batch)
    if work.rows_deleted or work.rows_inserted:
        path = differential_path(view.workings)
        names = [name for name, _ in view.columns]
        mark = Mark(
            differential_application(view),
            held.lease.committing,
            {"kind": "propagate", "operation": work.id, "batch": batch, "cut": cut.to_json()},
        )
        target = [*names, DIFFERENTIAL_COUNT, DIFFERENTIAL_BATCH]
        local = temporaries.local(change.rows)
        if local is None or not context.engine.append_rows(path, _tagged(local, target, batch), mark):
            rows = select([*map(column, [*names, COUNT]), bigint(batch)], temporaries.ready(change.rows))
            context.engine.commit(insert_into(delta_table(path), target, rows), mark)
        confirm(path, "propagate", work.id)
    context.metadata.views.update(view.id, [held.lease], propagated=cut, propagated_batch=batch)


def _tagged(rows: pa.Table, names: Sequence[str], batch: int) -> pa.Table:
    """Rows of a change that are at the driver, with the number of their batch, under the names of a table."""
    import pyarrow as pa

    return rows.append_column(names[-1], pa.array([batch] * rows.num_rows, pa.int64())).rename_columns(list(names))


def _remove_applied_batches(context: Context, view: ViewRecord) -> None:
    """Remove batches that MV shows already, several at a time; here, where no reader waits."""
    state = context.metadata.views.by_id(view.id)
    if state.applied_batch < state.definition.tidied + BATCHES_LEFT:
        return
    applied = exp.LTE(this=column(DIFFERENTIAL_BATCH), expression=exp.Literal.number(state.applied_batch))
    try:
        context.engine.write(exp.delete(delta_table(differential_path(state.workings)), applied))
    except DeferredError:
        return  # somebody else is writing the table; the next propagate tries again
    context.metadata.views.update(view.id, definition=replace(state.definition, tidied=state.applied_batch))
