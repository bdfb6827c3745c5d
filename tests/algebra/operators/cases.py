"""What is tested of every operator that a query can contain: a file lists an operator's views, and what is said of them.

The tables are small, and their changes telling: duplicates, NULL keys, a row deleted and inserted again, the last row of
a group, a tie, an empty table. Expected is always a recomputation, by DuckDB or by the reference evaluator.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import pytest
from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.delta import differentiate
from deferred.algebra.notation import Labels, notation
from deferred.algebra.operators import Project, Restrict, Scan
from deferred.algebra.operators.project import pick
from deferred.algebra.operators.recursion import rounds_before
from deferred.algebra.operators.scan import scans_of
from deferred.algebra.paper.evaluate import Bag, Table, evaluate
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.program import run
from deferred.algebra.prune import prune
from deferred.algebra.scalar import Scalar, column
from tests.fuzz import on_evaluator
from tests.fuzz.case import DOMAINS, INT, Case, Change, Row
from tests.fuzz.check import check
from tests.fuzz.duck import Database
from tests.fuzz.history import Histories

SCHEMAS = {"t": (("a", INT), ("b", INT)), "u": (("b", INT), ("c", INT))}
ROWS: dict[str, tuple[Row, ...]] = {
    "t": ((1, 1), (1, 1), (1, 2), (2, 2), (None, 3), (3, None)),
    "u": ((1, 1), (1, 1), (2, 0), (None, 3), (3, None)),
}
EVERY_ROW = tuple(product(DOMAINS[INT], repeat=2)) * 5

TELLING: dict[str, dict[str, Change]] = {
    "one duplicate less, another more; a row is deleted and inserted again": {
        "t": Change(((1, 1), (1, 2)), ((2, 2), (1, 2))),
        "u": Change(((1, 1), (2, 0)), ((2, 0),)),
    },
    "NULL keys come and go": {"t": Change((), ((None, 1), (3, None))), "u": Change(((None, 3),), ((None, 2),))},
    "the last row of a group": {"t": Change(((3, None), (3, None)), ()), "u": Change(((3, None),), ())},
    "a tie, and a row that was first": {"t": Change(((None, 1),), ((0, 1), (0, 1))), "u": Change((), ((2, 1),))},
    "one table": {"u": Change(((1, 1),), ((0, 3), (3, 3)))},
    "a table is emptied": {"t": Change(EVERY_ROW, ())},
    "and filled again, while the other is emptied": {"t": Change((), ROWS["t"]), "u": Change(EVERY_ROW, ())},
}
RANDOM = 2
"""How many random changes come after them."""

STATE = on_evaluator.tables(SCHEMAS, ROWS)
"""The rows for the reference evaluator."""


LOGS = {"t": Table(("a", "b"), Counter({(1, 1): -1, (2, 2): 1, (None, 3): 1, (0, 0): -2}))}
"""A net log that leads to these rows."""


@functools.cache
def database() -> Database:
    """One database for all cases: a case replaces the rows."""
    return Database(SCHEMAS)


@functools.cache
def bound(query: str) -> Plan:
    return database().bind(query).plan


# ---- a plan against its recomputation


def follows(query: str) -> None:
    """The view's old rows and each delta are its recomputed rows, and its support tables hold what they should."""
    check(Case(SCHEMAS, query, ROWS, (*TELLING.values(), *_random_steps())), database())


@functools.cache
def _random_steps() -> tuple[dict[str, Change], ...]:
    """Random changes of what the telling ones leave."""
    random = Histories(0, schemas=SCHEMAS)
    state = {"t": Counter(ROWS["t"]), "u": Counter[Row]()}
    steps = []
    for _ in range(RANDOM):
        steps.append(random.step(state))
        for name, change in steps[-1].items():
            state[name] = state[name] - Counter(change.deleted) + Counter(change.inserted)
    return tuple(steps)


def follows_on_reference(plan: Plan) -> None:
    """The same on the reference evaluator, for what an engine decides otherwise or cannot run."""
    on_evaluator.follows(plan, plan, STATE, TELLING.values())


def same_on_duckdb(plan: Plan, **tables: Table) -> Bag:
    """The rows of a plan, on which the engine and the reference agree; `tables` are temporary results, or support."""
    db = database()
    for name, rows in ROWS.items():
        db.replace(name, Counter(rows))
    for name, log in LOGS.items():
        db.log(name, log.rows)
    for name, (columns, rows) in tables.items():
        listed = bags.union_all([_one_row(columns, row) for row in rows.elements()])
        db.connection.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS {listed.sql("duckdb")}')
    temporaries = {name: table.rows for name, table in tables.items()}
    run(rounds_before(plan), db)
    reference = evaluate(plan, STATE, LOGS, temporaries, tables)
    found = Counter(db.connection.execute(db.renderer.render(plan)).fetchall())
    for name in tables:
        db.connection.execute(f'DROP TABLE "{name}"')
    assert found == reference
    return reference


def _one_row(columns: Sequence[str], row: Row) -> exp.Query:
    values = [exp.cast(exp.convert(value), "int") for value in row]
    return exp.Select(expressions=[bags.alias(value, name) for value, name in zip(values, columns, strict=True)])


def scanned(query: str, changed: str, asked: bool = True) -> set[str]:
    """The base tables that a delta reads beside the changes; without those of steps that wait for another one."""
    bound = database().bind(query)
    program = differentiate(bound.plan, {changed}, bound.types)
    assert program.result is not None
    plans = [step.plan for step in program.steps if asked or step.when is None]
    return {scan.table for plan in (*plans, program.result) for scan in scans_of(plan)}


# ---- keys and columns of a node


def keys_on(values: Sequence[Scalar]) -> Keys:
    """Keys that pair values of a node with the columns of a table K."""
    names = tuple(f"k{i}" for i in range(len(values)))
    return Keys(Scan("K", names, names), tuple(zip(values, map(column, names), strict=True)))


def key_sets(plan: Plan) -> Iterator[tuple[Keys, Table]]:
    """Keys on each column, on all of them, and on a computed value, with and without the others.

    K has NULL, a value that the node does not have, and every other one of those that it has.
    """
    columns = tuple(map(column, plan.columns))
    computed: Scalar = exp.Add(this=columns[0].copy(), expression=columns[-1].copy())
    for values in (*((c,) for c in columns), columns, (computed,), (*columns, computed)):
        found = sorted(evaluate(Project(plan, tuple((f"v{i}", v) for i, v in enumerate(values))), STATE), key=repr)
        keys = keys_on(values)
        yield keys, Table(keys.plan.columns, Counter([*found[::2], (None,) * len(values), (9,) * len(values)]))


def restricts_exactly(node: Plan) -> None:
    """E.restricted(K) ≡ E ⋉ K."""
    for keys, table in key_sets(node):
        state = {**STATE, "K": table}
        assert evaluate(node.restricted(keys), state) == evaluate(Restrict(node, keys), state)


def named(plan: Plan, labels: Labels, names: str) -> tuple[str, ...]:
    """Columns of a node by what a person calls them."""
    by_label = {labels.column(c): c for c in plan.columns}
    return tuple(by_label[name] for name in names.split(" & "))


class OperatorCases:
    """The tests of one operator, as tables. They are keyed by the name of a view, some also by columns of its node."""

    operator: ClassVar[type[Plan]]
    views: ClassVar[Mapping[str, str]]
    """Name → SQL; the operator is in the plan of each."""
    correlated: ClassVar[Mapping[str, str]] = {}
    """Name → SQL with the operator in a subquery that is unnested."""
    notation: ClassVar[Mapping[str, str]]
    """View → the paper's notation."""
    reads: ClassVar[Mapping[str, str]]
    """View → the node's strategy, and what a change makes it read."""
    pushed: ClassVar[Mapping[tuple[str, str], str]]
    """View, key columns → the node restricted to K."""
    pruned: ClassVar[Mapping[tuple[str, str], str]]
    """View, columns that are asked for → what the tables are read for."""
    unique_keys: ClassVar[Mapping[str, str | None]]
    """View → the columns that no two rows of its node share."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Each test has one argument, the key of one of the tables: `in_notation` is a key of `notation`."""
        for argument in metafunc.fixturenames:
            if argument.startswith("in_"):
                table = getattr(self, argument.removeprefix("in_"))
                metafunc.parametrize(argument, [pytest.param(key, id=_text(key)) for key in table])

    def __init_subclass__(cls) -> None:
        """An operator that cannot be in a correlated subquery has no test of it."""
        if not cls.correlated:
            cls.test_it_is_unnested = None  # type: ignore[assignment]

    def node(self, view: str) -> tuple[Plan, Labels]:
        """The operator's topmost node in a view, and what its columns are called."""
        plan = bound(self.views[view])
        return next(node for node in plan.walk() if isinstance(node, self.operator)), Labels(plan)

    # ---- the tests

    def test_it_follows_changes(self, in_views: str) -> None:
        self.node(in_views)
        follows(self.views[in_views])

    def test_it_is_unnested(self, in_correlated: str, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []
        rule = self.operator.unnested
        monkeypatch.setattr(self.operator, "unnested", lambda node, u: asked.append(node) or rule(node, u))
        follows(self.correlated[in_correlated])
        assert asked

    def test_the_reference_has_the_rows_of_the_engine(self, in_views: str) -> None:
        same_on_duckdb(bound(self.views[in_views]))

    def test_pushed_keys_restrict_exactly(self, in_views: str) -> None:
        restricts_exactly(self.node(in_views)[0])

    def test_pruned_it_has_the_same_values(self, in_views: str) -> None:
        node, _ = self.node(in_views)
        for c in node.columns:
            asked = pick(node, [c])
            assert evaluate(prune(asked), STATE) == evaluate(asked, STATE)

    def test_it_is_written(self, in_notation: str) -> None:
        assert notation(bound(self.views[in_notation])) == self.notation[in_notation]

    def test_what_it_reads(self, in_reads: str) -> None:
        node, labels = self.node(in_reads)
        assert f"{node.strategy.name}: {node.reads(labels)}" == self.reads[in_reads]

    def test_how_far_keys_go_down(self, in_pushed: tuple[str, str]) -> None:
        view, names = in_pushed
        node, labels = self.node(view)
        keys = keys_on([column(c) for c in named(node, labels, names)])
        assert notation(node.restricted(keys)) == self.pushed[in_pushed]

    def test_which_columns_are_needed(self, in_pruned: tuple[str, str]) -> None:
        view, names = in_pruned
        node, labels = self.node(view)
        scans = scans_of(prune(pick(node, named(node, labels, names))))
        assert ", ".join(f"{scan.table}({', '.join(scan.names)})" for scan in scans) == self.pruned[in_pruned]

    def test_no_two_rows_share_a_key(self, in_unique_keys: str) -> None:
        node, labels = self.node(in_unique_keys)
        key = node.unique_key
        assert (None if key is None else labels.columns(key)) == self.unique_keys[in_unique_keys]
        if key:
            rows = evaluate(pick(node, key), STATE)
            assert rows
            assert set(rows.values()) == {1}


def _text(key: str | tuple[str, str]) -> str:
    return key if isinstance(key, str) else " at ".join(key)
