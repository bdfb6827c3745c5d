"""Random views: a schema, a query over every family of SQL that a view may contain, rows, and a history of changes.

One method per construct. A query is made for given column types, so that it fits where it is used: in FROM, in a
set operation, behind IN. Every construct that is used is counted, so that a test can see that none is lost.

Constructs for which DuckDB and Spark give different results are avoided: IN as a value in SELECT, rows compared with IN, division,
sums of doubles, and grand totals of grouping sets over an empty input (HAVING COUNT(*) > 0 removes those).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.fuzz.case import BOOLEAN, DATE, DECIMAL, DOUBLE, INT, NUMERAL, STRING, Case, random_schemas
from tests.fuzz.expressions import Column, Expressions
from tests.fuzz.history import Histories

DEPTHS = (12, 4, 0.8, 0.4)
"""How often a query is nested one, two, three or four deep."""

LONGEST = 2_500
"""Characters of a query: the few longer ones would take most of the time."""


@dataclass(frozen=True)
class Query:
    """A query's text and its output columns."""

    sql: str
    names: tuple[str, ...]
    types: tuple[str, ...]


@dataclass
class Generator(Expressions, Histories):
    """Makes one view from one seed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ctes: list[tuple[str, Query]] = []
        self.shadows = False
        self.schemas = self.schemas or random_schemas(self.seed)

    def case(self) -> Case:
        """A view, with rows and a history."""
        query = self.view()
        while len(query.sql) > LONGEST:
            self.constructs.clear()
            query = self.view()
        initial, steps = self.history()
        for name in self.schemas:
            if query.sql.count(f" {name}") > 2:
                self.saw("same table many times")
        maintain = "auto" if self.seed % 4 else "tree"  # what is kept never changes a result
        return Case(self.schemas, query.sql, initial, steps, self.seed, maintain)

    def view(self) -> Query:
        depth = self.random.choices(range(1, len(DEPTHS) + 1), DEPTHS)[0]
        return self.query(depth, self.types())

    def types(self) -> tuple[str, ...]:
        """The types of a query's columns."""
        weighted = [INT] * 5 + [STRING] * 2 + [DECIMAL, DATE, BOOLEAN, DOUBLE, NUMERAL]
        return tuple(self.random.choice(weighted) for _ in range(self.random.choice((1, 2, 2, 3))))

    # ---- queries

    def query(self, depth: int, types: Sequence[str], outer: Sequence[Column] = ()) -> Query:
        """Any query with columns of the given types; with `outer`, it may read the columns around it."""
        if depth <= 0:
            return self.pick((3, self.select), (1, self.grouped))(0, types, outer)
        kinds = [
            (4, self.select),
            (4, self.grouped),
            (2, self.windowed),
            (2, self.set_operation),
            (1.2, self.limited),
            (0.1, self.constants),
        ]
        if not outer:
            kinds += [(1, self.with_ctes), (0.8, self.top_per_group)]
        return self.pick(*kinds)(depth, types, outer)

    def select(self, depth: int, types: Sequence[str], outer: Sequence[Column] = ()) -> Query:
        """SELECT [DISTINCT] … FROM … WHERE …"""
        source, columns = self.source(depth, outer)
        items = [self.item(columns, type_, depth) for type_ in types]
        names = self.output_names(types, columns)
        self.with_lateral_alias(items, types, names, columns)
        distinct = ""
        if self.chance(0.15):
            self.saw("distinct")
            distinct = "DISTINCT "
        order = ""
        if not distinct and self.chance(0.04):
            self.saw("plain order by")
            order = " ORDER BY 1"
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        sql = f"SELECT {distinct}{listed} FROM {source}{self.where(columns, depth, outer)}{order}"
        return Query(sql, names, tuple(types))

    def output_names(self, types: Sequence[str], columns: Sequence[Column]) -> tuple[str, ...]:
        """Names for the columns of a result; now and then those of columns that are read, for other values."""
        names = [self.name("x") for _ in types]
        mine = sorted({c.ref.split(".")[-1] for c in columns})
        self.shadows = bool(mine) and self.chance(0.2)
        if self.shadows:
            self.saw("alias that shadows a column")
            for place, name in enumerate(self.random.sample(mine, min(len(mine), len(names)))):
                names[place] = name
        return tuple(names)

    def with_lateral_alias(
        self, items: list[str], types: Sequence[str], names: Sequence[str], columns: Sequence[Column]
    ) -> None:
        """The last item reads an earlier one by its alias, unless a column has that name."""
        known = {c.ref.split(".")[-1] for c in columns}
        earlier = [n for n, t in zip(names[:-1], types, strict=False) if t == types[-1] == INT and n not in known]
        if earlier and self.chance(0.15):
            self.saw("lateral alias")
            items[-1] = f"{self.random.choice(earlier)} * 2 - 1"

    def item(self, columns: Sequence[Column], type_: str, depth: int) -> str:
        """An item of SELECT: an expression, or a subquery as a value."""
        if depth > 0 and self.chance(0.12):
            if type_ == BOOLEAN:
                return self.exists(columns, depth - 1)
            self.saw("scalar subquery in select")
            return self.scalar_subquery(columns, type_, depth - 1)
        return self.scalar(columns, type_)

    def constants(self, depth: int, types: Sequence[str], outer: Sequence[Column] = ()) -> Query:
        """SELECT without FROM."""
        self.saw("no from")
        names = tuple(self.name("x") for _ in types)
        listed = ", ".join(f"{self.literal(t)} AS {n}" for t, n in zip(types, names, strict=True))
        return Query(f"SELECT {listed}", names, tuple(types))

    def set_operation(self, depth: int, types: Sequence[str], outer: Sequence[Column] = ()) -> Query:
        """UNION, EXCEPT, INTERSECT, with and without ALL, nested as the sides like."""
        word = self.random.choice(("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"))
        self.saw(word.lower())
        left, right = (self.query(depth - 1, types, outer) for _ in range(2))
        if any(operator in left.sql + right.sql for operator in (") UNION", ") EXCEPT", ") INTERSECT")):
            self.saw("nested set operation")
        return Query(f"({left.sql}) {word} ({right.sql})", left.names, tuple(types))

    def with_ctes(self, depth: int, types: Sequence[str], outer: Sequence[Column] = ()) -> Query:
        """WITH one or two queries that the body reads, preferably several times."""
        known = list(self.ctes)
        definitions = []
        for _ in range(self.random.choice((1, 1, 2))):
            inner = self.query(depth - 1, self.types())
            name = self.name("q")
            definitions.append(f"{name} AS ({inner.sql})")
            self.ctes.append((name, inner))
        mine = self.ctes[len(known) :]
        body = self.query(depth - 1, types)
        self.ctes = known
        self.saw("cte")
        if any(body.sql.count(f" {name} ") > 1 for name, _ in mine):
            self.saw("cte used twice")
        clause = "WITH " + ", ".join(definitions)
        if body.sql.startswith("WITH "):
            return Query(f"{clause} SELECT * FROM ({body.sql}) AS {self.name('t')}", body.names, body.types)
        return Query(f"{clause} {body.sql}", body.names, body.types)

    def limited(self, depth: int, types: Sequence[str], outer: Sequence[Column] = ()) -> Query:
        """ORDER BY … LIMIT over a total order: of the result's columns, or of the source's."""
        self.saw("limit")
        tail = f" LIMIT {self.random.choice((1, 2, 3, 5))}"
        if self.chance(0.1):
            self.saw("offset without limit")
            tail = f" OFFSET {self.random.choice((1, 2))}"
        elif self.chance(0.3):
            self.saw("offset")
            tail += f" OFFSET {self.random.choice((1, 2))}"
        if self.chance(0.3):
            self.saw("order by hidden column")
            source, columns = self.source(depth, outer)
            names = tuple(self.name("x") for _ in types)
            items = [f"{self.scalar(columns, t)} AS {n}" for t, n in zip(types, names, strict=True)]
            order = self.total_order([c.ref for c in columns])
            sql = f"SELECT {', '.join(items)} FROM {source}{self.where(columns, depth, outer)} ORDER BY {order}{tail}"
            return Query(sql, names, tuple(types))
        inner = self.pick((2, self.select), (2, self.grouped), (1, self.set_operation))(depth, types, outer)
        order = self.total_order([str(i + 1) for i in range(len(types))])
        if " ORDER BY 1" in inner.sql or not inner.sql.startswith("SELECT"):
            return Query(
                f"SELECT * FROM ({inner.sql}) AS {self.name('t')} ORDER BY {order}{tail}", inner.names, inner.types
            )
        return Query(f"{inner.sql} ORDER BY {order}{tail}", inner.names, inner.types)

    def total_order(self, keys: Sequence[str]) -> str:
        """All keys in some order, each ascending or descending."""
        shuffled = self.random.sample(list(keys), len(keys))
        return ", ".join(
            key + self.random.choice(("", "", " DESC", " DESC NULLS FIRST", " NULLS LAST")) for key in shuffled
        )

    # ---- aggregation

    def grouped(self, depth: int, types: Sequence[str], outer: Sequence[Column] = ()) -> Query:
        """GROUP BY in all its spellings; without keys a global aggregate."""
        source, columns = self.source(depth, outer)
        self.note_what_is_aggregated(source)
        names = self.output_names(types, columns)
        keyed = [self.chance(0.45) and type_ != DOUBLE for type_ in types]
        items = [
            self.key(columns, type_)
            if key
            else self.counted_subquery(columns, depth - 1)
            if type_ == INT and depth > 0 and self.chance(0.1)
            else self.aggregate(columns, type_)
            for type_, key in zip(types, keyed, strict=True)
        ]
        keys = [item for item, key in zip(items, keyed, strict=True) if key]
        extra = [] if keys or self.chance(0.4) else [self.key(columns, self.random.choice(columns).type)]
        group, total = self.group_by(items, keyed, names, extra)
        if total and self.chance(0.5):
            self.saw("grouping()")
            marked = next((i for i, type_ in enumerate(types) if type_ == INT and not keyed[i]), None)
            if marked is not None:
                items[marked] = f"GROUPING({self.random.choice(keys + extra)})"
        listed = [f"{item} AS {name}" for item, name in zip(items, names, strict=True)]
        if group and not total and self.chance(0.12) and INT in types:
            listed = self.ranked_groups(listed, items, types, keyed, names)
        # On DuckDB, and not on Spark, GROUP BY ALL takes what HAVING names for one more key, and a name in HAVING is an
        # alias even where the expression around it is grouped by.
        named_in_having = [] if group.endswith(" ALL") or self.shadows else keys + extra
        having = self.having(columns, named_in_having, depth, outer, total)
        sql = f"SELECT {', '.join(listed)} FROM {source}{self.where(columns, depth, outer)}{group}{having}"
        return Query(sql, names, tuple(types))

    def counted_subquery(self, columns: Sequence[Column], depth: int) -> str:
        """The rows of a group for which a subquery has a row."""
        self.saw("subquery in aggregate")
        return f"COUNT(CASE WHEN {self.exists(columns, depth)} THEN 1 END)"

    def note_what_is_aggregated(self, source: str) -> None:
        if any(word in source for word in ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN")):
            self.saw("aggregate over outer join")
        if "SEMI JOIN" in source or "ANTI JOIN" in source:
            self.saw("aggregate over semi or anti join")
        if "GROUP BY" in source:
            self.saw("aggregate of aggregate")

    def group_by(
        self, items: Sequence[str], keyed: Sequence[bool], names: Sequence[str], extra: Sequence[str]
    ) -> tuple[str, bool]:
        """GROUP BY by expression, ordinal, alias or ALL, or grouping sets; and whether it can have a grand total."""
        keys = [item for item, key in zip(items, keyed, strict=True) if key] + list(extra)
        if not keys:
            self.saw("global aggregate")
            return "", False
        plain = len(set(keys)) == len(keys)
        style = self.random.random()
        if style < 0.3 and plain:
            return self.grouping_sets(keys), True
        if style < 0.4 and not extra:
            self.saw("group by ordinal")
            return " GROUP BY " + ", ".join(str(i + 1) for i, key in enumerate(keyed) if key), False
        if style < 0.5 and not extra and not self.shadows:
            self.saw("group by alias")
            return " GROUP BY " + ", ".join(n for n, key in zip(names, keyed, strict=True) if key), False
        if style < 0.6 and not extra:
            self.saw("group by all")
            return " GROUP BY ALL", False
        return " GROUP BY " + ", ".join(keys), False

    def grouping_sets(self, keys: Sequence[str]) -> str:
        """ROLLUP, CUBE or GROUPING SETS over the keys."""
        keys = [f"({key})" if " IS NULL" in key or "NOT " in key else key for key in keys]
        listed = ", ".join(keys)
        kind = self.random.choice(("rollup", "cube", "grouping sets"))
        self.saw(kind)
        if kind != "grouping sets":
            return f" GROUP BY {kind.upper()}({listed})"
        sets = [f"({listed})", "()", *(f"({key})" for key in keys)]
        chosen = [f"({listed})", *self.random.sample(sets, self.random.choice((1, 2)))]
        return f" GROUP BY GROUPING SETS ({', '.join(chosen)})"

    def ranked_groups(
        self, listed: list[str], items: Sequence[str], types: Sequence[str], keyed: Sequence[bool], names: Sequence[str]
    ) -> list[str]:
        """A window over aggregates instead of one of the aggregates."""
        places = [i for i, type_ in enumerate(types) if type_ == INT and not keyed[i]]
        if not places:
            return listed
        self.saw("window over aggregate")
        place = self.random.choice(places)
        keys = [item for item, key in zip(items, keyed, strict=True) if key]
        partition = f"PARTITION BY {self.random.choice(keys)} " if keys and self.chance(0.5) else ""
        if not partition:
            self.saw("window without partition over aggregate")
        over = f"RANK() OVER ({partition}ORDER BY {items[place]} DESC)"
        if self.chance(0.3):
            self.saw("share of total")
            over = f"{items[place]} - COUNT(*) OVER ({partition.strip()})"
        listed[place] = f"{over} AS {names[place]}"
        return listed

    def having(
        self, columns: Sequence[Column], keys: Sequence[str], depth: int, outer: Sequence[Column], total: bool
    ) -> str:
        parts = ["COUNT(*) > 0"] if total else []
        if self.chance(0.25):
            self.saw("having")
            number = self.aggregate(columns, INT)
            kind = self.random.random()
            if depth > 0 and kind < 0.25:
                self.saw("scalar subquery in having")
                parts.append(f"{number} >= {self.scalar_subquery((), INT, depth - 1)}")
            elif depth > 0 and kind < 0.45:
                self.saw("in subquery in having")
                inner = self.query(depth - 1, (INT,))
                parts.append(f"{number} {self.random.choice(('IN', 'NOT IN'))} ({inner.sql})")
            elif keys and not total and kind < 0.6:
                parts.append(f"{self.random.choice(keys)} IS NOT NULL")
            else:
                parts.append(f"{number} {self.random.choice(('>', '<=', '<>', '='))} {self.random.choice((0, 1, 2))}")
        return " HAVING " + " AND ".join(parts) if parts else ""

    # ---- windows

    def windowed(self, depth: int, types: Sequence[str], outer: Sequence[Column] = ()) -> Query:
        """Window functions, with QUALIFY now and then. Orders are total where the function could see a tie.

        Copies of a row tie even so. Which of them is the first is open, but the same within one window; so functions that
        tell copies apart share their partition with all others, and with QUALIFY.
        """
        source, columns = self.source(depth, outer)
        names = tuple(self.name("x") for _ in types)
        partition = self.partition(columns)
        items = []
        windows = 0
        named = self.chance(0.1)
        order = f"ORDER BY {self.total_order([c.ref for c in columns])}"
        for type_ in types:
            if self.chance(0.6) or (type_ == types[-1] and windows == 0):
                windows += 1
                where = "w" if named else f"({partition}{order})"
                items.append(self.window(columns, type_, partition, order, where))
            else:
                items.append(self.scalar(columns, type_))
            if self.chance(0.2) and not named and not any(order in item for item in items):
                partition = self.partition(columns)
        if windows > 1:
            self.saw("several windows")
        clause = ""
        if any(" OVER w" in item for item in items):
            self.saw("named window")
            clause = f" WINDOW w AS ({partition}{order})"
        qualify = ""
        if not clause and self.chance(0.25):
            self.saw("qualify")
            qualify = f" QUALIFY ROW_NUMBER() OVER ({partition}{order}) <= {self.random.choice((1, 2))}"
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        sql = f"SELECT {listed} FROM {source}{self.where(columns, depth, outer)}{qualify}{clause}"
        return Query(sql, names, tuple(types))

    def partition(self, columns: Sequence[Column]) -> str:
        if self.chance(0.1):
            self.saw("window without partition")
            return ""
        chosen = self.random.choice(columns)
        return f"PARTITION BY {chosen.ref if self.chance(0.8) else self.over(chosen.ref, chosen.type)} "

    def top_per_group(self, depth: int, types: Sequence[str], outer: Sequence[Column] = ()) -> Query:
        """The first rows of each partition, by a filter on a rank."""
        self.saw("top-k a group")
        source, columns = self.source(depth - 1, outer)
        names = tuple(self.name("x") for _ in types)
        items = [f"{self.scalar(columns, t)} AS {n}" for t, n in zip(types, names, strict=True)]
        rank = self.name("n")
        order = self.total_order([c.ref for c in columns])
        items.append(f"ROW_NUMBER() OVER ({self.partition(columns)}ORDER BY {order}) AS {rank}")
        inner = f"SELECT {', '.join(items)} FROM {source}"
        alias = self.name("t")
        sql = f"SELECT {', '.join(names)} FROM ({inner}) AS {alias} WHERE {rank} <= {self.random.choice((1, 2))}"
        return Query(sql, names, tuple(types))

    # ---- FROM

    def source(self, depth: int, outer: Sequence[Column] = ()) -> tuple[str, list[Column]]:
        """FROM: one to four relations, joined in every way. Returns its text and the columns that it offers."""
        text, columns, table = self.relation(depth)
        tables = [table]
        count = self.random.choices((1, 2, 3, 4), (5, 4, 2, 1) if depth > 0 else (6, 2, 0.5, 0))[0]
        merged = False
        for place in range(1, count):
            if depth > 0 and not merged and self.chance(0.1):
                text, columns = self.lateral(text, columns, depth)
                continue
            if place == 1 and self.chance(0.2):
                shared = self.joined_by_name(table)
                if shared is not None:
                    text, columns, merged = *shared, True
                    continue
            right, theirs, other = self.relation(depth, renamed=merged)
            if other is not None and other in tables:
                self.saw("self-join")
            tables.append(other)
            text, columns = self.join(text, columns, right, theirs)
        if count > 2:
            self.saw("join chain")
        if count == 1 and not outer and self.chance(0.2):
            self.saw("bare names")
            columns = [Column(c.ref.split(".")[-1], c.type) for c in columns]
        return text, columns

    def relation(self, depth: int, renamed: bool = False) -> tuple[str, list[Column], str | None]:
        """A table, a derived table, VALUES or a common table expression; with the table's name where it is one."""
        if self.ctes and self.chance(0.6):
            name, query = self.random.choice(self.ctes)
            alias = self.name("t")
            return f"{name} AS {alias}", _columns(alias, query.names, query.types), None
        if depth > 0 and self.chance(0.35):
            self.saw("derived table")
            query = self.query(depth - 1, self.types())
            alias = self.name("t")
            return f"({query.sql}) AS {alias}", _columns(alias, query.names, query.types), None
        if self.chance(0.05):
            return (*self.values(), None)
        table = self.random.choice(list(self.schemas))
        alias = self.name("t")
        names, types = zip(*self.schemas[table], strict=True)
        if renamed or self.chance(0.05):
            self.saw("table alias with columns")
            fresh = [self.name("k") for _ in names]
            return f"{table} AS {alias}({', '.join(fresh)})", _columns(alias, fresh, types), table
        return f"{table} AS {alias}", _columns(alias, names, types), table

    def values(self) -> tuple[str, list[Column]]:
        self.saw("values")
        types = [self.random.choice((INT, INT, STRING)) for _ in range(2)]
        first = [self.literal(t, null=False) for t in types]
        rows = [first, *([self.literal(t) for t in types] for _ in range(self.random.choice((0, 1, 2))))]
        alias, names = self.name("t"), [self.name("k") for _ in types]
        listed = ", ".join(f"({', '.join(row)})" for row in rows)
        return f"(VALUES {listed}) AS {alias}({', '.join(names)})", _columns(alias, names, types)

    def join(self, text: str, columns: list[Column], right: str, theirs: list[Column]) -> tuple[str, list[Column]]:
        """text JOIN right of a random kind."""
        kind = self.random.choice(
            ("INNER", "INNER", "INNER", "LEFT", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI", "CROSS", "COMMA")
        )
        word = kind.removeprefix("LEFT ").lower() if kind in ("LEFT SEMI", "LEFT ANTI") else kind.lower()
        self.saw(f"{word} join")
        if kind == "COMMA" and not any(w in text for w in (" JOIN ", "LATERAL")):
            return f"{text}, {right}", columns + theirs
        if kind in ("CROSS", "COMMA"):
            return f"{text} CROSS JOIN {right}", columns + theirs
        joined = f"{text} {kind} JOIN {right} ON {self.join_condition(columns, theirs)}"
        return joined, columns if kind in ("LEFT SEMI", "LEFT ANTI") else columns + theirs

    def joined_by_name(self, table: str | None) -> tuple[str, list[Column]] | None:
        """NATURAL JOIN, or JOIN … USING, of two tables that have a column in common: those are written bare."""
        if table is None:
            return None
        mine = dict(self.schemas[table])
        others = [t for t in self.schemas if t != table and set(mine) & {n for n, _ in self.schemas[t]}]
        if not others:
            return None
        other = self.random.choice(others)
        theirs = dict(self.schemas[other])
        common = [name for name in mine if name in theirs]
        side = self.random.choice(("", "LEFT ", "RIGHT ", "FULL "))
        left, right = self.name("t"), self.name("t")
        if self.chance(0.4):
            self.saw("natural join")
            text = f"{table} AS {left} NATURAL {side}JOIN {other} AS {right}"
        else:
            self.saw("join using")
            common = self.random.sample(common, self.random.choice(range(1, len(common) + 1)))
            text = f"{table} AS {left} {side}JOIN {other} AS {right} USING ({', '.join(common)})"
        columns = [Column(name, mine[name]) for name in common]
        columns += [Column(f"{left}.{n}", t) for n, t in mine.items() if n not in common]
        return text, columns + [Column(f"{right}.{n}", t) for n, t in theirs.items() if n not in common]

    def lateral(self, text: str, columns: list[Column], depth: int) -> tuple[str, list[Column]]:
        """JOIN LATERAL a subquery that reads the columns before it."""
        types = self.types()
        alias = self.name("t")
        query = self.correlated(columns, types, depth - 1)
        theirs = _columns(alias, query.names, types)
        if self.chance(0.4):
            self.saw("left lateral join")
            return f"{text} LEFT JOIN LATERAL ({query.sql}) AS {alias} ON TRUE", columns + theirs
        self.saw("lateral join")
        return f"{text} JOIN LATERAL ({query.sql}) AS {alias} ON TRUE", columns + theirs

    # ---- subqueries

    def correlated(self, outer: Sequence[Column], types: Sequence[str], depth: int) -> Query:
        """A query that reads a column of the query around it, in its WHERE."""
        kind = self.random.random()
        if kind < 0.2:
            return self.grouped(depth, types, outer)
        if kind < 0.3 and depth > 0:
            return self.query(depth, types, outer)
        return self.select(depth, types, outer)

    def exists(self, columns: Sequence[Column], depth: int) -> str:
        negated = self.chance(0.4)
        self.saw("not exists" if negated else "exists")
        query = self.inner(columns, (INT,), depth)
        return f"{'NOT ' if negated else ''}EXISTS ({query.sql})"

    def membership(self, columns: Sequence[Column], depth: int) -> str:
        column = self.random.choice(columns)
        negated = self.chance(0.5)
        self.saw("not in" if negated else "in")
        query = self.inner(columns, (column.type,), depth)
        value = column.ref if self.chance(0.8) else f"({self.over(column.ref, column.type)})"
        return f"{value} {'NOT IN' if negated else 'IN'} ({query.sql})"

    def inner(self, columns: Sequence[Column], types: Sequence[str], depth: int) -> Query:
        """A subquery of a condition, correlated or not."""
        if columns and self.chance(0.6):
            return self.correlated(columns, types, depth)
        self.saw("uncorrelated")
        return self.query(depth, types)

    def scalar_subquery(self, columns: Sequence[Column], type_: str, depth: int) -> str:
        """A subquery that yields one value: a global aggregate, or the first row of an order."""
        outer = columns if self.chance(0.6) else ()
        source, mine = self.source(max(depth, 0), outer)
        where = self.where(mine, depth, outer)
        if self.chance(0.2):
            self.saw("limit in subquery")
            return f"(SELECT {self.scalar(mine, type_)} AS {self.name('x')} FROM {source}{where} ORDER BY 1 LIMIT 1)"
        return f"(SELECT {self.aggregate(mine, type_)} AS {self.name('x')} FROM {source}{where})"

    # ---- conditions

    def where(self, columns: Sequence[Column], depth: int, outer: Sequence[Column] = ()) -> str:
        """WHERE, with the correlation of a subquery and with subqueries of its own."""
        parts = []
        link = self.correlation(columns, outer) if outer else None
        if link is not None:
            parts.append(link)
        if self.chance(0.45):
            parts.append(self.condition(columns, depth, outer))
        if self.chance(0.15):
            parts.append(self.condition(columns, depth, outer))
        return " WHERE " + " AND ".join(f"({p})" for p in parts) if parts else ""

    def condition(self, columns: Sequence[Column], depth: int, outer: Sequence[Column] = ()) -> str:
        """A condition of WHERE: it may hold subqueries, also below OR and NOT."""
        if depth <= 0 or self.chance(0.55):
            return self.predicate(columns)
        around = columns
        if outer and self.chance(0.3):
            self.saw("nested correlation")
            around = [*columns, *outer]
        kind = self.random.random()
        if kind < 0.4:
            found = self.exists(around, depth - 1)
        elif kind < 0.75:
            found = self.membership(around, depth - 1)
        else:
            self.saw("scalar subquery in where")
            column = self.random.choice(columns)
            type_ = INT if column.type == BOOLEAN else column.type
            value = column.ref if type_ == column.type else self.scalar(columns, INT)
            operator = self.random.choice((">", "<=", "=", "<>"))
            found = f"{value} {operator} {self.scalar_subquery(around, type_, depth - 1)}"
        if self.chance(0.2):
            self.saw("subquery under or")
            return f"{found} OR {self.predicate(columns)}"
        if self.chance(0.1):
            self.saw("not")
            return f"NOT ({found} AND {self.predicate(columns)})"
        return found


def _columns(alias: str, names: Sequence[str], types: Sequence[str]) -> list[Column]:
    return [Column(f"{alias}.{name}", type_) for name, type_ in zip(names, types, strict=True)]
