"""Support tables inside plans: looked up by keys, at s_i and at s_c."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from deferred.algebra.operators.outer_join import ANTI, OuterJoin
from deferred.algebra.operators.project import pick, renamed
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import Scan
from deferred.algebra.operators.temporary import Stored
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Keys, Plan, replaced
from deferred.algebra.program import Upkeep
from deferred.algebra.scalar import all_true, column, same
from deferred.algebra.strategy import OVER_KEPT, RECOMPUTED, Keeping, Stateful, Strategy

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator

AGAIN = "_deferred_again"
"""The column of a step whose rows say that base tables must be read again."""


def is_kept(plan: Plan) -> bool:
    """Whether both states of a plan are read without a base table: above every scan there is a node that keeps rows."""
    seen: set[Plan] = set()
    stack = [plan]
    while stack:
        node = stack.pop()
        if isinstance(node, Scan):
            return False
        if node not in seen and not isinstance(node.strategy, Stateful):
            seen.add(node)
            stack.extend(node.children)
    return True


def over_everything(plan: Plan) -> Strategy:
    """How a node is maintained of which a change anywhere in its input may touch every row."""
    return OVER_KEPT if is_kept(plan) else RECOMPUTED


def over_support_tables(plan: Plan, made: Container[str]) -> Plan:
    """A plan at s_i in which the nodes whose support tables are made are read from there.

    So the support tables of a view are filled one from the other, each with one look at the base tables above them, and
    the view from all of them. What occurs twice stays one object.
    """

    def held(node: Plan) -> Plan | None:
        strategy = node.strategy
        if not isinstance(strategy, Keeping):
            return None
        return pick(strategy.past(node, None), node.columns) if strategy.support in made else node

    return replaced(plan, held)


def looked_up(plan: Plan, keys: Keys | None) -> Plan:
    """The rows with the given keys; all rows without keys."""
    return plan if keys is None else Restrict(plan, keys)


def rows_at_new_cut(d: Differentiator, node: Plan, stored: Stored, keys: Keys | None) -> Plan:
    """The rows that a support table holds at s_c: the moved rows, and the stored rows that have not moved."""
    assert d.has_delta(node), "a node's change comes before its new state"
    return moved(stored, d.supports.get(stored.name), keys)


def moved(stored: Stored, upkeep: Upkeep | None, keys: Keys | None) -> Plan:
    """The same rows, for a table that moves so, or does not move."""
    if upkeep is None:
        return looked_up(stored, keys)
    rows = looked_up(upkeep.rows, keys)
    if not upkeep.keys:
        return rows
    unmoved = looked_up(stored, keys)
    for touched in (upkeep.rows, upkeep.gone):
        if touched is not None:
            unmoved = without_keys_of(unmoved, touched, upkeep.keys)
    return united([unmoved, rows], stored.columns)


def keys_gone(touched: Plan, current: Plan, keys: Sequence[str]) -> Plan | None:
    """The touched keys that no current row has."""
    return without_keys_of(pick(touched, keys), current, keys) if keys else None


def without_keys_of(plan: Plan, others: Plan, keys: Sequence[str]) -> Plan:
    """The rows of a plan whose keys are not among those of the others."""
    names = {k: f"_deferred_new_{k}" for k in keys}
    condition = all_true(same(column(k), column(names[k])) for k in keys)
    return OuterJoin(plan, renamed(others, names), ANTI, condition)
