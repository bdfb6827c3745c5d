"""Settling: Delta's own log says what an interrupted operation has done; the metadata database follows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deferred.errors import LogLostError, MetadataError, SparkFailure
from deferred.log.context import Context
from deferred.log.delta_log import last_mark
from deferred.maintenance.view_tables import differential_path, mv_path
from deferred.metadata import Cut, Lease, ViewRecord


def settled(context: Context, view: ViewRecord, under: Iterable[Lease] = ()) -> ViewRecord:
    """Record commits whose process died before it could record them. Running it again changes nothing.

    `under` are the leases of a worker. Who only reads has none: what is recorded then is what the next one would find,
    too, and never takes the place of something later.

    The process had recorded that it began. Where nobody knows of that, the database is older than the tables.
    """
    views = context.metadata.views
    applied = last_mark(mv_path(view.location), "refresh")
    if applied is not None and is_altered(view, applied):
        view = altered(context, view, Cut.from_json(applied["cut"]), applied["batch"], under)
    if applied is not None and applied["batch"] > view.applied_batch:
        _refuse_unknown(context, view, applied)
        view = views.update(view.id, under, shown=Cut.from_json(applied["cut"]), applied_batch=applied["batch"])
    propagated = last_mark(differential_path(view.workings), "propagate")
    if propagated is not None and propagated["batch"] > view.propagated_batch:
        _refuse_unknown(context, view, propagated)
        view = propagated_to(context, view, propagated, under)
    if view.applied_batch > view.propagated_batch:  # a rebuild, which passes over the differential tables
        view = views.update(
            view.id, under, propagated=view.shown, propagated_batch=view.applied_batch, state="active", problem=None
        )
    return view


def propagated_to(
    context: Context, view: ViewRecord, mark: Mapping[str, Any], under: Iterable[Lease] = ()
) -> ViewRecord:
    """Record a differential batch, by the mark of its commit."""
    return context.metadata.views.update(
        view.id,
        under,
        propagated=Cut.from_json(mark["cut"]),
        propagated_batch=mark["batch"],
        replacement_batch=int(mark.get("replacement") or 0),
    )


def _refuse_unknown(context: Context, view: ViewRecord, mark: Mapping[str, Any]) -> None:
    """Refuse to go on with a database that was restored from a backup older than the view's tables."""
    if "operation" in mark and not context.metadata.operations.has(mark["operation"]):
        raise MetadataError(
            f"The tables of view {view.name} hold batch {mark['batch']}, written by an operation that the metadata "
            f"database does not know: the database is older than the tables. Run `deferred recover`, which brings it "
            f"up to date."
        )


def is_altered(view: ViewRecord, mark: Mapping[str, Any]) -> bool:
    """Whether a commit to MV gave the view the definition that was being made."""
    alteration = view.definition.alteration
    return alteration is not None and mark.get("alteration") == alteration.id


def altered(context: Context, view: ViewRecord, cut: Cut, batch: int, under: Iterable[Lease] = ()) -> ViewRecord:
    """Give a view the definition that MV has already, in one transaction of the metadata database.

    Only in the place of the definition that was looked at: somebody else may have recorded this, and be at work on
    another alteration already, whose note must not be lost.
    """
    new = view.definition.alteration
    assert new is not None
    return context.metadata.views.update(
        view.id,
        under,
        view.definition,
        sql=new.sql,
        **new.options.to_dict(),
        columns=new.columns,
        definition=new.definition,
        depends_on=new.depends_on,
        shown=cut,
        propagated=cut,
        applied_batch=batch,
        propagated_batch=batch,
        state="active",
        problem=None,
    )


def usable(view: ViewRecord) -> ViewRecord:
    """Refuse a view whose log is lost, with what was found and the remedy."""
    if view.state == "broken":
        raise LogLostError(
            f"View {view.name} cannot be maintained: {view.problem} Run rebuild({view.name!r}) to recompute it."
        )
    return view


def confirm(path: str, kind: str, operation: str) -> None:
    """Make sure that the last commit of a kind is this operation's.

    A Spark server goes on with a statement whose client was killed. Its commit may come between our settling and our
    own commit of the same number, which Delta then skips as a repetition: what we computed since is not in it.
    """
    made = last_mark(path, kind)
    if made is None or made.get("operation") != operation:
        raise SparkFailure(
            f"An interrupted process has meanwhile finished its commit to {path}, in the place of this one. "
            f"Nothing is lost; run the same command again."
        )
