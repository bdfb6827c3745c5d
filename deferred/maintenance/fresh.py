"""Fresh reads: a view as it is at a cut, whatever its tables show at present. Nothing is refreshed or written.

(MV ∸ ∇MV) ⊎ ΔMV is the view at s_i. The log's delta from s_i to the cut is what a propagate would compute, by the same
strategies; instead of becoming a batch it is added for this one reader. No lease is taken: versions of the tables are
read, which no operation changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.bags import column, net, select, signed, union_all, with_changes, written_out
from deferred.algebra.comparisons import holds_anywhere
from deferred.algebra.predicate_pushdown import selected
from deferred.algebra.scalar import Scalar, conjunction, conjuncts, substitute
from deferred.algebra.scalar import column as plan_column
from deferred.errors import InvalidInputError, LogLostError
from deferred.log import ledger
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog
from deferred.log.sources import source_of
from deferred.log.transactions import recover
from deferred.maintenance import definition as definitions
from deferred.maintenance import functions, shared, support
from deferred.maintenance import held as helds
from deferred.maintenance.base_logs import Logs, base_tables, cut_at, net_logs, size, synced_tables
from deferred.maintenance.definition import Definition, query
from deferred.maintenance.held import Held, latest_until, not_after
from deferred.maintenance.operation import Work, announced
from deferred.maintenance.rounds import RecomputeInstead, computed
from deferred.maintenance.strategies import Job, Recompute, choose
from deferred.maintenance.view_tables import mv_path
from deferred.metadata import Cut, TableRecord, ViewRecord
from deferred.spark import bags
from deferred.spark.temporaries import Temporaries
from deferred.sql.dialect import own_scalar, parse_scalar
from deferred.sql.pin import FreshView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGES = "deferred_fresh_changes"
"""The name under which the last statement reads the changes that MV does not show."""


def fresh_rows(context: Context, name: str, where: str | None = None, as_of: datetime | None = None) -> DataFrame:
    """The rows of a view at the current cut, or at that of a time, for which a condition holds."""
    view, held = helds.newest(context, name)
    if where is not None:
        chosen(context, view, held.rows(view), where)  # Spark refuses a condition that it does not understand
    tables = synced_tables(context, view)
    state: Held | None = held
    if as_of is None:
        cut = ledger.cut(context, tables, None, held.cut)
    else:
        cut = cut_at(context, view, tables, as_of)
        state = held if not_after(held.cut, cut) else latest_until(view, cut)
    return _rows_at(context, view, tables, state, cut, where)


def fresh_together(
    context: Context, asked: Mapping[str, FreshView], others: Sequence[TableRecord]
) -> tuple[dict[str, DataFrame], Cut]:
    """The rows of several views at one current cut, by the names under which they are asked for; and the cut.

    It is a cut of the `others` too: what reads those at its versions reads one state of the database.
    """
    newest = {name: helds.newest(context, view.name) for name, view in asked.items()}
    read = {name: base_tables(context, view) for name, (view, _) in newest.items()}
    tables = {table.id: table for listed in (*read.values(), others) for table in listed}
    ledger.sync(context, tables.values(), lambda table: recover(context, table))
    cut = ledger.cut(context, list(tables.values()), None, _latest([held.cut for _, held in newest.values()]))
    frames = {}
    for name, (view, held) in newest.items():
        own = Cut(cut.timestamp, {table.id: cut.versions[table.id] for table in read[name]})
        frames[name] = _rows_at(context, view, read[name], held, own, asked[name].where)
    return frames, cut


def _latest(cuts: Sequence[Cut]) -> Cut:
    """What several cuts show, each table at its latest version: no later cut may be before any of them."""
    versions: dict[int, int] = {}
    for cut in cuts:
        versions |= {table: max(version, versions.get(table, version)) for table, version in cut.versions.items()}
    return Cut(max(cut.timestamp for cut in cuts), versions)


def _rows_at(
    context: Context, view: ViewRecord, tables: Sequence[TableRecord], state: Held | None, cut: Cut, where: str | None
) -> DataFrame:
    """The rows of a view at a cut, from a state that its tables hold, for which a condition holds."""
    if state is not None and state.cut.versions == cut.versions and state.batch == state.applied:
        return chosen(context, view, state.rows(view), where)
    telling = announced(context, "read", view.name, mv_path(view.location))
    with telling as work, context.engine.meaning(view.definition.settings):
        return _Reading(context, view, tables, cut, where, work).rows(state)


def chosen(
    context: Context, view: ViewRecord, rows: exp.Expr, where: str | None, frames: dict[str, DataFrame] | None = None
) -> DataFrame:
    """The rows for which a condition holds, under the name of the view, in the user's session."""
    known_as = exp.to_identifier(view.name, quoted=True)  # it may be a keyword, such as natural
    statement = select([column(name) for name, _ in view.columns], rows, known_as)
    if where is not None:
        statement.where(_condition(where), copy=False)
    return context.engine.sql(statement, frames, own=where)


def _condition(where: str) -> exp.Expr:
    condition = own_scalar(where)
    if parse_scalar(where).find(exp.Query) is not None:
        raise InvalidInputError(
            f"where must be a condition on the columns of the view, without a subquery: {where}. "
            f"Use sql() for a query over several tables."
        )
    return condition


@dataclass(frozen=True)
class _Reading:
    """One fresh read of a view at a cut."""

    context: Context
    view: ViewRecord
    tables: Sequence[TableRecord]
    cut: Cut
    where: str | None
    work: Work

    def rows(self, state: Held | None) -> DataFrame:
        """The view at the cut: from a state that its tables hold, or where they hold none from its base tables."""
        definition = definitions.load(self.context, self.view)
        for source in self.tables:
            source_of(self.context, source).check_columns(definition.read_columns(source.name))
        redefined = functions.changed(self.context, self.view.definition)
        if state is None or redefined or not definition.has_plan:
            return self._computed(definition)
        pushed = self._pushed(definition)
        expected = size(self.context, definition, state.cut, self.cut)
        with self.context.engine.temporaries(expected.settings) as temporaries:
            with self.work.phase("log"):
                logs = net_logs(self.context, definition, state.cut, self.cut, temporaries, expected.expected)
            self.work.rows_read = logs.total
            supports = support.held_at(self.view, definition, state.batch)
            kept = shared.held_at(self.context, definition, state.cut)
            has_support = supports is not None and kept is not None
            choice = choose(self.context, self.view, definition, logs, has_support=has_support)
            if logs.total and isinstance(choice.strategy, Recompute):
                return self._computed(definition)
            changes = [select([exp.Star()], state.changes(self.view))]
            if pushed is not None:
                changes[0].where(pushed.condition, copy=False)
            if logs.total:
                names = [name for name, _ in self.view.columns]
                shown = union_all([signed(state.rows(self.view), names), state.changes(self.view)])
                asked = definition if pushed is None else pushed.definition
                states = supports or {}
                job = Job(
                    self.context,
                    self.view,
                    asked,
                    self.cut,
                    logs,
                    states,
                    temporaries,
                    batch=None,
                    shown=shown,
                    shared=kept or {},
                    tell=self.work.tell,
                )
                try:
                    with self.work.phase("compute"):
                        change = choice.strategy.run(job)
                except RecomputeInstead:
                    return self._computed(definition)
                if change.instead is not None:
                    return self._computed(definition)
                changes.append(select([exp.Star()], change.rows))
            return self._with_changes(state, changes, logs, temporaries)

    def _with_changes(
        self, state: Held, changes: Sequence[exp.Query], logs: Logs, temporaries: Temporaries
    ) -> DataFrame:
        """MV with some changes, netted. They leave the operation's session; MV is read in the user's."""
        context, view = self.context, self.view
        with self.work.phase("net"):
            netted = temporaries.compute("fresh", net(union_all(changes), view.columns), logs.total)
            deleted, inserted = bags.count_changes(context.engine, temporaries, netted)
        rows: exp.Expr = state.rows(view)
        if not deleted and not inserted:
            return chosen(context, view, rows, self.where)
        frames = {CHANGES: temporaries.lasting(netted, context.engine.spark)}
        names = [name for name, _ in view.columns]
        if deleted:
            rows = with_changes(rows, view.columns, exp.to_table(CHANGES))
        else:
            rows = union_all([select(map(column, names), rows), written_out(exp.to_table(CHANGES), names)])
        return chosen(context, view, rows, self.where, frames)

    def _computed(self, definition: Definition) -> DataFrame:
        """Q at the cut, from the base tables. Its meaning is the view's, so it may have to run in another session."""
        self._refuse_lost_versions(definition)
        # The user's session goes on with the functions that it has looked up.
        if self._means_the_same and not definition.is_recursive and not self.view.definition.functions:
            return chosen(self.context, self.view, query(definition, self.view.columns, self.cut), self.where)
        with self.context.engine.temporaries() as temporaries, self.work.phase("recompute"):
            at_cut = computed(definition, self.cut, temporaries, self.work.tell)
            rows = temporaries.compute("fresh", query(at_cut, self.view.columns, self.cut), 0)
            frames = {CHANGES: temporaries.lasting(rows, self.context.engine.spark)}
        return chosen(self.context, self.view, exp.to_table(CHANGES), self.where, frames)

    def _refuse_lost_versions(self, definition: Definition) -> None:
        """Say so now if a base table can no longer be read at the cut: the rows themselves are read later."""
        for source in definition.tables.values():
            version, log = self.cut.versions[source.id], DeltaLog(source.location)
            gone = log.missing_at(version) if version != log.version else None
            if gone is not None:
                raise LogLostError(
                    f"View {self.view.name} cannot be read as of {self.cut.timestamp.isoformat()}: Delta no longer has "
                    f"version {version} of {source.name} ({gone} does not exist), and the view's own tables do not "
                    f"reach back so far. Choose a later time."
                )

    # ---- the condition

    @property
    def _means_the_same(self) -> bool:
        """Whether SQL means the same in the user's session and in the view's."""
        settings = self.view.definition.settings
        return settings is None or dict(settings) == self.context.engine.settings()

    def _pushed(self, definition: Definition) -> _Pushed | None:
        """The part of the condition that can be asked of any row, of the pending changes and below the plan's nodes.

        It must mean the same there as at the end, where the whole condition is asked: under the view's settings, of
        columns that have the same types in the view and in its plan.
        """
        if self.where is None or not self._means_the_same or definition.is_self_maintained:
            return None
        types = dict(self.view.columns)
        ids = {
            name.casefold(): id_
            for id_, name in definitions.output(definition, self.view.columns)
            if types[name].casefold() == definition.column_types[id_].casefold()
        }
        known = {id_: definition.column_types[id_] for id_ in ids.values()}
        on_plan = []
        for part in conjuncts(parse_scalar(self.where)):
            read = list(part.find_all(exp.Column))
            if all(len(c.parts) == 1 and c.name.casefold() in ids for c in read):
                there = substitute(part, {c.name: plan_column(ids[c.name.casefold()]) for c in read})
                on_plan += [there] if holds_anywhere(there, known) else []
        condition = conjunction(on_plan)
        if condition is None:
            return None
        plan = selected(definition.plan, condition, definition.column_types)
        names = {id_: column(name) for id_, name in definitions.output(definition, self.view.columns)}
        return _Pushed(definition.with_plan(plan), substitute(condition, names))


@dataclass(frozen=True)
class _Pushed:
    """A definition that reads only what a condition needs, and the condition on the view's own columns."""

    definition: Definition
    condition: Scalar
