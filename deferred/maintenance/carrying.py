"""What a changed definition takes over from the support tables of the old one, instead of reading the base tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from deferred.algebra.bags import BATCH, GONE, alias, column, net, select, written_out
from deferred.algebra.operators import Stored, Temporary
from deferred.algebra.operators.scan import tables_of
from deferred.algebra.over_view import VIEW, OverView, of_view, over_view
from deferred.algebra.plan import Plan, inputs_first, replaced
from deferred.algebra.selfmaintenance import Promises
from deferred.algebra.sharing import AtHand, Shared, Sharing, kept_before, over_shared
from deferred.algebra.strategy import Keeping, kept_nodes
from deferred.maintenance import support
from deferred.maintenance.definition import Definition, rows_at
from deferred.maintenance.promises import declared
from deferred.maintenance.rendering import SupportState, current_rows
from deferred.maintenance.view_tables import reached, support_path
from deferred.metadata import Cut, ViewRecord
from deferred.spark.driver import looked_up
from deferred.spark.temporaries import LOCAL_ROWS, Temporaries
from deferred.sql.dialect import delta_table


@dataclass(frozen=True)
class Carried:
    """A new definition over what the old one has kept at s_i: its plan, and what its support tables hold."""

    definition: Definition
    supports: Mapping[str, Plan]
    relied: Promises = field(default_factory=Promises)
    """What the base tables must have kept for the new rows to be right."""

    @property
    def tables(self) -> frozenset[str]:
        """The base tables that must still be read for the rows of the view."""
        return tables_of(self.definition.plan)

    def materialized(self, cut: Cut, temporaries: Temporaries) -> Carried:
        """The same, where every support table that needs a base table is computed once, for itself and for the rows."""
        results = dict(self.definition.results)
        supports = dict(self.supports)
        made: dict[Plan, Plan] = {}
        for name, contents in supports.items():
            if tables_of(contents) and any(contents is node for node in self.definition.plan.walk()):
                results[name] = temporaries.compute(name, rows_at(self.definition, contents, cut))
                made[contents] = supports[name] = Temporary(name, contents.columns)
        definition = replace(self.definition, results=results)
        return Carried(definition.with_plan(replaced(definition.plan, made.get)), supports)


def carried(view: ViewRecord, old: Definition, new: Definition) -> Carried | None:
    """The new definition over the support tables of the old one; None where nothing of them can be taken over."""
    if not old.has_plan or not new.has_plan:
        return None
    states = support.held_at(view, old, view.propagated_batch)

    def at_hand(stored: Stored) -> Sequence[Mapping[str, Any]] | None:
        return None if states is None else _rows_at_hand(view, old, stored, states[stored.name])

    found = _sharing(old, new, at_hand).shared(new.plan)
    if not found:
        over = None if kept_nodes(new.plan) else over_rows(view, old, new)
        return None if over is None else Carried(over.definition, {}, over.over.relied)
    rows = kept_rows(view, old)
    if rows is None:
        return None
    shared: dict[str, Shared] = {}
    for node in inputs_first(new.plan):
        name = node.strategy.support if isinstance(node.strategy, Keeping) else ""
        if name in found:
            shared[name] = replace(found[name], contents=over_shared(found[name].contents, shared))
    plan = over_shared(new.plan, shared)
    supports = {name: each.contents for name, each in shared.items()}
    supports |= {name: strategy.contents(node) for name, (node, strategy) in kept_nodes(plan).items()}
    if supports.keys() != kept_nodes(new.plan).keys():
        return None
    return Carried(replace(new, kept=rows).with_plan(plan), supports)


def kept_rows(view: ViewRecord, old: Definition) -> dict[str, exp.Query] | None:
    """The rows of the old support tables at s_i, by the names under which plans read them; None where they are gone."""
    states = support.held_at(view, old, view.propagated_batch)
    if states is None:
        return None
    rows: dict[str, exp.Query] = {}
    for name, (node, strategy) in kept_nodes(old.plan).items():
        stored = next(leaf for leaf in strategy.past(node, None).walk() if isinstance(leaf, Stored))
        table = delta_table(support_path(view.workings, name), states[name].version)
        held = select(map(column, [*stored.columns, BATCH, GONE]), table)
        rows[kept_before(name)] = current_rows(stored, states[name], held)
    return rows


def _rows_at_hand(
    view: ViewRecord, old: Definition, stored: Stored, state: SupportState
) -> Sequence[Mapping[str, Any]] | None:
    """The rows of a support table that is replaced as a whole, if they are few."""
    types = {**{c: old.column_types[c] for c in stored.columns}, BATCH: "bigint", GONE: "boolean"}
    rows = looked_up(support_path(view.workings, stored.name), state.version, types, None, {}, LOCAL_ROWS)
    if rows is None:
        return None
    return [row for row in rows.to_pylist() if not state.appended or row[BATCH] == state.batch]


@dataclass(frozen=True)
class OverRows:
    """The new definition over the rows of the view at s_i."""

    over: OverView
    definition: Definition


def over_rows(view: ViewRecord, old: Definition, new: Definition) -> OverRows | None:
    """The new definition over the rows of the view and other tables; None where these do not say its rows."""
    if not old.has_plan or not new.has_plan:
        return None
    found = over_view(_sharing(old, new), new.plan, declared(old))
    if found is None:
        return None
    names = [name for name, _ in view.columns]
    rows = written_out(net(reached(view), view.columns), names)
    columns = [alias(column(name), of_view(c)) for c, name in zip(old.plan.columns, names, strict=True)]
    return OverRows(found, replace(new, kept={VIEW: select(columns, rows)}).with_plan(found.plan))


def _sharing(old: Definition, new: Definition, at_hand: AtHand = lambda stored: None) -> Sharing:
    same = frozenset(
        name for name, table in new.tables.items() if name in old.tables and old.tables[name].id == table.id
    )
    return Sharing(old.plan, old.column_types, new.column_types, same, at_hand)
