"""Random views over joins that are trees, or cyclic: DISTINCT over them, and chains of EXISTS and IN."""

from __future__ import annotations

from tests.fuzz.case import INT, STRING, Case, Schema
from tests.fuzz.history import Histories

SCHEMAS: dict[str, Schema] = {
    "r": (("a", INT), ("b", INT)),
    "s": (("a", INT), ("b", INT), ("c", INT)),
    "t": (("b", INT), ("c", INT), ("k", STRING)),
}
"""Few tables of few columns, so that a join has most of them several times."""

CONSTRUCTS = (
    *("tree", "cycle", "self-join", "two equalities", "expression as key", "null-safe key", "theta join"),
    *("filter", "cross join", "exists", "in", "not exists", "nested exists", "without distinct", "inner distinct"),
    *("columns of several tables", "computed column", "one table", "union", "group over distinct"),
)


class TreeGenerator(Histories):
    """The view of a seed, under `maintain = 'tree'`, and a history of its tables."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, schemas=SCHEMAS)

    def case(self) -> Case:
        query = self.query()
        initial, steps = self.history()
        return Case(SCHEMAS, query, initial, steps, self.seed, maintain="tree")

    def query(self) -> str:
        if self.chance(0.08):
            self.saw("union")
            return f"{self.select(1, True)} UNION {self.select(1, True)}"
        if self.chance(0.08):
            self.saw("group over distinct")
            return f"SELECT x0, COUNT(*) AS n FROM ({self.select(2, True)}) AS q GROUP BY x0"
        distinct = self.chance(0.8)
        if not distinct:
            self.saw("without distinct")
        return self.select(self.random.choice((1, 2)), distinct)

    def select(self, width: int, distinct: bool) -> str:
        names = [self.name("q") for _ in range(self.random.choice((1, 2, 3, 3, 4)))]
        tables = {name: self.random.choice(list(SCHEMAS)) for name in names}
        self.saw("one table" if len(names) == 1 else "tree")
        if len(set(tables.values())) < len(names):
            self.saw("self-join")
        if len(names) > 2 and self.chance(0.3):
            self.saw("cycle")
            ends = {name: self.random.sample(self.numbers(tables, name), 2) for name in names}
            conditions = [
                f"{ends[one][1]} = {ends[other][0]}" for one, other in zip(names, names[1:] + names[:1], strict=True)
            ]
        else:
            conditions = [self.link(tables, names[i], self.random.choice(names[:i])) for i in range(1, len(names))]
        if len(names) > 1 and self.chance(0.15):
            self.saw("theta join")
            one, other = self.random.sample(names, 2)
            conditions.append(f"{self.number(tables, one)} < {self.number(tables, other)}")
        if self.chance(0.3):
            self.saw("filter")
            conditions.append(f"{self.number(tables, self.random.choice(names))} > {self.random.choice((0, 1, 2))}")
        for _ in range(self.random.choice((0, 0, 1) if distinct else (1, 1, 2))):
            conditions.append(self.subquery(tables, self.random.choice(names), 1))
        source = ", ".join(self.source(tables[name], name) for name in names)
        where = " AND ".join(condition for condition in conditions if condition)
        outputs = ", ".join(f"{value} AS x{i}" for i, value in enumerate(self.outputs(tables, names, width)))
        return f"SELECT {'DISTINCT ' if distinct else ''}{outputs} FROM {source}" + (f" WHERE {where}" if where else "")

    def source(self, table: str, name: str) -> str:
        if self.chance(0.9):
            return f"{table} AS {name}"
        self.saw("inner distinct")
        return f"(SELECT DISTINCT * FROM {table}) AS {name}"

    def outputs(self, tables: dict[str, str], names: list[str], width: int) -> list[str]:
        root = self.random.choice(names)
        chosen = [root] * width if self.chance(0.6) else [self.random.choice(names) for _ in range(width)]
        if len(set(chosen)) > 1:
            self.saw("columns of several tables")
        values = [self.number(tables, name) for name in chosen]
        if self.chance(0.2):
            self.saw("computed column")
            values[0] = f"{values[0]} + {self.number(tables, self.random.choice(names))}"
        return values

    # ---- conditions

    def number(self, tables: dict[str, str], name: str) -> str:
        return self.random.choice(self.numbers(tables, name))

    def numbers(self, tables: dict[str, str], name: str) -> list[str]:
        return [f"{name}.{c}" for c, type_ in SCHEMAS[tables[name]] if type_ == INT]

    def link(self, tables: dict[str, str], one: str, other: str) -> str:
        kind = self.random.random()
        if kind < 0.05:
            self.saw("cross join")
            return ""
        if kind < 0.2:
            self.saw("two equalities")
            return f"{self.equality(tables, one, other)} AND {self.equality(tables, one, other)}"
        return self.equality(tables, one, other)

    def equality(self, tables: dict[str, str], one: str, other: str) -> str:
        left, right = self.number(tables, one), self.number(tables, other)
        kind = self.random.random()
        if kind < 0.12:
            self.saw("expression as key")
            return self.random.choice((f"{left} + 1 = {right}", f"{left} + {left} = {right} + 1"))
        if kind < 0.2:
            self.saw("null-safe key")
            return f"{left} <=> {right}"
        return f"{left} = {right}"

    def subquery(self, tables: dict[str, str], outer: str, depth: int) -> str:
        name = self.name("q")
        inside = {**tables, name: self.random.choice(list(SCHEMAS))}
        where = self.equality(inside, name, outer)
        if depth and self.chance(0.4):
            self.saw("nested exists")
            where += f" AND {self.subquery(inside, name, depth - 1)}"
        if self.chance(0.2):
            where += f" AND {self.number(inside, name)} <> {self.number(inside, outer)}"
        kind = self.random.random()
        if kind < 0.3:
            self.saw("in")
            source = f"SELECT {self.number(inside, name)} FROM {inside[name]} AS {name}"
            inner = f" WHERE {self.number(inside, name)} > 0" if self.chance(0.5) else ""
            return f"{self.number(inside, outer)} IN ({source}{inner})"
        negated = kind > 0.8
        self.saw("not exists" if negated else "exists")
        return f"{'NOT ' if negated else ''}EXISTS (SELECT 1 FROM {inside[name]} AS {name} WHERE {where})"
