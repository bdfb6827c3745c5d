"""Queries that a view may not have: refused by the text alone, with what is wrong and what to write instead."""

from __future__ import annotations

import pytest

from deferred.errors import (
    DeferredError,
    InvalidSQLError,
    NondeterministicSQLError,
    UnknownObjectError,
    UnsupportedSQLError,
)
from deferred.sql.clock import refuse_moments_beside
from deferred.sql.dialect import LONGEST, parse_scalar, parse_statement
from deferred.sql.pin import pinned, with_fresh_views
from deferred.sql.refusing import refuse_what_varies
from tests.algebra.operators.cases import database
from tests.fuzz.duck import Database

# the query: the error, and words of its message
REFUSED: dict[str, tuple[type[DeferredError], str]] = {
    # names
    "SELECT nope FROM t": (UnknownObjectError, "have no column nope"),
    "SELECT x.* FROM t": (UnknownObjectError, "FROM has no table x"),
    "SELECT b FROM t, u": (InvalidSQLError, "ambiguous: it is in t and u. Write it with its table, as in t.b"),
    "SELECT x.b FROM t AS x JOIN u AS x ON x.a = 1": (
        InvalidSQLError,
        "x.b is ambiguous: x stands for more than one column of that name. Give every table of FROM an alias of its own",
    ),
    "SELECT q.a FROM (SELECT a, b AS a FROM t) AS q": (InvalidSQLError, "and every column of q a name"),
    "WITH q AS (SELECT 1 AS a), q AS (SELECT 2 AS a) SELECT a FROM q": (InvalidSQLError, "WITH defines q twice"),
    "TABLE ONLY t": (InvalidSQLError, "does not parse"),
    "SELECT a AS x, b AS x FROM t ORDER BY x LIMIT 1": (UnsupportedSQLError, "ORDER BY x is ambiguous"),
    "SELECT * EXCEPT (nope) FROM t": (UnknownObjectError, r"\* EXCEPT \(nope\): no such column"),
    "SELECT x.a FROM t AS x(a)": (InvalidSQLError, "x lists 1 column names for 2 columns"),
    "SELECT a FROM t JOIN u USING (a)": (UnknownObjectError, r"USING \(a\): both sides"),
    # numbers of columns
    "SELECT a FROM t UNION ALL SELECT b, c FROM u": (InvalidSQLError, "UNION"),
    "SELECT a FROM t WHERE (a, b) IN (SELECT b FROM u)": (
        InvalidSQLError,
        "2 values are compared with a subquery of 1 col",
    ),
    "SELECT a FROM t WHERE a > (SELECT b, c FROM u)": (InvalidSQLError, "one column"),
    "SELECT a FROM t WHERE a > ALL (SELECT b, c FROM u)": (
        InvalidSQLError,
        "1 values are compared with a subquery of 2",
    ),
    "SELECT * FROM VALUES (1, 2), (3)": (InvalidSQLError, "different numbers of columns"),
    # ordinals
    "SELECT a, COUNT(*) AS n FROM t GROUP BY 3": (InvalidSQLError, "GROUP BY 3: SELECT has 2 columns"),
    "SELECT a FROM t ORDER BY 2 LIMIT 1": (InvalidSQLError, "ORDER BY 2: the result has 1 columns"),
    "SELECT a FROM t ORDER BY a LIMIT 1 + 1": (UnsupportedSQLError, "LIMIT must be a plain number"),
    # aggregates
    "SELECT COUNT(*) AS n FROM t GROUP BY SUM(a)": (InvalidSQLError, "GROUP BY"),
    "SELECT SUM(MAX(a)) AS n FROM t": (InvalidSQLError, r"An aggregate may not contain another one: SUM\(MAX\(a\)\)"),
    "SELECT a FROM t WHERE SUM(a) > 1": (InvalidSQLError, r"SUM\(a\) is an aggregate and is not allowed in WHERE"),
    "SELECT GROUPING(a) AS g FROM t GROUP BY a": (InvalidSQLError, r"GROUPING\(a\) needs GROUPING SETS"),
    "SELECT GROUPING(b) AS g, a FROM t GROUP BY ROLLUP (a)": (
        InvalidSQLError,
        r"GROUPING\(b\) names b, which is not in GROUP BY",
    ),
    "SELECT COLLECT_LIST(a) AS l FROM t": (NondeterministicSQLError, r"Write sort_array\(COLLECT_LIST\(a\)\)"),
    "SELECT LISTAGG(a) AS l FROM t": (NondeterministicSQLError, r"needs WITHIN GROUP \(ORDER BY …\)"),
    # windows and generators
    "SELECT a FROM t WHERE RANK() OVER (ORDER BY a) = 1": (InvalidSQLError, "not allowed in WHERE"),
    "SELECT ROW_NUMBER() AS n FROM t": (UnsupportedSQLError, r"ROW_NUMBER\(\) needs OVER \(…\)"),
    "SELECT COUNT(*) AS n FROM t GROUP BY SESSION_WINDOW(a, '1 hour'), b": (
        UnsupportedSQLError,
        r"not supported in GROUP BY of a view. For windows of time write GROUP BY window\(t, '1 hour'\)",
    ),
    "SELECT a FROM t WHERE window(a, '1 hour') IS NULL": (UnsupportedSQLError, "not supported in WHERE"),
    "SELECT COUNT(*) AS n FROM t GROUP BY window(a, '1 month')": (
        InvalidSQLError,
        "1 month is not a duration in weeks",
    ),
    "SELECT COUNT(*) AS n FROM t GROUP BY window(a, '1 hour', '2 hours')": (InvalidSQLError, "at most the duration"),
    "SELECT window(a, '1 hour') AS w FROM t GROUP BY window(a, '2 hours')": (
        InvalidSQLError,
        "one window of time only",
    ),
    "SELECT COUNT(*) AS n FROM t GROUP BY window(a)": (InvalidSQLError, "needs a time and a duration"),
    "SELECT a.* FROM t": (UnknownObjectError, "FROM has no table a"),
    "SELECT a + EXPLODE(ARRAY(1)) AS x FROM t": (UnsupportedSQLError, "A generator inside an expression"),
    "SELECT id FROM RANGE(1, 9, 0)": (InvalidSQLError, "must not be zero"),
    "SELECT id FROM RANGE(1 + 1)": (UnsupportedSQLError, "only plain numbers"),
    # clauses
    "SELECT DISTINCT ON (a) a, b FROM t": (UnsupportedSQLError, "DISTINCT ON"),
    "SELECT * REPLACE (1 AS a) FROM t": (UnsupportedSQLError, r"\* REPLACE is not supported"),
    "SELECT a FROM t TABLESAMPLE (10 PERCENT)": (NondeterministicSQLError, "takes other rows each time"),
    "SELECT a FROM t ASOF JOIN u ON t.b = u.b": (UnsupportedSQLError, "ASOF JOIN is not supported"),
    "SELECT a FROM t WHERE a = :x": (InvalidSQLError, "A view has no parameters"),
    "SELECT a, COUNT(*) AS n FROM t GROUP BY a, (SELECT 1)": (UnsupportedSQLError, "A subquery in GROUP BY"),
}


MOMENTS = [
    "DATE 'today'",
    "TIMESTAMP ' Now'",
    "TIMESTAMP 'now CET'",
    "TIMESTAMP_NTZ 'tomorrow'",
    "TIMESTAMP '12:30'",
    "CAST('yesterday' AS DATE)",
    "CAST(('T01:02:03') AS TIMESTAMP)",
    "'today'::DATE",
    "TRY_CAST('now' AS TIMESTAMP_LTZ)",
    "`Date`('today')",
    "to_date('today')",
    "try_to_timestamp('now')",
    "DATEDIFF(d, 'today')",
    "YEAR('now')",
    "d > 'today'",
    "'now' = d",
    "d BETWEEN '2020-01-01' AND ('tomorrow')",
    "d IN ('2020-01-01', 'today')",
    "COALESCE(d, 'today')",
    "CASE WHEN a = 1 THEN d ELSE 'today' END",
    "IF(a = 1, 'today', d)",
]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("query", ["SELECT {e} AS x FROM r", "SELECT a FROM r WHERE a = 1 AND ({e}) IS NOT NULL"])
def test_a_text_that_means_the_moment_is_refused(query: str, moment: str) -> None:
    """Spark reads 'today' as the day on which it runs wherever it casts a constant text to a date."""
    with pytest.raises(NondeterministicSQLError, match="is read as the day or time at which Spark runs"):
        Database({"r": (("a", "int"), ("d", "date"))}).bind(query.format(e=moment))


def test_texts_that_are_only_texts_are_not_refused() -> None:
    wanted = (
        "s = 'now'",
        "CASE WHEN s IN ('today') THEN 'now' ELSE s END",
        "DATE 'epoch'",
        "TO_TIMESTAMP('9:30', 'H:mm')",
    )
    for text in (*wanted, "TIME '09:00'", "CAST('09:00' AS TIME)", "COALESCE(s, '12:30')", "CONCAT('today', s)"):
        parsed = parse_scalar(text)
        refuse_what_varies(parsed)
        refuse_moments_beside(parsed, lambda e: {"s": "string"}[e.name])


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_is_refused_with_the_reason(query: str) -> None:
    error, words = REFUSED[query]
    with pytest.raises(error, match=words):
        database().bind(query)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("", "Exactly one SQL statement is expected, 0 were given"),
        ("SELECT 1; SELECT 2", "Exactly one SQL statement is expected, 2 were given"),
        ("SELECT 'open", "does not parse"),
        ("SELECT /* open", "does not parse"),
        ("SELECT FROM WHERE", "does not parse"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000, "nested too deeply"),
        ("SELECT 1" + " " * LONGEST, "characters; at most"),
        ("WITH RECURSIVE x MAX RECURSION LEVEL 0 AS (SELECT 1) SELECT * FROM x", "MAX RECURSION LEVEL"),
    ],
    ids=["nothing", "two", "open quote", "open comment", "no columns", "deep", "long", "no rounds"],
)
def test_a_text_that_is_no_statement(sql: str, words: str) -> None:
    with pytest.raises(InvalidSQLError, match=words):
        parse_statement(sql)


def test_what_is_no_text_is_named_by_its_type() -> None:
    with pytest.raises(InvalidSQLError, match="SQL text is expected, not int"):
        parse_statement(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("condition", ["a = 1, b = 2", "a FROM t", "a AS x", "*"])
def test_a_condition_is_one_expression(condition: str) -> None:
    with pytest.raises(InvalidSQLError, match="expression is expected"):
        parse_scalar(condition)


# a query over fresh(…): what it asks of the rows of the view, None where that cannot be told
FRESH: dict[str, str | None] = {
    "SELECT a FROM fresh(v) WHERE a = 1 AND v.b = 2": "a = 1 AND b = 2",
    "SELECT a FROM fresh(v)": None,
    "SELECT a FROM fresh(v) JOIN t ON v.a = t.a WHERE a = 1": None,
    "SELECT a FROM t WHERE a IN (SELECT a FROM fresh(v))": None,
    "SELECT a FROM fresh(v) WHERE a IN (SELECT b FROM t)": None,
    "SELECT a FROM fresh(v) AS x(b, a) WHERE a = 1": None,
    "SELECT a FROM fresh(v) AS x WHERE x.a = 1 AND v.b = 2": "a = 1",
    "SELECT a FROM fresh(v) WHERE rand() < 0.5 AND a = 1 AND b < UNIX_TIMESTAMP()": "a = 1",
    "SELECT a FROM fresh(v) WHERE a IN (1, 2) AND NOT b BETWEEN 1 AND 2 AND 10 / a > 1": "a IN (1, 2) AND NOT b BETWEEN 1 AND 2",
    "SELECT a FROM fresh(v) TABLESAMPLE (50 PERCENT) WHERE a = 1": None,
    "SELECT a FROM fresh(v) TABLESAMPLE (1 ROWS) AS x WHERE a = 1": None,
}


@pytest.mark.parametrize("query", FRESH)
def test_what_a_query_asks_of_a_fresh_view(query: str) -> None:
    _, views = with_fresh_views(query)
    (view,) = views.values()
    assert (view.name, view.where) == ("v", FRESH[query])


def test_a_sample_is_taken_before_the_name_is_given() -> None:
    """As Spark's grammar has it: FROM t TABLESAMPLE (…) AS x."""
    text, views = with_fresh_views("SELECT v.a FROM fresh(v) TABLESAMPLE (50 PERCENT)")
    assert text.replace(*views, "V") == "SELECT v.a FROM (V AS `v`) TABLESAMPLE (50 PERCENT)"
    assert pinned(
        "SELECT t.a FROM t TABLESAMPLE (1 ROWS), u TABLESAMPLE (2 ROWS) AS x", lambda path: "p." + path[0]
    ) == ("SELECT t.a FROM (p.t AS `t`) TABLESAMPLE (1 ROWS), p.u TABLESAMPLE (2 ROWS) AS x")


@pytest.mark.parametrize("query", ["SELECT * FROM fresh(a, b)", "SELECT * FROM fresh()", "SELECT * FROM fresh(1)"])
def test_fresh_takes_the_name_of_one_view(query: str) -> None:
    with pytest.raises(InvalidSQLError, match="the name of one view"):
        with_fresh_views(query)
