"""Random views and random edits of their text: what follows from the old rows is what the new query gives."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import duckdb
import pytest
from sqlglot import exp

from deferred.algebra.bags import select
from deferred.algebra.operators.scan import tables_of
from deferred.algebra.over_view import VIEW, of_view, over_view
from deferred.algebra.selfmaintenance import Promises
from deferred.algebra.sharing import Sharing, kept_before, over_shared
from deferred.algebra.strategy import kept_nodes, support_tables
from deferred.errors import DeferredError
from deferred.sql.comparing import Difference, OfView, compared, renamed
from deferred.sql.dialect import ViewSQL, parse_query, text
from tests.fuzz.case import random_schemas
from tests.fuzz.duck import CannotRun, Database, Row
from tests.fuzz.mutations import another_join, mutated
from tests.fuzz.run import SHARED, case_of

GROUPS = range(32)
KEEPING = re.compile(r"GROUP BY|LIMIT|\b(COUNT|SUM|MIN|MAX|AVG)\(", re.IGNORECASE)
"""Views of which rows are kept have one of these."""


def followed(db: Database, old: Counter[Row], sql: str, found: OfView | Difference) -> Counter[Row]:
    """The new rows, made of the old ones and of what the comparison says; a query stands for the old view."""
    if isinstance(found, Difference):
        for query in found.added:
            old += db.query(query)
        for query in found.removed:
            left = db.query(query)
            assert left <= old, f"not contained: {query}"
            old -= left
        return old
    outputs = [exp.Star()] if found.outputs is None else renamed(found.outputs, names(len(found.outputs)))
    rows = select(outputs, exp.Subquery(this=exp.Var(this="OLD"), alias=exp.TableAlias(this=exp.to_identifier("q"))))
    if found.condition is not None:
        rows.where(found.condition, copy=False)
    return db.query(text(rows).replace("(OLD)", f"(SELECT * FROM ({sql}) AS o({', '.join(names_of(db, sql))}))"))


def names(count: int) -> list[str]:
    return [f"o{place}" for place in range(count)]


def names_of(db: Database, sql: str) -> list[str]:
    return names(len(db.types(sql)))


def carried_over(db: Database, sql: str, new: str) -> Counter[str]:
    """The new rows and support tables, made of the old support tables, beside those computed from the base tables."""
    if not KEEPING.search(new):
        return Counter()
    try:
        before, after = db.bind(sql), db.bind(new)
    except DeferredError:  # what DuckDB takes and Spark would not
        return Counter()
    sharing = Sharing(before.plan, before.types, after.types, frozenset(after.tables))
    shared = sharing.shared(after.plan)
    if not shared:
        return Counter()
    db.keep(before)
    for name in support_tables(before.plan):
        db.connection.execute(f'CREATE OR REPLACE TEMP VIEW "{kept_before(name)}" AS SELECT * FROM "{name}"')
    for name, each in shared.items():
        direct = support_tables(after.plan)[name]
        assert each.contents.columns == direct.columns
        assert db.rows_of(each.contents) == db.rows_of(direct), f"{sql}\nbecame {new}\n{name}"
    plan = over_shared(after.plan, shared)
    assert db.rows_of(plan) == db.rows_of(after.plan), f"{sql}\nbecame {new}"
    return Counter({"kept": 1, "kept, no table": not tables_of(plan)})


def joined_to_the_view(db: Database, sql: str, new: str) -> bool:
    """Whether the new rows follow from those of the view and of one more table; they must be those of the new query."""
    try:
        before, after = db.bind(sql), db.bind(new)
        wanted = db.query(new)
    except (DeferredError, CannotRun):
        return False
    sharing = Sharing(before.plan, before.types, after.types, frozenset(after.tables))
    found = over_view(sharing, after.plan, Promises())
    if found is None or kept_nodes(before.plan):
        return False
    names = ", ".join(f'"{of_view(c)}"' for c in before.plan.columns)
    db.connection.execute(
        f'CREATE OR REPLACE TEMP TABLE "{VIEW}" AS SELECT * FROM ({db.renderer.render(before.plan)}) AS q({names})'
    )
    assert db.rows_of(found.plan) == wanted, f"{sql}\nbecame {new}"
    return True


@pytest.mark.slow
def test_random_views_with_random_edits() -> None:
    ways: Counter[str] = Counter()
    for group in GROUPS:
        db = Database(random_schemas(group))
        for seed in range(group * SHARED, group * SHARED + 10):
            case, _ = case_of(seed)
            random = Random(seed)
            for name, rows in case.initial.items():
                db.replace(name, Counter(rows))
            try:
                new = mutated(case.query, random, random.choice((1, 1, 2, 3)))
                old_rows, new_rows = db.query(case.query), db.query(new)
                found = compared(case.query, new, names_of(db, case.query))
            except (CannotRun, duckdb.Error):
                continue
            ways += carried_over(db, case.query, new) if seed % 2 else {}
            joined = another_join(parse_query(case.query), random, dict(db.schemas))
            ways["joined"] += joined_to_the_view(db, case.query, joined.sql(dialect=ViewSQL))
            ways["recomputed" if found is None else type(found).__name__] += 1
            if found is not None:
                got = followed(db, old_rows, case.query, found)
                assert got == new_rows, f"seed {seed}: {case.query}\nbecame {new}\n{found}"
        db.close()
    print(dict(ways))
    assert sum(ways[way] for way in ("OfView", "Difference", "recomputed")) >= 300
    assert ways["kept"] >= 30
    assert ways["joined"] >= 15
    assert ways["kept, no table"] >= 15
    assert ways["OfView"] >= 30
    assert ways["Difference"] >= 40
