"""Random recursive views over random graphs, and random changes of these."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.fuzz.case import INT, Case, Change, Row
from tests.fuzz.expressions import Choices

SCHEMAS = {"e": (("a", INT), ("b", INT)), "f": (("a", INT), ("b", INT)), "u": (("b", INT), ("c", INT))}
"""Two tables of edges, and one of other rows."""

GRAPHS = ("chain", "tree", "cycle", "dense", "sparse", "empty")

STARTS = {
    "all edges": "SELECT a, b FROM e",
    "some edges": "SELECT a, b FROM e WHERE a = 1",
    "loops": "SELECT a, a AS b FROM e",
    "constant": "SELECT 1 AS a, 1 AS b",
    "of groups": "SELECT a, MAX(b) AS b FROM e GROUP BY a",
    "distinct": "SELECT DISTINCT b AS a, b FROM f",
    "first rows": "SELECT a, b FROM e ORDER BY a, b LIMIT 2",
    "anti join": "SELECT a, b FROM e WHERE NOT EXISTS (SELECT 1 FROM f WHERE f.b = e.a)",
    "first of groups": "SELECT a, b FROM (SELECT a, b, RANK() OVER (PARTITION BY a ORDER BY b) AS place FROM e) w WHERE place = 1",
}

STEPS = {
    "right-linear": "SELECT x.a, e.b FROM x JOIN e ON x.b = e.a",
    "left-linear": "SELECT e.a, x.b FROM e JOIN x ON e.b = x.a",
    "another table": "SELECT x.a, f.b FROM x, f WHERE x.b = f.a AND f.b IS NOT NULL",
    "two tables": "SELECT x.a, u.c FROM x JOIN e ON x.b = e.a JOIN u ON e.b = u.b",
    "null-safe": "SELECT x.a, e.b FROM x JOIN e ON x.b <=> e.a",
    "theta join": "SELECT x.a, f.b FROM x JOIN f ON x.b < f.a",
    "reversed": "SELECT b, a FROM x",
    "expression": "SELECT a, b + 1 FROM x WHERE b < 4",
    "case": "SELECT a, CASE WHEN b > 2 THEN 0 ELSE b + 1 END FROM x",
    "same generation": "SELECT l.b, r.b FROM e l JOIN x ON l.a = x.a JOIN e r ON r.a = x.b",
    "semi join": "SELECT x.a, e.b FROM x JOIN e ON x.b = e.a WHERE e.b IN (SELECT b FROM u)",
    "semi join on the recursion": "SELECT x.a, e.b FROM x JOIN e ON x.b = e.a WHERE x.a IN (SELECT c FROM u)",
    "anti join": "SELECT x.a, e.b FROM x JOIN e ON x.b = e.a WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.b = e.b)",
    "anti join on both": (
        "SELECT x.a, e.b FROM x JOIN e ON x.b = e.a WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.b = x.a AND u.c = e.b)"
    ),
    "not in": "SELECT x.a, e.b FROM x JOIN e ON x.b = e.a WHERE e.b NOT IN (SELECT c FROM u)",
    "anti join over a projection": (
        "SELECT a, b FROM (SELECT x.a, e.b FROM x JOIN e ON x.b = e.a) q WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.b = q.b)"
    ),
    "semi join over a projection": (
        "SELECT a, b FROM (SELECT x.a, f.b FROM x JOIN f ON x.b = f.a) q WHERE q.b IN (SELECT b FROM u)"
    ),
    "join with groups": "SELECT x.a, m.b FROM x JOIN (SELECT a, MIN(b) AS b FROM e GROUP BY a) m ON x.b = m.a",
    "join with an outer join": (
        "SELECT x.a, o.c FROM x JOIN (SELECT f.a, u.c FROM f LEFT JOIN u ON f.b = u.b) o ON x.b = o.a"
    ),
    "left join": "SELECT x.a, u.c FROM x LEFT JOIN u ON x.b = u.b",
    "left join, then an inner one": "SELECT COALESCE(u.c, x.a), e.b FROM x LEFT JOIN u ON x.a = u.b JOIN e ON e.a = x.b",
    "left join lateral": (
        "SELECT x.a, l.c FROM x LEFT JOIN LATERAL (SELECT u.c + 0 AS c FROM u WHERE u.b = x.b AND u.c >= x.a) AS l ON TRUE"
    ),
    "right join on two conditions": "SELECT COALESCE(f.b, x.a), x.b FROM f RIGHT JOIN x ON f.a = x.b AND f.b > x.a",
    "without loops": "SELECT x.a, e.b FROM x JOIN e ON x.b = e.a AND e.a <> e.b",
    "either end": "SELECT x.a, e.b FROM x JOIN e ON x.b = e.a OR x.a = e.b",
    "to nothing": "SELECT x.a, CASE WHEN x.b = 2 THEN NULL ELSE x.b END FROM x",
    "to a constant": "SELECT x.b, 7 FROM x WHERE x.a = 1",
    "join with a union": "SELECT x.a, o.b FROM x JOIN (SELECT a, b FROM e UNION SELECT b, c FROM u) o ON x.b = o.a",
}
"""Branches that are linear in x: each row is derived from one row of it."""

BAG_STEPS = {
    "every pair of rows": "SELECT x.a, y.b, x.k + y.k + 1 FROM x JOIN x AS y ON x.b = y.a WHERE x.k + y.k < 2",
    "every pair, filtered": (
        "SELECT x.a, y.b, x.k + y.k + 1 FROM x, x AS y WHERE x.b = y.a AND x.k + y.k < 2 AND y.b NOT IN (SELECT b FROM u)"
    ),
    "every three rows": (
        "SELECT x.a, z.b, x.k + y.k + z.k + 1 FROM x JOIN x AS y ON x.b = y.a JOIN x AS z ON y.b = z.a "
        "WHERE x.k + y.k + z.k < 1"
    ),
    "pairs through a table": (
        "SELECT x.a, y.b, x.k + y.k + 1 FROM x JOIN e ON x.b = e.a JOIN x AS y ON e.b = y.a WHERE x.k + y.k < 2"
    ),
}
"""Branches of a bag in which a row is derived from several rows of x; the third column bounds how many."""

SET_STEPS = {
    "non-linear": "SELECT x.a, y.b FROM x JOIN x AS y ON x.b = y.a",
    "three times": "SELECT x.a, z.b FROM x JOIN x AS y ON x.b = y.a JOIN x AS z ON y.b = z.a",
    "recursive subquery": "SELECT e.a, e.b FROM e WHERE e.a IN (SELECT b FROM x)",
    "recursive exists": "SELECT x.a, e.b FROM x, e WHERE EXISTS (SELECT 1 FROM x AS y WHERE y.b = e.a AND y.a = x.a)",
    "distinct inside": "SELECT q.a, e.b FROM (SELECT DISTINCT a, b FROM x) q JOIN e ON q.b = e.a",
    "non-linear with an anti join": (
        "SELECT x.a, y.b FROM x JOIN x AS y ON x.b = y.a WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.b = y.b)"
    ),
    "anti join over a union": (
        "SELECT a, b FROM (SELECT x.a, e.b FROM x JOIN e ON x.b = e.a UNION SELECT x.b, x.a FROM x) q "
        "WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.b = q.b)"
    ),
}
"""Branches for which rows must be a set."""

ABOVE = {
    "plain": "SELECT a, b FROM x",
    "projection": "SELECT b FROM x",
    "groups": "SELECT a, COUNT(*) AS n, MAX(b) AS m FROM x GROUP BY a",
    "total": "SELECT COUNT(*) AS n, SUM(b) AS m FROM x",
    "twice": "SELECT x.a, y.b FROM x JOIN x AS y ON x.a = y.a AND x.b < y.b",
    "negation": "SELECT e.a, e.b FROM e WHERE NOT EXISTS (SELECT 1 FROM x WHERE x.a = e.b)",
    "outer join": "SELECT u.c, x.a FROM u LEFT JOIN x ON u.b = x.b",
    "except": "SELECT a, b FROM x EXCEPT SELECT a, b FROM e",
    "window": "SELECT a, b, RANK() OVER (PARTITION BY a ORDER BY b) AS r FROM x",
    "first rows": "SELECT a, b FROM x ORDER BY a, b LIMIT 3",
    "distinct": "SELECT DISTINCT a FROM x",
    "semi join": "SELECT e.a, e.b FROM e WHERE e.b IN (SELECT b FROM x)",
    "not in": "SELECT u.b, u.c FROM u WHERE u.b NOT IN (SELECT a FROM x)",
    "union": "SELECT a, b FROM x UNION ALL SELECT a, b FROM e",
    "intersect": "SELECT a, b FROM x INTERSECT SELECT a, b FROM f",
    "running total": "SELECT a, b, SUM(b) OVER (PARTITION BY a ORDER BY b) AS s FROM x",
    "groups of groups": (
        "SELECT n, COUNT(*) AS m FROM (SELECT a, COUNT(b) AS n FROM x GROUP BY a HAVING COUNT(*) > 1) g GROUP BY n"
    ),
    "full join": "SELECT x.a, x.b, u.c FROM x FULL JOIN u ON x.b = u.b",
    "first groups": "SELECT a, COUNT(*) AS n FROM x GROUP BY a ORDER BY n DESC, a LIMIT 2",
    "scalar": "SELECT c, (SELECT COUNT(*) FROM x) AS n FROM u",
}


@dataclass
class RecursiveGenerator(Choices):
    """Recursive views, with the graphs below them."""

    def case(self) -> Case:
        initial = {
            "e": self.graph(),
            "f": self.graph(),
            "u": tuple(self.row() for _ in range(self.random.randrange(4))),
        }
        state = {name: Counter(rows) for name, rows in initial.items()}
        steps = []
        for _ in range(self.random.choice((1, 2, 3))):
            step = self.step(state)
            for name, change in step.items():
                state[name] = state[name] - Counter(change.deleted) + Counter(change.inserted)
            steps.append(step)
        return Case(dict(SCHEMAS), self.query(), initial, tuple(steps), self.seed)

    # ---- views

    def query(self) -> str:
        every = self.chance(0.25)
        self.saw("union all" if every else "union")
        first = self.recursion("x", every)
        if self.chance(0.12):
            self.saw("two recursions")
            second = "y(a, b) AS (SELECT a, b FROM f UNION SELECT y.a, x.b FROM y JOIN x ON y.b = x.a)"
            if self.chance(0.5):
                self.saw("a recursion over a recursion")
                second = "y(a, b) AS (SELECT b, a FROM x WHERE a < 3 UNION SELECT y.a, f.b FROM y JOIN f ON y.b = f.a)"
            return f"WITH RECURSIVE {first}, {second} SELECT a, b FROM y UNION ALL SELECT b, a FROM x"
        return f"WITH RECURSIVE {first} {self.chosen(ABOVE)}"

    def recursion(self, name: str, every: bool) -> str:
        starts = [self.chosen(STARTS) for _ in range(self.random.choice((1, 1, 1, 2)))]
        if every:
            steps = [self.chosen(STEPS) for _ in range(self.random.choice((1, 1, 2)))]
            starts = [f"SELECT a, b, 0 FROM ({start}) s" for start in starts]
            derived = [*map(_with_level, steps)]
            if self.chance(0.3):
                derived.append(self.chosen(BAG_STEPS))
            return f"{name}(a, b, k) AS ({' UNION ALL '.join([*starts, *derived])})"
        steps = [
            self.chosen(SET_STEPS if self.chance(0.35) else STEPS) for _ in range(self.random.choice((1, 1, 1, 2, 3)))
        ]
        if len(steps) > 1:
            self.saw("several branches")
        parts = [f"({part})" if "LIMIT" in part else part for part in (*starts, *steps)]
        return f"{name}(a, b) AS ({' UNION '.join(parts)})"

    def chosen(self, among: dict[str, str]) -> str:
        name = self.random.choice(list(among))
        self.saw(name)
        return among[name]

    # ---- graphs

    def graph(self) -> tuple[Row, ...]:
        kind = self.random.choice(GRAPHS)
        self.saw(kind)
        size = self.random.choice((3, 4, 5, 6))
        edges: list[Row]
        if kind == "chain":
            edges = [(i, i + 1) for i in range(size)]
        elif kind == "tree":
            edges = [((i - 1) // 2, i) for i in range(1, size + 1)]
        elif kind == "cycle":
            edges = [(i, (i + 1) % size) for i in range(size)]
        elif kind == "dense":
            edges = [(i, j) for i in range(4) for j in range(4) if self.chance(0.7)]
        elif kind == "sparse":
            edges = [(self.random.randrange(size), self.random.randrange(size)) for _ in range(size)]
        else:
            edges = []
        if edges and self.chance(0.3):
            self.saw("duplicates")
            edges += [self.random.choice(edges) for _ in range(2)]
        if self.chance(0.25):
            self.saw("nulls")
            edges += [(None, self.random.randrange(4)), (self.random.randrange(4), None)]
        return tuple(edges)

    def row(self) -> Row:
        return tuple(self.random.choice((None, 0, 1, 2, 3, 4)) for _ in range(2))

    def step(self, state: dict[str, Counter[Row]]) -> dict[str, Change]:
        """Edges deleted, inserted and moved."""
        step = {}
        for name in self.random.sample(list(SCHEMAS), self.random.choice((1, 1, 2, 3))):
            rows = list(state[name].elements())
            deleted = self.random.sample(rows, min(len(rows), self.random.choice((0, 1, 1, 2, 3))))
            inserted = [self.row() for _ in range(self.random.choice((0, 1, 1, 2)))]
            if deleted and self.chance(0.3):
                self.saw("moved")
                inserted += [(row[0], self.random.randrange(5)) for row in deleted]
            step[name] = Change(tuple(deleted), tuple(inserted))
        return step


def _with_level(step: str) -> str:
    """A branch with a third column that counts the rounds, and ends them."""
    shown, _, rest = step.partition(" FROM ")
    if "(SELECT x.a, " in step:  # a derived table: the column goes through it
        rest = rest.replace(" FROM x", ", x.k FROM x", 1)
        return f"SELECT a, b, k + 1 FROM {rest} AND k < 3"
    filtered = " WHERE " in rest and "LATERAL" not in rest
    return f"{shown}, x.k + 1 FROM {rest} {'AND' if filtered else 'WHERE'} x.k < 3"
