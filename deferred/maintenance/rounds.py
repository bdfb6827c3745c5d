"""Programs on Spark: steps and rounds as temporary results; and the recursions of a view at a cut."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from deferred.algebra.bags import select
from deferred.algebra.operators.recursion import has_recursion, rounds_before
from deferred.algebra.operators.temporary import Temporary
from deferred.algebra.plan import Plan
from deferred.algebra.program import run
from deferred.log.context import Context
from deferred.maintenance.definition import Definition, Pinned
from deferred.metadata import Cut
from deferred.spark.temporaries import BROADCAST_ROWS, Temporaries
from deferred.sql.render import Renderer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SparkMachine:
    """Computes the results of a program in Spark; `steps` says where each is read. `expected` is about their rows."""

    renderer: Renderer
    steps: dict[str, exp.Table]
    temporaries: Temporaries
    expected: int = 0

    def compute(self, name: str, plan: Plan, skipped: bool) -> int:
        if isinstance(plan, Temporary):
            self.steps[name] = self.temporaries.copy(name, self.steps[plan.name])
            return self.temporaries.rows(self.steps[name])
        rows: exp.Query = self.renderer.query(plan)
        if skipped:
            rows = select([exp.Star()], rows).where(exp.false(), copy=False)
        self.steps[name] = self.temporaries.compute(name, rows, self.expected)
        found = self.temporaries.rows(self.steps[name])
        if found > BROADCAST_ROWS:  # a small change can go far: no hint may send that to every executor
            self.renderer.small_changes = False
        return found

    def append(self, name: str, more: str) -> None:
        new = self.temporaries.rows(self.steps[more])
        self.steps[name] = self.temporaries.append(name, self.steps[name], self.steps[more])
        log.info("a round found %d rows, %d in all so far", new, self.temporaries.rows(self.steps[name]))

    def examples(self, name: str) -> Sequence[Any]:
        return self.temporaries.first_rows(self.steps[name])


def computed(definition: Definition, cut: Cut, temporaries: Temporaries) -> Definition:
    """The definition with its recursions computed from the base tables at a cut, so that its query can run there."""
    if definition.bound is None or not has_recursion(definition.plan):
        return definition
    leaves = Pinned(definition, cut.versions)
    machine = SparkMachine(Renderer(leaves, small_changes=False), leaves.steps, temporaries)
    run(rounds_before(definition.plan), machine)
    return replace(definition, recursions=leaves.steps)


@contextmanager
def at_cut(context: Context, definition: Definition, cut: Cut) -> Iterator[Definition]:
    """The same for as long as the block runs."""
    with context.engine.temporaries() as temporaries:
        yield computed(definition, cut, temporaries)
