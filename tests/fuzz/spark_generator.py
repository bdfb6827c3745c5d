"""Random views in Spark's own words: nested types, names that Spark resolves in its own way, its own aggregates.

DuckDB has no such functions, or gives them another meaning, so these views are checked on Spark alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.fuzz.case import BOOLEAN, DATE, INT, NUMERAL, STRING, Case, random_schemas
from tests.fuzz.expressions import Column
from tests.fuzz.generator import Generator, Query
from tests.fuzz.run import SHARED

CONSTRUCTS = (
    "alias inside an expression of ORDER BY",
    "alias in HAVING",
    "field of a struct",
    "element of an array",
    "struct as a group",
    "struct as a join key",
    "aggregate of Spark's own",
    "IN as a value",
    "unlike types in IN",
    "several columns in IN",
)
"""What these views have beside the others': each must occur in a long enough run."""


class SparkGenerator(Generator):
    """Makes one view from one seed, for Spark."""

    def limited(self, depth: int, types: Sequence[str], outer: Sequence[Column] = ()) -> Query:
        """ORDER BY an expression over aliases that are also names of columns; the whole row decides what is equal."""
        columns = [] if outer or self.chance(0.5) else self.bare_columns()
        numbers = [c.ref for c in columns if c.type == INT]
        if not numbers:
            return super().limited(depth, types, outer)
        self.saw("alias inside an expression of ORDER BY")
        names = [self.name("x") for _ in types]
        items = [self.scalar(columns, type_) for type_ in types]
        alias = self.random.choice(numbers)
        items.append(self.random.choice((f"-{alias}", f"ABS({alias} - 2)", f"COALESCE({alias}, 1) % 2")))
        key = self.random.choice(
            (f"-{alias}", f"{alias} * 2 - {alias}", f"ABS({alias}) + {self.random.choice(numbers)}")
        )
        listed = ", ".join(f"{i} AS {n}" for i, n in zip(items, [*names, alias], strict=True))
        every = self.total_order([str(i + 1) for i in range(len(items))])
        inner = f"SELECT {listed} FROM {self.table} ORDER BY {key}, {every} LIMIT {self.random.choice((1, 2, 3))}"
        return Query(f"SELECT {', '.join(names)} FROM ({inner}) AS {self.name('t')}", tuple(names), tuple(types))

    def bare_columns(self) -> list[Column]:
        """The columns of some table, without its name."""
        self.table = self.random.choice(list(self.schemas))
        return [Column(name, type_) for name, type_ in self.schemas[self.table]]

    def having(
        self, columns: Sequence[Column], keys: Sequence[str], depth: int, outer: Sequence[Column], total: bool
    ) -> str:
        clause = super().having(columns, keys, depth, outer, total)
        if clause or self.shadows or not self.output or not self.chance(0.3):
            return clause
        self.saw("alias in HAVING")
        return f" HAVING {self.random.choice(self.output)} IS NOT NULL"

    def output_names(self, types: Sequence[str], columns: Sequence[Column]) -> tuple[str, ...]:
        self.output = super().output_names(types, columns)
        return self.output

    def computed(self, columns: Sequence[Column], type_: str, depth: int) -> str:
        if self.chance(0.3) and type_ not in (NUMERAL, BOOLEAN):
            value, other = (self.scalar(columns, type_, depth) for _ in range(2))
            if self.chance(0.5):
                self.saw("field of a struct")
                return f"NAMED_STRUCT('k', {value}, 'v', {other}).{self.random.choice('kv')}"
            self.saw("element of an array")
            return self.random.choice(
                (f"ARRAY({value}, {other})[1]", f"ELEMENT_AT(ARRAY_DISTINCT(ARRAY({value}, {other})), -1)")
            )
        return super().computed(columns, type_, depth)

    def aggregate(self, columns: Sequence[Column], type_: str) -> str:
        same = [c.ref for c in columns if c.type == type_]
        if not same or not self.chance(0.35) or type_ in (BOOLEAN, NUMERAL):
            return super().aggregate(columns, type_)
        self.saw("aggregate of Spark's own")
        value, other = self.random.choice(same), self.random.choice(columns).ref
        choices = [
            f"MAX_BY({value}, NAMED_STRUCT('k', {other}, 'v', {value}))",
            f"MIN(NAMED_STRUCT('k', {other}, 'v', {value})).v",
            f"TRY_ELEMENT_AT(SORT_ARRAY(COLLECT_LIST({value})), 2)",
            f"MODE({value}, TRUE)",
        ]
        if type_ == INT:
            choices += [
                f"SIZE(COLLECT_SET({other}))",
                f"APPROX_COUNT_DISTINCT({other})",
                f"COUNT_IF({other} IS NOT NULL)",
                f"COUNT(DISTINCT {value}, {other})",
                f"BITMAP_COUNT(BITMAP_CONSTRUCT_AGG(BITMAP_BIT_POSITION({value})))",
            ]
        return self.random.choice(choices)

    def key(self, columns: Sequence[Column], type_: str) -> str:
        found = [c.ref for c in columns if c.type == type_]
        if found and self.chance(0.1) and type_ not in (NUMERAL, BOOLEAN):
            self.saw("struct as a group")
            return f"NAMED_STRUCT('k', {self.random.choice(found)}, 'v', {self.random.choice(columns).ref}).k"
        return super().key(columns, type_)

    def join_condition(self, columns: Sequence[Column], theirs: Sequence[Column]) -> str:
        pairs = [(a.ref, b.ref) for a in columns for b in theirs if a.type == b.type and a.type in (INT, STRING, DATE)]
        if len(pairs) > 1 and self.chance(0.1):
            self.saw("struct as a join key")
            chosen = self.random.sample(pairs, 2)
            sides = [", ".join(f"'f{i}', {pair[side]}" for i, pair in enumerate(chosen)) for side in (0, 1)]
            return " = ".join(f"NAMED_STRUCT({fields})" for fields in sides)
        return super().join_condition(columns, theirs)

    def membership(self, columns: Sequence[Column], depth: int) -> str:
        column = self.random.choice(columns)
        if column.type in (INT, NUMERAL) and self.chance(0.3):
            self.saw("unlike types in IN")
            query = self.inner(columns, (NUMERAL if column.type == INT else INT,), depth)
            return f"{column.ref} {self.random.choice(('IN', 'NOT IN'))} ({query.sql})"
        if self.chance(0.2):
            self.saw("several columns in IN")
            others = [column, self.random.choice(columns)]
            query = self.query(depth, [c.type for c in others])
            return f"({others[0].ref}, {others[1].ref}) IN ({query.sql})"
        return super().membership(columns, depth)

    def item(self, columns: Sequence[Column], type_: str, depth: int) -> str:
        if type_ == BOOLEAN and depth > 0 and self.chance(0.3):
            self.saw("IN as a value")
            column = self.random.choice(columns)
            query = self.query(depth - 1, (column.type,))
            return f"{column.ref} {self.random.choice(('IN', 'NOT IN'))} ({query.sql})"
        return super().item(columns, type_, depth)


def spark_case_of(seed: int) -> tuple[Case, Counter[str]]:
    """The case of a seed for Spark, and the constructs that it uses."""
    generator = SparkGenerator(seed, random_schemas(seed // SHARED))
    return generator.case(), generator.constructs
