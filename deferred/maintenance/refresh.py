"""partial_refresh: apply the differential tables to MV. The fast part, one Delta commit; and refresh, and rebuild."""

from __future__ import annotations

from datetime import datetime

from deferred.log import ledger
from deferred.log.changes import check_columns
from deferred.log.context import Context
from deferred.log.lease import lease
from deferred.log.tracking import trusted_again
from deferred.log.transactions import recover
from deferred.maintenance import definition as definitions
from deferred.maintenance import support
from deferred.maintenance.operation import Operation, Work, recorded, result
from deferred.maintenance.propagate import pending, propagate, sources
from deferred.maintenance.settle import confirm, settled
from deferred.maintenance.views import mv_path, rebuild_statement
from deferred.metadata import ViewRecord
from deferred.spark import bags
from deferred.spark.engine import Mark

PROPAGATE_FIRST = "propagate_first"
PARTIAL_FIRST = "partial_first"


def partial_refresh(context: Context, name: str, kind: str = "partial_refresh") -> Operation:
    """MV := (MV ∸ ∇MV) ⊎ ΔMV, ∇MV := ΔMV := φ (Figure 3): MV then shows s_i."""
    view = context.metadata.views.get(name)
    with lease(context, f"refresh:{view.id}", f"The refresh of {view.name}"):
        view = settled(context, context.metadata.views.get(name))
        with recorded(context, kind, view) as work:
            work.from_cut, work.to_cut = view.shown, view.propagated
            if view.propagated_batch == view.applied_batch:
                work.nothing("MV shows the last propagated state.")
                context.metadata.views.update(view.id, shown=view.propagated)
            else:
                _apply(context, view, work)
        return result(context, work)


def _apply(context: Context, view: ViewRecord, work: Work) -> None:
    assert view.propagated is not None
    batch = view.propagated_batch
    with context.engine.temporaries() as temporaries:
        with work.phase("net"):
            changes = temporaries.keep("net", bags.net(pending(view, view.applied_batch, batch), view.columns))
        with work.phase("apply"):
            mark = Mark(f"deferred-view-{view.id}", batch, {
                "kind": "refresh", "operation": work.id, "batch": batch, "cut": view.propagated.to_json()})
            work.rows_deleted, work.rows_inserted = bags.apply(
                context.engine, temporaries, mv_path(view), view.columns, changes, mark,
                tuple(view.definition.get("key") or ()))
    work.rows_read = work.rows_deleted + work.rows_inserted
    context.metadata.views.update(view.id, shown=view.propagated, applied_batch=batch)


def refresh(context: Context, name: str, until: datetime | None = None, order: str = PROPAGATE_FIRST,
            full: bool = False) -> Operation:
    """refresh_C, in either of the paper's orders: MV = Q at the cut of `until` (now, by default).

    propagate_first: propagate_C, then partial_refresh_C. partial_first: partial_refresh_C, so that readers have s_i
    early, then refresh_BL, which is the propagation of what is left and its application at once.
    """
    first: Operation | None = None
    if order == PARTIAL_FIRST:
        first = partial_refresh(context, name, kind="refresh")
    moved = propagate(context, name, until, kind="refresh", full=full)
    applied = partial_refresh(context, name, kind="refresh")
    return _together(first, moved, applied)


def _together(first: Operation | None, moved: Operation, applied: Operation) -> Operation:
    """One answer for the parts of a refresh: the last one's, with the work of all of them."""
    parts = [part for part in (first, moved, applied) if part is not None]
    done = [part for part in parts if part.state != "nothing"]
    last = applied if applied.state != "nothing" or not done else done[-1]
    phases: dict[str, float] = {}
    for part in parts:
        for phase, seconds in part.phases.items():
            phases[phase] = round(phases.get(phase, 0.0) + seconds, 3)
    changed = [part for part in (first, applied) if part is not None]
    return Operation(
        last.id, last.view, "refresh", "succeeded" if done else "nothing", parts[0].from_cut, applied.to_cut,
        moved.rows_read, sum(p.rows_deleted for p in changed), sum(p.rows_inserted for p in changed),
        round(sum(p.seconds for p in parts), 3), phases, moved.strategy, last.message, parts[0].started_at,
        last.requested_by)


def rebuild(context: Context, name: str) -> Operation:
    """Recompute a view at the current cut and switch it in with one atomic overwrite; mends a lost log too."""
    view = context.metadata.views.get(name)
    with lease(context, f"propagate:{view.id}", f"The propagation of {view.name}"), \
            lease(context, f"refresh:{view.id}", f"The refresh of {view.name}"):
        view = settled(context, context.metadata.views.get(name))
        with recorded(context, "rebuild", view) as work:
            work.from_cut, work.strategy = view.shown, "full"
            with work.phase("sync"):
                for source in sources(context, view):
                    trusted_again(context, source)
                tables = sources(context, view)
                ledger.sync(context, tables, lambda t: recover(context, t))
                cut = ledger.cut(context, tables, None, None)
            work.to_cut = cut
            definition = definitions.load(context, view)
            for source in tables:
                check_columns(source, definition.read_columns(source.name))
            batch = view.propagated_batch + 1
            mark = Mark(f"deferred-view-{view.id}", batch, {
                "kind": "refresh", "operation": work.id, "batch": batch, "cut": cut.to_json()})
            with work.phase("compute"):
                support.put_back(context, view, definition)
                support.refill(context, view, definition, cut, work.id, batch)
                context.engine.commit(rebuild_statement(definition, view.columns, mv_path(view), cut), mark)
                confirm(mv_path(view), "refresh", work.id)
            context.metadata.views.update(view.id, shown=cut, propagated=cut, applied_batch=batch,
                                          propagated_batch=batch, state="active", problem=None)
        return result(context, work)
