"""The same checks on Spark: tables are temporary views of one session, in one state at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sqlglot import exp

from deferred.algebra.bags import COUNT
from deferred.algebra.delta import differentiate
from deferred.algebra.plan import Plan
from deferred.algebra.program import Program, run
from deferred.algebra.strategy import support_tables
from deferred.spark.engine import OWN_SETTINGS
from deferred.spark.session import settings
from deferred.sql.bind import Bound, bind
from deferred.sql.dialect import text
from deferred.sql.render import ReadableLeaves, Renderer, named_table
from deferred.sql.types import Types
from tests.fuzz.duck import CannotRun, Row, Schema, netted, plain


class SparkDatabase(ReadableLeaves):
    """Tables with a schema each; the state is the bag of rows of each table."""

    def __init__(self, spark: Any, schemas: Mapping[str, Schema]) -> None:
        self.spark, self.schemas = spark, schemas
        self.state: dict[str, Counter[Row]] = {}
        self._renderer = Renderer(self, small_changes=False)
        self._types = Types(lambda sql: [(f.name, f.dataType.simpleString()) for f in spark.sql(sql).schema.fields])

    def close(self) -> None:
        """The views stay until others of their names replace them: a session has no better place for them."""

    # ---- what the renderer asks

    def stored(self, name: str) -> exp.Expr:
        return named_table(name)

    def bind(self, sql: str, maintain: str = "auto") -> Bound:
        return bind(sql, lambda path: (path[-1], self.schemas[path[-1]]), self._types, maintain)

    # ---- states

    def replace(self, name: str, rows: Counter[Row]) -> None:
        """Give a table another state."""
        self._view(name, list(rows.elements()), self._columns(name))
        self.state[name] = Counter(rows)

    def log(self, name: str, change: Mapping[Row, int]) -> None:
        """Write the net log of a table: signed counts, none zero."""
        self._view(
            f"changes of {name}",
            [(*row, n) for row, n in change.items() if n],
            f"{self._columns(name)}, `{COUNT}` bigint",
        )

    def drop_from_log(self, name: str, unless: exp.Expr) -> None:
        """Remove the rows of a log for which a condition is not true."""
        self._store(f"changes of {name}", self.spark.table(f"`changes of {name}`").where(text(unless)))

    def _columns(self, name: str) -> str:
        return ", ".join(f"`{c}` {t.replace(': ', ':')}" for c, t in self.schemas[name])

    def _view(self, name: str, rows: list[Any], schema: Any) -> None:
        self._store(name, self.spark.createDataFrame(rows, schema))

    def query(self, sql: str) -> Counter[Row]:
        """A query as its author wrote it."""
        from pyspark.errors import AnalysisException

        try:
            return self._bag(sql)
        except AnalysisException as error:
            raise CannotRun(str(error)) from None

    def _bag(self, sql: str) -> Counter[Row]:
        return Counter(tuple(map(plain, row)) for row in self.spark.sql(sql).collect())

    # ---- plans

    def evaluate(self, bound: Bound) -> Counter[Row]:
        return self._bag(self._renderer.render(bound.plan))

    def keep(self, bound: Bound) -> None:
        """Fill the view's support tables at the current state."""
        for name, plan in support_tables(bound.plan).items():
            self._store(name, self.spark.sql(self._renderer.render(plan)))

    def wrong_support_tables(self, bound: Bound) -> dict[str, tuple[Counter[Row], Counter[Row]]]:
        """The support tables whose rows differ from those computed from scratch: (actual, expected) rows."""
        states = {
            name: (self._bag(f"SELECT * FROM `{name}`"), self._bag(self._renderer.render(plan)))
            for name, plan in support_tables(bound.plan).items()
        }
        return {name: (kept, fresh) for name, (kept, fresh) in states.items() if kept != fresh}

    def _store(self, name: str, frame: Any) -> None:
        frame.localCheckpoint().createOrReplaceTempView(f"`{name}`")

    def delta(self, bound: Bound, changed: Iterable[str]) -> Counter[Row]:
        """Run the delta program; returns the net signed change of each row."""
        program = differentiate(bound.plan, changed, bound.types)
        if program.result is None:
            return Counter()
        with settings(self.spark, OWN_SETTINGS):
            return self._run(program)

    def _run(self, program: Program) -> Counter[Row]:
        assert program.result is not None
        run(program.steps, self)
        rows = self.spark.sql(self._renderer.render(program.result)).collect()
        self._move(program)
        return netted(rows)

    # ---- temporary results, for `run`

    def compute(self, name: str, plan: Plan, skipped: bool) -> int:
        rows = self._renderer.render(plan)
        self._store(name, self.spark.sql(f"SELECT * FROM ({rows}) AS q{' WHERE FALSE' if skipped else ''}"))
        return int(self.spark.table(f"`{name}`").count())

    def append(self, name: str, more: str) -> None:
        self._store(name, self.spark.table(f"`{name}`").union(self.spark.table(f"`{more}`")))

    def examples(self, name: str) -> list[Row]:
        return list(map(tuple, self.spark.table(f"`{name}`").limit(3).collect()))

    def _move(self, program: Program) -> None:
        """Bring the support tables to the new state."""
        for name, upkeep in program.supports.items():
            rows = self._renderer.render(upkeep.rows)
            moved = self.spark.sql(rows)
            if upkeep.keys:
                assert upkeep.gone is not None
                kept = f"SELECT * FROM `{name}`"
                for touched in (rows, self._renderer.render(upkeep.gone)):
                    same = " AND ".join(f"s.`{k}` <=> n.`{k}`" for k in upkeep.keys)
                    kept = f"SELECT s.* FROM ({kept}) AS s LEFT ANTI JOIN ({touched}) AS n ON {same}"
                moved = self.spark.sql(kept).unionByName(moved)
            self._store(name, moved)
