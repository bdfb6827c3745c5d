"""Working on a view: the two leases under which that is done, and how a worker that was taken over is shut out.

propagate writes the differential table and the support tables, partial_refresh writes MV: they may overlap. Delta
numbers the commits to each table with the token of its lease.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from deferred.log.context import Context
from deferred.log.lease import Held, bar, lease
from deferred.maintenance.view_tables import (
    differential_application,
    differential_path,
    mv_path,
    support_application,
    support_path,
    view_application,
)
from deferred.metadata import ViewRecord
from deferred.spark.engine import Mark


def propagation(view: ViewRecord) -> str:
    """The name of the lease for the differential table and the support tables."""
    return f"propagate:{view.id}"


def propagating(context: Context, view: ViewRecord) -> AbstractContextManager[Held]:
    """Hold the lease for the differential table and the support tables of a view."""

    def shut_out(number: int) -> None:
        from deferred.maintenance import definition as definitions

        _bar(context, differential_path(view.workings), differential_application(view), number)
        definition = definitions.load(context, view)
        for name in definition.support_tables:
            _bar(context, support_path(view.workings, name), support_application(view, name), number)

    return lease(context, propagation(view), f"The propagation of {view.name}", shut_out)


def refreshing(context: Context, view: ViewRecord) -> AbstractContextManager[Held]:
    """Hold the lease for MV."""

    def shut_out(number: int) -> None:
        _bar(context, mv_path(view.location), view_application(view), number)

    return lease(context, f"refresh:{view.id}", f"The refresh of {view.name}", shut_out)


def _bar(context: Context, path: str, application: str, number: int) -> None:
    bar(context, path, Mark(application, number, {"kind": "bar"}))
