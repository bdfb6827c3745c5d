"""Random views read in part: with a condition pushed down its plan, the change of the chosen rows is the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import duckdb
import pytest

from deferred.algebra.comparisons import holds_anywhere
from deferred.algebra.operators import Filter
from deferred.algebra.plan import Plan
from deferred.algebra.predicate_pushdown import selected
from deferred.algebra.scalar import Scalar, column, substitute
from deferred.errors import DeferredError
from deferred.sql.bind import Bound
from deferred.sql.dialect import parse_scalar, text
from tests.fuzz.case import DOMAINS, Case, random_schemas
from tests.fuzz.check import apply
from tests.fuzz.duck import CannotRun, Database, Row
from tests.fuzz.run import SHARED, case_of

GROUPS = range(5)


def condition(random: Random, bound: Bound) -> tuple[int, Any, Scalar] | None:
    """The place of an output column of a known type, the value that it is asked for, and that as a condition."""
    types = [bound.types[c] for c in bound.plan.columns]
    places = [i for i, type_ in enumerate(types) if type_ in ("int", "string")]
    if not places:
        return None
    place = random.choice(places)
    value = random.choice(DOMAINS[types[place]])
    asked = "x IS NULL" if value is None else f"x = {value!r}"
    return place, value, substitute(parse_scalar(asked), {"x": column(bound.plan.columns[place])})


def filters(plan: Plan) -> int:
    return sum(isinstance(node, Filter) for node in plan.walk())


def check(case: Case, random: Random, db: Database) -> bool | None:
    """Whether a condition could be pushed down the plan of a case; None where nothing could be checked."""
    for name, rows in case.initial.items():
        db.replace(name, Counter(rows))
    try:
        db.query(case.query)
        bound = db.bind(case.query)
    except (CannotRun, DeferredError, duckdb.Error):
        return None
    asked = condition(random, bound)
    if asked is None:
        return None
    place, value, wanted = asked
    assert holds_anywhere(wanted, bound.types)
    part = replace(bound, plan=selected(bound.plan, wanted, bound.types))
    db.keep(bound)
    for step in case.steps:
        changed = apply(db, step)
        few, whole = db.preview(part, changed), db.delta(bound, changed)

        def chosen(change: Counter[Row]) -> dict[Row, int]:
            return {row: n for row, n in change.items() if row[place] == value}

        assert chosen(few) == chosen(whole), f"seed {case.seed}: {case.query} WHERE {text(wanted)}, changed {changed}"
    return filters(part.plan) > filters(bound.plan)


@pytest.mark.slow
def test_a_condition_on_a_random_view() -> None:
    results: Counter[bool | None] = Counter()
    for group in GROUPS:
        db = Database(random_schemas(group))
        for seed in range(group * SHARED, (group + 1) * SHARED):
            results[check(case_of(seed)[0], Random(seed), db)] += 1
        db.close()
    checked = results[True] + results[False]
    print(f"{checked} views, a condition was pushed down the plans of {results[True]}")
    assert checked >= 75
    assert results[True] >= 0.25 * checked
