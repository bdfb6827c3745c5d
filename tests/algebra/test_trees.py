"""Joins as trees of sets: Figure 3.1 of Shmueli and Itai with its figures, templates, and what is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from deferred.algebra.delta import differentiate
from deferred.algebra.operators import Distinct, Scan
from deferred.algebra.program import Step
from deferred.algebra.strategy import support_tables
from tests.fuzz.case import Case, Change, Row
from tests.fuzz.check import apply, check
from tests.fuzz.duck import Database, added

FIGURE = {
    "r1": (("supplier", "int"), ("part", "int")),
    "r2": (("supplier", "int"), ("slevel", "string")),
    "r3": (("project", "int"), ("part", "int"), ("loc", "string")),
    "r4": (("project", "int"), ("budget", "int")),
    "r5": (("project", "int"), ("mgr", "string"), ("loc", "string")),
}
"""The schema of Figure 3.1."""

ROWS: dict[str, tuple[Row, ...]] = {
    "r1": ((3, 8), (9, 17), (19, 18), (20, 18), (7, 15), (9, 15)),
    "r2": ((3, "L"), (9, "L"), (7, "M"), (19, "M")),
    "r3": ((47, 8, "SF"), (55, 8, "LA"), (99, 15, "LA"), (99, 15, "SF"), (12, 17, "NY")),
    "r4": ((47, 90), (55, 40), (70, 50)),
    "r5": ((47, "White", "SF"), (55, "Green", "LA"), (99, "Brown", "LA"), (70, "Black", "DC")),
}
"""The rows that the paper's text names, and others that agree with what it says of them."""

VIEW = """
SELECT DISTINCT r1.supplier, r1.part
FROM r1 JOIN r2 ON r1.supplier = r2.supplier JOIN r3 ON r1.part = r3.part
JOIN r4 ON r3.project = r4.project JOIN r5 ON r3.project = r5.project AND r3.loc = r5.loc
"""

SCHEMAS = {
    "t": (("a", "int"), ("b", "int")),
    "u": (("b", "int"), ("c", "int")),
    "v": (("c", "int"), ("d", "int"), ("x", "double")),
}
CHAIN = "SELECT DISTINCT t.a FROM t JOIN u ON t.b = u.b JOIN v ON u.c = v.c"
TRIANGLE = "SELECT DISTINCT t.a, t.b FROM t, t AS t2, t AS t3 WHERE t.b = t2.a AND t2.b = t3.a AND t3.b = t.a"


class Kept:
    """A view whose tables change; what it shows, and how far each change goes."""

    def __init__(self, query: str, schemas: dict, rows: dict[str, tuple[Row, ...]]) -> None:
        self.db = Database(schemas)
        for name, listed in rows.items():
            self.db.replace(name, Counter(listed))
        self.bound = self.db.bind(query, "tree")
        self.db.keep(self.bound)
        self.shown = self.db.query(query)
        self.query = query

    def change(self, **tables: Change) -> set[str]:
        """Apply changes; returns the tables that were read beside the changes and the kept counts."""
        changed = apply(self.db, tables)
        delta = self.db.delta(self.bound, changed)
        self.shown = added(self.shown, delta)
        assert self.shown == self.db.query(self.query)
        program = differentiate(self.bound.plan, changed, self.bound.types)
        read = set()
        for step in program.steps:
            assert isinstance(step, Step)
            if step.when is None or self.db.ran.rows[step.when]:
                read |= {node.table for node in step.plan.walk() if isinstance(node, Scan)}
        return read

    def good(self, table: str) -> Counter[Row]:
        """The good-counters of a table, by which it supports the one above it; of the root, the rows of the view."""
        name = next(
            node.strategy.support
            for node in self.bound.plan.walk()
            if isinstance(node, Distinct) and next(n.table for n in node.walk() if isinstance(n, Scan)) == table
        )
        rows = self.db.connection.execute(f'SELECT * FROM "{name}"').fetchall()
        return Counter({row[:-1]: row[-1] for row in rows})


@pytest.fixture
def figure() -> Iterator[Kept]:
    kept = Kept(VIEW, FIGURE, ROWS)
    yield kept
    kept.db.close()


class TestFigure31:
    """The rows that the paper adds, one after the other, and what it says becomes of them."""

    def test_good_and_bad_rows(self, figure: Kept) -> None:
        assert figure.bound.notes == ("The join is a tree: r1(r2, r3(r4, r5)).",)
        assert figure.good("r3") == Counter({(8,): 2})  # "only the first two tuples of R3 are good"
        assert figure.shown == Counter([(3, 8)])  # "⟨3,8⟩ is the only good tuple of R1"
        assert figure.good("r4") == Counter([(47,), (55,), (70,)])  # "all tuples in a leaf are good"

    def test_root(self, figure: Kept) -> None:
        assert figure.change(r1=Change((), ((9, 8),))) == set()
        assert (9, 8) in figure.shown  # it is supported by ⟨55,8,LA⟩ and ⟨9,L⟩
        assert figure.change(r1=Change((), ((7, 99),))) == set()
        assert (7, 99) not in figure.shown  # ⟨7,M⟩ alone is immaterial

    def test_leaf(self, figure: Kept) -> None:
        """⟨99,15,LA⟩ becomes good, which goes up the tree; ⟨99,15,SF⟩ stays bad for lack of support in R5."""
        assert figure.change(r4=Change((), ((99, 30),))) == {"r1", "r3"}
        assert figure.good("r3") == Counter({(8,): 2, (15,): 1})
        assert figure.shown == Counter([(3, 8), (7, 15), (9, 15)])

    def test_internal_node(self, figure: Kept) -> None:
        """⟨70,18,DC⟩ is good: ⟨19,18⟩ becomes good, ⟨20,18⟩ stays bad without a row of R2."""
        assert figure.change(r3=Change((), ((70, 18, "DC"),))) == {"r1"}
        assert figure.shown == Counter([(3, 8), (19, 18)])

    def test_deletions(self, figure: Kept) -> None:
        """A row goes up the tree only when it was the last that supported a value."""
        assert figure.change(r3=Change(((47, 8, "SF"),), ())) == set()
        assert figure.good("r3") == Counter({(8,): 1})
        assert figure.change(r5=Change(((55, "Green", "LA"),), ())) == {"r1", "r3"}
        assert figure.shown == Counter()

    def test_a_second_support_changes_nothing(self, figure: Kept) -> None:
        assert figure.change(r4=Change((), ((47, 7), (1, 1)))) == {"r3"}  # project 1 is new: rows of R3 are looked for
        assert figure.change(r4=Change((), ((47, 8),))) == set()
        assert figure.change(r2=Change((), ((3, "M"),)), r5=Change((), ((47, "Grey", "SF"),))) == set()

    def test_all_tables_at_once(self, figure: Kept) -> None:
        """Each table is read after the update; a row and its support may come and go together."""
        figure.change(
            r1=Change(((3, 8),), ((3, 18), (19, 8))),
            r2=Change(((9, "L"),), ((20, "S"),)),
            r3=Change(((55, 8, "LA"),), ((70, 18, "DC"), (1, 17, "X"))),
            r4=Change(((47, 90),), ((99, 1), (1, 1))),
            r5=Change((), ((1, "Red", "X"), (1, "Red", "X"))),
        )
        assert (20, 18) in figure.shown


READS = {
    # query, the table that changes: the tables that are read, and those that are read only where a key becomes good or bad
    (CHAIN, "t"): (set(), set()),
    (CHAIN, "u"): (set(), {"t"}),
    (CHAIN, "v"): (set(), {"t", "u"}),
    ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.b = t.b)", "u"): (set(), {"t"}),
    ("SELECT a FROM t WHERE b IN (SELECT b FROM u WHERE c IN (SELECT c FROM v))", "v"): (set(), {"t", "u"}),
    ("SELECT a FROM t WHERE b IN (SELECT b FROM u WHERE c IN (SELECT c FROM v))", "t"): (set(), set()),
    ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u)", "u"): (set(), {"t"}),
    ("SELECT DISTINCT a FROM t", "t"): (set(), set()),
}


@pytest.mark.parametrize(("query", "changed"), READS)
def test_what_is_read(query: str, changed: str) -> None:
    bound = Database(SCHEMAS).bind(query, "tree")
    program = differentiate(bound.plan, {changed}, bound.types)
    assert program.result is not None
    always, perhaps = set[str](), set[str]()
    for step in program.steps:
        assert isinstance(step, Step)
        read = {node.table for node in step.plan.walk() if isinstance(node, Scan)}
        (always if step.when is None else perhaps).update(read)
    always |= {node.table for node in program.result.walk() if isinstance(node, Scan)}
    assert (always, perhaps) == READS[query, changed]


def test_a_triangle_has_a_template() -> None:
    edges = ((1, 2), (2, 3), (3, 1), (3, 4), (4, 5), (1, 1))
    kept = Kept(TRIANGLE, {"t": SCHEMAS["t"]}, {"t": edges})
    assert kept.bound.notes == ("The join is cyclic, and a tree with templates, in brackets: [t ⋈ t](t).",)
    assert kept.shown == Counter([(1, 2), (2, 3), (3, 1), (1, 1)])
    kept.change(t=Change((), ((5, 3),)))
    assert set(kept.shown) == {(1, 2), (2, 3), (3, 1), (1, 1), (3, 4), (4, 5), (5, 3)}
    kept.change(t=Change(((2, 3), (1, 1)), ()))
    assert set(kept.shown) == {(3, 4), (4, 5), (5, 3)}


def test_a_clique_of_four_has_templates_of_templates() -> None:
    """Six tables: what two templates share is too little for a third table, so one is a generator of the next."""
    pairs = {"ab": "xy", "ac": "xz", "ad": "xw", "bc": "yz", "bd": "yw", "cd": "zw"}
    ends = {end: [] for end in "xyzw"}
    for name, (one, other) in pairs.items():
        ends[one].append(f"{name}.a")
        ends[other].append(f"{name}.b")
    links = [f"{first} = {other}" for first, *others in ends.values() for other in others]
    query = f"SELECT DISTINCT ab.a FROM {', '.join(f't AS {name}' for name in pairs)} WHERE {' AND '.join(links)}"
    clique = ((1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4))
    kept = Kept(query, {"t": SCHEMAS["t"]}, {"t": (*clique[1:], (4, 5))})
    assert kept.bound.notes[0].count("[") == 2
    assert kept.shown == Counter()
    kept.change(t=Change((), clique[:1]))
    assert kept.shown == Counter([(1,)])
    kept.change(t=Change(clique[5:], ((2, 5), (3, 5))))
    assert kept.shown == Counter()
    kept.change(t=Change((), (clique[5],)))
    assert kept.shown == Counter([(1,), (2,)])


NOT_KEPT = {
    "a floating-point result": "SELECT DISTINCT v.x FROM u JOIN v ON u.c = v.c",
    "a floating-point key": "SELECT DISTINCT u.b FROM u JOIN v ON CAST(u.c AS DOUBLE) = v.x",
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_what_cannot_be_kept_is_maintained_as_before(name: str) -> None:
    database = Database(SCHEMAS)
    bound = database.bind(NOT_KEPT[name], "tree")
    assert not [node for node in bound.plan.walk() if isinstance(node, Distinct)][1:]
    assert bound.notes[0].startswith("No tree is kept for the join of u, v: ")
    steps = ({"u": Change(((1, 1),), ((2, 2),))}, {"v": Change((), ((2, 2, 2.0),))})
    rows = {"t": (), "u": ((1, 1), (1, 2)), "v": ((1, 1, 1.0), (1, 2, 0.5))}
    check(Case(SCHEMAS, NOT_KEPT[name], rows, steps, maintain="tree"), database)


def test_without_the_option_nothing_is_kept() -> None:
    for query, _ in READS:
        assert support_tables(Database(SCHEMAS).bind(query).plan) == {}
