"""The Delta tables of a view: where they are, and what MV and the differential batches hold together.

A view's folder holds MV (`mv`), the differential tables ∇MV and ΔMV as one signed table (`differential`), a table for
each support (`supportN`) and the history tables (`history/rows`, `history/changes`). These names are stored: a
warehouse that exists must go on working. A view whose definition was changed has its differential and support tables in
a folder of their own inside that one (`ViewRecord.workings`).

A differential batch is a change of the view or, after a recomputation of a large one, a *replacement*: its rows are the
whole view. It means ∇MV = MV and ΔMV = these rows, but no row of ∇MV is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sqlglot import exp

from deferred.algebra.bags import BATCH, COUNT, alias, column, select, signed, union_all
from deferred.errors import LogLostError, not_one_of
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog, is_delta
from deferred.metadata import ViewRecord
from deferred.options import HISTORIES
from deferred.spark.driver import exact_type
from deferred.spark.temporaries import width
from deferred.sql.dialect import delta_table

if TYPE_CHECKING:
    import pyarrow as pa

PENDING_BYTES = 128 * 2**20
"""Differential batches are read without Spark up to about so many bytes."""

MOST_BYTES = 64 * 2**20
"""Of a commit that names more files than fit into so many bytes, they are not looked at."""

DIFFERENTIAL_COUNT = "_deferred_count"
"""The column of the differential table that says how often a row is inserted (positive) or deleted (negative)."""

DIFFERENTIAL_BATCH = BATCH
"""The column of the differential table that says which propagate a row comes from."""

MV, DIFFERENTIAL, SUPPORT = "mv", "differential", "support"
"""The folders of MV, of the differential table and, as the beginnings of their names, of the support tables."""

HISTORY = "history"
"""The folder of history tables in that of their view; version 0.1 had one in the warehouse for those of all views."""


def mv_path(location: str) -> str:
    """Where MV is: exactly the view's columns, for any reader of Delta."""
    return f"{location}/{MV}"


def differential_path(location: str) -> str:
    """Where ∇MV and ΔMV are, batch by batch."""
    return f"{location}/{DIFFERENTIAL}"


def support_path(location: str, name: str) -> str:
    """Where a support table is."""
    return f"{location}/{name}"


def location_of(mv: str) -> str:
    """The folder of the view whose MV is at a path."""
    return mv.removesuffix(f"/{MV}")


def belongs(view: ViewRecord, folder: str) -> bool:
    """Whether a folder in that of a view is of MV, of its history, or of a definition that it has or is being given."""
    has, coming = view.definition.generation, view.definition.alteration
    if folder in (MV, HISTORY) or (coming is not None and folder == coming.definition.generation):
        return True
    return folder == has if has else folder == DIFFERENTIAL or folder.startswith(SUPPORT)


def history_path(context: Context, view: ViewRecord, of: str) -> str:
    """Where the history table of a view is, with its `rows` or its `changes`.

    One that version 0.1 has made stays where it is: it is removed with the view, or else when another view gets its
    name, so it is this view's.
    """
    if of not in HISTORIES:
        raise not_one_of("of", of, HISTORIES)
    earlier = context.folder(HISTORY, earlier_history(view.name, of))
    return earlier if is_delta(earlier) else f"{view.location}/{HISTORY}/{of}"


def earlier_history(name: str, of: str) -> str:
    """The folder that version 0.1 gave the history table of a view, among those of all views."""
    return f"{name}_{of}"


def view_application(view: ViewRecord) -> str:
    """The application under which Delta numbers the commits to MV."""
    return f"deferred-view-{view.id}"


def differential_application(view: ViewRecord) -> str:
    """The application under which Delta numbers the differential batches."""
    return f"deferred-differential-{view.id}"


def support_application(view: ViewRecord, name: str) -> str:
    """The application under which Delta numbers the commits to a support table."""
    return f"deferred-support-{view.id}-{name}"


def replacement(view: ViewRecord, after: int, upto: int) -> int | None:
    """The last of the differential batches after one and up to another that holds the whole view."""
    last = view.replacement_batch
    return last if after < last <= upto else None


def pending(
    view: ViewRecord, after: int, upto: int, version: int | None = None, mv_version: int | None = None
) -> exp.Query:
    """The differential batches after one and up to another, as a signed bag that is not netted.

    A replacement is −MV and its own rows; batches before it are part of it. `version` is that of the differential
    table, and `mv_version` one of MV that shows batch `after`.
    """
    whole = replacement(view, after, upto)
    if whole is None:
        return batches(view, after, upto, version)
    names = [name for name, _ in view.columns]
    return union_all(
        [signed(delta_table(mv_path(view.location), mv_version), names, -1), batches(view, whole - 1, upto, version)]
    )


def batches(view: ViewRecord, after: int, upto: int, version: int | None = None) -> exp.Select:
    """The rows of the differential batches after one and up to another, as they are stored."""
    batch = column(DIFFERENTIAL_BATCH)
    columns = [*(column(name) for name, _ in view.columns), alias(column(DIFFERENTIAL_COUNT), COUNT)]
    return select(columns, delta_table(differential_path(view.workings), version)).where(
        exp.GT(this=batch, expression=exp.Literal.number(after)),
        exp.LTE(this=batch.copy(), expression=exp.Literal.number(upto)),
        copy=False,
    )


def pending_rows(view: ViewRecord, after: int, upto: int) -> pa.Table | None:
    """The same, read without Spark; None where that is too much, or values do not come through exactly."""
    types = [type_ for _, type_ in view.columns]
    if replacement(view, after, upto) is not None or not all(exact_type(type_) is not None for type_ in types):
        return None
    batches = [str(batch) for batch in range(after + 1, upto + 1)]
    rows = DeltaLog(differential_path(view.workings)).rows(DIFFERENTIAL_BATCH, batches, PENDING_BYTES // width(types))
    return (
        None
        if rows is None
        else rows.rename_columns([COUNT if name == DIFFERENTIAL_COUNT else name for name in rows.column_names])
    )


def files_by_batch(view: ViewRecord) -> dict[int, set[str]]:
    """The files of the differential table, those of each batch that has some."""
    found: dict[int, set[str]] = {}
    for path, batch in DeltaLog(differential_path(view.workings)).listed("path", f"partition.{DIFFERENTIAL_BATCH}"):
        found.setdefault(int(batch), set()).add(path)
    return found


def files_of(view: ViewRecord, batch: int) -> list[dict[str, Any]] | None:
    """The files of a differential batch as the commit names them that added it; None where these are not the batch.

    Delta may have cleaned up the commit, or other files may have taken their place: Spark can compact a table in a
    commit of its own after each one, with the same mark.
    """
    log = DeltaLog(differential_path(view.workings))
    there = files_by_batch(view).get(batch, set())
    for commit in log.newest_first():
        mark = commit.mark or {}
        if mark.get("kind") == "propagate" and mark["batch"] == batch:
            actions = log.actions(commit.version, MOST_BYTES) or []
            added = [action["add"] for action in actions if "add" in action]
            if actions and {unquote(file["path"]) for file in added} == there:
                return added
    return None


def require_replacement(view: ViewRecord) -> None:
    """Refuse to go on where the rows of a replacement are gone: nothing would be left of the view."""
    batch = view.replacement_batch
    if not files_by_batch(view).get(batch) and files_of(view, batch) is None:
        raise LogLostError(
            f"Batch {batch} of view {view.name}, which holds the whole view, is gone from its differential table. "
            f"Run rebuild({view.name!r}) to recompute the view."
        )


def reached(view: ViewRecord) -> exp.Query:
    """(MV ∸ ∇MV) ⊎ ΔMV as a signed bag that is not netted: the view at s_i, whatever partial_refresh does meanwhile."""
    version, batch = applied_version(view)
    whole = replacement(view, batch, view.propagated_batch)
    if whole is not None:
        return batches(view, whole - 1, view.propagated_batch)
    mv = signed(delta_table(mv_path(view.location), version), [name for name, _ in view.columns])
    return union_all([mv, pending(view, batch, view.propagated_batch)])


def applied_version(view: ViewRecord) -> tuple[int, int]:
    """The newest version of MV, and the last differential batch that is applied in it."""
    log = DeltaLog(mv_path(view.location))
    version = log.version
    for commit in log.newest_first():
        if commit.version <= version and commit.mark is not None and commit.mark.get("kind") == "refresh":
            return version, int(commit.mark["batch"])
    return version, view.applied_batch
