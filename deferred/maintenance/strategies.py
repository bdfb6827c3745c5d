"""Strategies: the ways to compute a view's change between two cuts. A strategy never changes a result.

Each is one class that says its name, what it would cost, what it reads and by which equations and SQL, and that runs.
`choose` is the one place that decides between them, for propagate and for `explain`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from deferred.algebra.bags import COUNT, alias, bigint, column, difference, select, signed, union_all
from deferred.algebra.delta import differentiate
from deferred.algebra.equations.of_view import equations
from deferred.algebra.operators import Project
from deferred.algebra.operators.in_view import VIEW
from deferred.algebra.outline import outline
from deferred.algebra.program import EXPOSED, Guard, Loop, Program, Run, Upkeep, run
from deferred.algebra.selfmaintenance import described, tables_read
from deferred.algebra.selfmaintenance.autonomous import Autonomous
from deferred.algebra.strategy import Recomputed
from deferred.errors import DeferredError, PromiseBrokenError
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog
from deferred.log.sources import source_of
from deferred.maintenance import costs, support
from deferred.maintenance.base_logs import Logs
from deferred.maintenance.costs import Cost, Situation
from deferred.maintenance.definition import Definition, Pinned, output, outputs, query
from deferred.maintenance.promises import EXAMPLES, broken, exposed, require, undecided
from deferred.maintenance.rendering import PropagateRenderer, SupportState
from deferred.maintenance.rounds import RecomputeInstead, SparkMachine, computed
from deferred.maintenance.view_tables import mv_path, reached, support_path
from deferred.metadata import Cut, ViewRecord
from deferred.spark.local_bags import comparable
from deferred.spark.temporaries import BROADCAST_ROWS, LOCAL_ROWS, Temporaries
from deferred.sql.ddl import column_list
from deferred.sql.dialect import cast
from deferred.sql.render import ReadableLeaves, Renderer

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Row = tuple[Any, ...]

GONE_FRACTION = 0.5
"""When more than this part of a recursion may be gone, deriving it again costs more than computing it."""

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
    shown: exp.Query | None = None
    """The view at s_i as a signed bag that is not netted; None for what its newest tables hold."""
    tell: Callable[[str], None] = log.info
    """Called with a line about how far a long computation has come."""
    shared: Mapping[str, exp.Query] = field(default_factory=dict)
    """Shared auxiliary tables at s_i, by the names under which the plan reads them."""
    operation: str | None = None
    """The id of the operation that writes the batch."""


@dataclass(frozen=True)
class Change:
    """What a strategy returns: the view's netted signed change, and how its support tables reach the same cut."""

    rows: exp.Table | exp.Query
    """A temporary result; where it is a large view that `replaces` what there was as a whole, the query of its rows."""
    advance_supports: Callable[[str, int], None]
    """Commits the support tables, under the id of an operation and the number of its differential batch."""
    recursions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of each recursion: its rounds, and how many rows were overestimated to be deleted and put back."""
    instead: Choice | None = None
    """The strategy that took the place of the chosen one when it saw what had changed, and why."""
    replaces: bool = False
    """Whether the rows are the whole view, of which the difference to what it holds is not computed."""


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
        return costs.changing(now, self.name)

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
        program = differentiate(job.definition.plan, job.logs.changed, job.definition.column_types)
        assert program.result is not None, "a table that the view reads has changed"
        renderer = self.renderer(job)
        machine = self.machine(job, renderer, program)
        return self.change(job, program, machine, run(program.steps, machine))

    def renderer(self, job: Job, at_hand: Mapping[str, exp.Query] | None = None) -> PropagateRenderer:
        """What renders the steps of a run, and remembers where their results are; `at_hand` are rows at s_i."""
        definition, view = job.definition, job.view
        versions = {name: state.version for name, state in job.supports.items()}
        leaves = Pinned(definition, job.cut.versions, job.logs.changed, {}, view.workings, versions, at_hand or {})
        small = job.logs.total <= BROADCAST_ROWS
        return PropagateRenderer(leaves, job.supports, job.temporaries, definition.column_types, small)

    def machine(self, job: Job, renderer: PropagateRenderer, program: Program) -> SparkMachine:
        machine = SparkMachine(
            renderer,
            renderer.pinned.steps,
            job.temporaries,
            job.definition.column_types,
            job.logs.changed,
            job.logs.total,
            renderer.held_at_driver,
            tell=job.tell,
            most_gone=_most_gone(job.view, program),
        )
        # One query of Spark reads a table as fast as the driver does; the rounds of a loop would be many.
        rounds = any(isinstance(step, Loop) for step in program.steps)
        return replace(machine, candidates=renderer.candidates) if rounds else machine

    def found(self, job: Job, program: Program, machine: SparkMachine) -> Iterator[tuple[Guard, list[Row]]]:
        """The guards of a program that have found something, once its steps have run, and a few rows of each.

        What Spark must be asked is asked at once: as a rule no guard finds anything.
        """
        guards, query = program.guards, machine.renderer.query
        known = {number: machine.evaluated(guard.rows) for number, guard in enumerate(guards)}
        asked = [
            exp.select(alias(bigint(number), "guard")).from_(query(guards[number].rows).limit(1).subquery("q"))
            for number, rows in known.items()
            if rows is None
        ]
        others = {number for (number,) in job.context.engine.rows(union_all(asked))} if asked else set()
        for number, rows in known.items():
            if rows is not None and rows.num_rows:
                few = rows.slice(0, EXAMPLES)
                yield guards[number], list(zip(*(values.to_pylist() for values in few.columns), strict=True))
            elif number in others:
                examples = job.context.engine.rows(query(guards[number].rows).limit(EXAMPLES))
                yield guards[number], [tuple(row) for row in examples]

    def change(self, job: Job, program: Program, machine: SparkMachine, ran: Run) -> Change:
        """What a program has computed, once its steps have run: at the driver where it can, else in Spark."""
        moves, renderer = ran.moves(program), machine.renderer
        assert isinstance(renderer, PropagateRenderer)
        found = self._at_driver(job, program, machine, moves)
        if found is None:
            found = self._in_spark(job, program, renderer, moves)
        advance = partial(support.advance, job.context, job.view, moves, renderer, found)
        return Change(found["delta"], advance, ran.report(program))

    def _at_driver(
        self, job: Job, program: Program, machine: SparkMachine, moves: Mapping[str, Upkeep]
    ) -> dict[str, exp.Table] | None:
        """The view's change, and what its support tables append, without Spark; None where one of them needs it."""
        if program.result is None:
            return None
        types = dict(job.view.columns)
        named = [(name, cast(column(c), types[name])) for c, name in output(job.definition, job.view.columns)]
        rows = machine.evaluated(Project(program.result, (*named, (COUNT, column(COUNT)))))
        if rows is None:
            return None
        moved = {} if job.batch is None else support.moved_at_driver(moves, machine, job.batch)
        if moved is None:
            return None
        schema = column_list([*job.view.columns, (COUNT, "bigint")])
        return {"delta": job.temporaries.hold("delta", rows, schema), **moved}

    def _in_spark(
        self, job: Job, program: Program, renderer: PropagateRenderer, moves: Mapping[str, Upkeep]
    ) -> dict[str, exp.Table]:
        definition, view = job.definition, job.view
        if program.result is None:
            nothing = [alias(cast(exp.Null(), type_), name) for name, type_ in view.columns]
            rows = exp.select(*nothing, alias(bigint(0), COUNT)).where(exp.false(), copy=False)
        else:
            rows = select([*outputs(definition, view.columns), column(COUNT)], renderer.query(program.result))
        moved = {} if job.batch is None else support.moved(moves, renderer, job.logs.total, job.batch)
        return job.temporaries.compute_all({"delta": rows, **moved}, job.logs.total)


def shown_at_start(job: Job) -> exp.Query:
    """The view at s_i, under the ids of the plan's columns."""
    rows = reached(job.view) if job.shown is None else job.shown
    types = job.definition.column_types
    named = [alias(cast(column(name), types[c]), c) for c, name in output(job.definition, job.view.columns)]
    return select([*named, column(COUNT)], rows)


class SelfMaintained(Incremental):
    """Δ(Q) from logs, MV and the view's auxiliary and support tables alone (Quass et al. 1996): no base table is read.

    What the logs contain decides whether the rules may be used. An exposed update, which takes rows into the view that
    no table here holds, is answered by asking the base tables once (section 4.2.2). A broken promise is an error.
    """

    name = "self"

    def cost(self, now: Situation) -> Cost:
        return costs.keeping(now, self.name)

    def reads(self, definition: Definition) -> tuple[str, ...]:
        return (*described(definition.plan), *super().reads(definition))

    def run(self, job: Job) -> Change:
        program = differentiate(job.definition.plan, job.logs.changed, job.definition.column_types)
        assert not tables_read(program), "base tables are out of reach"
        renderer = self.renderer(job, {VIEW: shown_at_start(job), **job.shared})
        machine = self.machine(job, renderer, program)
        ran = run(program.steps, machine)
        for guard, rows in self.found(job, program, machine):
            if guard.kind != EXPOSED:
                raise PromiseBrokenError(broken(guard, job.view.name, rows))
            if job.operation is None:
                raise RecomputeInstead(exposed(guard, rows))  # a reader computes the view for itself
            return replace(RECOMPUTE.run(job), instead=Choice(RECOMPUTE, exposed(guard, rows)))
        return self.change(job, program, machine, ran)


class FromView(Incremental):
    """Changes that MV and the log alone can tell (Blakeley, ch. 4).

    These are deletions, modifications of values that only pass through, and new rows that meet the same rows of other
    tables as a row which the view shows.
    """

    name = "from the view"

    def cost(self, now: Situation) -> Cost:
        return costs.looking(now, self.name)

    def reads(self, definition: Definition) -> tuple[str, ...]:
        return tuple(_answered(definition))

    def sql(self, definition: Definition) -> str:
        program = _autonomous(definition).program(answerable(definition))
        assert program is not None, "the view shows the keys of these tables"
        return Renderer(ReadableLeaves()).statement(program) or "(the view reads no table: nothing can change)"

    def applies(self, job: Job) -> bool:
        """Whether the logs, if their rows are at the driver, contain nothing that looks like an insertion."""
        return set(job.logs.changed) <= set(answerable(job.definition)) and all(
            _only_takes_away(job.temporaries.local(log), job.definition.tables[name].key)
            for name, log in job.logs.changed.items()
        )

    def may_decide(self, job: Job) -> bool:
        """Whether a look at the view may tell what new rows meet: only one table has changed, and it shows enough."""
        return len(job.logs.changed) == 1 and set(job.logs.changed) <= insertable(job.definition).keys()

    def run(self, job: Job) -> Change:
        """The view's answer; if a row turns out to be new to the view after all, that of the base tables."""
        program = _autonomous(job.definition).program(job.logs.changed)
        assert program is not None, "the view shows the keys of what has changed"
        renderer = self.renderer(job, {VIEW: shown_at_start(job), **job.shared})
        machine = self.machine(job, renderer, program)
        ran = run(program.steps, machine)
        for guard, rows in self.found(job, program, machine):
            return replace(INCREMENTAL.run(job), instead=Choice(INCREMENTAL, undecided(guard, rows[0])))
        return self.change(job, program, machine, ran)


def _autonomous(definition: Definition) -> Autonomous:
    keys = {name: table.key for name, table in definition.tables.items()}
    return Autonomous(definition.plan, keys, definition.column_types)


def answerable(definition: Definition) -> list[str]:
    """The base tables whose deletions a view can answer from its own rows, and notice if their keys do not hold."""
    if definition.bound is None or definition.declared is not None:
        return []
    return _autonomous(definition).verifying


def insertable(definition: Definition) -> dict[str, tuple[str, ...]]:
    """The base tables whose insertions a view may answer from its own rows, with the columns in which rows agree."""
    if definition.bound is None or definition.declared is not None:
        return {}
    return _autonomous(definition).insertable


def _answered(definition: Definition) -> Iterator[str]:
    """What is read where the view answers a change itself, in sentences."""
    for name in answerable(definition):
        key = ", ".join(definition.tables[name].key)
        yield f"{name}: of deleted and modified rows, the rows of the view with the same {key}"
    for name, names in insertable(definition).items():
        same = ", ".join(names)
        yield f"{name}: of new rows, if no other table has changed, the rows of the view with the same {same}"


def _only_takes_away(rows: pa.Table | None, key: Sequence[str]) -> bool:
    """Whether a log has no inserted row whose key it does not delete too."""
    if rows is None:
        return False
    names = {name.casefold(): name for name in rows.column_names}
    counts = rows.column(COUNT).to_pylist()
    keys = list(map(repr, zip(*(comparable(rows.column(names[c.casefold()])).to_pylist() for c in key), strict=True)))
    gone = {value for value, n in zip(keys, counts, strict=True) if n < 0}
    return all(value in gone for value, n in zip(keys, counts, strict=True) if n > 0)


def _most_gone(view: ViewRecord, program: Program) -> dict[str, int]:
    """Of how many rows of each recursion it is worth finding out whether they are gone; of small ones, of all."""
    names = [step.gone_from for step in program.steps if isinstance(step, Loop) and step.gone_from is not None]
    rows = {name: DeltaLog(support_path(view.workings, name)).row_count() for name in names}
    return {name: round(count * GONE_FRACTION) for name, count in rows.items() if count is not None and count > SMALL}


class Recompute(Strategy):
    """Q − ((MV ∸ ∇MV) ⊎ ΔMV): the whole query at s_c, and the difference to what the view holds at s_i.

    Of a large view the difference would cost more than the query: every row of both is compared. Then the batch is Q
    itself, ∇MV = MV and ΔMV = Q, and partial_refresh puts the files of the batch in the place of those of MV.
    """

    name = "full"

    def cost(self, now: Situation) -> Cost:
        return costs.recomputing(now, self.name)

    def reads(self, definition: Definition) -> tuple[str, ...]:
        return ("the whole query · recomputed: reads all its tables",)

    def equations(self, definition: Definition) -> tuple[str, ...]:
        return "▼V = MV ∸ Q", "▲V = Q ∸ MV"

    def sql(self, definition: Definition) -> str:
        return definition.sql

    def run(self, job: Job) -> Change:
        """The support tables are filled first, and the view from them: the base tables are read once.

        If the batch does not follow, the next propagate restores them, as after every other advance.
        """
        assert job.operation is not None
        assert job.batch is not None
        view, definition = job.view, computed(job.definition, job.cut, job.temporaries, job.tell)
        filled = support.refill(job.context, view, definition, job.cut, job.operation, job.batch, job.temporaries)
        new = signed(query(filled, view.columns, job.cut), [name for name, _ in view.columns])
        if costs.replaces(view):
            expected = DeltaLog(mv_path(view.location)).row_count() or 0
            rows = job.temporaries.result("replacement", new, expected) if expected <= LOCAL_ROWS else new
            return Change(rows, _have_advanced, replaces=True)
        change = job.temporaries.compute("delta", difference(new, reached(view), view.columns))
        return Change(change, _have_advanced)


def _have_advanced(operation: str, batch: int) -> None:
    """The support tables are at the new cut already."""


class RecomputeChecked(Recompute):
    """The same for a view that needs no base table. What it relies on is looked for in the tables, not in the logs."""

    def run(self, job: Job) -> Change:
        require(job.context.engine, job.view.name, job.definition, job.cut)
        return super().run(job)


INCREMENTAL, RECOMPUTE, SELF, FROM_VIEW = Incremental(), Recompute(), SelfMaintained(), FromView()
CHECKED = RecomputeChecked()


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


def reconsidered(job: Job, choice: Choice) -> Choice:
    """The strategy once the rows of the logs are known: the view may answer them, if that is expected to cost less.

    What only takes rows away is answered by the view also where costs are not compared. New rows are not: if the view
    shows none that meet the same, it was asked in vain.
    """
    if not job.logs.changed or (choice.strategy is not INCREMENTAL and not choice.costs):
        return choice
    takes_away = FROM_VIEW.applies(job)
    if not takes_away and not FROM_VIEW.may_decide(job):
        return choice
    now = situation(job.context, job.view, job.definition, job.logs)
    if now is None and not takes_away:
        return choice
    compared = {}
    if now is not None:
        compared = {**(choice.costs or {INCREMENTAL.name: INCREMENTAL.cost(now)}), FROM_VIEW.name: FROM_VIEW.cost(now)}
        others = min(cost.seconds for name, cost in compared.items() if name != FROM_VIEW.name)
        if compared[FROM_VIEW.name].seconds > (1 if takes_away else WORTH) * others:
            return replace(choice, costs=compared)
    tables = ", ".join(sorted(job.logs.changed))
    reason = (
        f"Rows of {tables} were deleted or modified, and the view shows their keys."
        if takes_away
        else f"The view shows rows that may meet the same as the new rows of {tables}, and is less to read."
    )
    return Choice(FROM_VIEW, reason, costs=compared)


def situation(context: Context, view: ViewRecord, definition: Definition, logs: Logs) -> Situation | None:
    """What costs are estimated from; None where tables are small, or their sizes are not known."""
    tables = costs.sizes(context, definition)
    if tables is None or sum(table.rows for table in tables.values()) <= SMALL:
        return None
    return Situation(context, view, definition, tables, logs)


def estimates(now: Situation) -> dict[str, Cost]:
    """What each way to follow the changes would cost: those that `choose` compares, and those that may take over."""
    compared = dict(choose(now.context, now.view, now.definition, now.logs).costs)
    if now.definition.is_self_maintained:
        compared[SELF.name] = SELF.cost(now)
    if now.logs.total and now.logs.rows.keys() <= set(answerable(now.definition)):
        compared[FROM_VIEW.name] = FROM_VIEW.cost(now)
    return compared


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
    if not definition.has_plan:
        return Choice(RECOMPUTE, f"{definition.whole} So every propagate recomputes the view and keeps the difference.")
    if view.options.always_recomputes:
        reason = "The view's refresh_policy is 'full': every propagate recomputes it and keeps the difference."
        return Choice(RECOMPUTE, reason)
    if definition.is_self_maintained:
        return _self_or_full(context, view, definition, logs)
    reason = " ".join(_why_incremental(definition, logs))
    if not view.options.compares_costs:
        return Choice(INCREMENTAL, reason)
    if logs is None:
        reason += " The refresh_policy 'auto' compares what both would cost when it knows what has changed."
        return Choice(INCREMENTAL, reason, RECOMPUTE)
    now = situation(context, view, definition, logs)
    if now is None:
        return Choice(INCREMENTAL, reason)
    incremental, recompute = INCREMENTAL.cost(now), RECOMPUTE.cost(now)
    compared = {INCREMENTAL.name: incremental, RECOMPUTE.name: recompute}
    if recompute.seconds < WORTH * incremental.seconds:
        reason = (
            f"{logs.total} changed rows are expected to take {incremental.seconds:.1f} s, and recomputing the view "
            f"{recompute.seconds:.1f} s."
        )
        return Choice(RECOMPUTE, reason, costs=compared)
    return Choice(INCREMENTAL, reason, costs=compared)


def _why_incremental(definition: Definition, logs: Logs | None) -> Iterator[str]:
    """What there is to say of the delta rules of a plan, in sentences."""
    recomputed = [node for node in definition.plan.walk() if isinstance(node.strategy, Recomputed)]
    if recomputed:
        yield f"A change reads the whole input of {recomputed[0].called} again, which has no keys."
    else:
        yield "Only the rows, groups and keys that the changes touch are read."
    itself = answerable(definition) if logs is None else []
    if itself:
        yield f"Deletions from {', '.join(itself)} are answered from the view's own rows, by the keys that it shows."
        for name, names in insertable(definition).items():
            same = ", ".join(names)
            yield f"So are new rows of {name}, if that is cheaper, where a row with the same {same} is shown."
    if any(node.strategy.absorbs for node in definition.plan.walk()):
        yield "As maintain = 'tree' asks, a change is followed only while a key becomes good or bad."


def _self_or_full(context: Context, view: ViewRecord, definition: Definition, logs: Logs | None) -> Choice:
    """A view that needs no base table is recomputed where that is expected to cost less, if its policy is 'auto'."""
    reason = "The view's maintain is 'self': logs, MV and its own tables are read, no base table."
    now = None if logs is None or not view.options.compares_costs else situation(context, view, definition, logs)
    if now is None:
        return Choice(SELF, reason)
    compared = {strategy.name: strategy.cost(now) for strategy in (SELF, RECOMPUTE)}
    mine, whole = compared[SELF.name].seconds, compared[RECOMPUTE.name].seconds
    if whole < WORTH * mine and _can_be_read(context, definition):
        reason = (
            f"{now.logs.total} changed rows are expected to take {mine:.1f} s, and recomputing the view {whole:.1f} s; "
            f"its base tables can be read."
        )
        return Choice(CHECKED, reason, costs=compared)
    return Choice(SELF, reason, costs=compared)


def _can_be_read(context: Context, definition: Definition) -> bool:
    """Whether all files of a view's base tables are there."""
    try:
        return all(source_of(context, table).log.missing_now() is None for table in definition.tables.values())
    except (DeferredError, OSError):
        return False
