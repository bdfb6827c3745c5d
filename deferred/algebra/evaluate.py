"""The reference evaluator: a plan's bag in a given state, straight from the definition of every operator.

It is slow and obvious on purpose, and it is what the delta rules and Figures 2 and 3 are checked against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import singledispatch
from typing import Any, NamedTuple

from sqlglot import exp

from deferred.algebra.delta import Program
from deferred.algebra.group import Aggregate
from deferred.algebra.interpret import Row, interpret
from deferred.algebra.join import Join
from deferred.algebra.plan import (
    Change,
    Filter,
    Net,
    Plan,
    Project,
    Ref,
    Repeat,
    Restrict,
    Scan,
    UnionAll,
    Values,
)
from deferred.algebra.scalar import Scalar, column, columns_of, conjuncts, rewrite
from deferred.algebra.sets import Distinct, SetOperation

Bag = Counter[Row]


class Table(NamedTuple):
    """The columns of a table and its rows: with their multiplicities, or for a net log with their signed counts."""

    names: tuple[str, ...]
    rows: Bag


State = Mapping[str, Table]


class Evaluation:
    """One state, the net logs that lead to it and the temporary results so far. A shared plan is evaluated once."""

    def __init__(self, state: State, changes: State, temporaries: Mapping[str, Bag]) -> None:
        self.state = state
        self.changes = changes
        self.temporaries = temporaries
        self._bags: dict[Plan, Bag] = {}

    def __call__(self, plan: Plan) -> Bag:
        if plan not in self._bags:
            self._bags[plan] = _evaluate(plan, self)
        return self._bags[plan]


def evaluate(plan: Plan, state: State, changes: State | None = None,
             temporaries: Mapping[str, Bag] | None = None) -> Bag:
    """Q(s): the multiplicity of every row of a plan. The rows of a signed plan end with their COUNT.

    >>> state = {"R": Table(("a", "b"), Counter({(1, 2): 2}))}
    >>> evaluate(Scan("R", ("b",), ("c1",)), state)
    Counter({(2,): 2})
    """
    return Evaluation(state, changes or {}, temporaries or {})(plan)


def run_program(program: Program, state: State, changes: State) -> Bag:
    """The signed change that a program computes: every row with its net count."""
    temporaries: dict[str, Bag] = {}
    for step in program.steps:
        temporaries[step.name] = evaluate(step.plan, state, changes, temporaries)
    if program.result is None:
        return Counter()
    return _netted(evaluate(program.result, state, changes, temporaries))


def execute(assignments: Mapping[str, Plan], state: State) -> State:
    """𝒯(s) for 𝒯 = {Rᵢ := Qᵢ}: every Qᵢ is evaluated in s, then all tables change at once (Section 2.2).

    >>> swap = {"R": Scan("S", ("a",), ("a",)), "S": Scan("R", ("a",), ("a",))}
    >>> after = execute(swap, {"R": Table(("a",), Counter([(1,)])), "S": Table(("a",), Counter([(2,)]))})
    >>> after["R"].rows, after["S"].rows
    (Counter({(2,): 1}), Counter({(1,): 1}))
    """
    evaluation = Evaluation(state, {}, {})
    return {**state, **{name: Table(plan.columns, evaluation(plan)) for name, plan in assignments.items()}}


@singledispatch
def _evaluate(plan: Plan, bag: Evaluation) -> Bag:
    raise NotImplementedError(f"the reference evaluator does not know {type(plan).__name__}")


@_evaluate.register
def _scan(plan: Scan, bag: Evaluation) -> Bag:
    return _picked(bag.state[plan.table], plan.names)


@_evaluate.register
def _change(plan: Change, bag: Evaluation) -> Bag:
    return Counter({(*row, count): 1 for row, count in _picked(bag.changes[plan.table], plan.names).items() if count})


@_evaluate.register
def _values(plan: Values, bag: Evaluation) -> Bag:
    return Counter(tuple(interpret(value, ())(()) for value in row) for row in plan.rows)


@_evaluate.register
def _ref(plan: Ref, bag: Evaluation) -> Bag:
    return bag.temporaries[plan.name]


@_evaluate.register
def _restrict(plan: Restrict, bag: Evaluation) -> Bag:
    """Rows are compared as Python compares them: None is None, which is <=>."""
    mine = [interpret(value, plan.columns) for value, _ in plan.keys.on]
    theirs = [interpret(value, plan.keys.plan.columns) for _, value in plan.keys.on]
    keys = {tuple(value(row) for value in theirs) for row in bag(plan.keys.plan)}
    return Counter({row: n for row, n in bag(plan.child).items() if tuple(value(row) for value in mine) in keys})


@_evaluate.register
def _net(plan: Net, bag: Evaluation) -> Bag:
    return Counter({(*row, count): 1 for row, count in _netted(bag(plan.child)).items()})


@_evaluate.register
def _repeat(plan: Repeat, bag: Evaluation) -> Bag:
    result: Bag = Counter()
    for (*row, count), n in bag(plan.child).items():
        if count < 0:
            raise ValueError(f"a bag cannot hold {count} copies of {tuple(row)}")
        result[tuple(row)] += count * n
    return +result


@_evaluate.register
def _project(plan: Project, bag: Evaluation) -> Bag:
    outputs = [interpret(expression, plan.child.columns) for _, expression in plan.outputs]
    return _mapped(bag(plan.child), lambda row: tuple(output(row) for output in outputs))


@_evaluate.register
def _filter(plan: Filter, bag: Evaluation) -> Bag:
    return _selected(bag(plan.child), plan.condition, plan.columns)


@_evaluate.register
def _union_all(plan: UnionAll, bag: Evaluation) -> Bag:
    result: Bag = Counter()
    for side in plan.inputs:
        result.update(bag(side))
    return result


@_evaluate.register
def _join(plan: Join, bag: Evaluation) -> Bag:
    """The product, each conjunct decided as soon as its columns are there."""
    result: Bag = Counter({(): 1})
    columns: tuple[str, ...] = ()
    pending = conjuncts(plan.condition)
    for side in plan.inputs:
        rows = bag(side)
        result = Counter({left + right: n * m for left, n in result.items() for right, m in rows.items()})
        columns += side.columns
        for part in [part for part in pending if columns_of(part) <= set(columns)]:
            result = _selected(result, part, columns)
            pending.remove(part)
    return result


@_evaluate.register
def _distinct(plan: Distinct, bag: Evaluation) -> Bag:
    return Counter(dict.fromkeys(bag(plan.child), 1))


@_evaluate.register
def _set_operation(plan: SetOperation, bag: Evaluation) -> Bag:
    left, right = bag(plan.left), bag(plan.right)
    if plan.kind == "EXCEPT":
        return left - right if plan.every else Counter(row for row in left if row not in right)
    return left & right if plan.every else Counter(row for row in left if row in right)


@_evaluate.register
def _aggregate(plan: Aggregate, bag: Evaluation) -> Bag:
    columns = plan.child.columns
    positions = [columns.index(key) for key in plan.keys]
    groups: dict[Row, Bag] = {} if plan.keys else {(): Counter()}
    for row, n in bag(plan.child).items():
        groups.setdefault(tuple(row[i] for i in positions), Counter())[row] = n
    return Counter((*key, *(_aggregated(expression, plan.keys, key, columns, group)
                            for _, expression in plan.outputs)) for key, group in groups.items())


def _aggregated(expression: Scalar, keys: tuple[str, ...], key: Row, columns: tuple[str, ...], group: Bag) -> Any:
    """An expression over aggregates and grouping columns, for one group."""
    calls = [node for node in expression.find_all(exp.Anonymous) if node.this.lower() in _AGGREGATES]
    names: dict[Scalar, str] = {call: f"aggregate {i}" for i, call in enumerate(calls)}
    values = tuple(_called(call, columns, group) for call in dict.fromkeys(calls))
    over = rewrite(expression, lambda node: column(names[node]) if node in names else None)
    return interpret(over, (*keys, *names.values()))((*key, *values))


def _called(call: exp.Anonymous, columns: tuple[str, ...], group: Bag) -> Any:
    """One aggregate function over the rows of a group; NULLs do not count, `count(*)` counts rows."""
    (argument,) = call.expressions
    if isinstance(argument, exp.Star):
        return group.total()
    every = not isinstance(argument, exp.Distinct)
    value = interpret(argument if every else argument.expressions[0], columns)
    values: Counter[Any] = Counter()
    for row, n in group.items():
        values[value(row)] += n
    del values[None]
    return _AGGREGATES[call.this.lower()](values if every else Counter(values.keys()))


def _sum(values: Counter[Any]) -> Any:
    return sum(value * n for value, n in values.items()) if values else None


def _average(values: Counter[Any]) -> Any:
    """Exact, so that the order of the rows does not show."""
    return Fraction(_sum(values)) / values.total() if values else None


_AGGREGATES: dict[str, Callable[[Counter[Any]], Any]] = {
    "count": lambda values: values.total(),
    "sum": _sum,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
    "avg": _average,
}


def _picked(table: Table, names: tuple[str, ...]) -> Bag:
    positions = [table.names.index(name) for name in names]
    return _mapped(table.rows, lambda row: tuple(row[i] for i in positions))


def _mapped(bag: Bag, function: Callable[[Row], Row]) -> Bag:
    """A function applied to every row, multiplicities added up where two rows become one."""
    result: Bag = Counter()
    for row, n in bag.items():
        result[function(row)] += n
    return result


def _selected(bag: Bag, condition: Scalar, columns: tuple[str, ...]) -> Bag:
    holds = interpret(condition, columns)
    return Counter({row: n for row, n in bag.items() if holds(row) is True})


def _netted(signed: Bag) -> Bag:
    """Every row with its summed count, those with none left out."""
    result: Bag = Counter()
    for (*row, count), n in signed.items():
        result[tuple(row)] += count * n
    return Counter({row: count for row, count in result.items() if count})
