"""Queries that were once bound or maintained wrongly, each with the state that shows it."""

from __future__ import annotations

from collections import Counter

import pytest

from deferred.algebra.delta import differentiate
from deferred.algebra.operators import Aggregate, Join
from deferred.sql.render import ReadableLeaves, Renderer
from tests.fuzz.case import Case, Change
from tests.fuzz.check import check
from tests.fuzz.duck import Database, added

SCHEMAS = {"t": (("a", "int"), ("b", "int"), ("s", "string")), "u": (("b", "int"), ("c", "int"))}
INITIAL = {"t": ((1, 1, "x"), (1, 1, "y"), (2, None, "x"), (None, 3, None)), "u": ((1, 1), (1, 2), (3, None))}
STEPS = (
    {"t": Change(((1, 1, "x"),), ((3, 3, "y"), (2, 2, "x"))), "u": Change(((3, None),), ((2, 5),))},
    {"u": Change(((1, 1), (1, 2), (2, 5)), ())},
    {"t": Change(((1, 1, "y"), (2, None, "x")), ()), "u": Change((), ((None, 1),))},
)

QUERIES = {
    "named window": "SELECT a, SUM(b) OVER w AS n FROM t WINDOW w AS (PARTITION BY s ORDER BY a)",
    "named windows of a subquery": "SELECT a, COUNT(*) OVER w AS n, (SELECT MAX(m) FROM (SELECT SUM(c) OVER w AS m "
    "FROM u WINDOW w AS (PARTITION BY b))) AS m FROM t WINDOW w AS (PARTITION BY s)",
    "EXISTS over a set operation": "SELECT a FROM t WHERE EXISTS ((SELECT c FROM u WHERE u.b = t.b) INTERSECT "
    "(SELECT c FROM u WHERE u.c = t.a))",
    "IN (VALUES …)": "SELECT a FROM t WHERE a NOT IN (VALUES (1), (7))",
    "> ALL": "SELECT a FROM t WHERE a > ALL (SELECT c FROM u)",
    "NOT > ALL, correlated": "SELECT a FROM t WHERE NOT a > ALL (SELECT c FROM u WHERE u.b = t.b)",
    "<= ANY under OR": "SELECT a FROM t WHERE s = 'x' OR a <= ANY (SELECT c FROM u)",
    "LIMIT behind parentheses": "(SELECT a, b FROM t) ORDER BY a, b LIMIT 2",
    "subquery in ON": "WITH q AS (SELECT c FROM u) SELECT t.a, u.c FROM t JOIN u ON t.b = u.b AND u.c IN "
    "(SELECT c FROM q)",
    "full join without equality": "SELECT t.a, u.c FROM t FULL JOIN u ON t.a < u.c",
    "left join without equality": "SELECT t.a, u.c FROM t LEFT JOIN u ON t.a <> u.c AND t.b <> u.b",
    "NOT IN with NULLs": "SELECT a, s FROM t WHERE b NOT IN (SELECT c FROM u)",
    "last of its peers": "SELECT s, a, LAST_VALUE(a) OVER (PARTITION BY s ORDER BY a) AS n FROM t",
    "common table expression that nothing reads": "WITH unused AS (SELECT b, COUNT(*) AS n FROM u GROUP BY b ORDER BY n, b "
    "LIMIT 3) SELECT a, s FROM t",
    "the same aggregate of groups and of all groups": "SELECT s, COUNT(*) AS n, COUNT(*) OVER () AS groups, "
    "SUM(COUNT(*)) OVER () - COUNT(*) AS others, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM t GROUP BY s",
    "totals of constants": "SELECT MAX(CAST(0 AS DOUBLE)) AS m, MEDIAN(1) AS n FROM t WHERE b > 0",
    "subqueries inside aggregates": "SELECT s, SUM(CASE WHEN b NOT IN (SELECT c FROM u) THEN 1 ELSE 0 END) AS n, "
    "SUM((SELECT MAX(c) FROM u WHERE u.b = t.a)) AS m, (SELECT COUNT(*) FROM u) AS o FROM t GROUP BY s",
    "a subquery as a key of groups": "SELECT (SELECT MAX(c) FROM u WHERE u.b = t.a) AS k, COUNT(*) AS n FROM t "
    "GROUP BY k HAVING COUNT(*) > (SELECT MIN(c) FROM u)",
    "a subquery as a key of grouping sets": "SELECT EXISTS (SELECT 1 FROM u WHERE u.b = t.a) AS k, s, MAX(b) AS n FROM t "
    "GROUP BY GROUPING SETS ((1), (s), (1, s))",
    "IN over a key of groups": "SELECT a + 1 AS k, s, CASE WHEN a + 1 IN (SELECT b FROM u) THEN 1 END AS f, COUNT(*) AS n FROM t GROUP BY a + 1, s "
    "HAVING a + 1 IN (SELECT c FROM u) OR s IN (SELECT 'x' FROM u) OR COUNT(*) > 1",
    "IN over a key of grouping sets": "SELECT a, s, COUNT(*) AS n FROM t GROUP BY CUBE (a, s) HAVING a IN (SELECT b FROM u) "
    "OR GROUPING(a) = 1",
    "a total over subqueries": "SELECT COUNT(*) FILTER (WHERE EXISTS (SELECT 1 FROM u WHERE u.b = t.b AND u.c > t.a)) AS n, "
    "MAX(CASE WHEN a = (SELECT MAX(b) FROM u) THEN s END) AS s FROM t",
    "second row": "SELECT s, a, NTH_VALUE(a, 2) OVER (PARTITION BY s ORDER BY a) AS n FROM t",
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_view_follows_its_query(name: str) -> None:
    check(Case(SCHEMAS, QUERIES[name], INITIAL, STEPS))


@pytest.mark.parametrize("condition", ["q.k * 2 = u.b", "5 - q.k = u.b - 1", "-q.k = u.b - 6"])
def test_a_condition_on_a_computed_column_keeps_its_precedence(condition: str) -> None:
    """k = a + b: k * 2 is (a + b) * 2 where keys of u restrict the rows of t, and not a + b * 2."""
    query = f"SELECT q.k, u.c FROM (SELECT DISTINCT a + b AS k FROM t) q JOIN u ON {condition}"
    steps = ({"u": Change((), ((4, 9), (3, 8)))}, {"u": Change(((4, 9),), ())}, {"t": Change((), ((0, 2, "x"),))})
    check(Case(SCHEMAS, query, {"t": ((1, 1, "x"), (2, 0, "y")), "u": ()}, steps))


def test_equality_between_types_is_not_transitive() -> None:
    """'01' = 1 and 1 = '1', yet '01' <> '1': keys of one column say nothing about the other."""
    schemas = {"t": (("x", "string"),), "u": (("i", "int"),), "w": (("y", "string"),)}
    check(
        Case(
            schemas,
            "SELECT x, COUNT(DISTINCT y) AS n FROM t, u, w WHERE x = i AND i = y GROUP BY x",
            {"t": (("01",), ("1",)), "u": ((1,),), "w": (("1",),)},
            ({"w": Change((), (("001",),))}, {"t": Change((("01",),), ())}, {"u": Change(((1,),), ())}),
        )
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t.i, (SELECT COUNT(*) FROM u WHERE u.s = t.i) AS n FROM t",
        "SELECT t.i, (SELECT MAX(u.i) FROM u WHERE t.i = u.s) AS n FROM t",
        "SELECT t.i FROM t WHERE t.i > (SELECT MIN(u.i) FROM u WHERE t.i = u.s)",
    ],
)
def test_a_row_meets_several_values_of_another_type(query: str) -> None:
    """'1' and '01' are both 1: grouped by the text they would be two groups, and the row would come twice."""
    schemas = {"t": (("i", "int"),), "u": (("s", "string"), ("i", "int"))}
    steps = ({"u": Change((("1", 1),), (("002", 2),))}, {"t": Change(((1,),), ((2,),))})
    check(Case(schemas, query, {"t": ((1,), (1,), (None,)), "u": (("1", 1), ("01", 0), (None, 5))}, steps))


NULLS = (
    {"t": Change(((1, 1, "x"),), ((3, 3, "y"), (2, 2, "x")))},
    {"u": Change(((3, None),), ((2, 5),))},
    {"u": Change((), ((5, None), (None, None)))},
    {"u": Change(((1, 1), (1, 2), (2, 5), (5, None), (None, None)), ())},
)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t.a, u.c FROM t LEFT JOIN u ON t.b = u.b AND t.a IN (SELECT c FROM u)",
        "SELECT t.a, u.c FROM t FULL JOIN u ON t.b = u.b AND u.c NOT IN (SELECT a FROM t)",
        "SELECT t.a, u.c FROM t LEFT JOIN u ON t.b = u.b AND (u.c + 1 NOT IN (SELECT a FROM t WHERE b > 1) OR t.a = 2)",
        "SELECT a FROM t WHERE a IN (SELECT c FROM u) OR s = 'y'",
        "SELECT a, CASE WHEN a NOT IN (SELECT c FROM u) THEN 'out' WHEN a IN (SELECT b FROM u) THEN 'in' END AS w FROM t",
    ],
)
def test_a_value_is_found_in_a_subquery_by_an_equality(query: str) -> None:
    """IN as a value compared every row with every other: 20,000 rows with 20,000 did not end."""
    check(Case(SCHEMAS, query, INITIAL, NULLS))
    database = Database(SCHEMAS)
    plan = database.bind(query).plan
    for join in (node for node in plan.walk() if isinstance(node, Join) and node.condition is None):
        totals = [node for node in join.inputs if isinstance(node, Aggregate) and not node.keys]
        assert len(totals) >= len(join.inputs) - 1, "every row meets every other"
    database.close()


def test_a_number_is_found_once_among_texts() -> None:
    """1 IN ('1', '01') meets both and comes once. DuckDB cannot compare these by IN, so the rows are given here."""
    database = Database({"t": (("i", "int"),), "u": (("s", "string"),)})
    database.replace("t", Counter({(1,): 2, (2,): 1, (9,): 1}))
    database.replace("u", Counter({("1",): 1, ("01",): 1}))
    bound = database.bind("SELECT i FROM t WHERE i IN (SELECT s FROM u) OR i > 5")
    shown = database.evaluate(bound)
    assert shown == Counter({(1,): 2, (9,): 1})
    database.keep(bound)
    for change, expected in ((-1, {(1,): 2, (9,): 1}), (-1, {(9,): 1}), (1, {(1,): 2, (9,): 1})):
        text = ("01",) if database.state["u"][("01",)] else ("1",)
        database.log("u", {text: change})
        database.replace("u", Counter({row: n + (row == text) * change for row, n in database.state["u"].items()}))
        shown = added(shown, database.delta(bound, ["u"]))
        assert shown == database.evaluate(bound) == Counter(expected)
    database.close()


def test_a_value_that_came_and_went_between_two_tables_is_no_maximum() -> None:
    """u's row is exchanged while t's first row arrives: t's change meets the old row, u's takes it away again."""
    check(
        Case(
            SCHEMAS,
            "SELECT t.a, MAX(u.c) AS most, MIN(u.c) AS least FROM t JOIN u ON t.b = u.b GROUP BY t.a",
            {"t": (), "u": ((1, 5),)},
            ({"t": Change((), ((1, 1, "x"),)), "u": Change(((1, 5),), ((1, 2),))},),
        )
    )


def test_a_value_is_shown_to_all_peers_of_its_row() -> None:
    """Rows that ORDER BY leaves equal share a frame: both see the second row, and the last."""
    database = Database({"t": (("o", "int"), ("x", "int"))})
    database.replace("t", Counter([(1, 5), (1, 7), (2, None)]))
    for query, expected in {
        "SELECT o, x, NTH_VALUE(x, 2) OVER (ORDER BY o) AS n FROM t": {(1, 5, 7), (1, 7, 7), (2, None, 7)},
        "SELECT o, x, LAST_VALUE(x) OVER (ORDER BY o) AS n FROM t": {(1, 5, 7), (1, 7, 7), (2, None, None)},
        "SELECT o, x, LAST_VALUE(x) IGNORE NULLS OVER (ORDER BY o) AS n FROM t": {(1, 5, 7), (1, 7, 7), (2, None, 7)},
        "SELECT o, x, FIRST_VALUE(x) IGNORE NULLS OVER (ORDER BY o DESC) AS n FROM t": {
            (1, 5, 5),
            (1, 7, 5),
            (2, None, None),
        },
    }.items():
        assert set(database.evaluate(database.bind(query))) == expected, query
    database.close()


WRITTEN_OUT = {
    "SELECT a, s, COUNT(*) AS n FROM t GROUP BY a, s WITH ROLLUP": "SELECT a, s, COUNT(*) AS n FROM t GROUP BY ROLLUP (a, s)",
    "SELECT a, s, GROUPING_ID(a, s) AS g, COUNT(*) AS n FROM t GROUP BY a, s WITH CUBE": "SELECT a, s, GROUPING_ID(a, s) AS g, COUNT(*) AS n FROM t GROUP BY CUBE (a, s)",
    "SELECT * FROM t PIVOT (SUM(b) AS n, MAX(b) AS m FOR s IN ('x' AS ex, 'y'))": "SELECT a, SUM(b) FILTER (WHERE s = 'x') AS ex_n, MAX(b) FILTER (WHERE s = 'x') AS ex_m, "
    "SUM(b) FILTER (WHERE s = 'y') AS y_n, MAX(b) FILTER (WHERE s = 'y') AS y_m FROM t GROUP BY a",
    "SELECT p.x, p.a FROM t PIVOT (COUNT(b) FOR s IN ('x')) p": "SELECT CASE WHEN COUNT(*) FILTER (WHERE s = 'x') > 0 THEN COUNT(b) FILTER (WHERE s = 'x') END AS x, a "
    "FROM t GROUP BY a",
    "SELECT * FROM t UNPIVOT (v FOR k IN (a, b AS 'bb'))": "SELECT s, 'a' AS k, a AS v FROM t WHERE a IS NOT NULL UNION ALL SELECT s, 'bb', b FROM t WHERE b IS NOT NULL",
    "SELECT * FROM t UNPIVOT INCLUDE NULLS ((v, w) FOR k IN ((a, b)))": "SELECT s, 'a_b' AS k, a AS v, b AS w FROM t",
}


@pytest.mark.parametrize("query", WRITTEN_OUT)
def test_a_construct_equals_the_query_that_defines_it(query: str) -> None:
    """Through changes as well: DuckDB has no such words or means others by them, so the meaning is written out."""
    database = Database(SCHEMAS)
    for name, rows in INITIAL.items():
        database.replace(name, Counter(rows))
    bound, meant = database.bind(query), database.bind(WRITTEN_OUT[query])
    assert bound.names == meant.names
    shown = database.evaluate(bound)
    assert shown == database.evaluate(meant)
    database.keep(bound)
    for step in STEPS:
        change = step.get("t")
        if change is not None:
            state = database.state["t"]
            new = state - Counter(change.deleted) + Counter(change.inserted)
            database.log("t", {row: new[row] - state[row] for row in {*state, *new}})
            database.replace("t", new)
            shown = added(shown, database.delta(bound, ["t"]))
            assert shown == database.evaluate(meant)
    database.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT a FROM t",
        "SELECT a FROM t UNION SELECT b FROM u",
        "SELECT a FROM t EXCEPT SELECT b FROM u",
        "SELECT a FROM t EXCEPT ALL SELECT b FROM u",
        "SELECT a FROM t INTERSECT SELECT b FROM u",
        "SELECT a FROM t INTERSECT ALL SELECT b FROM u",
        "SELECT a, COUNT(*) AS n, SUM(b) AS m FROM t GROUP BY a",
        "SELECT a FROM t WHERE a NOT IN (SELECT b FROM u)",
        "SELECT t.a, COUNT(u.b) AS n FROM t LEFT JOIN u ON t.b = u.b GROUP BY t.a",
    ],
)
def test_copies_stay_counts(query: str) -> None:
    """One row inserted beside 60 million equal ones took minutes: its copies were written out one by one."""
    database = Database(SCHEMAS)
    bound = database.bind(query)
    database.close()
    renderer = Renderer(ReadableLeaves())
    for changed in ({"t"}, {"t", "u"}):
        for plan in differentiate(bound.plan, frozenset(changed), bound.types).plans:
            assert "EXPLODE(" not in renderer.render(plan)
