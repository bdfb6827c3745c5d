"""Spark's expressions after a round trip through the plan: the same values and types as the query itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from deferred.spark.engine import Engine, ddl
from deferred.sql.bind import bind
from deferred.sql.render import ReadableLeaves, Renderer
from deferred.sql.types import Types
from tests.engine.support import assert_fresh

EXPRESSIONS = (Path(__file__).parent.parent / "sql" / "expressions.txt").read_text(encoding="utf-8").splitlines()
TOGETHER = 30

ROWS = r"""VALUES
 (1, 2L, 'abc', 1.5D, 2.50BD, timestamp'2024-01-31 10:20:30', timestamp_ntz'2024-02-29 01:02:03', date'2024-03-31',
  true, array(3, 1, 2), map('k', 1, 'l', 2), named_struct('p', 1, 'q r', 'z'), x'4142', 7S, 'select'),
 (2, null, 'O''Brien\\x', double('nan'), -1.25BD, null, null, date'2023-12-31', false, array(), map(), null, null, null,
  '{"a": {"b": [1,2]}}'),
 (null, 5L, null, -0.0D, null, timestamp'1999-12-31 23:59:59', timestamp_ntz'2000-01-01 00:00:00', null, null, null,
  null, named_struct('p', null, 'q r', 'y'), x'', 3S, 'x,y;z')
 AS t(i, l, s, d, dec, ts, tn, dt, b, arr, m, st, bin, sm, js)"""


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return sorted((k, plain(v)) for k, v in value.items())
    return [plain(v) for v in value] if hasattr(value, "asDict") else value


def unparenthesised(seed: int, number: int) -> list[str]:
    """Random expressions whose meaning depends on how strongly their operators bind."""
    draw = random.Random(seed)
    operators = ("+", "-", "*", "%", "DIV", "&", "|", "^", "<<", ">>", "=", "<=", "<=>", "AND", "OR")

    def operand() -> str:
        return draw.choice(("", "", "", "-", "~")) + draw.choice(("i", "l", "sm", "3", "5"))

    found = []
    while len(found) < number:
        pieces = [operand()]
        for _ in range(draw.randint(2, 4)):
            pieces += [draw.choice(operators[:10]), operand()]
        comparison = [draw.choice(operators[10:13]), operand(), draw.choice(operators[13:]), "NOT b"]
        found.append(" ".join(pieces + (comparison if draw.random() < 0.3 else [])))
    return found


SEED = 7


@pytest.mark.parametrize("first", [*range(0, len(EXPRESSIONS), TOGETHER), "unparenthesised"])
def test_expressions_survive_the_way_through_the_plan(spark: Any, first: int | str) -> None:
    if isinstance(first, int):
        survive(spark, EXPRESSIONS[first : first + TOGETHER])
    else:
        print(f"seed {SEED}")
        survive(spark, unparenthesised(SEED, 60))


def survive(spark: Any, chosen: list[str]) -> None:
    engine = Engine(spark)
    with engine.operation() as own:  # its statements share a session, so they see its temporary view
        own.sql(f"SELECT * FROM {ROWS}").createOrReplaceTempView("expressions_t")
        schema = engine.columns("SELECT * FROM expressions_t")
        outputs = ", ".join(f"{expression} AS z{number}" for number, expression in enumerate(chosen))
        text = f"SELECT {outputs} FROM expressions_t AS t"
        bound = bind(text, lambda path: (path[-1], schema), Types(engine.columns))
        wanted, found = own.sql(text), own.sql(Renderer(ReadableLeaves()).render(bound.plan))
        for number, expression in enumerate(chosen):
            assert ddl(found.schema[number].dataType) == ddl(wanted.schema[number].dataType), expression
            assert bound.types[bound.plan.columns[number]] == ddl(wanted.schema[number].dataType), expression
        for left, right in zip(wanted.collect(), found.collect(), strict=True):
            for number, expression in enumerate(chosen):
                assert plain(left[number]) == plain(right[number]), expression


def test_collections_of_no_rows_are_empty(tables: Any) -> None:
    """SORT_ARRAY(COLLECT_LIST(…)) of no rows is [], and SIZE of it 0, in a correlated subquery too: never NULL."""
    wh = tables
    found = "FROM t WHERE t.a = r.a"
    wh.create_view(
        "v",
        f"SELECT r.a, (SELECT SORT_ARRAY(COLLECT_LIST(t.d)) {found}) AS l, (SELECT SIZE(COLLECT_SET(t.d)) {found}) AS n, "
        f"(SELECT SIZE(SORT_ARRAY(COLLECT_LIST(t.d))) + COUNT(*) {found}) AS m FROM r",
        refresh_policy="incremental_strict",
    )
    for statement in (
        "DELETE FROM t WHERE a = 1",
        "INSERT INTO r VALUES (7, 7, 'alone')",
        "INSERT INTO t VALUES (7, 1)",
    ):
        wh.sql(statement)
        wh.refresh("v")
        assert_fresh(wh, "v")
