"""propagate: compute the changes from s_i to s_c into the differential tables. The slow part; touches no reader.

cut → what matters → logs → strategy → differential batch; all but the cut is in `batch`
"""

from __future__ import annotations

from datetime import datetime

from deferred.errors import LogLostError, PromiseBrokenError
from deferred.log import ledger, undo
from deferred.log.context import Context
from deferred.log.lease import Held
from deferred.maintenance.base_logs import synced_tables
from deferred.maintenance.operation import Operation, Work, recorded, result
from deferred.maintenance.settle import settled, usable
from deferred.maintenance.working import propagating
from deferred.metadata import ViewRecord


def propagate(
    context: Context, name: str, until: datetime | None = None, kind: str = "propagate", full: bool = False
) -> Operation:
    """Bring the differential tables of a view from s_i to the cut at `until` (now, by default)."""
    view = context.metadata.views.get(name)
    with propagating(context, view) as held:
        view = usable(settled(context, context.metadata.views.get(name), [held.lease]))
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
        why_none: str | None = work.warnings[0] if work.warnings else "No base table has changed."
    else:
        # Most propagates of a schedule find nothing new: what computes is loaded when there is something to compute.
        from deferred.maintenance import batch

        why_none = batch.append(batch.load(context, view, tables, cut, full, work, held))
    if why_none is not None:
        work.nothing(why_none)
        context.metadata.views.update(view.id, [held.lease], propagated=cut)
