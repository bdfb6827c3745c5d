"""The states of a view that its own tables hold: MV at a version together with the batches after it, and their cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from deferred.log.context import Context
from deferred.log.delta_log import Commit, DeltaLog
from deferred.maintenance.settle import settled, usable
from deferred.maintenance.view_tables import applied_version, differential_path, mv_path, pending
from deferred.metadata import Cut, ViewRecord
from deferred.sql.dialect import delta_table


@dataclass(frozen=True)
class Held:
    """(MV ∸ ∇MV) ⊎ ΔMV at a cut, in versions of the tables, so that no later refresh or propagate changes it."""

    cut: Cut
    mv: int
    """The version of MV."""
    applied: int
    """The last batch that MV shows in it."""
    differential: int
    """The version of the differential table."""
    batch: int
    """The last batch that leads to the cut."""

    def rows(self, view: ViewRecord) -> exp.Table:
        """MV, as an item of FROM."""
        return delta_table(mv_path(view.location), self.mv)

    replacement: int
    """The last batch up to `batch` that holds the whole view."""

    def changes(self, view: ViewRecord) -> exp.Query:
        """∇MV and ΔMV as a signed bag that is not netted."""
        then = replace(view, replacement_batch=self.replacement)
        return pending(then, self.applied, self.batch, self.differential, self.mv)


def newest(context: Context, name: str) -> tuple[ViewRecord, Held]:
    """A view and the newest state that its tables hold, s_i, without a lease: others may be at work on it.

    The order of the three looks makes them agree. The record comes first: its batches are in the differential table
    from then on. That table's version comes before MV's: a batch is removed from it only after MV shows it. If MV has
    meanwhile gone past the record, all is looked at again.
    """
    while True:
        view = usable(settled(context, context.metadata.views.get(name)))
        assert view.propagated is not None
        differential = DeltaLog(differential_path(view.workings)).version
        mv, applied = applied_version(view)
        if applied <= view.propagated_batch:
            batch, whole = view.propagated_batch, view.replacement_batch
            return view, Held(view.propagated, mv, applied, differential, batch, whole)


def not_after(cut: Cut, other: Cut) -> bool:
    """Whether a cut shows no table later than another one does."""
    return cut.versions.keys() == other.versions.keys() and all(
        version <= other.versions[table] for table, version in cut.versions.items()
    )


def latest_until(view: ViewRecord, cut: Cut) -> Held | None:
    """The latest state up to a cut that the tables of a view still have in their history, None where they have none.

    MV is taken as the last refresh up to the cut has left it. The batches after that refresh and up to the cut were
    still there when the last of them was written, since MV did not show them.
    """

    def shows(commit: Commit, kind: str, after: int) -> bool:
        mark = commit.mark or {}
        return mark.get("kind") == kind and mark["batch"] > after and not_after(Cut.from_json(mark["cut"]), cut)

    mv, differential = DeltaLog(mv_path(view.location)), DeltaLog(differential_path(view.workings))
    refreshed = next((commit for commit in _of_definition(mv) if shows(commit, "refresh", -1)), None)
    if refreshed is None or refreshed.mark is None or mv.missing_at(refreshed.version) is not None:
        return None
    applied = int(refreshed.mark["batch"])
    shown = Cut.from_json(refreshed.mark["cut"])
    written = next((commit for commit in differential.newest_first() if shows(commit, "propagate", applied)), None)
    if written is None or written.mark is None:
        return Held(shown, refreshed.version, applied, differential.version, applied, 0)
    if differential.missing_at(written.version) is not None:
        return Held(shown, refreshed.version, applied, differential.version, applied, 0)
    reached, batch, whole = Cut.from_json(written.mark["cut"]), written.mark["batch"], written.mark.get("replacement")
    return Held(reached, refreshed.version, applied, written.version, int(batch), int(whole or 0))


def _of_definition(mv: DeltaLog) -> Iterator[Commit]:
    """The commits to MV under the view's present definition, newest first."""
    for commit in mv.newest_first():
        yield commit
        if "alteration" in (commit.mark or {}):
            return
