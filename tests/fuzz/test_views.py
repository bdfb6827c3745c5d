"""Hundreds of random views, each kept up to date through random changes, against recomputation."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.window_functions import REGISTRY
from tests.fuzz.aggregates import ARGUMENTS, calls, exact
from tests.fuzz.case import FAMILIES, Case, Change
from tests.fuzz.check import Failure, check, report, script, shrink, smaller_queries
from tests.fuzz.run import SHARED, Result, case_of, run
from tests.fuzz.spark_generator import CONSTRUCTS, spark_case_of

SEEDS = range(700)
PART = 100
"""Seeds a test: a few tests, so that one failure does not hide the others, and workers can share the load."""


@pytest.fixture(scope="module")
def seen() -> Result:
    """What all parts together have seen."""
    return Result()


@pytest.fixture(scope="module")
def occurring() -> Counter[str]:
    """How often each construct occurs in the views of all seeds."""
    return sum((case_of(seed)[1] for seed in SEEDS), start=Counter())


@pytest.mark.slow
@pytest.mark.parametrize("first", SEEDS[::PART])
def test_views_equal_their_recomputation(first: int, seen: Result) -> None:
    seeds = SEEDS[first : first + PART]
    for case, failure in run(seeds, seen):
        if failure is not None:
            pytest.fail(report(case, failure))
    print(
        f"seeds {seeds[0]} to {seeds[-1]}: {seen.checked} views so far, {seen.refused} refused, "
        f"{seen.skipped} that DuckDB cannot run"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_construct_occurs(family: str, occurring: Counter[str]) -> None:
    for construct in FAMILIES[family]:
        print(f"{occurring[construct]:6} × {construct}")
        assert occurring[construct] > 0, f"the generator has lost {construct}"


def test_every_construct_of_spark_occurs() -> None:
    occurring = sum((spark_case_of(seed)[1] for seed in range(250)), start=Counter[str]())
    assert [construct for construct in CONSTRUCTS if not occurring[construct]] == []


def test_every_window_function_has_its_place_in_random_views() -> None:
    assert {function.names[0] for function in REGISTRY.values()} <= set(FAMILIES["windows"])


def test_every_exact_aggregate_has_its_place_in_random_views() -> None:
    assert exact() == ARGUMENTS.keys()
    drawn = {name for found in calls().values() for name, _ in found}
    assert drawn <= set(FAMILIES["aggregates"])


def test_nearly_all_views_are_checked() -> None:
    """A generator of views that are refused would check nothing."""
    result = Result()
    assert all(failure is None for _, failure in run(range(SHARED), result))
    assert result.checked >= 0.95 * SHARED, result.reasons


def test_the_same_seed_gives_the_same_case() -> None:
    assert case_of(7)[0] == case_of(7)[0]


WRONG = Case(
    schemas={"t": (("a", "int"), ("b", "int")), "u": (("a", "int"),)},
    query="SELECT t1.a AS x, t1.b AS y FROM t AS t1 WHERE (t1.a > 0) AND (t1.b IS NULL OR EXISTS (SELECT 1 FROM u))",
    initial={"t": ((1, 1), (2, None), (2, 2)), "u": ((1,),)},
    steps=({"t": Change(((1, 1),), ((3, 3),))}, {"u": Change(((1,),), ())}),
)


def test_a_broken_rule_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a broken delta rule, a filter that forgets deletions, the shrinker leaves one row, one step, one table."""
    from deferred.algebra.bags import COUNT, bigint
    from deferred.algebra.operators import Filter, Scan
    from deferred.algebra.scalar import column

    def forgetful(self, d):  # type: ignore[no-untyped-def]
        from sqlglot import exp

        from deferred.algebra.operators import Change as Log

        if self.table not in d.changed:
            return None
        return Filter(Log(self.table, self.names, self.ids), exp.GT(this=column(COUNT), expression=bigint(0)))

    monkeypatch.setattr(Scan, "delta", forgetful)
    with pytest.raises(Failure) as caught:
        check(WRONG)
    small = shrink(WRONG, caught.value.kind, seconds=30)
    assert len(small.steps) == 1
    assert sum(len(c.deleted) + len(c.inserted) for c in small.steps[0].values()) == 1
    assert len(small.query) < len(WRONG.query)
    program = script(small, caught.value)
    monkeypatch.undo()
    exec(compile(program, "small", "exec"), {})  # with the rule back, the script finds nothing


def test_smaller_queries_are_smaller() -> None:
    sql = "SELECT a, b FROM t JOIN u ON t.a = u.a WHERE a = 1 AND b = 2 GROUP BY a HAVING b > 1 ORDER BY a LIMIT 3"
    found = list(smaller_queries(sql))
    assert len(found) > 10
    assert all(len(smaller) < len(sql) for smaller in found)
