"""Support tables in Delta: made with the view, read and moved by propagate, put back when a propagate did not end.

The differential batch is the commit point. A support table is moved before it, and a move whose batch never came is
undone by the next propagate: Delta keeps the version before it.
"""

from __future__ import annotations

from deferred.algebra.delta import Program, Upkeep
from deferred.log.context import Context
from deferred.log.history import DeltaLog
from deferred.maintenance import definition as definitions
from deferred.maintenance.definition import Definition
from deferred.metadata import Cut, ViewRecord
from deferred.spark import bags
from deferred.spark.engine import Mark, table
from deferred.sql.dialect import quoted
from deferred.sql.render import Renderer
from deferred.sql.supporting import contents


def path(location: str, name: str) -> str:
    return f"{location}/{name}"


def create(context: Context, definition: Definition, location: str, cut: Cut) -> None:
    """Make and fill the support tables of a new view."""
    if definition.bound is None:
        return
    for name, plan in contents(definition.plan).items():
        columns = [(c, definition.column_types[c]) for c in plan.columns]
        bags.create(context.engine, path(location, name), columns)
        listed = ", ".join(quoted(c) for c in plan.columns)
        rows = Renderer(definitions.at(definition, cut), broadcast=False).render(plan)
        context.engine.write(f"INSERT INTO {table(path(location, name))} ({listed}) {rows}")


def refill(context: Context, view: ViewRecord, definition: Definition, cut: Cut, operation: str, batch: int) -> None:
    """Compute the support tables anew at a cut, after a recomputation of the view."""
    if definition.bound is None:
        return
    for name, plan in contents(definition.plan).items():
        rows = Renderer(definitions.at(definition, cut), broadcast=False).render(plan)
        _replace(context, view, name, plan.columns, rows, operation, batch)


def put_back(context: Context, view: ViewRecord, definition: Definition) -> dict[str, int]:
    """The version of each support table at s_i; a move whose differential batch never came is undone."""
    versions: dict[str, int] = {}
    if definition.bound is None:
        return versions
    for name in contents(definition.plan):
        location = path(view.location, name)
        log = DeltaLog(location)
        orphan = None
        for commit in log.newest_first():
            mark = commit.mark or {}
            if mark.get("kind") == "support" and mark["batch"] > view.propagated_batch:
                orphan = commit.version
            elif mark.get("kind") == "support":
                break
        if orphan is not None:
            context.engine.write(f"RESTORE TABLE {table(location)} TO VERSION AS OF {orphan - 1}")
            log = DeltaLog(location)
        versions[name] = log.version
    return versions


def move(context: Context, view: ViewRecord, program: Program, renderer: Renderer, operation: str, batch: int) -> None:
    """Bring the support tables to s_c, each with one Delta commit that names the batch it belongs to."""
    for name, upkeep in program.supports.items():
        rows = renderer.render(upkeep.rows)
        if not upkeep.keys:
            _replace(context, view, name, upkeep.rows.columns, rows, operation, batch)
        else:
            context.engine.commit(_merge(path(view.location, name), upkeep, rows, renderer),
                                  _mark(name, operation, batch))


def _mark(name: str, operation: str, batch: int) -> Mark:
    # An application of its own for each attempt: a move that was put back must be possible again.
    return Mark(f"deferred-support-{operation}-{name}", 1, {"kind": "support", "operation": operation, "batch": batch})


def _replace(context: Context, view: ViewRecord, name: str, columns: tuple[str, ...], rows: str, operation: str,
             batch: int) -> None:
    listed = ", ".join(quoted(c) for c in columns)
    context.engine.commit(f"INSERT OVERWRITE {table(path(view.location, name))} ({listed}) {rows}",
                          _mark(name, operation, batch))


def _merge(location: str, upkeep: Upkeep, rows: str, renderer: Renderer) -> str:
    columns = [quoted(c) for c in upkeep.rows.columns]
    others = [c for c in upkeep.rows.columns if c not in upkeep.keys]
    source = f"SELECT {', '.join(columns)}, 'I' AS `_deferred_op` FROM ({rows}) AS n"
    if upkeep.gone is not None:
        listed = ", ".join(quoted(c) if c in upkeep.keys else f"NULL AS {quoted(c)}" for c in upkeep.rows.columns)
        source += f" UNION ALL SELECT {listed}, 'D' AS `_deferred_op` FROM ({renderer.render(upkeep.gone)}) AS g"
    on = " AND ".join(f"t.{quoted(k)} <=> s.{quoted(k)}" for k in upkeep.keys)
    sets = ", ".join(f"t.{quoted(c)} = s.{quoted(c)}" for c in others)
    return (f"MERGE INTO {table(location)} AS t USING ({source}) AS s ON {on} "
            f"WHEN MATCHED AND s.`_deferred_op` = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND s.`_deferred_op` = 'I' THEN INSERT ({', '.join(columns)}) "
            f"VALUES ({', '.join(f's.{c}' for c in columns)})")
