"""Random expressions of a wanted type over some columns: of one row, of a group, of a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.fuzz.aggregates import calls
from tests.fuzz.case import BOOLEAN, DATE, DECIMAL, DOMAINS, DOUBLE, INT, NUMERAL, STRING

UNLIKE = ({INT, NUMERAL}, {INT, DECIMAL}, {INT, DOUBLE})
"""Types that are compared by a conversion."""


@dataclass(frozen=True)
class Column:
    """A column that an expression may read: how it is written there, and its type."""

    ref: str
    type: str


@dataclass
class Choices:
    """Chance from one seed, with a count of the constructs that were chosen."""

    seed: int
    constructs: Counter[str] = field(default_factory=Counter, kw_only=True)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.serial = 0

    def saw(self, construct: str) -> None:
        self.constructs[construct] += 1

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def name(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def pick(self, *weighted: tuple[float, Callable[..., Any]]) -> Callable[..., Any]:
        weights = [weight for weight, _ in weighted]
        return self.random.choices([method for _, method in weighted], weights)[0]


class Expressions(Choices):
    """Expressions as text."""

    # ---- of one row

    def predicate(self, columns: Sequence[Column], depth: int = 2) -> str:
        """A condition on one row, in three-valued logic."""
        kind = self.random.random()
        if depth > 0 and kind < 0.15:
            self.saw("three-valued or")
            return f"({self.predicate(columns, depth - 1)} OR {self.predicate(columns, depth - 1)})"
        if depth > 0 and kind < 0.25:
            self.saw("not")
            return f"NOT ({self.predicate(columns, depth - 1)})"
        column = self.random.choice(columns)
        if kind < 0.35:
            self.saw("is null")
            return f"{column.ref} IS {self.random.choice(('', 'NOT '))}NULL"
        if column.type == BOOLEAN:
            return column.ref
        if kind < 0.45:
            self.saw("between")
            return f"{column.ref} BETWEEN {self.literal(column.type)} AND {self.literal(column.type)}"
        if kind < 0.55:
            self.saw("in list")
            listed = ", ".join(self.literal(column.type) for _ in range(2))
            return f"{column.ref} {self.random.choice(('IN', 'NOT IN'))} ({listed})"
        if column.type == STRING and kind < 0.65:
            if self.chance(0.5):
                self.saw("like")
                return f"{column.ref} LIKE 'x%'"
            self.saw("like with escape")
            like = f"{column.ref} {self.random.choice(('LIKE', 'NOT LIKE'))} 'x!_%' ESCAPE '!'"
            if depth > 0 and self.chance(0.5):
                self.saw("conditions compared")
                return f"({like}) {self.random.choice(('=', '<>', '<=>'))} ({self.predicate(columns, depth - 1)})"
            return like
        if column.type == DATE and kind < 0.7:
            self.saw("interval")
            return f"{self.moved(column.ref)} {self.random.choice(('<', '>='))} {self.literal(DATE)}"
        numbers = [c.ref for c in columns if c.type == INT]
        if column.type == NUMERAL and numbers and self.chance(0.4):
            self.saw("unlike types compared")
            return f"{column.ref} {self.random.choice(('=', '<>', '<=>'))} {self.random.choice(numbers)}"
        others = [c.ref for c in columns if c.type == column.type]
        other = self.random.choice(others) if self.chance(0.3) else self.literal(column.type)
        return f"{column.ref} {self.random.choice(('=', '<>', '<', '>=', '<=>'))} {other}"

    def scalar(self, columns: Sequence[Column], type_: str, depth: int = 2) -> str:
        """An expression of the wanted type."""
        same = [c.ref for c in columns if c.type == type_]
        if same and self.chance(0.6):
            return self.random.choice(same)
        if depth <= 0:
            return self.random.choice(same) if same else self.literal(type_)
        kind = self.random.random()
        if kind < 0.25:
            self.saw("case")
            return (
                f"CASE WHEN {self.predicate(columns, 1)} THEN {self.scalar(columns, type_, depth - 1)} "
                f"ELSE {self.scalar(columns, type_, depth - 1)} END"
            )
        if kind < 0.4:
            self.saw("coalesce")
            return f"COALESCE({self.scalar(columns, type_, depth - 1)}, {self.literal(type_, null=False)})"
        if kind < 0.5:
            self.saw("nullif")
            return f"NULLIF({self.scalar(columns, type_, depth - 1)}, {self.literal(type_, null=False)})"
        if kind < 0.6:
            self.saw("if")
            return (
                f"IF({self.predicate(columns, 1)}, {self.scalar(columns, type_, depth - 1)}, "
                f"{self.scalar(columns, type_, depth - 1)})"
            )
        return self.computed(columns, type_, depth - 1)

    def computed(self, columns: Sequence[Column], type_: str, depth: int) -> str:
        """Arithmetic, string functions, conversions."""
        if type_ == INT:
            dates = [c.ref for c in columns if c.type == DATE]
            if dates and self.chance(0.4):
                self.saw("date part")
                return f"{self.random.choice(('YEAR', 'MONTH', 'DAY'))}({self.random.choice(dates)})"
            self.saw("arithmetic")
            left, right = (self.scalar(columns, INT, depth) for _ in range(2))
            return self.random.choice(
                (
                    f"{left} + {right}",
                    f"({left}) - ({right})",
                    f"ABS(({left}) % 3)",
                    f"CAST({left} AS BIGINT) * 2",
                    f"GREATEST({left}, {right})",
                )
            )
        if type_ == STRING:
            self.saw("string function")
            inner = self.scalar(columns, STRING, depth)
            self.saw("cast")
            return self.random.choice((f"UPPER({inner})", f"{inner} || '-'", f"CAST({self.number(columns)} AS STRING)"))
        if type_ == DECIMAL:
            self.saw("cast")
            inner = self.scalar(columns, DECIMAL, depth)
            return self.random.choice(
                (f"CAST({self.number(columns)} AS DECIMAL(10, 2))", f"CAST({inner} AS DECIMAL(10, 2)) + 1.00")
            )
        if type_ == DOUBLE:
            self.saw("cast")
            return f"CAST({self.number(columns)} AS DOUBLE)"
        if type_ == BOOLEAN:
            return f"({self.predicate(columns, 1)})"
        if type_ == DATE:
            self.saw("interval")
            return self.moved(self.scalar(columns, DATE, depth))
        return self.literal(type_)

    def moved(self, date: str) -> str:
        """A date some time before or after another."""
        span = self.random.choice(("1 DAY", "2 MONTHS", "1 DAY 2 HOURS", "1 YEAR 1 MONTH"))
        return f"CAST({date} {self.random.choice('+-')} INTERVAL {span} AS DATE)"

    def number(self, columns: Sequence[Column]) -> str:
        found = [c.ref for c in columns if c.type == INT]
        return self.random.choice(found) if found else self.literal(INT)

    def literal(self, type_: str, null: bool = True) -> str:
        if type_ == DOUBLE:
            return self.random.choice(("CAST(0 AS DOUBLE)", "CAST(1.5 AS DOUBLE)"))
        value = self.random.choice(DOMAINS[type_])
        if value is None and null and self.chance(0.5):
            return f"CAST(NULL AS {type_})"
        value = self.random.choice(DOMAINS[type_][1:]) if value is None else value
        if type_ in (STRING, NUMERAL):
            return f"'{value}'"
        if type_ == DATE:
            return f"DATE '{value.isoformat()}'"
        if type_ == BOOLEAN:
            return str(value).upper()
        return f"({value})" if str(value).startswith("-") else str(value)

    # ---- between rows

    def join_condition(self, columns: Sequence[Column], theirs: Sequence[Column]) -> str:
        """An equality where types allow one, with more conditions now and then; or a comparison; or TRUE."""
        pairs = [(a.ref, b.ref) for a in columns for b in theirs if a.type == b.type and a.type != DOUBLE]
        unlike = [(a.ref, b.ref) for a in columns for b in theirs if {a.type, b.type} in UNLIKE]
        if not pairs and not unlike:
            return "TRUE"
        a, b = self.random.choice(pairs or unlike)
        keyed = [(x, y) for x in columns for y in theirs if (x.ref, y.ref) == (a, b) and x.type == y.type]
        if unlike and (not pairs or self.chance(0.25)):
            self.saw("unlike types compared")
            a, b = self.random.choice(unlike)
        elif keyed and self.chance(0.15):
            self.saw("expression as join key")
            ((x, y), *_) = keyed
            a, b = self.random.choice(((self.key_of(x), b), (a, self.key_of(y)), (self.key_of(x), self.key_of(y))))
        operator = self.random.choices(("=", "<>", "<=>", "<"), (8, 0.5, 0.7, 0 if (a, b) in unlike else 1))[0]
        if operator == "<=>":
            self.saw("null-safe join")
        elif operator != "=":
            self.saw("theta join")
        parts = [f"{a} {operator} {b}"]
        if self.chance(0.2):
            parts.append(self.predicate([*columns, *theirs]))
        if pairs and self.chance(0.15):
            a, b = self.random.choice(pairs)
            parts.append(f"{a} = {b}")
        return " AND ".join(f"({part})" if " OR " in part else part for part in parts)

    def key_of(self, column: Column) -> str:
        """An expression over a column, as a key of a join."""
        if column.type == INT:
            return self.random.choice((f"{column.ref} * 2", f"{column.ref} - 1", f"2 - {column.ref} - 1"))
        return f"({self.over(column.ref, column.type)})"

    def correlation(self, columns: Sequence[Column], outer: Sequence[Column]) -> str | None:
        """A condition between a subquery's column and one around it."""
        pairs = [(a.ref, b.ref) for a in columns for b in outer if a.type == b.type and a.type != DOUBLE]
        unlike = [(a.ref, b.ref) for a in columns for b in outer if {a.type, b.type} in UNLIKE]
        if unlike and (not pairs or self.chance(0.2)):
            self.saw("unlike types compared")
            pairs = unlike
        if not pairs:
            return None
        self.saw("correlated")
        a, b = self.random.choice(pairs)
        ordered = 0 if pairs is unlike else 1  # DuckDB does not order a text and a number
        operator = self.random.choices(("=", "<", ">=", "<=>", "<>"), (7, ordered, ordered, 0.5, 0.5))[0]
        return f"{a} {operator} {b}"

    # ---- of a group

    def key(self, columns: Sequence[Column], type_: str) -> str:
        """A grouping expression: always over a column, so that it is not a constant."""
        found = [c.ref for c in columns if c.type == type_]
        if found and self.chance(0.75):
            return self.random.choice(found)
        self.saw("group by expression")
        if found:
            return self.over(self.random.choice(found), type_)
        return self.converted(self.random.choice(columns), type_)

    def over(self, ref: str, type_: str) -> str:
        """Some expression over a column, of the column's type."""
        choices = {
            INT: (f"{ref} + 1", f"{ref} % 2", f"COALESCE({ref}, 0)"),
            STRING: (f"UPPER({ref})", f"COALESCE({ref}, 'none')", f"{ref} || 'k'"),
            NUMERAL: (f"COALESCE({ref}, '7')", f"'0' || {ref}"),
            DECIMAL: (f"COALESCE({ref}, 0.00)", f"ABS({ref})"),
            DATE: (f"COALESCE({ref}, DATE '2024-03-01')",),
            BOOLEAN: (f"{ref} IS NULL", f"NOT {ref}"),
            DOUBLE: (f"COALESCE({ref}, CAST(0 AS DOUBLE))",),
        }[type_]
        return self.random.choice(choices)

    def converted(self, column: Column, type_: str) -> str:
        """A value of the wanted type that depends on a column of any type."""
        self.saw("case")
        then, otherwise = self.literal(type_), self.literal(type_)
        return f"CASE WHEN {column.ref} IS NULL THEN {then} ELSE {otherwise} END"

    def aggregate(self, columns: Sequence[Column], type_: str) -> str:
        """An aggregate of the wanted type, sometimes with FILTER."""
        by_type: dict[str, list[str]] = {}
        for c in columns:
            by_type.setdefault(c.type, []).append(c.ref)
        choices: list[tuple[str, str]] = []
        for name, argument in calls().get(type_, []):
            if argument == BOOLEAN:
                choices.append((name, f"{name}({self.predicate(columns)})"))
            elif argument in by_type:
                value = self.random.choice(by_type[argument])
                value = f"CAST({value} AS BIGINT)" if name.startswith("bit_") else value  # a sum is wider in DuckDB
                choices.append((name, f"{name}({value})"))
                if name in ("sum", "avg"):  # what is counted
                    choices += [choices[-1], (name, f"{name}({value} + 1)")]
                    choices.append((f"{name}(distinct)", f"{name}(DISTINCT {value})"))
        if type_ == INT:
            anything = self.random.choice(columns).ref
            choices += [("count(*)", "COUNT(*)"), ("count(distinct)", f"COUNT(DISTINCT {anything})")]
        if not choices:
            choices = [("max", f"MAX({self.scalar(columns, type_)})")]
        construct, call = self.random.choice(choices)
        self.saw(construct)
        if self.chance(0.15):
            self.saw("filter")
            call += f" FILTER (WHERE {self.predicate(columns)})"
        if construct == "sum" and type_ == INT and self.chance(0.5):
            return f"CAST({call} AS BIGINT)"
        return call

    # ---- of a window

    def window(self, columns: Sequence[Column], type_: str, partition: str, order: str, where: str) -> str:
        """One window function of the wanted type over the partition; `where` is its OVER."""
        same = [c.ref for c in columns if c.type == type_]
        value = self.random.choice(same) if same else self.scalar(columns, type_)
        some = f"ORDER BY {self.random.choice(columns).ref}"
        bounds = (
            "1 PRECEDING AND CURRENT ROW",
            "CURRENT ROW AND 1 FOLLOWING",
            "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
        )
        frame = f"ROWS BETWEEN {self.random.choice(bounds)}"
        whole = partition.strip()
        choices = [
            ("lag", f"LAG({value}) OVER {where}"),
            ("lead", f"LEAD({value}, 2) OVER {where}"),
            ("first_value", f"FIRST_VALUE({value}) OVER {where}"),
            ("last_value", f"LAST_VALUE({value}) OVER ({partition}{order} {frame})"),
            ("nth_value", f"NTH_VALUE({value}, 2) OVER {where}"),
        ]
        if type_ == BOOLEAN:
            choices += [
                ("percent_rank", f"PERCENT_RANK() OVER ({partition}{some}) < 0.5"),
                ("cume_dist", f"CUME_DIST() OVER ({partition}{some}) < 0.5"),
            ]
        else:
            choices += [
                ("whole partition", f"MAX({value}) OVER ({whole})"),
                ("running sum", f"MIN({value}) OVER ({partition}{some})"),
            ]
        if type_ == INT:
            choices += [
                ("row_number", f"ROW_NUMBER() OVER {where}"),
                ("rank", f"RANK() OVER ({partition}{some})"),
                ("dense_rank", f"DENSE_RANK() OVER ({partition}{some} DESC)"),
                ("ntile", f"NTILE(2) OVER {where}"),
                ("framed sum", f"CAST(SUM({value}) OVER ({partition}{order} {frame}) AS BIGINT)"),
                ("running sum", f"CAST(SUM({value}) OVER ({partition}{some}) AS BIGINT)"),
                ("whole partition", f"COUNT({value}) OVER ({whole})"),
            ]
        numbers = [c.ref for c in columns if c.type == INT]
        if type_ == INT and numbers:
            near = f"ORDER BY {self.random.choice(numbers)} RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING"
            choices.append(("range of values", f"COUNT({value}) OVER ({partition}{near})"))
        construct, call = self.random.choice(choices)
        self.saw(construct)
        return call
