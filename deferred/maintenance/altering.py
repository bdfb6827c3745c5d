"""Changing the definition of a view: its name, place, history and the views that read it stay.

The new rows take the place of the old ones in MV by one Delta commit, columns included: the commit point. Before it,
the differential and support tables of the new definition are made in a folder of their own, and the definition is noted
with the view. The commit names the note, so whoever looks at the view next, after a crash too, finds out whether it has
the new definition (`settle`).

| way | what is read | when |
|---|---|---|
| nothing | nothing | both texts have one plan |
| from the view | MV and its pending batches | the new rows are some of the old ones, or other columns of them |
| from kept rows | MV or support tables, and tables for what they lack | another join, one less along a key and a \
reference, HAVING, LIMIT, aggregate |
| difference | what the rows that only one of the two queries has change, by the delta rules | another WHERE, HAVING, \
QUALIFY or ON of inner joins, several of them too, or other branches of a UNION, anywhere in the query |
| recomputed | the base tables | otherwise |

Whatever the way, the support tables of the new definition are made of the old ones where they can be (`carrying`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sqlglot import exp

from deferred.algebra.bags import (
    COUNT,
    call,
    column,
    merge_nothing,
    negated,
    net,
    overwrite,
    select,
    union_all,
)
from deferred.algebra.editing import Edit, Typed, edited, was
from deferred.algebra.nested import extends
from deferred.algebra.plan import Plan
from deferred.algebra.program import run
from deferred.algebra.types import Columns, as_read, is_padded
from deferred.errors import DeferredError, InvalidInputError
from deferred.log import ledger
from deferred.log.context import Context
from deferred.log.lease import Held
from deferred.maintenance import definition as definitions
from deferred.maintenance import functions, shared, support
from deferred.maintenance.carrying import carried, kept_rows, over_rows
from deferred.maintenance.definition import Definition, Pinned, outputs, query, rows_at
from deferred.maintenance.following import followed
from deferred.maintenance.making import make_differential, remove_folder
from deferred.maintenance.operation import Operation, Work, recorded, result
from deferred.maintenance.promises import checks, require
from deferred.maintenance.rounds import SparkMachine, computed
from deferred.maintenance.scenarios import scenario_of
from deferred.maintenance.settle import altered, confirm, settled
from deferred.maintenance.view_tables import (
    differential_path,
    mv_path,
    pending,
    reached,
    support_path,
    view_application,
)
from deferred.maintenance.views import Prepared, prepared
from deferred.maintenance.working import propagating, refreshing
from deferred.metadata import Alteration, Cut, ViewRecord
from deferred.options import ViewOptions
from deferred.spark import bags
from deferred.spark.engine import Mark
from deferred.spark.temporaries import Temporaries
from deferred.sql.altered_query import marked, normal_form
from deferred.sql.dialect import delta_table, parse_query, text, without_comments
from deferred.sql.render import Renderer
from deferred.sql.viewfile import ViewFile, tables_read


@dataclass(frozen=True)
class Altering:
    """What an alteration is given: the view, its new definition, and the cut that both are taken at.

    `definition` is the new one, over what the old one has kept where it can be.
    """

    context: Context
    view: ViewRecord
    new: Prepared
    definition: Definition
    cut: Cut
    temporaries: Temporaries


@dataclass(frozen=True)
class Way:
    """One way to the new rows: its name, and why it is taken."""

    reason: str
    name: ClassVar[str]

    def rows(self, job: Altering) -> exp.Query | None:
        """All rows of the view under its new definition, None where only a change of them is computed."""
        return None

    def changes(self, job: Altering) -> exp.Query | None:
        """new − old(s_p) as a signed bag that is not netted, for a view whose columns stay."""
        return None


class Nothing(Way):
    """Both definitions have the same plan: only the text is stored."""

    name = "nothing"


class FromBaseTables(Way):
    """Q_new at the current cut."""

    name = "recomputed"

    def rows(self, job: Altering) -> exp.Query:
        return query(job.definition, job.new.columns, job.cut)


class FromKept(Way):
    """Q_new at s_i, over the rows that the old definition has kept."""

    name = "from kept rows"

    def rows(self, job: Altering) -> exp.Query:
        return query(job.definition, job.new.columns, job.cut)


@dataclass(frozen=True)
class FromOldRows(Way):
    """Π(σ((MV ∸ ∇MV) ⊎ ΔMV)): no base table is read for the rows.

    `over` is the new definition over the rows of the view. `left` is the condition for which rows stay as they are,
    where the others are deleted and nothing else changes.
    """

    over: Definition
    left: exp.Expr | None
    name: ClassVar[str] = "from the view"

    def rows(self, job: Altering) -> exp.Query | None:
        return query(self.over, job.new.columns, job.cut) if self.left is None else None

    def changes(self, job: Altering) -> exp.Query | None:
        """∇MV and ΔMV, without the rows of the view for which the condition is not true."""
        assert self.left is not None, "asked only where all rows are not"
        names = [name for name, _ in job.view.columns]
        gone = exp.Not(this=call("COALESCE", self.left.copy(), exp.false()))
        left_out = select([exp.Star()], reached(job.view)).where(gone, copy=False)
        return union_all([_pending(job), negated(left_out, names)])


@dataclass(frozen=True)
class ByDifference(Way):
    """∇MV and ΔMV, and Q_new − Q_old at s_i: the rows that one query lacks go up by the delta rules, like changed ones.

    `both` is the definition in which the two are marked; the support tables of the old one move to the new one.
    """

    both: Definition
    edit: Edit
    name: ClassVar[str] = "difference"

    def computed(
        self, view: ViewRecord, old: Definition, cut: Cut, temporaries: Temporaries, tell: Callable[[str], None]
    ) -> tuple[Definition, Mapping[str, Plan]]:
        """Run the program: the definition with its results, and what the new support tables hold."""
        kept = kept_rows(view, old)
        assert kept is not None, "the way is chosen only if the old rows are there"
        both = replace(self.both, kept=kept)
        stored = {name: rows_at(both, contents, cut) for name, contents in self.edit.supports.items()}
        leaves = Pinned(replace(both, supports=stored), cut.versions)
        renderer = Renderer(leaves, small_changes=False)
        machine = SparkMachine(renderer, leaves.steps, temporaries, both.column_types, tell=tell)
        moves = run(self.edit.program.steps, machine).moves(self.edit.program)
        for result_ in leaves.steps.values():
            temporaries.ready(result_)
        before = {was(name): rows for name, rows in stored.items()}
        return replace(both, kept={**kept, **before}, supports=stored, results=leaves.steps), self.edit.moved(moves)

    def changes(self, job: Altering) -> exp.Query | None:
        result_ = self.edit.program.result
        if result_ is None:
            return _pending(job)
        leaves = Pinned(job.definition, job.cut.versions, steps=dict(job.definition.results))
        rows = Renderer(leaves, small_changes=False).query(result_)
        change = select([*outputs(self.both, job.view.columns), column(COUNT)], rows)
        return union_all([_pending(job), change])


def _pending(job: Altering) -> exp.Query:
    """∇MV and ΔMV, which the new rows must not lose."""
    return pending(job.view, job.view.applied_batch, job.view.propagated_batch)


# ---- altering


def alter(
    context: Context, name: str, sql: str, stated: Mapping[str, Any], together: Sequence[ViewFile] = ()
) -> Operation:
    """Give a view another query, and those options that are stated; if that fails, it stays as it is.

    `together` are view files that are applied next, each after those that it reads.
    """
    view = context.metadata.views.get(name)
    options = view.options.replaced(**stated)
    with propagating(context, view) as propagation, refreshing(context, view) as held:
        view = settled(context, context.metadata.views.get(name), [propagation.lease, held.lease])
        with recorded(context, "alter", view) as work:
            work.from_cut = view.shown
            settings = context.engine.settings()
            choosing = shared.choosing(context) if options.is_self_maintained else nullcontext()
            with context.engine.meaning(settings), choosing:
                new = prepared_for(context, view, sql, options, settings, together)
                way = choose(context, view, new)
                work.strategy, work.message, work.details["reason"] = way.name, way.reason, way.reason
                _alter(context, view, new, options, way, work, [propagation, held])
            shared.remove_unused(context, shared.in_use([view]))
        done = result(context, work)
    view = context.metadata.views.get(name)
    if scenario_of(view).follows_transactions:
        scenario_of(view).makesafe(context, view)
    return followed(context, done)


def prepared_for(
    context: Context,
    view: ViewRecord,
    sql: str,
    options: ViewOptions,
    settings: Mapping[str, str],
    together: Sequence[ViewFile],
    serve: bool = True,
) -> Prepared:
    """The new query, bound; refused where it reads the view itself, or a view above it would break."""
    above = _above(context, view)
    new = prepared(context, sql, options, settings, serve=False)
    for source in new.sources:
        if source.id in above:
            raise InvalidInputError(
                f"View {view.name} cannot be defined by a query over {source.name}: that "
                f"{'is the view itself, and no view reads itself' if source.id == view.table_id else 'reads it'}."
            )
    _refuse_breaking(context, view, new.columns, together)
    return prepared(context, sql, options, settings) if serve else new


def _above(context: Context, view: ViewRecord) -> set[int]:
    """The tables of a view and of all views that read it, directly or not."""
    found, waiting = set[int](), [view.table_id]
    while waiting:
        table = waiting.pop()
        if table not in found:
            found.add(table)
            waiting += [user.table_id for user in context.metadata.views.dependents(table)]
    return found


def _refuse_breaking(context: Context, view: ViewRecord, columns: Columns, together: Sequence[ViewFile]) -> None:
    """Refuse columns without one that a view above reads, or with another type of it.

    A view that is changed with this one reads what its new definition does.
    """
    now = {name.casefold(): type_ for name, type_ in columns}
    changed = {file.name.casefold(): file for file in together}
    for user in context.metadata.views.dependents(view.table_id):
        file = changed.get(user.name.casefold())
        if file is not None and file.query.strip() != user.sql.strip():
            _refuse_misfit(context, view, columns, file, changed)
            continue
        for name, type_ in definitions.load(context, user).read_columns(view.name):
            found = now.get(name.casefold())
            if found is None or not extends(as_read(found), as_read(type_)):
                became = "no longer has" if found is None else f"has as {found}"
                raise InvalidInputError(
                    f"View {user.name} reads column {name} ({type_}) of view {view.name}, which the new definition "
                    f"{became}. Keep the column, or alter {user.name} first."
                )


def _refuse_misfit(
    context: Context, view: ViewRecord, columns: Columns, file: ViewFile, changed: Mapping[str, ViewFile]
) -> None:
    """Refuse columns with which the new definition of a view above does not fit.

    If that reads other changed views too, it cannot be told yet; its own turn comes after all of these.
    """
    read = set(tables_read(file.query))
    mine = view.name.casefold()
    if mine not in read or (read - {mine}) & changed.keys():
        return
    try:
        definitions.define(context, file.query, strict=False, instead={view.name: columns})
    except DeferredError as error:
        raise InvalidInputError(
            f"View {file.name}, which reads view {view.name} and is changed with it, would not fit: {error} Make both "
            f"definitions agree."
        ) from error


def _alter(
    context: Context,
    view: ViewRecord,
    new: Prepared,
    options: ViewOptions,
    way: Way,
    work: Work,
    leases: Sequence[Held],
) -> None:
    under = [held.lease for held in leases]
    remembered = new.remembered()
    if isinstance(way, Nothing):
        kept = replace(remembered, generation=view.definition.generation, tidied=view.definition.tidied)
        work.to_cut = view.shown
        work.state = "nothing"
        context.metadata.views.update(view.id, under, sql=new.definition.sql, **options.to_dict(), definition=kept)
        return
    cut = new.cut if isinstance(way, FromBaseTables) else _cut_of(context, view, definitions.load(context, view), new)
    assert cut is not None
    work.to_cut = cut
    remembered = replace(remembered, generation=f"g{uuid.uuid4().hex[:8]}")
    workings = replace(view, definition=remembered).workings
    batch = view.propagated_batch + 1
    reads = tuple(source.id for source in new.sources)
    alteration = Alteration(work.id, new.definition.sql, options, new.columns, reads, remembered)
    mark = Mark(
        view_application(view),
        leases[1].lease.committing,
        {"kind": "refresh", "operation": work.id, "batch": batch, "cut": cut.to_json(), "alteration": work.id},
    )
    with context.engine.temporaries() as temporaries:
        try:
            with work.phase("compute"):
                if isinstance(way, FromBaseTables):
                    require(context.engine, view.name, new.definition, cut)
                job, known = _job(context, view, new, way, cut, temporaries, work)
                make_differential(context.engine, workings, new.columns)
                whole = replace(job.definition, bound=new.definition.bound)
                shared.bring_along(context, whole, cut)
                support.create(context, whole, workings, cut, known)
                switch = _computed(job, way, work, mark)
            noted = replace(view.definition, alteration=alteration)
            noting = context.metadata.views.update(view.id, under, definition=noted)
        except BaseException:
            remove_folder(workings)
            raise
        with work.phase("apply"):
            switch()
            confirm(mv_path(view.location), "refresh", work.id)
    altered(context, noting, cut, batch, under)
    _remove_workings(view, definitions.load(context, view))


def _job(
    context: Context, view: ViewRecord, new: Prepared, way: Way, cut: Cut, temporaries: Temporaries, work: Work
) -> tuple[Altering, Mapping[str, Plan]]:
    """The new definition over what is kept at s_i and with its recursions computed; and rows of its support tables."""
    old = definitions.load(context, view)
    if isinstance(way, ByDifference):
        assert view.propagated is not None
        cut = replace(cut, versions={**view.propagated.versions, **cut.versions})
        definition, moved = way.computed(view, old, cut, temporaries, work.tell)
        return Altering(context, view, new, definition, cut, temporaries), moved
    kept = None if isinstance(way, FromBaseTables) else carried(view, old, new.definition)
    kept = None if kept is None else kept.materialized(cut, temporaries)
    definition = computed(kept.definition if kept else new.definition, cut, temporaries, work.tell)
    return Altering(context, view, new, definition, cut, temporaries), kept.supports if kept else {}


def _computed(job: Altering, way: Way, work: Work, mark: Mark) -> Callable[[], object]:
    """Compute the new rows or what changes of them; returns the one commit that brings them into MV.

    Whatever can go wrong with the query goes wrong here, before anything of the view has changed.
    """
    context, view, columns = job.context, job.view, job.new.columns
    engine, mv, names = context.engine, mv_path(view.location), [name for name, _ in columns]
    rows = way.rows(job)
    if rows is not None:
        held = job.temporaries.compute("rows", rows)
        work.rows_inserted = job.temporaries.rows(held)
        everything = select(map(column, names), held)
        if view.columns == columns:
            return lambda: engine.commit(overwrite(delta_table(mv), names, everything), mark)
        return lambda: bags.replace(engine, mv, columns, everything, mark)
    change = way.changes(job)
    assert change is not None
    netted = job.temporaries.compute("change", net(change, columns), 0)
    key = job.new.remembered().key
    key = key if key == view.definition.key else ()
    work.rows_deleted, work.rows_inserted = bags.count_changes(engine, job.temporaries, netted)
    if not work.rows_deleted and not work.rows_inserted:
        return lambda: engine.commit(merge_nothing(delta_table(mv)), mark)
    return lambda: bags.apply(engine, job.temporaries, mv, columns, netted, mark, key)


def _remove_workings(view: ViewRecord, old: Definition) -> None:
    """Remove the differential and support tables of the definition that a view had."""
    if view.definition.generation:
        remove_folder(view.workings)
        return
    remove_folder(differential_path(view.workings))
    for name in old.support_tables:
        remove_folder(support_path(view.workings, name))


# ---- the choice


_STAY = "The rows of the view stay; what is kept beside them is made again."


def choose(context: Context, view: ViewRecord, new: Prepared) -> Way:
    """The way that reads least, of those that are surely right."""
    old = definitions.load(context, view)
    same_settings = dict(view.definition.settings or {}) == dict(new.settings)
    if not old.has_plan or not new.definition.has_plan:
        return FromBaseTables("One of the definitions has no plan that could be compared.")
    if not same_settings:
        return FromBaseTables("The settings of the session are others than those under which the view was defined.")
    if others := functions.changed(context, view.definition):
        return FromBaseTables(functions.explained(others))
    if _is_same(old, view.columns, new):
        return Nothing("Both texts have the same plan.")
    if view.state != "active" or view.propagated is None:
        return FromBaseTables("The view's log is lost.")
    if any(is_padded(type_) for name in old.tables for _, type_ in old.read_columns(name)):
        return FromBaseTables("The view reads a CHAR column, whose values are padded where they are compared.")
    if _cut_of(context, view, old, new) is None:
        return FromBaseTables("A table or a column was not there at the time to which the view's changes are computed.")
    if view.columns == new.columns and _is_same_query(old, new):
        return FromOldRows(
            "The rows of the view stay; what is kept beside them is made again.", new.definition, exp.true()
        )
    found, kept = over_rows(view, old, new.definition), carried(view, old, new.definition)
    if found is not None and found.over.follows:
        left = found.over.left([name for name, _ in view.columns]) if view.columns == new.columns else None
        why = "The new columns follow from those of the view."
        if left is not None:
            why = "The new rows are those of the view for which one more condition holds."
        if left == exp.true():
            why = _STAY
        return FromOldRows(why, found.definition, left)
    if view.columns == new.columns and (kept is None or kept.tables):
        by_difference = _difference(context, view, old, new.definition)
        if by_difference is not None:
            return by_difference
    if kept is not None:
        assert view.propagated is not None
        for promise, rows in checks(old, kept.relied, view.propagated):
            if context.engine.rows(rows.limit(1)):
                return FromBaseTables(f"A join could be left out if it held that {promise}, but it does not.")
        tables = ", ".join(sorted(kept.tables)) or "no base table"
        return FromKept(f"The new rows follow from rows that are kept; read again: {tables}.")
    return FromBaseTables("The new rows do not follow from the old ones by a condition, columns or branches alone.")


def _difference(context: Context, view: ViewRecord, old: Definition, new: Definition) -> ByDifference | None:
    """The change from the old query to the new one, None where more than conditions and branches is another."""
    sql = None if old.declared is not None or new.declared is not None else marked(old.sql, new.sql)
    if sql is None or kept_rows(view, old) is None:
        return None
    try:
        both = definitions.define(context, sql, strict=True, maintain=view.options.maintain)
    except DeferredError:
        return None
    same = frozenset(
        name
        for name, table in both.tables.items()
        if all(name not in each.tables or each.tables[name].id == table.id for each in (old, new))
    )
    before, after, marked_ = (Typed(each.plan, each.column_types) for each in (old, new, both))
    edit = edited(before, after, marked_, same)
    why = "Only what other conditions and branches add or remove is computed, and goes up by the delta rules."
    return None if edit is None else ByDifference(why, both, edit)


def _cut_of(context: Context, view: ViewRecord, old: Definition, new: Prepared) -> Cut | None:
    """s_i for the tables of the new query; None where a table that the view did not read was not known by then."""
    assert view.propagated is not None
    past = view.propagated
    if not _had_columns(context, old, new, past):
        return None
    if all(source.id in past.versions for source in new.sources):
        return Cut(past.timestamp, {source.id: past.versions[source.id] for source in new.sources})
    if any(context.metadata.ledger.at(source.id, past.timestamp) is None for source in new.sources):
        return None
    cut = ledger.cut(context, new.sources, past.timestamp, None)
    agrees = all(past.versions.get(table, version) == version for table, version in cut.versions.items())
    return cut if agrees else None


def _had_columns(context: Context, old: Definition, new: Prepared, past: Cut) -> bool:
    """Whether the tables had all columns then that the new query reads."""
    for source in new.sources:
        read = {name.casefold() for name, _ in new.definition.read_columns(source.name)}
        known = {name.casefold() for name, _ in old.schemas.get(source.name, ())}
        version = past.versions.get(source.id)
        if read <= known or version is None:
            continue
        columns = context.engine.columns(select([exp.Star()], delta_table(source.location, version)))
        if not read <= {name.casefold() for name, _ in columns}:
            return False
    return True


def _is_same(old: Definition, columns: Columns, new: Prepared) -> bool:
    """Whether two definitions have one plan, up to the ids of its columns, over the same tables and types.

    The same rows must be kept beside the view too: what no propagate brings along is not right later.
    """
    tables = {t.id for t in old.tables.values()} == {t.id for t in new.sources}
    tables = tables and old.declared == new.definition.declared
    tables = tables and old.shared == new.definition.shared
    tables = tables and old.support_tables.keys() == new.definition.support_tables.keys()
    return tables and tuple(columns) == tuple(new.columns) and _same_plan(old, new.definition)


def _is_same_query(old: Definition, new: Prepared) -> bool:
    """Whether two definitions are one text over the same columns of the same tables, maintained in different ways."""
    written, tables = (text(parse_query(without_comments(sql))) for sql in (old.sql, new.definition.sql)), old.tables
    if len(set(written)) > 1 or {t.id for t in tables.values()} != {t.id for t in new.sources}:
        return False
    return all(old.read_columns(name) == new.definition.read_columns(name) for name in tables)


def _same_plan(old: Definition, new: Definition) -> bool:
    return normal_form(old.plan, old.column_types) == normal_form(new.plan, new.column_types)
