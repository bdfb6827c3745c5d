"""Programs: what a propagate runs. Steps and loops in order, then the signed result, and how support tables move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sqlglot import exp

from deferred.errors import EndlessRecursionError

if TYPE_CHECKING:
    from deferred.algebra.operators.temporary import Temporary
    from deferred.algebra.plan import Plan


@dataclass(frozen=True)
class Step:
    """One temporary result: computed once, read by the steps after it under its name.

    With `when`, it is computed only if that earlier step has rows; otherwise it is empty, and nothing is read for it.
    """

    name: str
    plan: Plan
    when: str | None = None

    @property
    def plans(self) -> tuple[Plan, ...]:
        return (self.plan,)


@dataclass(frozen=True)
class Bound:
    """How many rounds a recursion may take that need not end, and how many columns it has.

    `taken` are the places of the columns whose values it computes from none of its own rows. They alone tell a cycle: a
    depth or a path is another one in every round.

    With `levels`, a loop may begin at any level: the column after those says how many rounds led to a row.
    """

    rounds: int
    recursion: str
    columns: int
    taken: tuple[int, ...] = ()
    levels: bool = False


@dataclass(frozen=True)
class Loop:
    """Rounds, each from the rows that the one before has found, until a round finds none.

        newest := first;  name := first
        while newest has rows:  steps;  newest := next;  name := name ⊎ newest

    `steps` and `next` read the temporary results `newest` and `name`. A step may give a result from before the loop
    other rows, under its own name. `finding` says what the rounds look for, for people; `gone_from` names the support
    table from which they look for rows that may be gone.
    """

    finding: str
    name: str
    newest: Temporary
    first: Plan
    steps: tuple[Step | Loop, ...]
    next: Plan
    bound: Bound | None = None
    gone_from: str | None = None

    @property
    def plans(self) -> tuple[Plan, ...]:
        """What it computes: its first rows, then the steps and the rows of a round."""
        return (self.first, *(plan for step in self.steps for plan in step.plans), self.next)


@dataclass(frozen=True)
class Upkeep:
    """How a support table moves to s_c: its new rows, and the keys of deleted ones; without `keys` it is replaced.

    With `when`, it moves only if that step has rows.
    """

    rows: Plan
    gone: Plan | None
    keys: tuple[str, ...]
    when: str | None = None


@dataclass(frozen=True)
class Rederivation:
    """The temporary results that tell what the maintenance of a recursion has done."""

    recursion: str
    overestimated: str | None
    derived: str
    deleted: str | None


EXPOSED, DUPLICATE, DANGLING, NEW = "exposed update", "duplicate key", "reference into nothing", "new rows"
LATE = "later than what refers to it"
"""What a guard looks for."""


@dataclass(frozen=True)
class Guard:
    """Rows that must not be there for a program to be right: the values of some columns of a base table.

    `other` is the table that a reference leads to.
    """

    kind: str
    table: str
    names: tuple[str, ...]
    rows: Plan
    other: str | None = None


@dataclass(frozen=True)
class Program:
    """Steps in order, then the signed result, None when nothing can have changed.

    The result is right, and the support tables may move, only if no guard finds rows.
    """

    steps: tuple[Step | Loop, ...]
    result: Plan | None
    supports: Mapping[str, Upkeep] = field(default_factory=dict)
    recursions: tuple[Rederivation, ...] = ()
    guards: tuple[Guard, ...] = ()

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans that are computed when it runs, those of a round once."""
        moved = [plan for upkeep in self.supports.values() for plan in (upkeep.rows, upkeep.gone)]
        asked = [*(guard.rows for guard in self.guards), self.result, *moved]
        return (*(plan for step in self.steps for plan in step.plans), *(plan for plan in asked if plan is not None))


class Machine(Protocol):
    """An engine that holds temporary results under their names."""

    def compute(self, name: str, plan: Plan, skipped: bool) -> int:
        """Computes a result, empty if it is skipped; returns the number of its rows. It may read what it replaces."""
        ...

    def append(self, name: str, more: str) -> None:
        """Adds the rows of one result to another's."""
        ...

    def progress(self, loop: Loop, round_: int, found: int, in_all: int) -> None:
        """Takes notice of how many rows a round has found."""
        ...

    def examples(self, name: str) -> Sequence[Any]:
        """Returns a few rows of a result."""
        ...


@dataclass
class Run:
    """What the steps of a program have computed: the rows of each result, and the rounds of each loop."""

    rows: dict[str, int] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)

    def moves(self, program: Program) -> dict[str, Upkeep]:
        """The support tables that have something to move to, and how."""
        supports = program.supports.items()
        return {name: upkeep for name, upkeep in supports if upkeep.when is None or self.rows[upkeep.when]}

    def report(self, program: Program) -> dict[str, dict[str, int]]:
        """For each recursion: its rounds, the rows that were overestimated to be deleted, and those put back.

        A second one of the same name, in another subquery, is told as `x (2)`.
        """
        found: dict[str, dict[str, int]] = {}
        names = Counter[str]()
        for recursion in program.recursions:
            loops = [name for name in (recursion.overestimated, recursion.derived) if name is not None]
            told = {"rounds": sum(self.rounds[name] for name in loops)}
            if recursion.overestimated is not None and recursion.deleted is not None:
                told["overestimated"] = self.rows[recursion.overestimated]
                told["rederived"] = told["overestimated"] - self.rows[recursion.deleted]
            name, times = recursion.recursion, names[recursion.recursion] + 1
            names[name] = times
            found[name if times == 1 else f"{name} ({times})"] = told
        return found


def run(steps: Iterable[Step | Loop], machine: Machine) -> Run:
    """Run steps and loops in order on an engine: the one place that knows when a step is skipped and a loop ends."""
    done = Run()
    _run(steps, machine, done)
    return done


def _run(steps: Iterable[Step | Loop], machine: Machine, done: Run) -> None:
    for step in steps:
        if isinstance(step, Loop):
            _rounds(step, machine, done)
        else:
            skipped = step.when is not None and not done.rows[step.when]
            done.rows[step.name] = machine.compute(step.name, step.plan, skipped)


def _rounds(loop: Loop, machine: Machine, done: Run) -> None:
    newest = loop.newest.name
    found = machine.compute(newest, loop.first, False)
    done.rows[newest], done.rounds[loop.name] = found, 0
    done.rows[loop.name] = machine.compute(loop.name, loop.newest, False)
    while found:
        done.rounds[loop.name] += 1
        _check(loop, machine, done)
        _run(loop.steps, machine, done)
        found = machine.compute(newest, loop.next, False)
        done.rows[newest] = found
        if found:
            machine.append(loop.name, newest)
            done.rows[loop.name] += found
        machine.progress(loop, done.rounds[loop.name], found, done.rows[loop.name])


def _check(loop: Loop, machine: Machine, done: Run) -> None:
    """Refuse to go on where a recursion has taken all rounds that it may take."""
    bound, rounds = loop.bound, done.rounds[loop.name]
    if bound is None or (rounds <= bound.rounds and not bound.levels):
        return
    rows = [tuple(row) for row in machine.examples(loop.newest.name)]
    if bound.levels and rows[0][bound.columns] < bound.rounds:
        return
    shown = ", ".join(str(row[: bound.columns]) for row in rows)
    told = f"The recursion {bound.recursion} still finds new rows after {bound.rounds} rounds, such as {shown}."
    cycle = _cycle(loop, bound, machine, done)
    if cycle:
        raise EndlessRecursionError(
            f"{told} They go round in a cycle: {' → '.join([*cycle, cycle[0]])}. Remove it from the tables, "
            f"add a condition that ends the recursion, or use UNION, which has each row once, and no columns that grow."
        )
    raise EndlessRecursionError(
        f"{told} If they go round in a cycle, add a condition that ends it, or use UNION without columns that grow; if "
        f"it only needs more rounds, write WITH RECURSIVE {bound.recursion} MAX RECURSION LEVEL {10 * bound.rounds} "
        f"AS (…)."
    )


TRIED = 5
"""So many of the last rows are tried for being in a cycle: those that a cycle only leads to are not."""


def _cycle(loop: Loop, bound: Bound, machine: Machine, done: Run) -> list[str]:
    """The rows by way of which one of the last rows is derived from itself; nothing where that is not found out.

    Rounds from that row alone lead back to it, or to one that differs only in what every round computes. They stop
    where as many as there may be have led elsewhere. A round that finds several rows is an ellipsis: not all of them
    need be on the way.
    """
    from deferred.algebra.operators import SEMI, Limit, OuterJoin, Temporary
    from deferred.algebra.operators.project import renamed
    from deferred.algebra.scalar import all_true, column, same

    newest = loop.newest
    values = [newest.columns[place] for place in bound.taken]
    if not values:
        return []
    last, one, again = (Temporary(f"{newest.name}_{name}", newest.columns) for name in ("last", "one", "again"))
    ordered = tuple(exp.Ordered(this=column(c), nulls_first=True) for c in values)
    others = {c: f"{c}_one" for c in values}
    is_same = all_true(same(column(mine), column(other)) for mine, other in others.items())
    machine.compute(last.name, newest, False)
    for place in range(TRIED):
        if not machine.compute(one.name, Limit(last, ordered, 1, place), False):
            return []
        found, way = machine.compute(newest.name, one, False), list[str]()
        for _ in range(bound.rounds):
            told = "…"
            if found == 1:
                row = machine.examples(newest.name)[0]
                told = str(tuple(row[place] for place in bound.taken))
            way += [told] if way[-1:] != [told] or found == 1 else []
            _run(loop.steps, machine, done)
            found = machine.compute(newest.name, loop.next, False)
            if not found:
                break
            if machine.compute(again.name, OuterJoin(newest, renamed(one, others), SEMI, is_same), False):
                return way
        else:
            return []
    return []
