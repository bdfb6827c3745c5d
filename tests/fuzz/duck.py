"""Delta programs on DuckDB: the same plans, rules and renderer as in production, on an engine that starts at once."""

from __future__ import annotations

import datetime
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from deferred.algebra import bags
from deferred.algebra.bags import COUNT
from deferred.algebra.delta import differentiate
from deferred.algebra.operators.in_view import VIEW
from deferred.algebra.operators.project import signed
from deferred.algebra.operators.recursion import rounds_before
from deferred.algebra.plan import Plan
from deferred.algebra.program import Guard, Loop, Program, Run, Step, run
from deferred.algebra.selfmaintenance import Promises
from deferred.algebra.strategy import kept_nodes, support_tables
from deferred.sql.bind import Bound, bind
from deferred.sql.dialect import ViewSQL, parenthesised, text
from deferred.sql.render import Leaves, ReadableLeaves, Renderer, named_table
from deferred.sql.types import Types

Schema = Sequence[tuple[str, str]]
Row = tuple[Any, ...]

TYPES = {
    "INTEGER": "int",
    "BIGINT": "bigint",
    "VARCHAR": "string",
    "DOUBLE": "double",
    "BOOLEAN": "boolean",
    "HUGEINT": "decimal(38,0)",
    "DATE": "date",
    "FLOAT": "float",
    "TIMESTAMP": "timestamp_ntz",
    '"NULL"': "void",
}


class CannotRun(Exception):
    """The engine cannot run the query that its author wrote, so there is nothing to compare with."""


class DuckSQL(DuckDB):
    """DuckDB's dialect for calls that ViewSQL keeps as names with arguments."""

    class Generator(DuckDB.Generator):  # type: ignore[valid-type,misc]
        def ignorenulls_sql(self, expression: exp.IgnoreNulls) -> str:
            return self.sql(expression.this).removesuffix(")") + " IGNORE NULLS)"


class DuckRenderer(Renderer):
    """The renderer's few differences on DuckDB."""

    dialect = DuckSQL

    def __init__(self, leaves: Leaves) -> None:
        super().__init__(leaves)
        self._texts: dict[Plan, str] = {}

    def render(self, plan: Plan) -> str:
        """The text of a plan, written once: most changes of a view run the same program."""
        if plan not in self._texts:
            self._texts[plan] = super().render(plan)
        return self._texts[plan]

    def broadcast(self, query: exp.Select, alias: str) -> exp.Select:
        return query

    def written_out(self, source: exp.Expr, columns: Sequence[str]) -> exp.Query:
        count = f'"{COUNT}"'
        copies = sqlglot.parse_one(
            f"SELECT 1 FROM t, UNNEST(RANGE(CASE WHEN {count} > 0 THEN {count} ELSE 0 END)) AS r(i)", dialect="duckdb"
        )
        query = bags.select(map(bags.column, columns), source)
        query.set("joins", copies.args["joins"])
        return query


def with_fixpoints(sql: str, connection: duckdb.DuckDBPyConnection) -> str:
    """The query around the outermost WITH RECURSIVE, whose expressions are temporary tables under their names.

    Naive evaluation, which knows nothing of changes: a set or a bag is computed anew from itself until it stays.
    """
    query = sqlglot.parse_one(sql, read=ViewSQL)
    clause = query.args["with_"]
    query.set("with_", None)

    def create(name: str, rows: str, columns: Sequence[str] = ()) -> None:
        names = f"({', '.join(columns)})" if columns else ""
        connection.execute(f'CREATE OR REPLACE TEMP TABLE "{name}"{names} AS {rows}')

    def text(branches: Sequence[exp.Expr]) -> str:
        return " UNION ALL ".join(f"({branch.sql(dialect=DuckSQL)})" for branch in branches)

    def count(name: str) -> int:
        return int(connection.execute(f'SELECT COUNT(*) FROM "{name}"').fetchall()[0][0])

    for cte in clause.expressions:
        name, columns = cte.alias, [c.name for c in cte.args["alias"].args.get("columns") or []]
        branches = list(_branches(cte.this))
        recursive = [b for b in branches if any(table.name == name for table in b.find_all(exp.Table))]
        if not recursive:
            create(name, cte.this.sql(dialect=DuckSQL), columns)
            continue
        rows = "SELECT DISTINCT * FROM" if cte.this.args.get("distinct") else "SELECT * FROM"
        create(name, f"{rows} ({text([b for b in branches if b not in recursive])})", columns)
        before = -1
        while before != count(name):  # it only grows
            before = count(name)
            create("all of it", f"{rows} ({text(branches)})")
            create(name, 'SELECT * FROM "all of it"', columns)
    return parenthesised(query).sql(dialect=DuckSQL)


def _branches(query: exp.Expr) -> Iterator[exp.Expr]:
    """The branches of a union."""
    if isinstance(query, exp.Union):
        yield from _branches(query.this)
        yield from _branches(query.expression)
    else:
        yield query


@functools.lru_cache(maxsize=2_000)
def translated(sql: str) -> str:
    """Spark's text as DuckDB's. sqlglot makes INTERVAL 1 YEAR 1 MONTH a sum, which needs parentheses."""
    return parenthesised(sqlglot.parse_one(sql, read=ViewSQL)).sql(dialect=DuckSQL)


class Ran(NamedTuple):
    """What a program has computed, and what its guards have found."""

    change: Counter[Row]
    broken: list[tuple[Guard, Counter[Row]]]


@dataclass
class Database(ReadableLeaves):
    """Tables in DuckDB with a schema each; the state is the bag of rows of each table."""

    schemas: Mapping[str, Schema]
    state: dict[str, Counter[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.connection = duckdb.connect()
        # DuckDB refuses 1 + '1', by which Types asks for ANSI mode; like that mode, it fails where a sum overflows.
        self._types = Types(self.types, {"SELECT 1 + '1' AS t": [("t", "bigint")]})
        self._forget()
        self.connection.execute("SET threads = 1")
        self.connection.execute("PRAGMA disable_optimizer")  # a few rows: planning would take longer than running
        self.connection.execute("CREATE MACRO raise_error(message) AS error(message)")
        for name, schema in self.schemas.items():
            columns = ", ".join(f'"{c}" {exp.DataType.build(t, dialect="spark").sql("duckdb")}' for c, t in schema)
            self.connection.execute(f'CREATE TABLE "{name}" ({columns})')
            counted = columns + f', "{COUNT}" BIGINT'
            self.connection.execute(f'CREATE TABLE "changes of {name}" ({counted})')
            self.state.setdefault(name, Counter())

    # ---- the engine that Types asks

    def types(self, sql: str) -> list[tuple[str, str]]:
        described = self.connection.execute(f"DESCRIBE {translated(sql)}").fetchall()
        return [(row[0], TYPES.get(row[1], row[1].lower())) for row in described]

    def _forget(self) -> None:
        """Drop the programs and texts of the view before."""
        self.renderer = DuckRenderer(self)
        self._programs: dict[tuple[Plan, frozenset[str]], Program] = {}
        self._recursions: dict[Plan, list[Step | Loop]] = {}
        self.ran = Run()

    def bind(self, sql: str, maintain: str = "auto", promises: Promises | None = None) -> Bound:
        self._forget()
        names = {name.casefold(): name for name in self.schemas}

        def catalog(path: tuple[str, ...]) -> tuple[str, Schema]:
            name = names[path[-1].casefold()]
            return name, self.schemas[name]

        return bind(sql, catalog, self._types, maintain, promises)

    # ---- states

    def replace(self, name: str, rows: Counter[Row]) -> None:
        """Give a table another state."""
        self.connection.execute(f'DELETE FROM "{name}"')
        self._insert(f'"{name}"', list(rows.elements()))
        self.state[name] = Counter(rows)

    def log(self, name: str, change: Mapping[Row, int]) -> None:
        """Write the net log of a table: signed counts, none zero."""
        self.connection.execute(f'DELETE FROM "changes of {name}"')
        self._insert(f'"changes of {name}"', [(*row, n) for row, n in change.items() if n])

    def logged(self, name: str) -> Counter[Row]:
        """The rows of a log, each as often as its count says."""
        rows = self.connection.execute(f'SELECT * FROM "changes of {name}"').fetchall()
        return Counter({tuple(row[:-1]): row[-1] for row in rows})

    def drop_from_log(self, name: str, unless: exp.Expr) -> None:
        """Remove the rows of a log for which a condition is not true."""
        relevant = translated(f"SELECT * FROM x WHERE {text(unless)}").partition(" WHERE ")[2]
        self.connection.execute(f'DELETE FROM "changes of {name}" WHERE ({relevant}) IS NOT TRUE')

    def _insert(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            listed = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
            self.connection.execute(f"INSERT INTO {table} VALUES {listed}")

    def query(self, sql: str) -> Counter[Row]:
        """A query as its author wrote it; a recursion by the plain fixpoint."""
        try:
            return self._bag(with_fixpoints(sql, self.connection) if "RECURSIVE" in sql else translated(sql))
        except (duckdb.Error, sqlglot.ParseError) as error:
            raise CannotRun(f"{type(error).__name__}: {error}") from None

    def _bag(self, sql: str) -> Counter[Row]:
        return Counter(tuple(map(plain, row)) for row in self.connection.execute(sql).fetchall())

    # ---- plans

    def stored(self, name: str) -> exp.Expr:
        return named_table(name)

    def keep(self, bound: Bound) -> None:
        """Fill the view's support tables at the current state."""
        self.recurse(bound)
        for name, plan in support_tables(bound.plan).items():
            self.connection.execute(f'CREATE OR REPLACE TABLE "{name}" AS {self.renderer.render(plan)}')

    def show(self, bound: Bound) -> None:
        """Make the view's rows at the current state readable for the rules that ask for them."""
        self.put(VIEW, signed(bound.plan))

    def put(self, name: str, plan: Plan) -> None:
        """Make the rows of a plan at the current state readable as a temporary result."""
        self.connection.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS {self.renderer.render(plan)}')

    def run(self, program: Program) -> Ran:
        """Run a program that moves no support table; returns its result and the guards that found rows."""
        run(program.steps, self)
        broken = [(guard, self.rows_of(guard.rows)) for guard in program.guards]
        assert program.result is not None
        change = netted(self.connection.execute(self.renderer.render(program.result)).fetchall())
        return Ran(change, [(guard, rows) for guard, rows in broken if rows])

    def guarded(self, bound: Bound, changed: Iterable[str]) -> list[tuple[Guard, Counter[Row]]]:
        """The guards of the program that has run last which found rows, with these."""
        found = [(g, self._bag(self.renderer.render(g.rows))) for g in self._program(bound, frozenset(changed)).guards]
        return [(guard, rows) for guard, rows in found if rows]

    def recurse(self, bound: Bound) -> None:
        """Compute the recursions of a view at the current state, from the base tables."""
        self.ready(bound.plan)

    def ready(self, plan: Plan) -> None:
        """Compute the recursions that a plan reads."""
        if plan not in self._recursions:
            self._recursions[plan] = rounds_before(plan)
        run(self._recursions[plan], self)

    # ---- temporary results, for `run`

    def compute(self, name: str, plan: Plan, skipped: bool) -> int:
        skip = " LIMIT 0" if skipped else ""
        made = self.connection.execute(
            f'CREATE OR REPLACE TEMP TABLE "{name}" AS SELECT * FROM ({self.renderer.render(plan)}){skip}'
        )
        return int(made.fetchall()[0][0])  # the number of its rows

    def append(self, name: str, more: str) -> None:
        self.connection.execute(f'INSERT INTO "{name}" SELECT * FROM "{more}"')

    def progress(self, loop: Loop, round_: int, found: int, in_all: int) -> None:
        pass

    def examples(self, name: str) -> list[Row]:
        return self.connection.execute(f'SELECT * FROM "{name}" LIMIT 3').fetchall()

    def wrong_support_tables(self, bound: Bound) -> dict[str, tuple[Counter[Row], Counter[Row]]]:
        """The support tables whose rows differ from those computed from scratch: (actual, expected) rows.

        One that remembers what was not found may have more than is missing, and nothing less.
        """
        found = {}
        self.recurse(bound)
        for name, plan in support_tables(bound.plan).items():
            kept, fresh = self._bag(f'SELECT * FROM "{name}"'), self._bag(self.renderer.render(plan))
            remembers = not kept_nodes(bound.plan)[name][1].is_exact
            if fresh - kept if remembers else kept != fresh:
                found[name] = (kept, fresh)
        return found

    def evaluate(self, bound: Bound) -> Counter[Row]:
        self.recurse(bound)
        return self.rows_of(bound.plan)

    def rows_of(self, plan: Plan) -> Counter[Row]:
        return self._bag(self.renderer.render(plan))

    def delta(self, bound: Bound, changed: Iterable[str]) -> Counter[Row]:
        """Run the delta program and move the support tables; returns the net signed change of each row."""
        result = self.preview(bound, changed)
        self.move(bound, changed)
        return result

    def move(self, bound: Bound, changed: Iterable[str]) -> None:
        """Bring the support tables to the new state, after the delta program has run."""
        self._move(self._program(bound, frozenset(changed)))

    def preview(self, bound: Bound, changed: Iterable[str]) -> Counter[Row]:
        """Run the delta program alone: the support tables stay as they are."""
        program = self._program(bound, frozenset(changed))
        self.ran = run(program.steps, self)
        return self.result(program)

    def result(self, program: Program) -> Counter[Row]:
        """The net signed change that a program has computed, whose steps have run."""
        if program.result is None:
            return Counter()
        return netted(self.connection.execute(self.renderer.render(program.result)).fetchall())

    def _program(self, bound: Bound, changed: frozenset[str]) -> Program:
        key = (bound.plan, changed)
        if key not in self._programs:
            self._programs[key] = differentiate(bound.plan, changed, bound.types)
        return self._programs[key]

    def _move(self, program: Program) -> None:
        """Bring the support tables to the new state."""
        for name, upkeep in program.supports.items():
            rows = self.renderer.render(upkeep.rows)
            if not upkeep.keys:
                self.connection.execute(f'CREATE OR REPLACE TABLE "{name}" AS {rows}')
                continue
            assert upkeep.gone is not None
            for touched in (rows, self.renderer.render(upkeep.gone)):
                same = " AND ".join(f's."{k}" IS NOT DISTINCT FROM n."{k}"' for k in upkeep.keys)
                self.connection.execute(f'DELETE FROM "{name}" AS s USING ({touched}) AS n WHERE {same}')
            self.connection.execute(f'INSERT INTO "{name}" BY NAME {rows}')

    @contextmanager
    def out_of_reach(self) -> Iterator[None]:
        """While it lasts, the base tables cannot be read: they have other names."""
        for name in self.schemas:
            self.connection.execute(f'ALTER TABLE "{name}" RENAME TO "{name} away"')
        yield
        for name in self.schemas:
            self.connection.execute(f'ALTER TABLE "{name} away" RENAME TO "{name}"')

    def close(self) -> None:
        self.connection.close()


def _literal(value: Any) -> str:
    """A value in DuckDB's text: one INSERT of text is much faster than bound parameters."""
    if value is None or isinstance(value, (bool, int, float, Decimal)):
        return "NULL" if value is None else str(value)
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    return "'" + str(value).replace("'", "''") + "'"


def plain(value: Any) -> Any:
    """Values that can be keys and that compare by what they are."""
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return tuple((k, plain(v)) for k, v in value.items())
    if isinstance(value, float):
        return repr(value)
    return value


def netted(rows: Iterable[Any]) -> Counter[Row]:
    """The signed counts of rows, which must be netted."""
    result: Counter[Row] = Counter()
    for row in rows:
        key = tuple(map(plain, row[:-1]))
        assert row[-1] != 0, f"not netted, a count of zero: {row}"
        assert key not in result, f"not netted, twice: {row}"
        result[key] = row[-1]
    return result


def added(state: Mapping[Row, int], change: Mapping[Row, int]) -> Counter[Row]:
    """state + change, in which no count may be negative."""
    result: Counter[Row] = Counter(state)
    for row, n in change.items():
        result[row] += n
    short = [row for row, n in result.items() if n < 0]
    assert not short, f"deleted more than there was: {short}"
    return +result
