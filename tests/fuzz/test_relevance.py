"""Rows that a view's relevance conditions call irrelevant are inserted and deleted: no random view may change."""

from __future__ import annotations

import datetime
from collections import Counter
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from sqlglot import exp

from deferred.algebra.relevance import Dialect, Known, Relevance, relevance_of
from deferred.algebra.relevance.constants import kind_of, place
from deferred.algebra.relevance.logic import Logic
from deferred.algebra.strategy import support_tables
from deferred.errors import DeferredError
from deferred.sql.bind import Bound
from deferred.sql.dialect import parse_scalar
from tests.fuzz.case import BOOLEAN, COLUMNS, DATE, DECIMAL, DOMAINS, INT, NUMERAL, STRING, Row, random_schemas
from tests.fuzz.duck import CannotRun, Database
from tests.fuzz.expressions import Column, Expressions
from tests.fuzz.run import SHARED, case_of

SEEDS = range(2000, 2100)
ROWS = 2000
"""Rows per table of a view."""

WANTED = 100_000
"""Irrelevant rows that all views together must have been given."""

MORE: dict[str, list[Any]] = {
    INT: [-3, -1, 4, 5, 7, 100, -(10**6), 10**6],
    STRING: ["a", "X", "yx", "z", "ä", " ", "x "],
    DECIMAL: [Decimal("-0.01"), Decimal("1.49"), Decimal("99999999.99")],
    DATE: [datetime.date(2024, 1, 1), datetime.date(1999, 12, 31), datetime.date(2030, 6, 15)],
    BOOLEAN: [],
    NUMERAL: ["3", "-1", "10"],
}
"""Values that the tables of random views do not have: beyond their bounds, between them and beside them."""


class Tally:
    """What all views together have seen."""

    def __init__(self) -> None:
        self.irrelevant, self.relevant, self.sampled, self.missed = 0, 0, 0, 0


@pytest.fixture(scope="module")
def tally() -> Tally:
    return Tally()


@pytest.mark.slow
@pytest.mark.parametrize("first", SEEDS[::SHARED])
def test_irrelevant_rows_change_no_view(first: int, tally: Tally) -> None:
    db = Database(random_schemas(first // SHARED))
    for seed in range(first, first + SHARED):
        _check(db, seed, tally)
    db.close()


@pytest.mark.slow
def test_enough_rows_were_irrelevant(tally: Tally) -> None:
    """Runs after the others: of the rows that the conditions keep, the solver itself drops few more."""
    if not tally.irrelevant:
        pytest.skip("run the whole file")
    print(
        f"{tally.irrelevant} irrelevant rows, {tally.relevant} others; of {tally.sampled} of these, "
        f"{tally.missed} are irrelevant by the view's own condition"
    )
    assert tally.irrelevant >= WANTED
    assert tally.missed <= 0.02 * tally.sampled


def _check(db: Database, seed: int, tally: Tally) -> None:
    case, _ = case_of(seed)
    for name, rows in case.initial.items():
        db.replace(name, Counter(rows))
    try:
        db.query(case.query)
        bound = db.bind(case.query)
    except (DeferredError, CannotRun):
        return
    before = _everything(db, bound)
    random = Random(seed)
    for name, relevance in relevance_of(bound.plan, bound.types, Dialect(ansi=True)).items():
        if relevance.condition is None:
            continue
        pool = _pool(random, [type_ for _, type_ in case.schemas[name]])
        db.log(name, dict(Counter(pool)))
        db.drop_from_log(name, exp.Not(this=exp.Paren(this=_true_at_last(relevance.condition))))
        irrelevant = db.logged(name)
        tally.irrelevant += irrelevant.total()
        tally.relevant += ROWS - irrelevant.total()
        state = Counter(db.state[name])
        db.replace(name, state + irrelevant)
        try:
            assert _everything(db, bound) == before, f"seed {seed}, {name}: {relevance.condition}\n{case.query}"
        finally:
            db.replace(name, state)
        _count_missed(relevance, dict(case.schemas[name]), sorted(set(pool) - set(irrelevant), key=repr)[:8], tally)


@pytest.mark.slow
def test_the_solver_allows_what_conditions_are() -> None:
    """Random conditions on random rows: what DuckDB finds true or false, the solver must find possible.

    Prints how often it knows that there is no other possibility.
    """
    db = Database({"t": tuple(COLUMNS.items())})
    certain, checked = 0, 0
    for seed in range(120):
        expressions = Expressions(seed)
        sql = expressions.predicate([Column(name, type_) for name, type_ in COLUMNS.items()])
        logic = Logic(COLUMNS, Dialect(ansi=True))
        truth = logic.truth(parse_scalar(sql))
        for row in _pool(expressions.random, list(COLUMNS.values()))[:12]:
            db.replace("t", Counter([row]))
            try:
                ((value,),) = db.query(f"SELECT {sql} AS x FROM t")
            except CannotRun:  # a text that is no number
                continue
            known = [logic.known(n, _exactly(v, t)) for (n, t), v in zip(COLUMNS.items(), row, strict=True)]
            possible = [logic.satisfiable(formula, *known) for formula in truth]
            assert value is None or possible[not value], f"seed {seed}: {sql} is {value} for {row}"
            certain += possible == [value is True, value is False]
            checked += 1
    db.close()
    print(f"{checked} conditions on rows, {certain} of them known for certain")
    assert checked > 1000
    assert certain > 0.6 * checked


def _everything(db: Database, bound: Bound) -> list[Counter[Row]]:
    """The rows of a view and of its support tables."""
    return [db.evaluate(bound), *(db.rows_of(plan) for plan in support_tables(bound.plan).values())]


def _pool(random: Random, types: list[str]) -> list[Row]:
    return [tuple(random.choice(DOMAINS[t] + MORE[t]) for t in types) for _ in range(ROWS)]


def _true_at_last(condition: exp.Expr) -> exp.Expr:
    """A condition that is false where the given one is NULL."""
    return exp.Anonymous(this="coalesce", expressions=[condition.copy(), exp.false()])


def _count_missed(relevance: Relevance, types: dict[str, str], rows: list[Row], tally: Tally) -> None:
    """Compare with theorem 3.1 itself, C[t] unsatisfiable, on rows that the condition keeps."""
    decide = relevance.decider(types)
    for row in rows:
        tally.sampled += 1
        tally.missed += not decide({n: _exactly(v, t) for (n, t), v in zip(types.items(), row, strict=True)}, None)


def _exactly(value: Any, type_: str) -> Known:
    if value is None:
        return Known(has_values=False)
    kind = kind_of(type_)
    assert kind is not None
    found = place(value, kind)
    return Known(found, found, has_nulls=False)
