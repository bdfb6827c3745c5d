"""Relevance conditions: the examples of Blakeley's chapter 3 with their figures, every operator, and what is left open."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from sqlglot import exp

from deferred.algebra.relevance import Dialect, Known, Relevance, relevance_of
from deferred.algebra.relevance.constants import kind_of, place
from deferred.algebra.relevance.logic import Logic
from deferred.algebra.scalar import column, substitute
from deferred.sql.dialect import parse_scalar, text
from tests.fuzz.duck import Database

ANSI = Dialect(ansi=True, zone="Europe/Paris")

PAPER = {
    "R1": (("H", "int"), ("I", "int"), ("J", "int")),
    "R2": (("K", "int"), ("L", "int")),
    "S1": (("H", "int"), ("I", "int")),
    "S2": (("J", "int"), ("K", "int"), ("L", "int")),
    "S3": (("M", "int"), ("N", "int")),
}
SCHEMAS = {
    **PAPER,
    "t": (("a", "int"), ("b", "int"), ("s", "string"), ("d", "date"), ("p", "decimal(10,2)"), ("f", "double")),
    "u": (("a", "int"), ("x", "int"), ("s", "string"), ("g", "boolean"), ("k", "bigint")),
}


@functools.cache
def database() -> Database:
    return Database(SCHEMAS)


def relevance(query: str, dialect: Dialect = ANSI) -> dict[str, Relevance]:
    bound = database().bind(query)
    return relevance_of(bound.plan, bound.types, dialect)


def condition(query: str, table: str, dialect: Dialect = ANSI) -> str | None:
    found = relevance(query, dialect)[table].condition
    return None if found is None else text(found)


def exactly(row: Mapping[str, Any]) -> dict[str, Known]:
    """All that can be known of a row of numbers."""
    return {
        name: Known(has_values=False) if value is None else Known(Fraction(value), Fraction(value), has_nulls=False)
        for name, value in row.items()
    }


def may_matter(query: str, table: str, row: Mapping[str, Any]) -> bool:
    """Theorem 3.1 for one row: whether C[t] is satisfiable."""
    return relevance(query)[table].decider(dict(SCHEMAS[table]))(exactly(row), None)


class TestBlakeley:
    def test_example_2_1(self) -> None:
        view = "SELECT H, L, N FROM S1, S2, S3 WHERE H > 20 AND I = J AND J = 30 AND L > M AND N < 10"
        assert condition(view, "S1") == "`H` > 20 AND `I` = 30"
        assert condition(view, "S2") == "`J` = 30 AND NOT `L` IS NULL"
        assert condition(view, "S3") == "`N` < 10 AND NOT `M` IS NULL"

    def test_example_3_1_insertions(self) -> None:
        view = "SELECT H, K, L FROM R1, R2 WHERE H > 23 AND J = K AND L < 10"
        assert not may_matter(view, "R1", {"H": 15, "I": 20, "J": 35})
        assert may_matter(view, "R1", {"H": 26, "I": 20, "J": 45})

    def test_example_3_2_a_deletion_by_a_condition(self) -> None:
        view = "SELECT H, L FROM R1, R2 WHERE I > J AND J = K AND K > 10"
        decide = relevance(view)["R1"].decider(dict(PAPER["R1"]))
        assert not decide({}, parse_scalar("I < 5"))
        assert decide({}, parse_scalar("I < 50"))

    def test_example_3_3_a_condition_after_a_modification(self) -> None:
        after = substitute(parse_scalar("(H > 30) AND (I = J)"), {"H": parse_scalar("H + 20"), "I": parse_scalar("15")})
        assert after.sql() == "(H + 20 > 30) AND (15 = J)"

    @pytest.mark.parametrize(("added", "irrelevant"), [(5, True), (-15, False)])
    def test_example_3_4_a_modification(self, added: int, irrelevant: bool) -> None:
        """Theorem 3.4: H := H + 5 where H > 20, all domains [0, 30]. Were it H − 15, rows would leave the view."""
        logic = Logic(dict.fromkeys("HIJK", "int"), ANSI)
        c, after = (logic.truth(self._condition(h)) for h in ("H", f"H + {added}"))
        given = [logic.truth(parse_scalar(p)).true for p in ("H > 20", f"H + {added} BETWEEN 0 AND 30")]
        given += [logic.truth(parse_scalar(f"{name} BETWEEN 0 AND 30")).true for name in "HIJK"]
        z3 = logic.z3
        unaffected = z3.Or(z3.And(z3.Not(c.true), z3.Not(after.true)), z3.And(c.true, after.true))
        assert logic.implied(given, unaffected) == irrelevant

    @staticmethod
    def _condition(h: str) -> exp.Expr:
        return parse_scalar(f"{h} > 10 AND I = K")

    def test_example_3_5_tuples(self) -> None:
        """Of T = {(10, 20), (12, 24), (14, 32)} only (12, 24) is relevant; (14, 32) misses the bound of I by 8."""
        view = "SELECT I, J FROM S1, S2 WHERE H > 10 AND L < 50 AND I = K AND L > K + 24"
        assert condition(view, "S1") == "`H` > 10 AND `I` <= 24"
        tuples = [(10, 20), (12, 24), (14, 32)]
        assert [t for t in tuples if may_matter(view, "S1", dict(zip("HI", t, strict=True)))] == [(12, 24)]
        assert 24 - 32 == -8


CONDITIONS = {
    # A view, one of its tables, and the rows of that table that can matter.
    "equal columns": ("SELECT t.a FROM t JOIN u ON t.a = u.a WHERE u.a IN (1, 5)", "t", "`a` IN (1, 5)"),
    "equal by way of a third": (
        "SELECT t.a FROM t, u, S1 WHERE t.a = u.a AND u.a = S1.H AND S1.H BETWEEN 3 AND 9",
        "t",
        "`a` BETWEEN 3 AND 9",
    ),
    "ranges": ("SELECT t.a FROM t, u WHERE t.a < u.x AND u.x < 10", "t", "`a` <= 8"),
    "texts": ("SELECT t.a FROM t, u WHERE t.s = u.s AND u.s > 'f'", "t", "`s` > 'f'"),
    "prefix": ("SELECT t.a FROM t, u WHERE t.s = u.s AND u.s LIKE 'ab%'", "t", "`s` LIKE 'ab%'"),
    "texts by way of an order": ("SELECT t.a FROM t, u WHERE t.s >= u.s AND u.s >= 'f'", "t", "`s` >= 'f'"),
    "dates": (
        "SELECT a FROM t WHERE d >= '2024-01-01' AND d < DATE '2024-02-01'",
        "t",
        "`d` < CAST('2024-02-01' AS DATE) AND `d` >= '2024-01-01'",
    ),
    "decimals": ("SELECT a FROM t WHERE p > 1.5 AND p > 2", "t", "`p` > 2"),
    "disjunctions over two tables": (
        "SELECT t.b FROM t, u WHERE (t.b = 1 AND u.x = 2) OR (t.b = 3 AND u.x = 4)",
        "t",
        "`b` = 1 OR `b` = 3",
    ),
    "three-valued logic": ("SELECT a FROM t WHERE NOT (a > 3 OR b > 4)", "t", "NOT (`a` > 3 OR `b` > 4)"),
    "a contradiction": ("SELECT a FROM t WHERE a > 3 AND a < 2", "t", "FALSE"),
    "arithmetic is not run on other rows": ("SELECT a FROM t WHERE a + 1 > 3", "t", "`a` >= 3"),
    "constants": (
        "SELECT t.a FROM t JOIN (VALUES (1), (4)) AS v(a) ON t.a = v.a",
        "t",
        "`a` IS NOT DISTINCT FROM CAST(1 AS INT) OR `a` IS NOT DISTINCT FROM CAST(4 AS INT)",
    ),
    "coalesce and case": (
        "SELECT a FROM t WHERE CASE WHEN a > 3 THEN b ELSE 0 END = 7",
        "t",
        "CASE WHEN `a` > 3 THEN `b` ELSE 0 END = 7",
    ),
    "columns through projections": (
        "SELECT y FROM (SELECT a AS y, b + 1 AS z FROM t) WHERE y < 3 AND z > 4",
        "t",
        "`a` < 3 AND `b` >= 4",
    ),
    "both branches of a union": (
        "SELECT a FROM t WHERE a > 5 UNION ALL SELECT a FROM t WHERE a < 2",
        "t",
        "`a` < 2 OR `a` > 5",
    ),
    "what a union's rows have in common": (
        "SELECT u.a FROM u JOIN (SELECT a FROM t WHERE a > 5 UNION ALL SELECT a FROM t WHERE a > 2) AS q ON u.a = q.a",
        "u",
        "`a` > 5 OR `a` > 2",
    ),
    "a common table expression used twice": (
        "WITH c AS (SELECT a, b FROM t WHERE a > 1) SELECT x.a, y.b FROM c AS x JOIN c AS y ON x.a = y.b WHERE x.a < 7",
        "t",
        "`a` > 1 AND ((`b` < 7 AND `b` > 1) OR `a` < 7)",
    ),
    "distinct": ("SELECT * FROM (SELECT DISTINCT a, b FROM t) WHERE a = 3", "t", "`a` = 3"),
    "grouping columns": (
        "SELECT a, MEDIAN(p) AS m FROM t WHERE b > 1 GROUP BY a HAVING a > 3 AND MEDIAN(p) > 2",
        "t",
        "`a` > 3 AND `b` > 1",
    ),
    "a support table holds all groups": (
        "SELECT a, COUNT(*) AS n FROM t WHERE b > 1 GROUP BY a HAVING a > 3",
        "t",
        "`b` > 1",
    ),
    "partition columns": (
        "SELECT * FROM (SELECT a, b, RANK() OVER (PARTITION BY a ORDER BY b) AS r FROM t WHERE b <> 3) WHERE a = 5 AND b > 9",
        "t",
        "`a` = 5 AND `b` <> 3",
    ),
    "the first rows": ("SELECT a FROM (SELECT a FROM t WHERE a > 1 ORDER BY a LIMIT 3) WHERE a < 5", "t", "`a` > 1"),
    "left of ⟕": ("SELECT t.a, u.x FROM t LEFT JOIN u ON t.a = u.a AND t.b > 5 WHERE t.b < 9", "t", "`b` < 9"),
    "right of ⟕": (
        "SELECT t.a, u.x FROM t LEFT JOIN u ON t.a = u.a AND u.x > 5 WHERE t.a < 9",
        "u",
        "`a` < 9 AND `x` > 5",
    ),
    "⟕ without its NULLs": ("SELECT t.a FROM t LEFT JOIN u ON t.a = u.a WHERE u.a > 4", "t", "`a` > 4"),
    "⟗": ("SELECT t.a, u.x FROM t FULL JOIN u ON t.a = u.a WHERE t.a > 3", "t", "`a` > 3"),
    "⟗, all rows stay": ("SELECT t.a, u.x FROM t FULL JOIN u ON t.a = u.a", "u", None),
    "left of ⋉": ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.a < 4)", "t", "`a` < 4"),
    "right of ⋉": ("SELECT a FROM t WHERE a > 1 AND EXISTS (SELECT 1 FROM u WHERE u.a = t.a)", "u", "`a` > 1"),
    "left of ▷": ("SELECT a FROM t WHERE b > 1 AND NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)", "t", "`b` > 1"),
    "right of ▷": ("SELECT a FROM t WHERE a > 1 AND NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)", "u", "`a` > 1"),
    "NOT IN sees a NULL": ("SELECT a FROM t WHERE a NOT IN (SELECT x FROM u)", "u", None),
    "left of EXCEPT": ("SELECT a FROM t WHERE a > 1 EXCEPT SELECT x FROM u WHERE x < 9", "t", "`a` > 1"),
    "right of EXCEPT": ("SELECT a FROM t WHERE a > 1 EXCEPT SELECT x FROM u WHERE x < 9", "u", "`x` > 1 AND `x` < 9"),
    "INTERSECT": ("SELECT a FROM t WHERE a > 1 INTERSECT SELECT x FROM u WHERE x < 9", "t", "`a` < 9 AND `a` > 1"),
    "no condition": ("SELECT a FROM t", "t", None),
    "floating point": ("SELECT a FROM t WHERE f > 0.5", "t", "`f` > 0.5"),
    "booleans": ("SELECT a FROM u WHERE g AND x IS NOT NULL", "u", "NOT `x` IS NULL AND `g`"),
    "whole numbers of two types": ("SELECT t.a FROM t, u WHERE t.a = u.k AND u.k < 5", "t", "`a` < 5"),
    "what is not understood": ("SELECT a FROM t WHERE LENGTH(s) > 3 AND a > 2", "t", "`a` > 2"),
    "texts compared with numbers": ("SELECT a FROM t WHERE s = 5", "t", "NOT `s` IS NULL"),
}


@pytest.mark.parametrize("case", CONDITIONS)
def test_conditions(case: str) -> None:
    query, table, expected = CONDITIONS[case]
    assert condition(query, table) == expected


def test_arithmetic_that_may_wrap_around_is_left_open() -> None:
    assert condition("SELECT a FROM t WHERE a + 1 < 3", "t", Dialect(ansi=False)) is None


def test_a_table_that_only_a_support_table_reads_matters() -> None:
    query = "SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING a > 3 AND a < 2"
    assert condition(query, "t") is None


OPEN = {
    # Conditions of which the solver must not say more than SQL does: a type, a condition, a value for which it is true.
    "padded texts": ("char(5)", "x > 'ab'", None),
    "collated texts": ("string collate UTF8_LCASE", "x = 'ABC'", None),
    "a cast that rounds": ("double", "CAST(x AS FLOAT) = 0.5", 0.1),
    "a list in another type": ("decimal(30,10)", "x IN (5, 0.123456789012345678901234567890)", 7),
    "a cast to text": ("int", "CAST(x AS STRING) = '01'", 1),
    "a time without a zone": ("timestamp", "x > '2024-01-01 00:00:00'", "2023-01-01T00:00:00Z"),
    "a calendar before 1900": ("date", "x < '1582-10-10'", "2024-01-01"),
    "no such date": ("date", "x = '2024-02-30'", "2024-01-01"),
    "a list of texts for a date": ("date", "x IN ('2024-01-01', '2')", "2025-01-01"),
    "a large number in floating point": ("float", "x = 16777217", 16777216),
    "a pattern": ("string", r"x LIKE 'a\_%'", "b"),
    "too many digits": ("decimal(38,30)", "x > 123456789012", 1),
}


@pytest.mark.parametrize("case", OPEN)
def test_what_is_left_open(case: str) -> None:
    type_, sql, value = OPEN[case]
    logic = Logic({"x": type_}, Dialect(ansi=True))
    kind = kind_of(type_)
    found = None if kind is None else place(value, kind)
    known = logic.known("x", Known(found, found, has_nulls=False))
    assert logic.satisfiable(logic.truth(parse_scalar(sql)).true, known)
    assert not logic.understood(parse_scalar(sql))


TRUTHS = {
    # A type, a value, and a condition on it that is true, false, or neither.
    "number": ("int", 5, "x BETWEEN 5 AND 6", True),
    "decimal": ("decimal(10,2)", "1.50", "x <= 1.5", True),
    "decimal and whole number": ("int", 2, "x > 1.5 AND x < 2.5", True),
    "negative": ("int", -3, "x = -3", True),
    "negated": ("int", 3, "-x = -3", True),
    "product": ("int", 3, "2 * x - 1 = 5", True),
    "date": ("date", "2024-02-29", "x = DATE'2024-02-29'", True),
    "time": ("timestamp", "2024-07-01T10:00:00Z", "x = TIMESTAMP'2024-07-01 12:00:00'", True),
    "time in winter": ("timestamp", "2024-01-01T10:00:00Z", "x = '2024-01-01 11:00:00'", True),
    "local time": ("timestamp_ntz", "2024-01-01 10:00:00.5", "x > TIMESTAMP_NTZ'2024-01-01 10:00:00'", True),
    "text": ("string", "b", "x IN ('a', 'c')", False),
    "text and its beginning": ("string", "ab", "x LIKE 'a%' AND x > 'a' AND x < 'b'", True),
    "double": ("double", "0.1", "x = 0.1", True),
    "double and exponent": ("double", "1000", "x >= 1e3", True),
    "boolean": ("boolean", "true", "x IS TRUE AND x <> FALSE", True),
    "wider": ("int", 7, "CAST(x AS BIGINT) = 7L", True),
    "no value": ("int", None, "x = 5", None),
    "no value, safely": ("int", None, "x <=> NULL", True),
    "distinct": ("int", None, "x IS DISTINCT FROM 5", True),
    "no value in a list": ("int", 5, "x IN (4, NULL)", None),
    "value in such a list": ("int", 4, "x IN (4, NULL)", True),
    "nothing compared": ("int", 5, "x = NULL", None),
    "coalesce": ("int", None, "COALESCE(x, 3) = 3", True),
    "case": ("int", 2, "CASE WHEN x = 1 THEN 10 WHEN x = 2 THEN 20 END = 20", True),
    "if": ("int", None, "IF(x > 1, 'a', 'b') = 'b'", True),
    "a condition compared": ("int", 3, "(x > 2) = TRUE", True),
    "a condition that is NULL": ("int", None, "(x > 2) IS NULL", True),
    "cast of a text": ("date", "2024-01-05", "x > CAST('2024-01-01' AS DATE)", True),
}


@pytest.mark.parametrize("case", TRUTHS)
def test_three_valued_logic(case: str) -> None:
    """The solver knows each condition on a known value: it is true, false or NULL, and nothing else."""
    type_, value, sql, expected = TRUTHS[case]
    logic, kind = Logic({"x": type_}, ANSI), kind_of(type_)
    assert kind is not None
    found = None if value is None else place(value, kind, "UTC")
    known = logic.known("x", Known(found, found, has_nulls=value is None, has_values=value is not None))
    truth = logic.truth(substitute(parse_scalar(sql), {"x": column("x")}))
    possible = [logic.satisfiable(known, formula) for formula in truth]
    assert possible == [expected is True, expected is False]


def test_rows_of_which_ranges_are_known() -> None:
    decide = relevance("SELECT t.a FROM t JOIN u ON t.a = u.a WHERE u.x > 10 AND u.a < 5")["t"].decider(
        dict(SCHEMAS["t"])
    )
    low, high = Known(Fraction(0), Fraction(4), has_nulls=False), Known(Fraction(5), Fraction(9))
    assert decide({"a": low}, None)
    assert not decide({"a": high}, None)
    assert not decide({"a": Known(has_values=False)}, None)
    assert decide({"b": high}, None)
    assert not decide({"a": low}, parse_scalar("a > 4"))
    assert decide({"a": low}, parse_scalar("b > 4"))


LONG = ", ".join(f"'text {n:03}'" for n in range(300))


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT a FROM t WHERE s IN ({LONG})",
        f"SELECT t.a FROM t JOIN u ON t.s = u.s WHERE u.s IN ({LONG})",
        f"SELECT t.a FROM t JOIN u ON t.a = u.a WHERE t.s IN ({LONG}) AND u.x > t.a",
        f"SELECT a FROM t WHERE s NOT IN ({LONG})",
        f"SELECT a FROM t WHERE a IN ({', '.join(str(7 * n) for n in range(300))}) AND b > a",
    ],
)
def test_a_long_list_takes_few_questions(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each of its constants: what the view compares itself says all about its column."""
    asked = []
    ask = Logic.satisfiable
    monkeypatch.setattr(Logic, "satisfiable", lambda self, *formulas: asked.append(1) or ask(self, *formulas))
    found = condition(query, "t")
    assert found is not None
    assert " IN (" in found
    assert len(asked) < 40


def test_a_long_list_of_another_table_bounds_by_its_ends() -> None:
    found = condition(f"SELECT t.a FROM t JOIN u ON t.s < u.s WHERE u.s IN ({LONG})", "t")
    assert found == "`s` < 'text 299'"
