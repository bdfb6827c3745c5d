"""Creating and dropping views."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from deferred.algebra.strategy import Recomputed
from deferred.algebra.types import Columns, has_no_order, is_padded
from deferred.errors import InvalidInputError, InvalidSQLError, UnsupportedSQLError
from deferred.log import ledger, tracking
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog
from deferred.log.lease import lease
from deferred.log.sources import is_tracked, source_of
from deferred.log.sources.view_table import ViewTable
from deferred.log.transactions import recover
from deferred.maintenance import costs, functions, promises, shared, support
from deferred.maintenance import definition as definitions
from deferred.maintenance.definition import Definition
from deferred.maintenance.following import catch_up
from deferred.maintenance.functions import Functions
from deferred.maintenance.making import make_differential, make_filled_mv, remove_earlier_histories, remove_folder
from deferred.maintenance.operation import Work, announced
from deferred.maintenance.rounds import at_cut
from deferred.maintenance.view_tables import location_of, mv_path
from deferred.metadata import Cut, Filling, LedgerEntry, RememberedDefinition, TableRecord, ViewRecord
from deferred.options import ViewOptions
from deferred.spark.engine import Mark


def create(context: Context, name: str, sql: str, options: ViewOptions) -> ViewRecord:
    """Bind a view, compute it at the current cut, and register it. Nothing is left behind when a step fails."""
    tracking.check_name(name, "view")
    with lease(context, f"create:{name.casefold()}", f"The creation of {name}"):
        _clear_remains(context, name)
        tracking.check_free(context, name)
        remove_earlier_histories(context, name)
        record = _create(context, name, sql, options)
    catch_up(context)
    return record


def _clear_remains(context: Context, name: str) -> None:
    """Remove the table of a view whose creation or removal was interrupted: without its view nothing uses it."""
    table_ = context.metadata.tables.find(name)
    if table_ is not None and not is_tracked(table_) and context.metadata.views.find(name) is None:
        context.metadata.tables.remove(table_.id)
        remove_folder(location_of(table_.location))


@dataclass(frozen=True)
class Prepared:
    """A query that may become a view: bound, with its columns, at the cut at which it is first computed."""

    definition: Definition
    columns: Columns
    sources: Sequence[TableRecord]
    cut: Cut
    settings: Mapping[str, str]
    functions: Functions

    def remembered(self) -> RememberedDefinition:
        """What is kept of the query with the view."""
        key = _key(self.definition, self.columns)
        remembered = self.definition.remembered(_notes(self.definition), key, self.settings)
        return replace(remembered, functions=self.functions)


def prepared(
    context: Context, sql: str, options: ViewOptions, settings: Mapping[str, str], serve: bool = True
) -> Prepared:
    """Bind a query and refuse what cannot become a view. No row is computed.

    `serve` makes the tables that it reads ready to be followed; without it nothing at all is written.
    """
    strict = options.refuses_recomputation
    if functions.called(sql):
        context.engine.begin_anew()
    definition = definitions.define(context, sql, strict, maintain=options.maintain)
    for source in definition.tables.values() if serve else ():
        source_of(context, source).serve()
    sources = [context.metadata.tables.by_id(t.id) for t in definition.tables.values()]
    ledger.sync(context, sources, lambda t: recover(context, t))
    cut = ledger.cut(context, sources, None, None)
    columns = _columns(context, definition, cut)
    definition = _agreeing(definition, columns, strict)
    if strict:
        _refuse_recomputation(definition)
    own = functions.described(context, sql)
    definition = shared.chosen(context, definition, settings, own)
    return Prepared(definition, columns, sources, cut, settings, own)


def _create(context: Context, name: str, sql: str, options: ViewOptions) -> ViewRecord:
    """A view that means what its text means in the user's session as it is now."""
    if not context.engine.started:
        definitions.refuse_early(context, sql, options.refuses_recomputation, options.maintain)
    settings = context.engine.settings()
    choosing = shared.choosing(context) if options.is_self_maintained else nullcontext()
    location = context.folder("views", f"{name}-{uuid.uuid4().hex[:8]}")
    telling = announced(context, "create", name, mv_path(location))
    with context.engine.meaning(settings), choosing, telling as work:
        with work.phase("define"):
            new = prepared(context, sql, options, settings)
        return _compute(context, name, sql, options, new, location, work)


def _compute(
    context: Context, name: str, sql: str, options: ViewOptions, new: Prepared, location: str, work: Work
) -> ViewRecord:
    definition, columns, cut = new.definition, new.columns, new.cut
    begun = time.monotonic()
    promises.require(context.engine, name, definition, cut)
    try:
        with work.phase("compute"):
            _fill(context, definition, columns, location, cut, work)
        filled = _filled(context, definition, time.monotonic() - begun)
        state = DeltaLog(mv_path(location))
        work.rows_inserted = state.row_count() or 0
        record = context.metadata.tables.add(
            name=name,
            location=mv_path(location),
            kind=ViewTable.kind,
            delta_id=state.id,
            key=(),
            references={},
            columns=columns,
            first_version=state.version,
        )
    except BaseException:
        remove_folder(location)
        raise
    first = next(iter(state.newest_first()))
    context.metadata.ledger.append([LedgerEntry(record.id, first.version, cut.timestamp, None, first.operation)])
    return context.metadata.views.add(
        name=name,
        sql=sql,
        options=options,
        columns=columns,
        location=location,
        table_id=record.id,
        depends_on=[t.id for t in new.sources],
        shown=cut,
        propagated=cut,
        definition=replace(new.remembered(), filled=filled),
    )


def _filled(context: Context, definition: Definition, seconds: float) -> Filling | None:
    """What filling a view has taken beside what the model says, for estimates of a recomputation."""
    sizes = costs.sizes(context, definition)
    return None if sizes is None else Filling(round(seconds, 3), round(costs.filling(sizes), 4))


def _notes(definition: Definition) -> list[str]:
    """Returns what a user should know about how the view was understood."""
    if not definition.has_plan:
        return [f"Recomputed as a whole at every propagate: {definition.whole}"]
    return list(definition.notes)


def _key(definition: Definition, columns: Columns) -> list[str]:
    """Returns the columns that identify a row of the view; empty when rows may repeat."""
    if not definition.has_plan:
        return []
    names = dict(definitions.output(definition, columns))
    key = [names[c] for c in definition.plan.unique_key or ()]
    return [] if any(has_no_order(dict(columns)[name]) for name in key) else key


def drop(context: Context, view: ViewRecord) -> None:
    """Remove a view and its tables. Its operations stay in the history."""
    _refuse_if_read(context, view)
    context.metadata.views.remove(view.id)
    remove_folder(view.location)
    remove_earlier_histories(context, view.name)
    shared.remove_unused(context, shared.in_use([view]))


def _refuse_if_read(context: Context, view: ViewRecord) -> None:
    users = context.metadata.views.dependents(view.table_id)
    if users:
        raise InvalidInputError(f"View {view.name} is read by {', '.join(v.name for v in users)}; drop those first.")


def _fill(context: Context, definition: Definition, columns: Columns, location: str, cut: Cut, work: Work) -> None:
    """Fill the support tables, then MV from them: what they hold is not computed from the base tables again."""
    engine = context.engine
    make_differential(engine, location, columns)
    with at_cut(context, definition, cut, work.tell) as computed:
        shared.bring_along(context, computed, cut)
        support.create(context, computed, location, cut, {})
        rows = definitions.query(support.resting_on(computed, location), columns, cut)
        details = {"kind": "refresh", "batch": 0, "cut": cut.to_json()}
        mark = Mark(f"deferred-view-{os.path.basename(location)}", 0, details)
        make_filled_mv(engine, location, columns, rows, mark)


def _columns(context: Context, definition: Definition, cut: Cut) -> Columns:
    """The view's columns, by Spark's own word on the user's own text; the plan must agree in types.

    Spark does not know all recursions; there the plan's word counts, of which Spark has told every type.
    """
    if definition.is_recursive:
        columns = definition.planned_columns
    else:
        columns = tuple(context.engine.columns(definitions.original(definition, cut)))
    seen: dict[str, str] = {}
    for name, type_ in columns:
        if name.casefold() in seen:
            raise InvalidSQLError(f"Two columns of the view are called {name}; give one of them an alias.")
        seen[name.casefold()] = name
        if name.startswith("_deferred_"):
            raise InvalidSQLError(f"Column {name}: names that begin with _deferred_ are reserved; give it an alias.")
        if type_ == "void" or type_.startswith("interval") or "variant" in type_:
            raise UnsupportedSQLError(
                f"Column {name} has the type {type_}, whose values cannot be stored and "
                f"compared; CAST it to a type that can."
            )
    return columns


def _agreeing(definition: Definition, columns: Columns, strict: bool) -> Definition:
    """Returns the definition, recomputed as a whole if its plan has other types than Spark gives the user's text."""
    if not definition.has_plan:
        return definition
    for (name, type_), (_, mine) in zip(columns, definition.planned_columns, strict=True):
        if type_.casefold() != mine.casefold() and not (type_ == "string" and is_padded(mine)):
            reason = (
                f"Column {name} is {type_} for Spark and {mine} in the view's plan, so the view cannot be "
                f"maintained incrementally; write CAST(… AS {type_})."
            )
            if strict:
                raise UnsupportedSQLError(reason)
            return replace(definition, bound=None, whole=reason)
    return definition


def _refuse_recomputation(definition: Definition) -> None:
    for node in definition.plan.walk():
        if isinstance(node.strategy, Recomputed):
            raise UnsupportedSQLError(
                f"Every change reads the whole input of {node.called} again: it has no keys or partitions that would "
                f"say which part is touched. incremental_strict refuses this; use refresh_policy 'incremental' or "
                f"'auto'."
            )
