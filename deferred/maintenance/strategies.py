"""Strategies: the ways to compute a view's change between two cuts. A strategy never changes a result.

Each is one class that says its name, what it would cost, what it reads and by which equations and SQL, and that runs.
`choose` is the one place that decides between them, for propagate and for `explain`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from sqlglot import exp

from deferred.algebra.bags import COUNT, column, difference, select, signed
from deferred.algebra.delta import differentiate
from deferred.algebra.outline import outline
from deferred.algebra.paper.equations import equations
from deferred.algebra.program import run
from deferred.algebra.strategy import Recomputed
from deferred.log.context import Context
from deferred.maintenance import costs, support
from deferred.maintenance.base_logs import Logs
from deferred.maintenance.costs import Cost, Situation
from deferred.maintenance.definition import Definition, Pinned, outputs, query
from deferred.maintenance.rendering import PropagateRenderer, SupportState
from deferred.maintenance.rounds import SparkMachine, computed
from deferred.maintenance.view_tables import reached
from deferred.metadata import Cut, ViewRecord
from deferred.spark.temporaries import BROADCAST_ROWS, Temporaries
from deferred.sql.render import ReadableLeaves, Renderer

SMALL = 10_000
"""With fewer base rows than this, all ways take the same time and are not compared."""

WORTH = 0.9
"""A recomputation is chosen if it is expected to take less than this part of the time: estimates are rough."""


@dataclass(frozen=True)
class Job:
    """What a strategy is given: a view, the cut to reach, the logs up to it, the versions of its support tables."""

    context: Context
    view: ViewRecord
    definition: Definition
    cut: Cut
    logs: Logs
    supports: Mapping[str, SupportState]
    temporaries: Temporaries
    batch: int | None = None
    """The number of the differential batch that the change becomes; None where it becomes none."""


@dataclass(frozen=True)
class Change:
    """What a strategy returns: the view's netted signed change, and how its support tables reach the same cut."""

    rows: exp.Table
    advance_supports: Callable[[str, int], None]
    """Commits the support tables, under the id of an operation and the number of its differential batch."""
    recursions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of each recursion: its rounds, and how many rows were overestimated to be deleted and put back."""


class Strategy(ABC):
    """One way to compute the change of a view."""

    name: ClassVar[str]

    @abstractmethod
    def cost(self, now: Situation) -> Cost:
        """What a run is expected to cost."""

    @abstractmethod
    def reads(self, definition: Definition) -> tuple[str, ...]:
        """What a run reads, one line per node of the plan."""

    @abstractmethod
    def equations(self, definition: Definition) -> tuple[str, ...]:
        """▼V and ▲V in the paper's notation."""

    @abstractmethod
    def sql(self, definition: Definition) -> str:
        """The SQL of a run after a change of all base tables, under readable names."""

    @abstractmethod
    def run(self, job: Job) -> Change:
        """Compute the change."""


class Incremental(Strategy):
    """Δ(Q) by the delta rules of its operators: only the rows, groups and keys that the changes touch are read."""

    name = "incremental"

    def cost(self, now: Situation) -> Cost:
        return costs.changing(now)

    def reads(self, definition: Definition) -> tuple[str, ...]:
        return tuple(outline(definition.plan))

    def equations(self, definition: Definition) -> tuple[str, ...]:
        return tuple(equations(definition.plan))

    def sql(self, definition: Definition) -> str:
        assert definition.bound is not None
        program = differentiate(definition.plan, definition.bound.tables, definition.column_types)
        return Renderer(ReadableLeaves()).statement(program) or "(the view reads no table: nothing can change)"

    def run(self, job: Job) -> Change:
        """Run the delta program step by step; a step whose condition is empty is empty and reads nothing."""
        definition, view, temporaries = job.definition, job.view, job.temporaries
        program = differentiate(definition.plan, job.logs.changed, definition.column_types)
        assert program.result is not None, "a table that the view reads has changed"
        versions = {name: state.version for name, state in job.supports.items()}
        leaves = Pinned(definition, job.cut.versions, job.logs.changed, {}, view.workings, versions)
        small = job.logs.total <= BROADCAST_ROWS
        renderer = PropagateRenderer(leaves, job.supports, temporaries, definition.column_types, small)
        ran = run(program.steps, SparkMachine(renderer, leaves.steps, temporaries, job.logs.total))
        change = select([*outputs(definition, view.columns), column(COUNT)], renderer.query(program.result))
        moves = ran.moves(program)
        moved = {} if job.batch is None else support.moved(moves, renderer, job.logs.total, job.batch)
        found = temporaries.compute_all({"delta": change, **moved}, job.logs.total)
        advance = partial(support.advance, job.context, view, moves, renderer, found)
        return Change(found["delta"], advance, ran.report(program))


class Recompute(Strategy):
    """Q − ((MV ∸ ∇MV) ⊎ ΔMV): the whole query at s_c, and the difference to what the view holds at s_i."""

    name = "full"

    def cost(self, now: Situation) -> Cost:
        return costs.recomputing(now)

    def reads(self, definition: Definition) -> tuple[str, ...]:
        return ("the whole query · recomputed: reads all its tables",)

    def equations(self, definition: Definition) -> tuple[str, ...]:
        return "▼V = MV ∸ Q", "▲V = Q ∸ MV"

    def sql(self, definition: Definition) -> str:
        return definition.sql

    def run(self, job: Job) -> Change:
        view, definition = job.view, computed(job.definition, job.cut, job.temporaries)
        new = signed(query(definition, view.columns, job.cut), [name for name, _ in view.columns])
        change = job.temporaries.compute("delta", difference(new, reached(view), view.columns))
        return Change(change, partial(support.refill, job.context, view, definition, job.cut))


INCREMENTAL, RECOMPUTE = Incremental(), Recompute()


@dataclass(frozen=True)
class Choice:
    """The strategy to use and why; before the changes are known, perhaps one that may take its place."""

    strategy: Strategy
    reason: str
    alternative: Strategy | None = None
    costs: Mapping[str, Cost] = field(default_factory=dict)
    """What the strategies that were compared are expected to cost, by name."""

    def __str__(self) -> str:
        if self.alternative is None:
            return self.strategy.name
        return f"{self.strategy.name}, or {self.alternative.name} when much has changed"


def choose(
    context: Context,
    view: ViewRecord,
    definition: Definition,
    logs: Logs | None = None,
    full: bool = False,
    has_support: bool = True,
) -> Choice:
    """The strategy for a view: by what is asked for, by what its query allows, by its refresh_policy, by cost.

    Without `logs`, what is known before a propagate has read them. `has_support`: whether its support tables exist.
    """
    if full:
        return Choice(RECOMPUTE, "A recomputation was asked for.")
    if not has_support:
        reason = "An earlier version created the view, and kept other rows for it: they are made now, once."
        return Choice(RECOMPUTE, reason)
    if definition.bound is None:
        return Choice(RECOMPUTE, f"{definition.whole} So every propagate recomputes the view and keeps the difference.")
    if view.options.refresh_policy == "full":
        reason = "The view's refresh_policy is 'full': every propagate recomputes it and keeps the difference."
        return Choice(RECOMPUTE, reason)
    recomputed = [node for node in definition.plan.walk() if isinstance(node.strategy, Recomputed)]
    reason = (
        f"{type(recomputed[0]).__name__} has no keys, so a change reads its whole input again."
        if recomputed
        else "Only the rows, groups and keys that the changes touch are read."
    )
    if any(node.strategy.absorbs for node in definition.plan.walk()):
        reason += " As maintain = 'tree' asks, a change is followed only while a key becomes good or bad."
    if view.options.refresh_policy != "auto":
        return Choice(INCREMENTAL, reason)
    if logs is None:
        reason += " The refresh_policy 'auto' compares what both would cost when it knows what has changed."
        return Choice(INCREMENTAL, reason, RECOMPUTE)
    tables = costs.sizes(context, definition)
    if tables is None or sum(table.rows for table in tables.values()) <= SMALL:
        return Choice(INCREMENTAL, reason)
    now = Situation(context, view, definition, tables, logs)
    incremental, recompute = INCREMENTAL.cost(now), RECOMPUTE.cost(now)
    compared = {INCREMENTAL.name: incremental, RECOMPUTE.name: recompute}
    if recompute.seconds < WORTH * incremental.seconds:
        reason = (
            f"{logs.total} changed rows are expected to take {incremental.seconds:.1f} s, and recomputing the view "
            f"{recompute.seconds:.1f} s."
        )
        return Choice(RECOMPUTE, reason, costs=compared)
    return Choice(INCREMENTAL, reason, costs=compared)
