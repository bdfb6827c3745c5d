"""propagate: compute the changes from s_i to s_c into the differential tables. The slow part; touches no reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

from deferred.algebra.delta import Program, differentiate
from deferred.algebra.plan import COUNT
from deferred.errors import DeferredError, LogLostError
from deferred.log import changes, ledger
from deferred.log.context import Context
from deferred.log.history import DeltaLog
from deferred.log.lease import lease
from deferred.log.transactions import recover
from deferred.maintenance import definition as definitions
from deferred.maintenance import support
from deferred.maintenance.definition import DIFFERENTIAL_BATCH, DIFFERENTIAL_COUNT, Definition
from deferred.maintenance.operation import Operation, Work, recorded, result
from deferred.maintenance.settle import confirm, settled, shown_version
from deferred.maintenance.views import differential_path, mv_path, query
from deferred.metadata import Cut, TableRecord, ViewRecord
from deferred.spark import bags
from deferred.spark.engine import BROADCAST_ROWS, Mark, Temporaries, table
from deferred.sql.dialect import quoted
from deferred.sql.render import Renderer

FULL_FRACTION = 0.3
"""With `auto`, above this part of the base rows a recomputation is taken for cheaper than a delta."""

TIDIED_TOGETHER = 8
"""So many batches that MV shows already are left in the differential table: removing them is a commit of its own."""


def propagate(context: Context, name: str, until: datetime | None = None, kind: str = "propagate",
              full: bool = False) -> Operation:
    """Bring the differential tables of a view from s_i to the cut at `until` (now, by default)."""
    view = context.metadata.views.get(name)
    with lease(context, f"propagate:{view.id}", f"The propagation of {view.name}"):
        view = usable(settled(context, context.metadata.views.get(name)))
        with recorded(context, kind, view, until=until.isoformat() if until else None) as work:
            work.from_cut = view.propagated
            try:
                _propagate(context, view, until, work, full)
            except LogLostError as error:
                context.metadata.views.update(view.id, state="broken", problem=str(error))
                raise
        return result(context, work)


def usable(view: ViewRecord) -> ViewRecord:
    """Refuse a view whose log is lost, with what was found and the remedy."""
    if view.state == "broken":
        raise LogLostError(f"View {view.name} cannot be maintained: {view.problem} Run rebuild({view.name!r}) to "
                           f"recompute it.")
    return view


def sources(context: Context, view: ViewRecord) -> list[TableRecord]:
    return [context.metadata.tables.by_id(table_id) for table_id in view.depends_on]


def _propagate(context: Context, view: ViewRecord, until: datetime | None, work: Work, full: bool) -> None:
    assert view.propagated is not None
    with work.phase("sync"):
        tables = sources(context, view)
        ledger.sync(context, tables, lambda t: recover(context, t))
        cut = ledger.cut(context, tables, until, view.propagated)
    work.to_cut = cut
    if dict(cut.versions) == dict(view.propagated.versions) and not full:
        work.nothing("No base table has changed.")
        context.metadata.views.update(view.id, propagated=cut)
        return
    definition = definitions.load(context, view)
    for source in tables:
        changes.check_columns(source, definition.read_columns(source.name))
    full = full or definition.bound is None
    with context.engine.temporaries() as temporaries:
        changed: dict[str, str] = {}
        rows: dict[str, int] = {}
        if not full:
            with work.phase("log"):
                changed, rows = _changes(context, definition, view.propagated, cut, temporaries)
            work.rows_read = sum(rows.values())
            if not changed:
                work.nothing("The changes cancel out, or touch no column that the view reads.")
                context.metadata.views.update(view.id, propagated=cut)
                return
        batch = view.propagated_batch + 1
        with work.phase("compute"):
            kept = support.put_back(context, view, definition)
            if full or _recompute(view, definition, rows):
                work.strategy = "full"
                delta = _full(view, definition, cut, temporaries)
                move = partial(support.refill, context, view, definition, cut, work.id, batch)
            else:
                work.strategy = "incremental"
                pinned = definitions.Pinned(definition.tables, dict(cut.versions), changed, {}, view.location, kept)
                renderer = Renderer(pinned, broadcast=sum(rows.values()) <= BROADCAST_ROWS)
                program = differentiate(definition.plan, changed, definition.column_types)
                delta = _incremental(view, definition, program, renderer, pinned, temporaries)
                move = partial(support.move, context, view, program, renderer, work.id, batch)
        with work.phase("write"):
            _write(context, view, delta, cut, work, batch, move if kept else None)
    _tidy(context, view)


def _changes(context: Context, definition: Definition, since: Cut, cut: Cut,
             temporaries: Temporaries) -> tuple[dict[str, str], dict[str, int]]:
    """The net log of every base table that has one between the cuts: temporary names, and numbers of rows."""
    found: dict[str, str] = {}
    rows: dict[str, int] = {}
    for number, (name, source) in enumerate(definition.tables.items()):
        after, upto = since.versions[source.id], cut.versions[source.id]
        if upto <= after:
            continue
        with changes.guarded(source, after, upto):
            kept = temporaries.keep(f"log{number}",
                                    changes.net(context, source, after, upto, definition.read_columns(name)))
        if temporaries.rows(kept):
            found[name], rows[name] = kept, temporaries.rows(kept)
    return found, rows


def _recompute(view: ViewRecord, definition: Definition, rows: Mapping[str, int]) -> bool:
    """Whether recomputing is the better way: by the view's policy, or by how much has changed."""
    if view.refresh_policy == "full":
        return True
    if view.refresh_policy != "auto":
        return False
    total = 0
    for source in definition.tables.values():
        count = DeltaLog(source.location).rows()
        if count is None:
            return False
        total += count
    return total > 10_000 and sum(rows.values()) > FULL_FRACTION * total


def _incremental(view: ViewRecord, definition: Definition, program: Program, renderer: Renderer,
                 pinned: definitions.Pinned, temporaries: Temporaries) -> str:
    """Run the delta program step by step; answers the temporary that holds the signed change of the view."""
    for step in program.steps:
        query_ = renderer.render(step.plan)
        if step.when is not None and not temporaries.rows(pinned.steps[step.when]):
            query_ = f"SELECT * FROM ({query_}) AS skipped WHERE FALSE"
        pinned.steps[step.name] = temporaries.keep(step.name, query_)
    assert program.result is not None
    types = dict(view.columns)
    outputs = [f"CAST({quoted(c)} AS {types[name]}) AS {quoted(name)}"
               for c, name in definitions.output(definition, view.columns)]
    result = f"SELECT {', '.join([*outputs, quoted(COUNT)])} FROM ({renderer.render(program.result)}) AS q"
    return temporaries.keep("delta", result)


def _full(view: ViewRecord, definition: Definition, cut: Cut, temporaries: Temporaries) -> str:
    """Q at s_c, less what MV and the differential tables hold: the same change, by recomputation."""
    new = query(definition, view.columns, cut)
    names = ", ".join(quoted(n) for n, _ in view.columns)
    count = quoted(COUNT)
    old = reached(view)
    return temporaries.keep("delta", bags.net(
        f"SELECT {names}, 1L AS {count} FROM ({new}) AS n "
        f"UNION ALL SELECT {names}, -{count} AS {count} FROM ({old}) AS o", view.columns))


def reached(view: ViewRecord) -> str:
    """(MV ∸ ∇MV) ⊎ ΔMV as a signed query: the view at s_i, whatever partial_refresh does meanwhile."""
    names = ", ".join(quoted(n) for n, _ in view.columns)
    version, batch = shown_version(view)
    return (f"SELECT {names}, 1L AS {quoted(COUNT)} FROM {table(mv_path(view), version)} "
            f"UNION ALL {pending(view, batch, view.propagated_batch)}")


def pending(view: ViewRecord, after: int, upto: int) -> str:
    """The differential batches after one and up to another, as a signed query that is not netted."""
    names = ", ".join(quoted(n) for n, _ in view.columns)
    return (f"SELECT {names}, {quoted(DIFFERENTIAL_COUNT)} AS {quoted(COUNT)} FROM {table(differential_path(view))} "
            f"WHERE {quoted(DIFFERENTIAL_BATCH)} > {int(after)} AND {quoted(DIFFERENTIAL_BATCH)} <= {int(upto)}")


def _write(context: Context, view: ViewRecord, delta: str, cut: Cut, work: Work, batch: int,
           move: Callable[[], None] | None) -> None:
    """Append the change as one batch: one Delta commit, which names the cut that it leads to.

    Support tables are moved before it; without a batch after them they are put back.
    """
    count = quoted(COUNT)
    (totals,) = context.engine.rows(f"SELECT COALESCE(SUM(IF({count} < 0, -{count}, 0)), 0) AS deleted, "
                                    f"COALESCE(SUM(IF({count} > 0, {count}, 0)), 0) AS inserted FROM {delta}")
    work.rows_deleted, work.rows_inserted = int(totals["deleted"]), int(totals["inserted"])
    if move is not None:
        move()
    if not work.rows_deleted and not work.rows_inserted:
        context.metadata.views.update(view.id, propagated=cut, propagated_batch=batch)
        return
    names = ", ".join(quoted(n) for n, _ in view.columns)
    mark = Mark(f"deferred-differential-{view.id}", batch,
                {"kind": "propagate", "operation": work.id, "batch": batch, "cut": cut.to_json()})
    context.engine.commit(
        f"INSERT INTO {table(differential_path(view))} "
        f"({names}, {quoted(DIFFERENTIAL_COUNT)}, {quoted(DIFFERENTIAL_BATCH)}) "
        f"SELECT {names}, {count}, CAST({batch} AS BIGINT) FROM {delta}", mark)
    confirm(differential_path(view), "propagate", work.id)
    context.metadata.views.update(view.id, propagated=cut, propagated_batch=batch)


def _tidy(context: Context, view: ViewRecord) -> None:
    """Remove batches that MV shows already, a few at once; here, where no reader waits."""
    state = context.metadata.views.by_id(view.id)
    if state.applied_batch >= int(state.definition.get("tidied", 0)) + TIDIED_TOGETHER:
        try:
            context.engine.write(f"DELETE FROM {table(differential_path(state))} "
                                 f"WHERE {quoted(DIFFERENTIAL_BATCH)} <= {state.applied_batch}")
        except DeferredError:
            return  # somebody else is at it; the next propagate tries again
        context.metadata.views.update(view.id, definition={**state.definition, "tidied": state.applied_batch})
