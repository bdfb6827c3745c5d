"""What a small change costs on Spark, seen in its physical plans: no exchange moves a whole base table.

The tables are large against the threshold below which Spark would broadcast them by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlglot import exp

from deferred.algebra.bags import COUNT
from deferred.algebra.delta import differentiate
from deferred.algebra.strategy import support_tables
from deferred.spark.engine import Engine
from deferred.spark.temporaries import Temporaries
from deferred.sql.render import Renderer
from tests.fuzz.on_spark import SparkDatabase
from tests.sql.test_families import LINES, Line, document_schemas, named

ROWS = 20_000
PER_FAMILY = 3
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"

VALUES = {
    "int": "CAST(id % 5000 AS INT)",
    "string": "CONCAT('s', id % 5000)",
    "boolean": "id % 3 = 0",
    "date": "DATE_ADD(DATE '2020-01-01', CAST(id % 2000 AS INT))",
    "decimal(10, 2)": "CAST(id % 977 AS DECIMAL(10, 2))",
    "double": "CAST(id % 977 AS DOUBLE)",
    "array<string>": "ARRAY(CONCAT('s', id % 7))",
    "array<struct<sku: string, n: int>>": "ARRAY(NAMED_STRUCT('sku', CONCAT('s', id % 7), 'n', CAST(id % 5 AS INT)))",
    "struct<a: int, b: string>": "NAMED_STRUCT('a', CAST(id % 5 AS INT), 'b', CONCAT('s', id % 7))",
}


class Large(SparkDatabase):
    """The document's tables in files; logs, steps and support tables computed as an operation computes them."""

    def __init__(self, spark: Any, folder: Any, temporaries: Temporaries) -> None:
        super().__init__(spark, document_schemas())
        self._renderer = Renderer(self, small_changes=True)
        self._temporaries = temporaries
        self._computed: dict[str, exp.Expr] = {}
        for name, schema in self.schemas.items():
            columns = ", ".join(f"{VALUES[type_]} AS `{column}`" for column, type_ in schema)
            path = str(folder / name)
            spark.sql(f"SELECT {columns} FROM RANGE({ROWS})").coalesce(1).write.parquet(path)
            spark.read.parquet(path).createOrReplaceTempView(f"`{name}`")
            self._compute(
                f"log_of_{name}",
                f"SELECT *, 1L AS `{COUNT}` FROM `{name}` WHERE `{schema[0][0]}` = "
                f"(SELECT MAX(`{schema[0][0]}`) FROM `{name}`) LIMIT 2",
            )

    def change(self, table: str) -> exp.Expr:
        return self._computed[f"log_of_{table}"]

    def temporary(self, name: str) -> exp.Expr:
        return self._computed[name]

    def stored(self, name: str) -> exp.Expr:
        return self._computed[name]

    def _compute(self, name: str, query: str) -> None:
        self._computed[name] = self._temporaries.compute(name, query)

    def exchanged(self, query: str, changed: list[str]) -> list[str]:
        """What the exchanges of a delta program move of base tables that are not restricted first."""
        bound = self.bind(query)
        for name, plan in support_tables(bound.plan).items():
            self._compute(name, self._renderer.render(plan))
        program = differentiate(bound.plan, changed, bound.types)
        found = []
        for step in program.steps:
            text = self._renderer.render(step.plan)
            if step.when is None:
                found.extend(_exchanges(self.spark.sql(text)))
            self._compute(step.name, text)
        if program.result is not None:
            found.extend(_exchanges(self.spark.sql(self._renderer.render(program.result))))
        return found


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(i) for i in range(children.size())]


def _exchanges(frame: Any) -> Iterator[str]:
    return _moved(frame._jdf.queryExecution().executedPlan())


def _moved(node: Any) -> Iterator[str]:
    if "Exchange" in node.nodeName():
        for scan in _whole(node):
            yield f"{node.nodeName()} of {scan}"
    for child in _children(node):
        yield from _moved(child)


def _whole(node: Any) -> list[str]:
    """The files that are read below a node without being joined with something small."""
    children = _children(node)
    if not children:
        return [node.simpleString(60)] if node.nodeName().startswith("Scan parquet") else []
    below = [_whole(child) for child in children]
    if node.nodeName().startswith("Broadcast") and len(children) == 2:
        kind = node.joinType().sql()
        small = [not scans for scans in below]
        # What comes out is at most what the small side finds; an outer or anti join keeps its left side besides.
        if (small[0] and kind != "FULL OUTER") or (small[1] and kind in ("INNER", "LEFT SEMI", "CROSS")):
            return []
    return [scan for scans in below for scan in scans]


@pytest.fixture(scope="module")
def large(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    before = spark.conf.get(BROADCAST)
    spark.conf.set(BROADCAST, "20k")
    engine = Engine(spark)
    with engine.temporaries() as temporaries, engine.operation() as own:
        yield Large(own, tmp_path_factory.mktemp("large"), temporaries)
    spark.conf.set(BROADCAST, before)


def _chosen() -> Iterator[Line]:
    """Some lines of every family, spread over it; but no recursion, whose rounds are not one plan."""
    once = [line for line in LINES if "recomputed" not in line.said and "RECURSIVE" not in line.example]
    for family in dict.fromkeys(line.family for line in once):
        lines = [line for line in once if line.family == family]
        yield from lines[:: max(1, len(lines) // PER_FAMILY)]


@pytest.mark.parametrize("line", list(_chosen()), ids=named)
def test_no_exchange_moves_a_whole_table(line: Line, large: Large) -> None:
    assert large.exchanged(line.example, ["sales", "shop"]) == []


def test_the_same_measure_sees_a_whole_table(large: Large) -> None:
    assert list(_exchanges(large.spark.sql("SELECT shop, COUNT(*) FROM sales GROUP BY shop"))) != []
