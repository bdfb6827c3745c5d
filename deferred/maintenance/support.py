"""Support tables in Delta: created with the view, read and appended to by propagate, restored after an interruption.

A propagate appends what its batch changes, so its cost follows the change and not the table: the new row of each
touched key, and a row for each key that is gone. Of a key the row of the newest batch counts. A table that moves as a
whole (no keys) has all its rows in each batch, and those of the newest one count. Now and then a table is rewritten
with only the rows that count.

The differential batch is the commit point. A support table advances before it; if the batch never comes, the next
propagate restores the version before: Delta still has it, and where it has not, the table is filled again.

A view may have been created by an earlier version that kept other rows, or none. Its next propagate is a recomputation,
which also makes the support tables.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from deferred.algebra.bags import (
    BATCH,
    GONE,
    alias,
    appended,
    column,
    insert_into,
    newest,
    overwrite,
    select,
    union_all,
)
from deferred.algebra.plan import Plan
from deferred.algebra.program import Upkeep
from deferred.algebra.strategy import kept_nodes
from deferred.algebra.support_tables import over_support_tables
from deferred.algebra.types import Columns
from deferred.errors import DeferredError
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog, is_delta, readable
from deferred.maintenance.definition import Definition, rows_at
from deferred.maintenance.making import remove_folder
from deferred.maintenance.rendering import PropagateRenderer, SupportState
from deferred.maintenance.rounds import SparkMachine
from deferred.maintenance.settle import confirm
from deferred.maintenance.view_tables import support_application, support_path
from deferred.maintenance.working import propagation
from deferred.metadata import Cut, ViewRecord
from deferred.spark import bags
from deferred.spark.at_driver import appended_at_driver
from deferred.spark.engine import Mark
from deferred.spark.temporaries import LOCAL_ROWS, Temporaries
from deferred.sql.dialect import cast, delta_table

REWRITE_AFTER = 32
"""After this many appends a support or shared table is rewritten: a look at it reads the files of all of them."""


@dataclass(frozen=True)
class Supports:
    """The support tables of a view at s_i, None where they must be filled again; and the number of the next batch.

    Delta makes the commit of a number at most once, so the number of a batch that was undone is not used again.
    """

    states: Mapping[str, SupportState] | None
    next_batch: int


def create(context: Context, definition: Definition, location: str, cut: Cut, known: Mapping[str, Plan]) -> None:
    """Create and fill the support tables of a new view; `known` are plans for the rows of some of them."""
    filling = _Filling(definition, cut)
    for name, plan in filling.tables:
        path = support_path(location, name)
        rows = filling.rows(name, known.get(name, plan), 0)
        mark = Mark(f"deferred-create-{os.path.basename(location)}-{name}", 1, _details("create", 0, True))
        bags.create_filled(context.engine, path, _columns(definition, plan), rows, mark)
        filling.made[name] = delta_table(path, DeltaLog(path).version)


def resting_on(definition: Definition, location: str) -> Definition:
    """The definition of a new view that reads from its support tables, just filled, what they hold."""
    return _over(definition, {name: delta_table(support_path(location, name)) for name in definition.support_tables})


def _over(definition: Definition, tables: Mapping[str, exp.Table]) -> Definition:
    """A definition that reads from its support tables what they hold, from wherever they are.

    Old(E) is what the table of E holds at s_i, and that is the cut at which it was filled.
    """
    if not definition.has_plan:
        return definition
    return replace(definition.with_plan(over_support_tables(definition.plan, tables)), supports=tables)


def refill(
    context: Context,
    view: ViewRecord,
    definition: Definition,
    cut: Cut,
    operation: str,
    batch: int,
    temporaries: Temporaries,
) -> Definition:
    """Recompute the support tables at a cut. Returns the definition that reads from them what they hold.

    The rows of a table that is not large come to the driver, which writes them and has them for what is computed next.
    """
    filling = _Filling(definition, cut)
    for name, plan in filling.tables:
        path, columns = support_path(view.workings, name), _columns(definition, plan)
        mark = _mark(context, view, name, operation, batch, True)
        if not readable(path):
            remove_folder(path)
        if not is_delta(path):
            created = replace(mark, application=f"{mark.application}-created")
            bags.create_again(context.engine, path, columns, created)
        log, rows = DeltaLog(path), filling.rows(name, plan, batch)
        expected = log.row_count()
        if not _has(log, columns):
            typed = select([alias(cast(column(name), type_), name) for name, type_ in columns], rows)
            bags.replace(context.engine, path, columns, typed, mark)
        elif expected is None or expected > LOCAL_ROWS:
            context.engine.commit(overwrite(delta_table(path), _names(plan.columns), rows), mark)
        else:
            held = temporaries.result(f"{name}_filled", rows, expected)
            filling.made[name] = bags.overwrite_with(context.engine, temporaries, path, columns, held, mark)
        confirm(path, "support", operation)
        filling.made.setdefault(name, delta_table(path, DeltaLog(path).version))
    return _over(definition, filling.made)


@dataclass(frozen=True)
class _Filling:
    """The support tables of a view at a cut, those first that others can be filled from."""

    definition: Definition
    cut: Cut
    made: dict[str, exp.Table] = field(default_factory=dict)
    """The tables that are filled, at the versions to read."""

    @property
    def tables(self) -> list[tuple[str, Plan]]:
        return list(self.definition.support_tables.items())[::-1]

    def rows(self, name: str, contents: Plan, batch: int) -> exp.Query:
        """All rows of a support table, in the order by which they are looked up."""
        filled = replace(self.definition, supports=self.made)
        rows = rows_at(filled, over_support_tables(contents, self.made), self.cut)
        all_rows = appended(rows, contents.columns, (), None, batch)
        return _sorted(all_rows, self.definition.plan, name)


def _sorted(rows: exp.Query, plan: Plan, name: str) -> exp.Query:
    """The rows of a support table in the order in which they are stored.

    Clustering by Delta would do the same only after an OPTIMIZE, and tables with it are not written at the driver.
    """
    node, strategy = kept_nodes(plan)[name]
    order = strategy.order(node)
    return select([exp.Star()], rows).order_by(*map(column, order), copy=False) if order else rows


def restore(context: Context, view: ViewRecord, definition: Definition) -> Supports:
    """The support tables at s_i, after undoing an advance whose differential batch never came.

    They must be filled again if there is no such table, or one that cannot be restored, or one with other columns,
    which an earlier version has created.
    """
    highest = view.propagated_batch
    states: dict[str, SupportState] = {}
    whole = True
    for name, plan in definition.support_tables.items():
        path = support_path(view.workings, name)
        if not is_delta(path):
            whole = False
            continue
        log = DeltaLog(path)
        moves = _moves(log, view.propagated_batch)
        highest = max(highest, moves.highest)
        if moves.orphan is not None and _undone(context, path, moves.orphan - 1, highest):
            log = DeltaLog(path)
            moves = _moves(log, view.propagated_batch)
        if moves.orphan is None and moves.batch is not None and _has(log, _columns(definition, plan)):
            states[name] = SupportState(log.version, moves.batch, moves.appended)
        else:
            whole = False
    return Supports(states if whole else None, highest + 1)


def held_at(view: ViewRecord, definition: Definition, batch: int) -> Mapping[str, SupportState] | None:
    """The support tables as they were at a batch, for reading alone; None where one of them no longer has that state.

    What came after the batch, a propagate that is running or one that died, is in later versions of the tables.
    """
    states: dict[str, SupportState] = {}
    for name, plan in definition.support_tables.items():
        path = support_path(view.workings, name)
        if not is_delta(path):
            return None
        log = DeltaLog(path)
        moves = _moves(log, batch)
        version = log.version if moves.orphan is None else moves.orphan - 1
        if moves.batch is None or not _has(log, _columns(definition, plan)):
            return None
        if version != log.version and log.missing_at(version) is not None:
            return None
        states[name] = SupportState(version, moves.batch, moves.appended)
    return states


def _undone(context: Context, path: str, version: int, batch: int) -> bool:
    """Restore a table to a version, if Delta still has its files."""
    mark = Mark(f"deferred-support-{uuid.uuid4().hex}", 1, {"kind": "support", "batch": batch, "restored": version})
    try:
        bags.restore(context.engine, path, version, mark)
    except DeferredError:
        return False
    return True


@dataclass(frozen=True)
class _Moves:
    """What the log of a support table says.

    These are its newest settled batch, how many batches were appended since all rows were written, the first commit of
    batches that never came, and the highest number of any batch.
    """

    batch: int | None
    appended: int
    orphan: int | None
    highest: int


def _moves(log: DeltaLog, propagated: int) -> _Moves:
    """Reads the log from its newest commit back to the one that wrote all rows; what was undone does not count."""
    batch: int | None = None
    orphan: int | None = None
    undone_to: int | None = None
    appended_, highest = 0, 0
    for commit in log.newest_first():
        mark = commit.mark or {}
        if mark.get("kind") != "support":
            continue
        highest = max(highest, mark["batch"])
        if undone_to is not None and commit.version > undone_to:
            continue
        if "restored" in mark:
            undone_to = mark["restored"]
        elif mark["batch"] > propagated:
            orphan = commit.version
        else:
            batch = mark["batch"] if batch is None else batch
            if mark.get("replaced"):
                return _Moves(batch, appended_, orphan, highest)
            appended_ += 1
    return _Moves(batch, REWRITE_AFTER, orphan, highest)  # Delta has cleaned up the rest of its log


def moved(moves: Mapping[str, Upkeep], renderer: PropagateRenderer, expected: int, batch: int) -> dict[str, exp.Query]:
    """What a batch appends to each support table that is small work: computed together with the view's change.

    `expected` is about how many rows change in one of them.
    """
    return {
        _moved_rows(name): _new_rows(renderer, upkeep, batch)
        for name, upkeep in moves.items()
        if expected <= LOCAL_ROWS and not _is_due(renderer, name)
    }


def moved_at_driver(moves: Mapping[str, Upkeep], machine: SparkMachine, batch: int) -> dict[str, exp.Table] | None:
    """The same as `moved`, computed without Spark; None where one of them needs it."""
    found = {}
    assert isinstance(machine.renderer, PropagateRenderer)
    for name, upkeep in moves.items():
        if _is_due(machine.renderer, name):
            continue
        rows = machine.evaluated(upkeep.rows)
        gone = None if upkeep.gone is None else machine.evaluated(upkeep.gone)
        if rows is None or (upkeep.gone is not None and gone is None):
            return None
        found[_moved_rows(name)] = rows, gone
    return {step: machine.hold(step, appended_at_driver(rows, gone, batch)) for step, (rows, gone) in found.items()}


def advance(
    context: Context,
    view: ViewRecord,
    moves: Mapping[str, Upkeep],
    renderer: PropagateRenderer,
    computed: Mapping[str, exp.Table],
    operation: str,
    batch: int,
) -> None:
    """Bring the support tables to s_c, each with one Delta commit that names the batch it belongs to.

    `computed` has the results of `moved`.
    """
    for name, upkeep in moves.items():
        names = upkeep.rows.columns
        rows = computed.get(_moved_rows(name))
        if rows is not None:
            _append(context, view, name, operation, batch, renderer.temporaries, _names(names), rows)
            continue
        target, new = delta_table(support_path(view.workings, name)), _new_rows(renderer, upkeep, batch)
        if not _is_due(renderer, name):
            _commit(context, view, name, operation, batch, insert_into(target, _names(names), new), False)
            continue
        if upkeep.keys:
            held = select(map(column, _names(names)), renderer.stored(name))
            current = newest(union_all([held, new]), names, upkeep.keys)
            new = appended(current, names, upkeep.keys, None, batch)
        new = _sorted(new, renderer.pinned.definition.plan, name)
        _commit(context, view, name, operation, batch, overwrite(target, _names(names), new), True)


def _moved_rows(name: str) -> str:
    """The name of the temporary result with what a batch appends to a support table."""
    return f"{name}_rows"


def _is_due(renderer: PropagateRenderer, name: str) -> bool:
    """Whether a table is to be rewritten."""
    return renderer.states[name].appended + 1 >= REWRITE_AFTER


def _new_rows(renderer: PropagateRenderer, upkeep: Upkeep, batch: int) -> exp.Query:
    gone = renderer.query(upkeep.gone) if upkeep.gone is not None else None
    return appended(renderer.query(upkeep.rows), upkeep.rows.columns, upkeep.keys, gone, batch)


def _append(
    context: Context,
    view: ViewRecord,
    name: str,
    operation: str,
    batch: int,
    temporaries: Temporaries,
    names: Sequence[str],
    rows: exp.Table,
) -> None:
    """Append what a batch changes: few rows are at the driver, which writes them itself."""
    path, local = support_path(view.workings, name), temporaries.local(rows)
    mark = _mark(context, view, name, operation, batch, False)
    if local is not None and context.engine.append_rows(path, local.rename_columns(list(names)), mark):
        confirm(path, "support", operation)
        return
    new = insert_into(delta_table(path), names, select([exp.Star()], temporaries.ready(rows)))
    _commit(context, view, name, operation, batch, new, False)


def _names(names: Sequence[str]) -> list[str]:
    return [*names, BATCH, GONE]


def _columns(definition: Definition, plan: Plan) -> Columns:
    return [*((c, definition.column_types[c]) for c in plan.columns), (BATCH, "bigint"), (GONE, "boolean")]


def _has(log: DeltaLog, columns: Columns) -> bool:
    """Whether a table has the columns; types are written as the engine writes them, or as Delta does."""
    return [name for name, _ in log.columns] == [name for name, _ in columns]


def _commit(
    context: Context, view: ViewRecord, name: str, operation: str, batch: int, statement: exp.Expr, replaced: bool
) -> None:
    context.engine.commit(statement, _mark(context, view, name, operation, batch, replaced))
    confirm(support_path(view.workings, name), "support", operation)


def _mark(context: Context, view: ViewRecord, name: str, operation: str, batch: int, replaced: bool) -> Mark:
    """`replaced` says that the commit wrote all rows of the table, so that older batches are not in it."""
    # The number grows with each attempt, so an advance that was undone is possible again.
    number = context.held[propagation(view)].committing
    return Mark(support_application(view, name), number, _details(operation, batch, replaced))


def _details(operation: str, batch: int, replaced: bool) -> dict[str, Any]:
    return {"kind": "support", "operation": operation, "batch": batch, "replaced": replaced}
