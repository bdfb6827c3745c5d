"""How a propagate renders its plans: support tables at s_i, and the values of small results as literals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.bags import BATCH, GONE, bigint, column, newest, select
from deferred.algebra.operators import Change, Distinct, Project, Stored, Temporary
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.scalar import Scalar, is_column
from deferred.maintenance.definition import Pinned
from deferred.spark.covering import near_values, one_of
from deferred.spark.temporaries import Temporaries
from deferred.sql.render import Renderer

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SupportState:
    """A support table at s_i: its Delta version, its newest batch, and how many were appended to all its rows."""

    version: int
    batch: int
    appended: int


def current_rows(stored: Stored, state: SupportState, rows: exp.Query) -> exp.Query:
    """Of each key of a support table its newest row; a table that was just rewritten has no other."""
    if state.appended and stored.keys:
        return newest(rows, stored.columns, stored.keys)
    current = select(map(column, stored.columns), rows)
    if state.appended:
        current.where(exp.EQ(this=column(BATCH), expression=bigint(state.batch)), copy=False)
    return current


class PropagateRenderer(Renderer):
    """Renders the steps of one propagate, which reads its earlier steps as temporary results."""

    def __init__(
        self,
        leaves: Pinned,
        states: Mapping[str, SupportState],
        temporaries: Temporaries,
        types: Mapping[str, str],
        small_changes: bool,
    ) -> None:
        super().__init__(leaves, small_changes)
        self.pinned, self.states, self.temporaries, self.types = leaves, states, temporaries, types

    def temporary(self, name: str) -> exp.Expr:
        return self.temporaries.ready(self.pinned.steps[name])

    def held(self, stored: Stored) -> Sequence[str]:
        return (*stored.columns, BATCH, GONE)

    def newest(self, stored: Stored, rows: exp.Query) -> exp.Query:
        return current_rows(stored, self.states[stored.name], rows)

    def near(self, mine: Scalar, plan: Plan, theirs: Scalar) -> exp.Expr | None:
        """Only for columns of one type: no conversion can fail on a row that the query would not have compared."""
        found = self._values(mine, plan, theirs)
        return None if found is None else near_values(found[0].column(found[1]), column(mine.name))

    def one_of(self, keys: Keys) -> exp.Expr | None:
        if not _is_a_leaf(keys.plan):
            return None
        found = [self._values(mine, keys.plan, theirs) for mine, theirs in keys.on]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return None
        pairs = [(name, column(mine.name)) for (_, name), (mine, _) in zip(known, keys.on, strict=True)]
        return one_of(known[0][0], pairs)

    def _values(self, mine: Scalar, plan: Plan, theirs: Scalar) -> tuple[pa.Table, str] | None:
        """The rows at the driver, and the column in them, that have all values of a column; of the type of another."""
        if not (is_column(mine) and is_column(theirs)):
            return None
        type_, found = self.types.get(mine.name), plan.origin(theirs.name)
        if type_ is None or type_ != self.types.get(theirs.name) or found is None:
            return None
        leaf, name = found
        table = self.pinned.steps[leaf.name] if isinstance(leaf, Temporary) else self.pinned.changes[leaf.table]
        rows = self.temporaries.local(table)
        return None if rows is None else (rows, name)


def _is_a_leaf(plan: Plan) -> bool:
    """Whether a plan has the same set of rows as a change or a temporary result, perhaps under other names."""
    while isinstance(plan, Distinct) or (isinstance(plan, Project) and all(is_column(e) for _, e in plan.outputs)):
        plan = plan.child
    return isinstance(plan, (Change, Temporary))
