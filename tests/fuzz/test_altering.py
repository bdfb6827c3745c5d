"""Random views and random edits of their text: what follows from the old rows is what the new query gives."""

from __future__ import annotations

from collections import Counter
from random import Random

import duckdb
import pytest
from sqlglot import exp

from deferred.algebra.bags import select
from deferred.sql.comparing import Difference, OfView, compared, renamed
from deferred.sql.dialect import text
from tests.fuzz.case import random_schemas
from tests.fuzz.duck import CannotRun, Database, Row
from tests.fuzz.mutations import mutated
from tests.fuzz.run import SHARED, case_of

GROUPS = range(40)


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
            ways["recomputed" if found is None else type(found).__name__] += 1
            if found is not None:
                got = followed(db, old_rows, case.query, found)
                assert got == new_rows, f"seed {seed}: {case.query}\nbecame {new}\n{found}"
        db.close()
    print(dict(ways))
    assert sum(ways.values()) >= 300
    assert ways["OfView"] >= 30
    assert ways["Difference"] >= 40
