"""The differential batch of a propagate: what matters of the changes since s_i → logs → strategy → batch.

Only a propagate that finds a new commit loads this module, and with it all that computes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint, column, insert_into, select
from deferred.errors import DeferredError
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog
from deferred.log.lease import Held
from deferred.log.sources import source_of
from deferred.maintenance import definition as definitions
from deferred.maintenance import functions, shared, support
from deferred.maintenance.base_logs import Logs, Size, net_logs, size, unread
from deferred.maintenance.definition import Definition
from deferred.maintenance.functions import Functions
from deferred.maintenance.operation import Work
from deferred.maintenance.relevance import Relevant, relevant
from deferred.maintenance.rounds import RecomputeInstead
from deferred.maintenance.settle import confirm, propagated_to
from deferred.maintenance.strategies import RECOMPUTE, Change, Choice, Job, choose, reconsidered
from deferred.maintenance.view_tables import (
    DIFFERENTIAL_BATCH,
    DIFFERENTIAL_COUNT,
    differential_application,
    differential_path,
    files_of,
    mv_path,
)
from deferred.metadata import Cut, TableRecord, ViewRecord
from deferred.spark import bags
from deferred.spark.engine import Mark
from deferred.spark.temporaries import BROADCAST_ROWS, Temporaries
from deferred.sql.dialect import delta_table

if TYPE_CHECKING:
    import pyarrow as pa

BATCHES_LEFT = 8
"""This many batches that MV shows already may stay in the differential table: removing them is a commit of its own."""


@dataclass(frozen=True)
class Move:
    """A view on its way from s_i to a cut; `full`: by a recomputation, whatever has changed."""

    context: Context
    view: ViewRecord
    definition: Definition
    since: Cut
    cut: Cut
    full: bool
    work: Work
    held: Held
    functions: Functions
    because: str | None = None
    """Why it is recomputed where nobody asked for that."""

    @property
    def incrementally(self) -> bool:
        """Whether the logs are looked at, for a delta program or for the choice of another way."""
        return not self.full and self.definition.has_plan


def load(
    context: Context,
    view: ViewRecord,
    tables: Sequence[TableRecord],
    cut: Cut,
    full: bool,
    work: Work,
    held: Held,
) -> Move:
    """What is to be done to bring a view to a cut; refused where a base table lacks a column that it reads."""
    definition = definitions.load(context, view)
    for source in tables:
        source_of(context, source).check_columns(definition.read_columns(source.name))
    assert view.propagated is not None
    own = functions.now(context, view)
    others = functions.differing(view.definition.functions, own)
    because = functions.explained(others) if others else None
    work.warnings += [because] if because else []
    return Move(context, view, definition, view.propagated, cut, full or bool(others), work, held, own, because)


def append(move: Move) -> str | None:
    """Append the change of the view as one batch. Returns why there is none, if nothing that matters has changed."""
    found = _what_matters(move) if move.incrementally else None
    if found is not None and not found.tables:
        return found.why_nothing
    expected = size(move.context, move.definition, move.since, move.cut) if move.incrementally else Size(None, None)
    with move.context.engine.temporaries(expected.settings if move.incrementally else {}) as temporaries:
        choice, logs = _whatever_changed(move, expected), Logs({}, {})
        if choice is not None:
            move.work.rows_read = expected.expected
        elif found is not None:
            logs = _logs(move, found, expected, temporaries)
            if not logs.total:
                return "The changes cancel out, or are in rows or columns that do not matter to the view."
        with move.work.phase("compute"):
            change, batch = _computed(move, logs, choice, temporaries)
        with move.work.phase("write"):
            (shared.correct if move.full else shared.bring_along)(move.context, move.definition, move.cut)
            _write_batch(move, change, temporaries, batch)
    remove_applied_batches(move.context, move.view, move.held)
    return None


def _what_matters(move: Move) -> Relevant:
    with move.work.phase("relevance"):
        found = relevant(move.context, move.definition, move.since, move.cut)
    move.work.commits_irrelevant, move.work.rows_irrelevant = found.irrelevant_commits, found.irrelevant_rows(0)
    return found


def _whatever_changed(move: Move, expected: Size) -> Choice | None:
    """The recomputation, if so much has changed that it is chosen by the number of changed rows alone.

    Then the logs, which may be as large as the tables, need not be read.
    """
    if expected.expected <= BROADCAST_ROWS:
        return None
    counted = unread(move.context, move.definition, move.since, move.cut)
    choice = None if counted is None else choose(move.context, move.view, move.definition, counted)
    return choice if choice is not None and choice.strategy is RECOMPUTE else None


def _logs(move: Move, found: Relevant, expected: Size, temporaries: Temporaries) -> Logs:
    with move.work.phase("log"):
        logs = net_logs(
            move.context, move.definition, move.since, move.cut, temporaries, expected.expected, found.tables
        )
    move.work.rows_read, move.work.rows_irrelevant = logs.total, found.irrelevant_rows(logs.total)
    return logs


def _computed(move: Move, logs: Logs, choice: Choice | None, temporaries: Temporaries) -> tuple[Change, int]:
    """The change of the view, and the number of its batch; chosen here is a strategy that was not chosen before."""
    context, view, definition, work = move.context, move.view, move.definition, move.work
    supports = support.restore(context, view, definition)
    shared.catch_up(context, definition, move.since)
    kept = shared.held_at(context, definition, move.since)
    if choice is None:
        has_support = supports.states is not None and kept is not None
        choice = choose(context, view, definition, logs, move.full, has_support=has_support)
        choice = choice if move.because is None else replace(choice, reason=move.because)
    job = Job(
        context,
        view,
        definition,
        move.cut,
        logs,
        supports.states or {},
        temporaries,
        supports.next_batch,
        shared=kept or {},
        operation=work.id,
        tell=work.tell,
    )
    choice = reconsidered(job, choice)
    work.costs = choice.costs
    change, choice = _run(job, choice, work)
    work.strategy, work.details["reason"] = choice.strategy.name, choice.reason
    if change.recursions:
        work.details["recursions"] = change.recursions
    if isinstance(change.rows, exp.Table):
        work.rows_deleted, work.rows_inserted = bags.count_changes(context.engine, temporaries, change.rows)
    return change, supports.next_batch


def _run(job: Job, choice: Choice, work: Work) -> tuple[Change, Choice]:
    """The change by the strategy that was chosen, or by the one that took its place when it saw what had changed."""
    try:
        change = choice.strategy.run(job)
    except RecomputeInstead as error:
        choice = Choice(RECOMPUTE, str(error))
        change = choice.strategy.run(job)
    if change.instead is None:
        return change, choice
    work.warnings += [change.instead.reason] if change.instead.strategy is RECOMPUTE else []
    return change, change.instead


def _write_batch(move: Move, change: Change, temporaries: Temporaries, batch: int) -> None:
    """Append the change as one batch: one Delta commit, which names the cut that it leads to.

    The support tables advance before it; if the batch does not follow, the next propagate restores them.
    """
    context, view, work = move.context, move.view, move.work
    change.advance_supports(work.id, batch)
    path = differential_path(view.workings)
    details = {
        "kind": "propagate",
        "operation": work.id,
        "batch": batch,
        "replacement": batch if change.replaces else view.replacement_batch,
        "cut": move.cut.to_json(),
    }
    mark = Mark(differential_application(view), move.held.lease.committing, details)
    names = [name for name, _ in view.columns]
    target = [*names, DIFFERENTIAL_COUNT, DIFFERENTIAL_BATCH]
    if change.replaces or work.rows_deleted or work.rows_inserted:
        local = temporaries.local(change.rows) if isinstance(change.rows, exp.Table) else None
        if local is None or not context.engine.append_rows(path, _tagged(local, target, batch), mark):
            found = temporaries.ready(change.rows) if isinstance(change.rows, exp.Table) else change.rows
            rows = select([*map(column, [*names, COUNT]), bigint(batch)], found)
            context.engine.commit(insert_into(delta_table(path), target, rows), mark)
        confirm(path, "propagate", work.id)
    if change.replaces:
        work.rows_deleted = DeltaLog(mv_path(view.location)).row_count() or 0
        files = files_of(view, batch) or []
        work.rows_inserted = sum(json.loads(file.get("stats") or "{}").get("numRecords") or 0 for file in files)
    propagated_to(context, view, details, [move.held.lease])
    known = context.metadata.views.by_id(view.id).definition
    if known.functions != move.functions:  # after the batch: without it the rows are still those of the old functions
        context.metadata.views.update(view.id, [move.held.lease], definition=replace(known, functions=move.functions))


def _tagged(rows: pa.Table, names: Sequence[str], batch: int) -> pa.Table:
    """Rows of a change that are at the driver, with the number of their batch, under the names of a table."""
    import pyarrow as pa

    return rows.append_column(names[-1], pa.array([batch] * rows.num_rows, pa.int64())).rename_columns(list(names))


def remove_applied_batches(context: Context, view: ViewRecord, held: Held) -> None:
    """Remove batches that MV shows already, several at a time; here, where no reader waits.

    That they were removed is noted under the lease. Without it somebody may have altered the view meanwhile.
    """
    state = context.metadata.views.by_id(view.id)
    if state.applied_batch < state.definition.tidied + BATCHES_LEFT:
        return
    applied = exp.LTE(this=column(DIFFERENTIAL_BATCH), expression=exp.Literal.number(state.applied_batch))
    try:
        context.engine.write(exp.delete(delta_table(differential_path(state.workings)), applied))
    except DeferredError:
        return  # somebody else is writing the table; the next propagate tries again
    tidied = replace(state.definition, tidied=state.applied_batch)
    context.metadata.views.update(view.id, [held.lease], definition=tidied)
