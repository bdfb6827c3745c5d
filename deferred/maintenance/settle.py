"""Settling: Delta's own log says what an interrupted operation has done; the metadata database follows it."""

from __future__ import annotations

from deferred.errors import SparkFailure
from deferred.log.context import Context
from deferred.log.history import DeltaLog, last_mark
from deferred.maintenance.views import differential_path, mv_path
from deferred.metadata import Cut, ViewRecord


def settled(context: Context, view: ViewRecord) -> ViewRecord:
    """Take note of commits whose process died before it could write them down. Any number of times, one result."""
    views = context.metadata.views
    applied = last_mark(mv_path(view), "refresh")
    if applied is not None and applied["batch"] > view.applied_batch:
        view = views.update(view.id, shown=Cut.from_json(applied["cut"]), applied_batch=applied["batch"])
    propagated = last_mark(differential_path(view), "propagate")
    if propagated is not None and propagated["batch"] > view.propagated_batch:
        view = views.update(view.id, propagated=Cut.from_json(propagated["cut"]), propagated_batch=propagated["batch"])
    if view.applied_batch > view.propagated_batch:  # a rebuild, which skips the differential tables
        view = views.update(view.id, propagated=view.shown, propagated_batch=view.applied_batch, state="active",
                            problem=None)
    return view


def confirm(path: str, kind: str, operation: str) -> None:
    """Make sure that the last commit of a kind is this operation's.

    A Spark server goes on with a statement whose client was killed. Its commit may come between our settling and our
    own commit of the same number, which Delta then takes for made: what we computed since is not in it.
    """
    made = last_mark(path, kind)
    if made is None or made.get("operation") != operation:
        raise SparkFailure(f"A process that was interrupted has finished its commit to {path} meanwhile, in the place "
                           f"of this one. Nothing is lost; run the same again.")


def shown_version(view: ViewRecord) -> tuple[int, int]:
    """A version of MV, and the last differential batch that it shows."""
    log = DeltaLog(mv_path(view))
    version = log.version
    for commit in log.newest_first():
        if commit.version <= version and commit.mark is not None and commit.mark.get("kind") == "refresh":
            return version, int(commit.mark["batch"])
    return version, view.applied_batch
