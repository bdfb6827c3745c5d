"""The reference evaluator: a plan's bag in a given state, straight from the definition of every operator.

It is slow and obvious on purpose, and it is what the delta rules and Figures 2 and 3 are checked against. Each operator
defines its own evaluation (`Plan.evaluate`); this module has what they share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlglot import exp

from deferred.algebra.aggregates.calls import aggregate_of
from deferred.algebra.paper.interpret import Interpretation, Row, interpret
from deferred.algebra.plan import Plan
from deferred.algebra.program import Loop, Program, Upkeep, run
from deferred.algebra.scalar import Scalar, column, rewrite

Bag = Counter[Row]


class Table(NamedTuple):
    """The columns of a table and its rows: with their multiplicities, or for a net log with their signed counts."""

    names: tuple[str, ...]
    rows: Bag


State = Mapping[str, Table]


class Evaluation:
    """One state, the net logs that lead to it, the temporary results so far, and the support tables at s_i.

    A shared plan is evaluated once.
    """

    def __init__(
        self,
        state: State,
        changes: State | None = None,
        temporaries: Mapping[str, Bag] | None = None,
        supports: State | None = None,
    ) -> None:
        self.state = state
        self.changes = changes or {}
        self.temporaries = temporaries or {}
        self.supports = supports or {}
        self._bags: dict[Plan, Bag] = {}

    def __call__(self, plan: Plan) -> Bag:
        if plan not in self._bags:
            self._bags[plan] = plan.evaluate(self)
        return self._bags[plan]

    def given(self, name: str, rows: Bag) -> Evaluation:
        """The same with other rows as a temporary result."""
        return Evaluation(self.state, self.changes, {**self.temporaries, name: rows}, self.supports)

    # ---- what operators are made of

    def value(self, expression: Scalar, columns: Sequence[str]) -> Interpretation:
        """The function from a row with the given columns to the value of an expression."""
        return interpret(expression, columns)

    def picked(self, table: Table, names: Sequence[str]) -> Bag:
        """Some columns of a table."""
        positions = [table.names.index(name) for name in names]
        return self.mapped(table.rows, lambda row: tuple(row[i] for i in positions))

    def mapped(self, bag: Bag, function: Callable[[Row], Row]) -> Bag:
        """A function applied to every row, multiplicities added up where two rows become one."""
        result: Bag = Counter()
        for row, n in bag.items():
            result[function(row)] += n
        return result

    def selected(self, bag: Bag, condition: Scalar, columns: Sequence[str]) -> Bag:
        """The rows for which a condition is true."""
        holds = interpret(condition, columns)
        return Counter({row: n for row, n in bag.items() if holds(row) is True})

    def netted(self, signed: Bag) -> Bag:
        """Every row of a signed bag with its summed count, without rows whose count is zero."""
        result: Bag = Counter()
        for (*row, count), n in signed.items():
            result[tuple(row)] += count * n
        return Counter({row: count for row, count in result.items() if count})

    def over_group(
        self, expression: Scalar, keys: tuple[str, ...], key: Row, columns: Sequence[str], group: Bag
    ) -> Any:
        """An expression over aggregates and grouping columns, for one group."""
        calls = [node for node in expression.find_all(exp.Anonymous) if _has_reference(node)]
        names: dict[Scalar, str] = {call: f"aggregate {i}" for i, call in enumerate(calls)}
        values = tuple(self.aggregated(call, columns, group) for call in dict.fromkeys(calls))
        over = rewrite(expression, lambda node: column(names[node]) if node in names else None)
        return interpret(over, (*keys, *names.values()))((*key, *values))

    def aggregated(self, call: Scalar, columns: Sequence[str], group: Bag) -> Any:
        """One aggregate function over the rows of a group, by its definition; `count(*)` has no arguments."""
        distinct = isinstance(call.expressions[0], exp.Distinct)
        arguments = call.expressions[0].expressions if distinct else call.expressions
        values = [interpret(argument, columns) for argument in arguments if not isinstance(argument, exp.Star)]
        rows = self.mapped(group, lambda row: tuple(value(row) for value in values))
        function = aggregate_of(call)
        assert function is not None
        assert function.reference is not None
        return function.reference(Counter(rows.keys()) if distinct else rows)


def _has_reference(call: Scalar) -> bool:
    function = aggregate_of(call)
    return function is not None and function.reference is not None


def evaluate(
    plan: Plan,
    state: State,
    changes: State | None = None,
    temporaries: Mapping[str, Bag] | None = None,
    supports: State | None = None,
) -> Bag:
    """Q(s): the multiplicity of every row of a plan. The rows of a signed plan end with their COUNT.

    >>> from deferred.algebra.operators import Scan
    >>> state = {"R": Table(("a", "b"), Counter({(1, 2): 2}))}
    >>> evaluate(Scan("R", ("b",), ("c1",)), state)
    Counter({(2,): 2})
    """
    return Evaluation(state, changes, temporaries, supports)(plan)


class Outcome(NamedTuple):
    """What a program computes: the net signed change of every row, and the support tables at s_c."""

    change: Bag
    supports: State


def run_program(program: Program, state: State, changes: State) -> Bag:
    """The signed change that a program computes: every row with its net count."""
    return outcome(program, state, changes).change


def outcome(program: Program, state: State, changes: State, supports: State | None = None) -> Outcome:
    """Run the steps in order, then the result."""
    temporaries: dict[str, Bag] = {}
    run(program.steps, _Machine(state, changes, temporaries, supports or {}))
    after = Evaluation(state, changes, temporaries, supports)
    moved = dict(supports or {})
    for name, upkeep in program.supports.items():
        moved[name] = _moved(after, moved[name], upkeep)
    change = Counter() if program.result is None else after.netted(after(program.result))
    return Outcome(change, moved)


class _Machine(NamedTuple):
    """Temporary results as bags."""

    state: State
    changes: State
    temporaries: dict[str, Bag]
    supports: State

    def compute(self, name: str, plan: Plan, skipped: bool) -> int:
        rows: Bag = Counter()
        if not skipped:
            rows = evaluate(plan, self.state, self.changes, self.temporaries, self.supports)
        self.temporaries[name] = rows
        return rows.total()

    def append(self, name: str, more: str) -> None:
        self.temporaries[name] = self.temporaries[name] + self.temporaries[more]

    def progress(self, loop: Loop, round_: int, found: int, in_all: int) -> None:
        pass

    def examples(self, name: str) -> list[Row]:
        return list(self.temporaries[name])[:3]


def _moved(e: Evaluation, table: Table, upkeep: Upkeep) -> Table:
    """A support table with its touched rows replaced, or as a whole where it has no keys."""
    rows = Table(upkeep.rows.columns, e(upkeep.rows))
    if not upkeep.keys:
        return rows
    keys = {
        row
        for plan in (upkeep.rows, upkeep.gone)
        if plan is not None
        for row in e.picked(Table(plan.columns, e(plan)), upkeep.keys)
    }
    positions = [table.names.index(key) for key in upkeep.keys]
    kept = Counter({row: n for row, n in table.rows.items() if tuple(row[i] for i in positions) not in keys})
    return Table(table.names, kept + e.picked(rows, table.names))


def execute(assignments: Mapping[str, Plan], state: State) -> State:
    """𝒯(s) for 𝒯 = {Rᵢ := Qᵢ}: every Qᵢ is evaluated in s, then all tables change at once (Section 2.2).

    >>> from deferred.algebra.operators import Scan
    >>> swap = {"R": Scan("S", ("a",), ("a",)), "S": Scan("R", ("a",), ("a",))}
    >>> after = execute(swap, {"R": Table(("a",), Counter([(1,)])), "S": Table(("a",), Counter([(2,)]))})
    >>> after["R"].rows, after["S"].rows
    (Counter({(2,): 1}), Counter({(1,): 1}))
    """
    evaluation = Evaluation(state)
    return {**state, **{name: Table(plan.columns, evaluation(plan)) for name, plan in assignments.items()}}
