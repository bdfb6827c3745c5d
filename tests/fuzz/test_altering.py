"""Random views and random edits of their text: what follows from the old rows is what the new query gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from deferred.algebra.editing import Typed, edited, was
from deferred.algebra.operators.scan import tables_of
from deferred.algebra.over_view import VIEW, of_view, over_view
from deferred.algebra.program import run
from deferred.algebra.selfmaintenance import Promises
from deferred.algebra.sharing import Sharing, kept_before, over_shared
from deferred.algebra.strategy import support_tables
from deferred.errors import DeferredError
from deferred.sql.altered_query import marked, normal_form
from deferred.sql.bind import Bound
from deferred.sql.dialect import ViewSQL, parse_query, text
from tests.engine.support import bag, recomputed
from tests.fuzz.case import random_schemas
from tests.fuzz.duck import CannotRun, Database, Row, added
from tests.fuzz.mutations import BELOW, NAMED, Edit, aliased, another_join, join_removed, mutated, summed
from tests.fuzz.promised import Tables, query
from tests.fuzz.recursive import SCHEMAS, RecursiveGenerator
from tests.fuzz.run import SHARED, case_of

GROUPS = range(19)
VIEWS, LONGEST, EDITED = 11, 500, 3
"""So many views of each group, which share their tables; the characters of a view; and how often it is edited."""

PROMISED = range(120)
RECURSIVE = range(30)
WANTED = 300
"""At least so many alterations whose new rows follow from old ones, and are compared."""


class View:
    """A view, bound once for all of its alterations."""

    def __init__(self, db: Database, sql: str, promises: Promises | None = None) -> None:
        self.db, self.sql, self.promises = db, sql, promises or Promises()
        self.rows, self.types = db.query(sql), db.types(sql)
        try:
            self.bound: Bound | None = db.bind(sql)
        except DeferredError:  # what DuckDB takes and Spark would not
            self.bound = None


class Alteration:
    """A view and its new definition over the same tables; each way to the new rows is compared with the new query."""

    def __init__(self, view: View, new: str) -> None:
        self.view, self.db, self.sql, self.new = view, view.db, view.sql, new
        self.new_rows = self.db.query(new)

    @property
    def ways(self) -> Counter[str]:
        """The ways that there are; what none of them leads to is recomputed."""
        before = self.view.bound
        try:
            after = self.db.bind(self.new)
        except DeferredError:
            return Counter()
        if before is None:
            return Counter()
        found = self._same(before, after)
        sharing = Sharing(before.plan, before.types, after.types, frozenset(after.tables))
        found += self._carried_over(sharing, before, after)
        found += self._by_delta_rules(before, after)
        return found + self._over_the_view(sharing, before, after)

    def _expect(self, rows: Counter[Row]) -> None:
        assert rows == self.new_rows, f"{self.sql}\nbecame {self.new}"

    def _same(self, before: Bound, after: Bound) -> Counter[str]:
        """Nothing is to be done: both have one plan, and columns of the same names and types."""
        old, new = normal_form(before.plan, before.types), normal_form(after.plan, after.types)
        if old != new or self.view.types != self.db.types(self.new):
            return Counter()
        self._expect(self.view.rows)
        return Counter(["nothing"])

    def _carried_over(self, sharing: Sharing, before: Bound, after: Bound) -> Counter[str]:
        """The new rows and support tables, made of the old support tables, beside those from the base tables."""
        db = self.db
        shared = sharing.shared(after.plan)
        if not shared:
            return Counter()
        db.keep(before)
        for name in support_tables(before.plan):
            db.connection.execute(f'CREATE OR REPLACE TEMP TABLE "{kept_before(name)}" AS SELECT * FROM "{name}"')
        db.recurse(after)
        for name, each in shared.items():
            direct = support_tables(after.plan)[name]
            assert each.contents.columns == direct.columns
            assert db.rows_of(each.contents) == db.rows_of(direct), f"{self.sql}\nbecame {self.new}\n{name}"
        plan = over_shared(after.plan, shared)
        db.ready(plan)
        self._expect(db.rows_of(plan))
        return Counter({"kept": 1, "kept, no table": not tables_of(plan)})

    def _by_delta_rules(self, before: Bound, after: Bound) -> Counter[str]:
        """What other conditions and branches change in the view and in its support tables, from the old ones."""
        db, text_of_both = self.db, marked(self.sql, self.new)
        try:
            both = None if text_of_both is None else db.bind(text_of_both)
        except DeferredError:
            return Counter()
        plans = [Typed(bound.plan, bound.types) for bound in (before, after, both) if bound is not None]
        found = None if both is None else edited(*plans, frozenset(both.tables))
        if found is None:
            return Counter()
        db.keep(before)
        for name in support_tables(before.plan):
            db.connection.execute(f'CREATE OR REPLACE TEMP TABLE "{kept_before(name)}" AS SELECT * FROM "{name}"')
        for name, contents in found.supports.items():
            db.connection.execute(f'CREATE OR REPLACE TABLE "{name}" AS {db.renderer.render(contents)}')
            db.connection.execute(f'CREATE OR REPLACE TEMP VIEW "{was(name)}" AS SELECT * FROM "{name}"')
        moves = run(found.program.steps, db).moves(found.program)
        change = db.result(found.program)
        self._expect(added(self.view.rows, change))
        db.recurse(after)
        for name, contents in found.moved(moves).items():
            direct = support_tables(after.plan)[name]
            assert contents.columns == direct.columns
            assert db.rows_of(contents) == db.rows_of(direct), f"{self.sql}\nbecame {self.new}\n{name}"
        return Counter({"difference": 1, "difference, kept rows moved": bool(moves)})

    def _over_the_view(self, sharing: Sharing, before: Bound, after: Bound) -> Counter[str]:
        """The new rows follow from those of the view and of the tables that it does not read, or refer to nothing."""
        found = over_view(sharing, after.plan, self.view.promises)
        if found is None:
            return Counter()
        listed = ", ".join(f'"{of_view(c)}"' for c in before.plan.columns)
        self.db.recurse(before)
        rendered = self.db.renderer.render(before.plan)
        self.db.connection.execute(
            f'CREATE OR REPLACE TEMP TABLE "{VIEW}" AS SELECT * FROM ({rendered}) AS q({listed})'
        )
        self.db.ready(found.plan)
        self._expect(self.db.rows_of(found.plan))
        shown = [name for name, _ in self.view.types]
        left = found.left(shown) if len(set(shown)) == len(shown) else None
        if left is not None:
            listed = ", ".join(f"`{name}`" for name in shown)
            self._expect(self.db.query(f"SELECT * FROM (SELECT * FROM `{VIEW}`) AS q({listed}) WHERE {text(left)}"))
        return Counter(["over the view"] + ["from the view"] * found.follows + ["narrowed"] * (left is not None))


@pytest.mark.slow
def test_random_views_with_random_edits() -> None:
    ways: Counter[str] = Counter()
    for group in GROUPS:
        db = Database(random_schemas(group))
        for seed in range(group * SHARED, group * SHARED + VIEWS):
            case, _ = case_of(seed)
            if len(case.query) > LONGEST:
                continue
            for name, rows in case.initial.items():
                db.replace(name, Counter(rows))
            ways += altered(db, case.query, Random(seed))
            if seed % 2:
                ways += altered(db, summed(case.query), Random(seed), BELOW)
            else:
                ways += altered(db, aliased(case.query), Random(seed), NAMED)
        db.close()
    judge(
        ways,
        {
            "from the view": 30,
            "narrowed": 20,
            "difference": 150,
            "difference, kept rows moved": 60,
            "kept": 100,
            "kept, no table": 30,
            "nothing": 15,
            "over the view": 25,
        },
    )
    assert ways["compared"] >= WANTED


@pytest.mark.slow
def test_random_recursive_views_with_random_edits() -> None:
    """Conditions and branches inside and above, columns, groups, joins, and the recursion by another name."""
    ways: Counter[str] = Counter()
    db = Database(SCHEMAS)
    for seed in RECURSIVE:
        case = RecursiveGenerator(seed).case()
        for name, rows in case.initial.items():
            db.replace(name, Counter(rows))
        ways += altered(db, case.query, Random(seed))
    db.close()
    judge(ways, {"from the view": 20, "kept": 40, "kept, no table": 15, "nothing": 5})


def altered(db: Database, sql: str, random: Random, kinds: Sequence[Edit] | None = None) -> Counter[str]:
    """The ways to what random edits make of a view, and to one more join."""
    ways: Counter[str] = Counter()
    edited = {mutated(sql, random, edits, kinds) for edits in random.choices((1, 1, 2, 3), k=EDITED)}
    edited.add(another_join(parse_query(sql), random, dict(db.schemas)).sql(dialect=ViewSQL))
    try:
        view = View(db, sql)
    except (CannotRun, duckdb.Error):
        return ways
    for new in sorted(edited - {parse_query(sql).sql(dialect=ViewSQL)}):
        try:
            alteration = Alteration(view, new)
        except (CannotRun, duckdb.Error):
            continue
        ways += counted(alteration.ways)
    return ways


@pytest.mark.slow
def test_random_views_without_a_join_along_a_reference() -> None:
    ways: Counter[str] = Counter()
    for seed in PROMISED:
        random = Random(seed)
        tables = Tables.drawn(random)
        sql = query(random, tables)
        new = join_removed(parse_query(sql), random).sql(dialect=ViewSQL)
        if new == parse_query(sql).sql(dialect=ViewSQL):
            continue
        db = Database(tables.schemas)
        for name, rows in tables.filled(random).items():
            db.replace(name, Counter(rows))
        ways += counted(Alteration(View(db, sql, tables.promises(random)), new).ways)
        db.close()
    judge(ways, {"over the view": 12})


def counted(ways: Counter[str]) -> Counter[str]:
    return ways + Counter(["compared" if ways else "recomputed"])


def judge(ways: Counter[str], wanted: dict[str, int]) -> None:
    print(dict(ways))
    assert {way: ways[way] for way, least in wanted.items() if ways[way] < least} == {}


ON_SPARK = (3, 13)
"""Views of one group, each altered so often on Spark."""
TIMES = 5


@pytest.mark.slow
def test_random_edits_on_spark(warehouse: Any, tmp_path: Path) -> None:
    """Each alteration meets a pending batch, and changes that came after it; expected is Spark's own result."""
    wh, schemas, random = warehouse, random_schemas(0), Random(0)
    cases = [case_of(seed)[0] for seed in range(SHARED)]

    def fill(name: str, rows: Iterable[Row]) -> None:
        columns = ", ".join(f"{c} {t}" for c, t in schemas[name])
        frame = wh.spark.createDataFrame(list(rows), columns)
        frame.coalesce(1).write.format("delta").mode("overwrite").save(str(tmp_path / name))

    for name in schemas:
        fill(name, cases[0].initial[name])
        wh.track(name, tmp_path / name)
    queries = {f"view{seed}": cases[seed].query for seed in ON_SPARK}
    for view, sql in queries.items():
        wh.create_view(view, sql)
    ways: Counter[str] = Counter()
    for time in range(1, TIMES + 1):
        read = sorted({t.name for t in wh.base_tables() for v in wh.views() if t.id in v.depends_on})
        for name in random.sample(read, 1):
            fill(name, cases[time].initial[name])
        for view in queries:
            wh.propagate(view)
        for name in random.sample(read, 1):
            fill(name, cases[-time].initial[name])
        for view, sql in queries.items():
            new, way = edit_of(wh, view, sql, random)
            done = wh.alter_view(view, new)
            assert done.strategy == way
            assert_as_shown(wh, view)
            ways[way], queries[view] = ways[way] + 1, new
    for view in queries:
        wh.refresh(view)
        assert wh.verify(view).holds
    print(dict(ways))
    assert ways.total() == len(ON_SPARK) * TIMES
    assert ways["recomputed"] <= ways.total() / 2


def edit_of(wh: Any, view: str, sql: str, random: Random) -> tuple[str, str]:
    """A random edit that a view may have, and how it would be made; most often one that needs no recomputation."""
    for _ in range(20):
        new = mutated(sql, random, random.choice((1, 1, 2)))
        try:
            way = wh.plan_alteration(view, new).name
        except DeferredError:
            continue
        if way != "recomputed" or random.random() < 0.3:
            return new, str(way)
    raise AssertionError(f"no edit of {sql}")


def assert_as_shown(wh: Any, name: str) -> None:
    """A view shows what its query gives at the cut that it shows."""
    view = wh.find_view(name)
    versions = {t.name: view.shown.versions[t.id] for t in wh.base_tables() if t.id in view.depends_on}
    shown, wanted = wh.read(name), recomputed(wh, view.sql, versions)
    assert shown.columns == wanted.columns
    assert bag(shown) == bag(wanted), view.sql
