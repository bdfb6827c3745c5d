"""Steps at the driver give the rows that their plans mean: on Arrow tables, beside the reference evaluator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

from deferred.algebra.bags import COUNT
from deferred.algebra.delta import differentiate
from deferred.algebra.operators import LEFT, Change, Filter, OuterJoin, Project, Restrict, Temporary
from deferred.algebra.paper.evaluate import Bag, Table, evaluate
from deferred.algebra.plan import Plan
from deferred.algebra.program import Loop, run
from deferred.algebra.scalar import column
from deferred.algebra.strategy import support_tables
from deferred.spark.at_driver import Driver, joined
from tests.algebra.strategies import signed
from tests.fuzz.duck import Database
from tests.fuzz.recursive import SCHEMAS, RecursiveGenerator

ARROW = {"int": pa.int32(), "bigint": pa.int64()}


def as_arrow(columns: tuple[str, ...], rows: Bag, types: Mapping[str, str]) -> pa.Table:
    listed = list(rows.elements())
    return pa.table({c: pa.array([row[i] for row in listed], ARROW[types[c]]) for i, c in enumerate(columns)})


def bag_of(rows: pa.Table) -> Bag:
    return Counter(zip(*(column_.to_pylist() for column_ in rows.columns), strict=True))


@dataclass
class BothMachines:
    """Computes every step by the reference evaluator, and at the driver where that is possible."""

    state: Mapping[str, Table]
    changes: Mapping[str, Table]
    supports: Mapping[str, Table]
    types: Mapping[str, str]
    temporaries: dict[str, Bag] = field(default_factory=dict)
    at_driver: int = 0
    steps: int = 0

    def evaluated(self, plan: Plan) -> Bag:
        return evaluate(plan, self.state, self.changes, self.temporaries, self.supports)

    def compute(self, name: str, plan: Plan, skipped: bool) -> int:
        rows: Bag = Counter() if skipped else self.evaluated(plan)
        if not skipped and all(c in self.types for c in plan.columns):
            self.steps += 1
            found = Driver(self.arrow, self.arrow, self.types).evaluated(plan)
            if found is not None:
                self.at_driver += 1
                assert bag_of(found) == rows, plan
                assert found.column_names == list(plan.columns)
        self.temporaries[name] = rows
        return rows.total()

    def arrow(self, plan: Temporary | Change | Restrict) -> pa.Table | None:
        known = all(self.types.get(c) in ARROW for c in plan.columns)
        return as_arrow(plan.columns, self.evaluated(plan), self.types) if known else None

    def append(self, name: str, more: str) -> None:
        self.temporaries[name] = self.temporaries[name] + self.temporaries[more]

    def progress(self, loop: Loop, round_: int, found: int, in_all: int) -> None:
        pass

    def examples(self, name: str) -> list[Any]:
        return list(self.temporaries[name])[:3]


def test_steps_of_random_recursions() -> None:
    database, at_driver, steps = Database(SCHEMAS), 0, 0
    for seed in range(5000, 5060):
        case = RecursiveGenerator(seed).case()
        bound = database.bind(case.query)
        state = {name: Table(tuple(c for c, _ in SCHEMAS[name]), Counter(rows)) for name, rows in case.initial.items()}
        kept = {name: Table(plan.columns, evaluate(plan, state)) for name, plan in support_tables(bound.plan).items()}
        changes, (step, *_) = {}, case.steps
        for name, change in step.items():
            names, rows = state[name]
            state[name] = Table(names, rows - Counter(change.deleted) + Counter(change.inserted))
            changes[name] = Table(names, signed(state[name].rows, rows))
        machine = BothMachines(state, changes, kept, {**bound.types, COUNT: "bigint"})
        run(differentiate(bound.plan, step, bound.types).steps, machine)
        at_driver, steps = at_driver + machine.at_driver, steps + machine.steps
    database.close()
    assert at_driver > steps / 3


ROWS = Temporary("rows", ("a", COUNT))
TYPES = {"a": "int", "b": "int", COUNT: "bigint"}


def driver(rows: pa.Table) -> Driver:
    return Driver(lambda _: rows, lambda _: None, TYPES)


LEFT_TO_SPARK = {
    "an expression": Project(ROWS, (("b", exp.Div(this=column("a"), expression=exp.Literal.number(2))),)),
    "a condition": Filter(ROWS, exp.Like(this=column("a"), expression=exp.Literal.string("1"))),
}


@pytest.mark.parametrize("name", LEFT_TO_SPARK)
def test_what_is_not_known_is_left_to_spark(name: str) -> None:
    rows = pa.table({"a": [1], COUNT: [1]})
    assert driver(rows).evaluated(LEFT_TO_SPARK[name]) is None
    none = driver(rows.slice(0, 0)).evaluated(LEFT_TO_SPARK[name])
    assert none is not None
    assert none.num_rows == 0


def test_a_left_join() -> None:
    left, right = Temporary("left", ("a", COUNT)), Temporary("right", ("b", "c"))
    held = {
        "left": pa.table({"a": [1, 2, None], COUNT: [1, 1, -1]}),
        "right": pa.table({"b": [1, None, 1], "c": ["x", "y", "z"]}),
    }
    plan = OuterJoin(left, right, LEFT, exp.NullSafeEQ(this=column("a"), expression=column("b")))
    found = Driver(lambda leaf: held[leaf.name], lambda _: None, TYPES).evaluated(plan)
    assert bag_of(found) == Counter([(1, 1, 1, "x"), (1, 1, 1, "z"), (2, 1, None, None), (None, -1, None, "y")])


def test_values_that_sql_equates_otherwise_are_left_to_spark() -> None:
    assert driver(pa.table({"a": [0.0], COUNT: [1]})).evaluated(ROWS) is None
    assert driver(pa.table({"a": [[1]], COUNT: [1]})).evaluated(ROWS) is None


def test_rows_of_unknown_types_are_joined_with_others() -> None:
    nothing = pa.table({"a": pa.array([], pa.null())})
    assert joined([nothing, pa.table({"b": pa.array([1, None], pa.int32())})]).schema.types == [pa.int32()]
