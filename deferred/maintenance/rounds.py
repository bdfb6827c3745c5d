"""Programs on Spark: steps and rounds as temporary results; and the recursions of a view at a cut."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.bags import COUNT, select
from deferred.algebra.operators import Change
from deferred.algebra.operators.recursion import rounds_before
from deferred.algebra.operators.temporary import Temporary
from deferred.algebra.plan import Plan
from deferred.algebra.program import Loop, run
from deferred.algebra.types import is_padded
from deferred.log.context import Context
from deferred.maintenance.definition import Definition, Pinned
from deferred.metadata import Cut
from deferred.spark.at_driver import Candidates, Driver, Stores, asks_nothing, finds_nothing
from deferred.spark.driver import exact_type, spelled
from deferred.spark.temporaries import BROADCAST_ROWS, Temporaries
from deferred.sql.ddl import column_list
from deferred.sql.render import Renderer

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class RecomputeInstead(Exception):
    """Delta rules are given up for a recomputation, which costs less or is all that is left; the text says why."""


@dataclass(frozen=True)
class SparkMachine:
    """Computes the results of a program in Spark, or at the driver where they are there and no value is looked at.

    `steps` says where each result is read, `changes` where the net logs are; `types` are those of the plan's columns.
    `expected` is about how many rows a result has.
    """

    renderer: Renderer
    steps: dict[str, exp.Table]
    temporaries: Temporaries
    types: Mapping[str, str]
    changes: Mapping[str, exp.Table] = field(default_factory=dict)
    expected: int = 0
    stored: Stores = asks_nothing
    """The rows of support tables without Spark."""
    candidates: Candidates = finds_nothing
    """Rows of base and support tables that are met at the driver."""
    tell: Callable[[str], None] = log.info
    """Called with a line about each round."""
    most_gone: Mapping[str, int] = field(default_factory=dict)
    """How many rows of a support table may be overestimated to be deleted, where there is a limit."""

    def compute(self, name: str, plan: Plan, skipped: bool) -> int:
        if isinstance(plan, Temporary):
            self.steps[name] = self.temporaries.copy(name, self.steps[plan.name])
            return self.temporaries.rows(self.steps[name])
        if not self._at_driver(name, plan, skipped):
            rows: exp.Query = self.renderer.query(plan)
            if skipped:
                rows = select([exp.Star()], rows).where(exp.false(), copy=False)
            self.steps[name] = self.temporaries.result(name, rows, self.expected)
        found = self.temporaries.rows(self.steps[name])
        if found > BROADCAST_ROWS:  # a small change can go far: no hint may send that to every executor
            self.renderer.small_changes = False
        return found

    def _at_driver(self, name: str, plan: Plan, skipped: bool) -> bool:
        """Whether the result could be computed without Spark."""
        rows = self._driver.nothing_of(plan) if skipped else self.evaluated(plan)
        if rows is None:
            return False
        self.steps[name] = self.hold(name, rows)
        return True

    @property
    def _driver(self) -> Driver:
        types = {**self.types, COUNT: "bigint"}
        ask = lambda rows: self.temporaries.fetched(self.renderer.query(rows))  # noqa: E731
        return Driver(self._held, ask, types, self.stored, self.candidates)

    def evaluated(self, plan: Plan) -> pa.Table | None:
        """The rows of a plan, if they can be computed without Spark."""
        return self._driver.evaluated(plan)

    def hold(self, name: str, rows: pa.Table) -> exp.Table:
        """Takes rows that were computed at the driver, in the types that their columns are known to have.

        Values of CHAR are there as Spark has given them, padded; Arrow has no such type.
        """
        import pyarrow as pa

        known = {c: "string" if is_padded(type_) else type_ for c, type_ in self.types.items()} | {COUNT: "bigint"}
        types = {c: known.get(c) or spelled(rows.schema.field(c).type) for c in rows.column_names}
        exact = [(c, exact_type(type_) or rows.schema.field(c).type) for c, type_ in types.items()]
        return self.temporaries.hold(name, rows.cast(pa.schema(exact)), column_list(types.items()))

    def _held(self, leaf: Temporary | Change) -> pa.Table | None:
        if isinstance(leaf, Temporary):
            result = self.steps.get(leaf.name)
            rows = None if result is None else self.temporaries.local(result)
            return None if rows is None else rows.select(list(leaf.columns))
        log_ = self.changes.get(leaf.table)
        rows = None if log_ is None else self.temporaries.local(log_)
        return None if rows is None else rows.select([*leaf.names, COUNT]).rename_columns(list(leaf.columns))

    def append(self, name: str, more: str) -> None:
        self.steps[name] = self.temporaries.append(name, self.steps[name], self.steps[more])

    def progress(self, loop: Loop, round_: int, found: int, in_all: int) -> None:
        self.tell(f"round {round_} of {loop.finding}: {found} found, {in_all} in all")
        most = self.most_gone.get(loop.gone_from or "")
        if most is not None and in_all > most:
            raise RecomputeInstead(
                f"More than {most} rows of a recursion may be gone ({loop.finding}, round {round_}), and most of them "
                f"would be derived again: the view was recomputed."
            )

    def examples(self, name: str) -> Sequence[Any]:
        return self.temporaries.first_rows(self.steps[name])

    def fill(self, plan: Plan) -> None:
        """Compute the recursions of a plan from the base tables alone, for any statement that reads them."""
        run(rounds_before(plan), self)
        for result in self.steps.values():
            self.temporaries.ready(result)


def computed(
    definition: Definition, cut: Cut, temporaries: Temporaries, tell: Callable[[str], None] = log.info
) -> Definition:
    """The definition with its recursions computed from the base tables at a cut, so that its query can run there."""
    if not definition.is_recursive:
        return definition
    leaves = Pinned(definition, cut.versions, steps=dict(definition.results))
    renderer = Renderer(leaves, small_changes=False)
    SparkMachine(renderer, leaves.steps, temporaries, definition.column_types, tell=tell).fill(definition.plan)
    return replace(definition, results=leaves.steps)


@contextmanager
def at_cut(
    context: Context, definition: Definition, cut: Cut, tell: Callable[[str], None] = log.info
) -> Iterator[Definition]:
    """The same for as long as the block runs."""
    with context.engine.temporaries() as temporaries:
        yield computed(definition, cut, temporaries, tell)
