"""partial_refresh: apply the differential tables to MV. The fast part, one Delta commit; and refresh, and rebuild."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.bags import COUNT, column, net, overwrite, select, written_out
from deferred.errors import TransactionError
from deferred.log import ledger, undo
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog
from deferred.log.lease import Held
from deferred.log.sources import source_of
from deferred.log.tracking import trusted_again
from deferred.maintenance.base_logs import base_tables, synced_tables
from deferred.maintenance.making import repair
from deferred.maintenance.operation import Operation, Work, announce_broken, combined, recorded, result
from deferred.maintenance.propagate import propagate
from deferred.maintenance.scenarios import PARTIAL_FIRST, PROPAGATE_FIRST
from deferred.maintenance.settle import confirm, settled
from deferred.maintenance.view_tables import (
    DIFFERENTIAL_BATCH,
    DIFFERENTIAL_COUNT,
    differential_path,
    files_by_batch,
    files_of,
    mv_path,
    pending,
    pending_rows,
    reached,
    replacement,
    require_replacement,
    view_application,
)
from deferred.maintenance.working import propagating, refreshing
from deferred.metadata import Cut, ViewRecord
from deferred.spark import bags
from deferred.spark.engine import Mark
from deferred.spark.sizing import settings_for
from deferred.spark.temporaries import Temporaries, local_rows
from deferred.sql.ddl import column_list
from deferred.sql.dialect import delta_table

if TYPE_CHECKING:
    import pyarrow as pa

MOST_FILES = 1_000
"""Of an MV with more files, their statistics are not looked at."""


def partial_refresh(context: Context, name: str, kind: str = "partial_refresh") -> Operation:
    """MV := (MV ∸ ∇MV) ⊎ ΔMV, ∇MV := ΔMV := φ (Figure 3): MV then shows s_i."""
    view = context.metadata.views.get(name)
    with refreshing(context, view) as held:
        view = settled(context, context.metadata.views.get(name), [held.lease])
        with recorded(context, kind, view) as work:
            work.from_cut, work.to_cut = view.shown, view.propagated
            if view.propagated_batch == view.applied_batch:
                work.nothing("MV shows the last propagated state.")
                context.metadata.views.update(view.id, [held.lease], shown=view.propagated)
            else:
                _apply(context, view, work, held)
        return result(context, work)


def _apply(context: Context, view: ViewRecord, work: Work, held: Held) -> None:
    assert view.propagated is not None
    batch = view.propagated_batch
    mark = _mark(view, work, batch, view.propagated, held)
    if replacement(view, view.applied_batch, batch) is not None:
        _replace(context, view, mark, work)
    else:
        _apply_changes(context, view, mark, work)
    work.rows_read = work.rows_deleted + work.rows_inserted
    if work.rows_read:
        confirm(mv_path(view.location), "refresh", work.id)
    context.metadata.views.update(view.id, [held.lease], shown=view.propagated, applied_batch=batch)


def _replace(context: Context, view: ViewRecord, mark: Mark, work: Work) -> None:
    """MV := the rows of a replacement with the changes after it, in one commit.

    Without such changes, the files of the batch become those of MV: they are the same rows.
    """
    path, names = mv_path(view.location), [name for name, _ in view.columns]
    work.rows_deleted = DeltaLog(path).row_count() or 0
    require_replacement(view)
    last = max(files_by_batch(view), default=0) <= view.replacement_batch
    with work.phase("apply"):
        if not (last and _replace_at_driver(context, view, mark)):
            rows = reached(view)
            whole = rows if last else written_out(net(rows, view.columns), names)
            context.engine.commit(overwrite(delta_table(path), names, select(map(column, names), whole)), mark)
    work.rows_inserted = DeltaLog(path).row_count() or 0


def _replace_at_driver(context: Context, view: ViewRecord, mark: Mark) -> bool:
    files = files_of(view, view.replacement_batch)
    path, source = mv_path(view.location), differential_path(view.workings)
    if files is None:
        return False
    return bags.replace_at_driver(context.engine, path, source, files, DIFFERENTIAL_COUNT, mark)


def _apply_changes(context: Context, view: ViewRecord, mark: Mark, work: Work) -> None:
    batch = view.propagated_batch
    rows = pending_rows(view, view.applied_batch, batch)
    with work.phase("apply"):
        done = None if rows is None else _apply_at_driver(context, view, rows, mark)
    if done is not None:
        work.rows_deleted, work.rows_inserted = done
    else:
        few = rows is not None and rows.num_rows <= local_rows(type_ for _, type_ in view.columns)
        _apply_in_spark(context, view, batch, rows if few else None, mark, work)


def _apply_at_driver(context: Context, view: ViewRecord, rows: pa.Table, mark: Mark) -> tuple[int, int] | None:
    key, path = view.definition.key, mv_path(view.location)
    return bags.apply_at_driver(context.engine, path, view.columns, rows, mark, key, _is_one_batch(rows))


def _apply_in_spark(
    context: Context, view: ViewRecord, batch: int, rows: pa.Table | None, mark: Mark, work: Work
) -> None:
    with context.engine.temporaries(settings_for(None if rows is None else rows.num_rows, None)) as temporaries:
        with work.phase("net"):
            changes = _net(view, batch, rows, temporaries)
        with work.phase("apply"):
            work.rows_deleted, work.rows_inserted = bags.apply(
                context.engine,
                temporaries,
                mv_path(view.location),
                view.columns,
                changes,
                mark,
                view.definition.key,
                DeltaLog(mv_path(view.location)).files(MOST_FILES),
            )


def _net(view: ViewRecord, batch: int, rows: pa.Table | None, temporaries: Temporaries) -> exp.Table:
    """∇MV and ΔMV as one netted bag. One batch is netted as it is."""
    if rows is None:
        return temporaries.compute("net", net(pending(view, view.applied_batch, batch), view.columns))
    schema = column_list([*view.columns, (COUNT, "bigint")])
    changes = temporaries.put("pending", rows.select([*(name for name, _ in view.columns), COUNT]), schema)
    if _is_one_batch(rows):
        return changes
    return temporaries.compute("net", net(changes, view.columns), rows.num_rows)


def _is_one_batch(rows: pa.Table) -> bool:
    return len(rows.column(DIFFERENTIAL_BATCH).unique()) == 1


def _mark(view: ViewRecord, work: Work, batch: int, cut: Cut, held: Held) -> Mark:
    """What a commit to MV carries: the last batch that it shows, and the cut."""
    details = {"kind": "refresh", "operation": work.id, "batch": batch, "cut": cut.to_json()}
    return Mark(view_application(view), held.lease.committing, details)


def refresh(
    context: Context, name: str, until: datetime | None = None, order: str = PROPAGATE_FIRST, full: bool = False
) -> Operation:
    """refresh_C, in either of the paper's orders: MV = Q at the cut of `until` (now, by default).

    propagate_first: propagate_C, then partial_refresh_C. partial_first: partial_refresh_C, so that readers see s_i
    early, then refresh_BL, which propagates what is left and applies it at once.
    """
    early = [partial_refresh(context, name, kind="refresh")] if order == PARTIAL_FIRST else []
    propagated = propagate(context, name, until, kind="refresh", full=full)
    applied = partial_refresh(context, name, kind="refresh")
    return combined(early, propagated, applied)


def rebuild(context: Context, name: str) -> Operation:
    """Recompute a view at the current cut with one atomic overwrite of MV.

    The remedy for a lost log, and for tables of the view that are gone or damaged: none of their rows is read.
    """
    from deferred.maintenance import definition as definitions
    from deferred.maintenance import functions, promises, shared, support
    from deferred.maintenance.rounds import computed
    from deferred.maintenance.strategies import RECOMPUTE

    view = context.metadata.views.get(name)
    with propagating(context, view) as propagation, refreshing(context, view) as held:
        under = [propagation.lease, held.lease]
        with recorded(context, "rebuild", view) as work:
            work.from_cut, work.strategy = view.shown, RECOMPUTE.name
            broken: list[ViewRecord] = []
            with work.phase("sync"):
                for source in base_tables(context, view):
                    broken += trusted_again(context, source, under)
                tables = synced_tables(context, view)
                for transaction in undo.stuck(context, tables):
                    raise TransactionError(undo.explained(transaction))
                broken += repair(context, view, under)  # after the base tables were read: the storage can be reached
                announce_broken(context, work, [other for other in broken if other.id != view.id])
                view = settled(context, context.metadata.views.get(name), under)
                cut = ledger.cut(context, tables, None, None)
            work.to_cut = cut
            definition = definitions.load(context, view)
            for source in tables:
                source_of(context, source).check_columns(definition.read_columns(source.name))
            own = functions.now(context, view)
            promises.require(context.engine, name, definition, cut)
            with work.phase("compute"), context.engine.temporaries() as temporaries:
                definition = computed(definition, cut, temporaries, work.tell)
                batch = view.propagated_batch + 1
                shared.correct(context, definition, cut)
                filled = support.refill(context, view, definition, cut, work.id, batch, temporaries)
                mv = mv_path(view.location)
                names = [name for name, _ in view.columns]
                rows = definitions.query(filled, view.columns, cut)
                context.engine.commit(overwrite(delta_table(mv), names, rows), _mark(view, work, batch, cut, held))
                confirm(mv, "refresh", work.id)
            context.metadata.views.update(
                view.id,
                under,
                shown=cut,
                propagated=cut,
                applied_batch=batch,
                propagated_batch=batch,
                state="active",
                problem=None,
                definition=replace(context.metadata.views.by_id(view.id).definition, functions=own),
            )
        return result(context, work)
