"""docs/SQL.md, line by line: every example binds, is maintained as stated, and is right after changes.

Then what a change costs, seen in the plans: base tables are read through the change, there is one term per changed table,
and what several places need is computed once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from deferred.algebra.delta import differentiate
from deferred.algebra.operators import Join, Net, OuterJoin, Restrict, Scan, UnionAll
from deferred.algebra.plan import Plan
from deferred.algebra.program import Loop, Program, Step
from deferred.errors import DeferredError, UnsupportedSQLError
from deferred.sql.bind import Bound
from deferred.sql.dialect import ViewSQL
from tests.fuzz.duck import Database, Row, added

DOCUMENT = Path(__file__).parents[2] / "docs" / "SQL.md"


@dataclass(frozen=True)
class Line:
    """One line of the document: an example and what is said of it."""

    family: str
    construct: str
    example: str
    said: str


def _lines() -> Iterator[Line]:
    family = ""
    for text in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if text.startswith("## "):
            family = text[3:]
        found = re.fullmatch(r"\| (.+?) \| (`+)(.+)\2 \| (.+?) \|", text)
        if found:
            construct, _, example, said = found.groups()
            yield Line(family, construct, example.strip().replace("\\|", "|"), said)


REFUSALS, WITHOUT_RULE, AS_TREES = "What is refused", "What has no rule", "Joins as trees"
LINES = [line for line in _lines() if line.family not in (REFUSALS, WITHOUT_RULE, AS_TREES)]
TREES = [line for line in _lines() if line.family == AS_TREES]
REFUSED = [line for line in _lines() if line.family == REFUSALS]
WHOLE = [line for line in _lines() if line.family == WITHOUT_RULE]

NOT_ON_DUCKDB = frozenset(
    {
        "windows of time",
        "windows of time that overlap",
        "SUM and AVG of floating point",
        "total of floating point",
        "AVG of decimals",
        "COUNT(DISTINCT a, b)",
        "COUNT_IF",
        "ANY, SOME, EVERY",
        "MIN_BY, MAX_BY",
        "STDDEV, VARIANCE",
        "CORR, COVAR",
        "SKEWNESS, KURTOSIS",
        "REGR_*",
        "REGR_COUNT alone",
        "PERCENTILE",
        "PERCENTILE_CONT",
        "COLLECT_SET, COLLECT_LIST, sorted",
        "IN with several columns",
        "correlated totals without rows",
        "MODE",
        "order by an expression over aliases",
        "bitmaps, count-min sketches",
        "APPROX_COUNT_DISTINCT",
        "date arithmetic",
        "struct, array and map access",
        "higher-order functions",
        "JSON functions",
        "explode in SELECT",
        "LATERAL VIEW",
        "LATERAL VIEW OUTER posexplode",
        "inline",
        "RANGE in FROM",
        "a generator in FROM",
        "PIVOT",
        "UNPIVOT",
        "ROLLUP",
        "WITH ROLLUP",
        "CUBE, GROUPING_ID",
        "GROUPING SETS",
        "pipe syntax",
    }
)
"""Examples in Spark's own words, or with a meaning of Spark's own: bound here, compared in test_families_on_spark."""


def named(line: Line) -> str:
    return line.construct


def document_schemas() -> dict[str, list[tuple[str, str]]]:
    text = DOCUMENT.read_text(encoding="utf-8")
    (block,) = re.findall(r"```sql\n(CREATE TABLE.*?)```", text, re.DOTALL)
    schemas = {}
    for statement in sqlglot.parse(block, dialect="spark"):
        assert isinstance(statement, exp.Create)
        columns = [(c.name, c.args["kind"].sql("spark").lower()) for c in statement.this.expressions]
        schemas[statement.this.this.name] = columns
    return schemas


class Examples(Database):
    """The document's tables, with Spark's types where DuckDB has others or none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.connection.execute("CREATE MACRO own_tax(x) AS x * 2")
        self.bounds: dict[tuple[str, str], Bound] = {}

    def types(self, sql: str) -> list[tuple[str, str]]:
        if re.match(r"SELECT AVG\(`\w+`\) AS `t0` FROM \(SELECT CAST\(NULL AS DECIMAL", sql, re.IGNORECASE):
            return [("t0", "decimal(14,6)")]
        try:
            return super().types(sql)
        except duckdb.Error:
            asked = sqlglot.parse_one(sql, read=ViewSQL).expressions
            made = 2 if re.match(r"SELECT (POSEXPLODE|INLINE)", sql) else len(asked)
            type_ = "struct<k:date,v:string>" if "NAMED_STRUCT('k'" in sql else "string"
            return [(f"t{i}", type_) for i in range(made)]

    def bind(self, sql: str, maintain: str = "auto") -> Bound:
        if (sql, maintain) not in self.bounds:
            self.bounds[sql, maintain] = super().bind(sql, maintain)
        return self.bounds[sql, maintain]


@pytest.fixture(scope="module")
def tables() -> Iterator[Examples]:
    database = Examples(document_schemas())
    yield database
    database.close()


VALUES = {
    "int": [None, 0, 1, 2, 3],
    "string": [None, "x", "y", "xy"],
    "date": [None, "2024-02-29", "2024-03-01"],
    "decimal(10, 2)": [None, 1, 2],
    "boolean": [None, True, False],
}


def _rows(random: Random, schema: list[tuple[str, str]], count: int) -> Counter[Row]:
    return Counter(tuple(random.choice(VALUES.get(type_, [None])) for _, type_ in schema) for _ in range(count))


def words(bound: Bound) -> set[str]:
    found = {node.strategy.name for node in bound.plan.walk()}
    return found - {"linear"} or {"linear"}


# ---- the document


def test_the_document_has_every_family() -> None:
    families = Counter(line.family for line in LINES)
    assert set(families) == {
        "Joins",
        "Subqueries",
        "Aggregates",
        "Windows",
        "Order and limit",
        "Sets",
        "Rows to rows",
        "Structure",
        "Recursion",
    }
    assert len(LINES) > 100
    assert len(REFUSED) > 15
    assert len({line.construct for line in LINES}) == len(LINES)


@pytest.mark.parametrize("line", LINES, ids=named)
def test_an_example_is_maintained_as_stated(line: Line, tables: Examples) -> None:
    assert words(tables.bind(line.example)) == set(line.said.split(" · "))


@pytest.mark.parametrize("line", [line for line in LINES if line.construct not in NOT_ON_DUCKDB], ids=named)
def test_an_example_is_right_after_changes(line: Line, tables: Examples) -> None:
    follows(line, tables, tables.bind(line.example))


@pytest.mark.parametrize("line", TREES, ids=named)
def test_an_example_is_kept_as_a_tree(line: Line, tables: Examples) -> None:
    bound = tables.bind(line.example, "tree")
    assert "good-counters" in words(bound)
    trees = [note.partition(": ")[2].removesuffix(".") for note in bound.notes]
    assert trees == ([] if line.said == "–" else line.said.strip("`").split("` · `"))
    follows(line, tables, bound)


def follows(line: Line, tables: Examples, bound: Bound) -> None:
    random = Random(line.example)
    for name, schema in tables.schemas.items():
        tables.replace(name, _rows(random, list(schema), 5))
    shown = tables.query(line.example)
    assert tables.evaluate(bound) == shown
    tables.keep(bound)
    for _ in range(3):
        for name, schema in tables.schemas.items():
            state = tables.state[name]
            new = Counter(row for row in state.elements() if random.random() < 0.6) + _rows(random, list(schema), 2)
            tables.log(name, {row: new[row] - state[row] for row in {*state, *new}})
            tables.replace(name, new)
        shown = added(shown, tables.delta(bound, tables.schemas))
        assert shown == tables.query(line.example)
        assert not tables.wrong_support_tables(bound)


@pytest.mark.parametrize("line", [*REFUSED, *WHOLE], ids=named)
def test_a_refusal_names_its_reason(line: Line, tables: Examples) -> None:
    with pytest.raises(DeferredError) as refused:
        tables.bind(line.example)
    assert line.said in str(refused.value)
    recomputed = type(refused.value) is UnsupportedSQLError  # the nondeterministic is refused under every policy
    assert recomputed == (line.family == WITHOUT_RULE)


def test_a_column_that_a_view_does_not_read_has_no_effect() -> None:
    """The plan reads the columns that the query names, so a new one is in no scan and in no change."""
    query = next(line.example for line in LINES if line.construct == "inner join")
    wider = {name: [*schema, ("added", "int")] for name, schema in document_schemas().items()}
    plans = []
    for schemas in (document_schemas(), wider):
        database = Examples(schemas)
        plans.append([node.names for node in database.bind(query).plan.walk() if isinstance(node, Scan)])
        database.close()
    assert plans[0] == plans[1]


# ---- costs


def whole_reads(plan: Plan, led: bool = False) -> Iterator[str]:
    """The base tables that a plan reads as a whole: not restricted to keys, not joined with something small.

    Small is what has no such reading itself: changes, temporary and support tables, and what is made of them.
    """
    if isinstance(plan, Scan) and not led:
        yield plan.table
    elif isinstance(plan, Restrict):
        yield from whole_reads(plan.child, True)
        yield from whole_reads(plan.keys.plan, led)
    elif isinstance(plan, (Join, OuterJoin)):
        small = any(not list(whole_reads(child)) for child in plan.children)
        for child in plan.children:
            yield from whole_reads(child, led or small)
    else:
        for child in plan.children:
            yield from whole_reads(child, led)


def _program(tables: Examples, query: str, changed: list[str]) -> tuple[Bound, Program]:
    bound = tables.bind(query)
    return bound, differentiate(bound.plan, changed, bound.types)


def _plans(program: Program) -> list[Plan]:
    """What a program always computes; steps that wait for a condition are left out."""
    plans = list(_plans_of(program.steps))
    return plans if program.result is None else [*plans, program.result]


def _plans_of(steps: Iterable[Step | Loop]) -> Iterator[Plan]:
    for step in steps:
        if isinstance(step, Loop):
            yield step.first
            yield from _plans_of(step.steps)
            yield step.next
        elif step.when is None:
            yield step.plan


@pytest.mark.parametrize("line", [line for line in LINES if "recomputed" not in line.said], ids=named)
@pytest.mark.parametrize("changed", [["sales"], ["shop"], ["sales", "shop", "target"]], ids="+".join)
def test_base_tables_are_read_through_the_change(line: Line, changed: list[str], tables: Examples) -> None:
    _, program = _program(tables, line.example, changed)
    assert [table for plan in _plans(program) for table in whole_reads(plan)] == []


def test_rows_with_a_map_are_not_kept_which_the_same_measure_sees() -> None:
    database = Examples({"t": (("a", "int"), ("m", "map<string, int>"))})
    bound = database.bind("SELECT m, RANK() OVER (ORDER BY a) AS r FROM t")
    assert words(bound) == {"recomputed"}
    program = differentiate(bound.plan, {"t"}, bound.types)
    assert [table for plan in _plans(program) for table in whole_reads(plan)] == ["t"]
    database.close()


CHAIN = "SELECT s.id, h.region, t.low FROM sales s JOIN shop h ON s.shop = h.shop JOIN target t ON t.region = h.region"


@pytest.mark.parametrize("changed", [["sales"], ["sales", "shop"], ["sales", "shop", "target"]], ids="+".join)
def test_a_join_has_one_term_per_changed_table(changed: list[str], tables: Examples) -> None:
    _, program = _program(tables, CHAIN, changed)
    assert program.result is not None
    unions = [len(node.inputs) for node in program.result.walk() if isinstance(node, UnionAll)]
    assert max(unions, default=1) == len(changed)


def test_seventeen_tables_make_seventeen_terms(tables: Examples) -> None:
    joined = " ".join(f"JOIN shop t{i} ON t{i}.shop = t{i - 1}.boss" for i in range(1, 17))
    _, program = _program(tables, f"SELECT t0.shop FROM shop t0 {joined}", ["shop"])
    assert program.result is not None
    assert max(len(node.inputs) for node in program.result.walk() if isinstance(node, UnionAll)) == 17


def test_what_several_places_need_is_one_step(tables: Examples) -> None:
    """The groups of a CTE that is read three times are read once, and aggregated once before and once after."""
    query = (
        "WITH q AS (SELECT shop, BIT_XOR(id) AS n FROM sales GROUP BY shop) SELECT a.n FROM q a "
        "JOIN q b ON a.shop = b.shop JOIN q c ON b.shop = c.shop"
    )
    _, program = _program(tables, query, ["sales"])
    read = [step for step in program.steps if isinstance(step.plan, Restrict) and isinstance(step.plan.child, Scan)]
    netted = [step for step in program.steps if any(isinstance(node, Net) for node in step.plan.walk())]
    assert len(read) == 1
    assert len(netted) == 1
