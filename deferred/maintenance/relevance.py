"""Which commits matter to a view, from Delta's logs alone: no row is read, and no Spark is started.

A commit does not matter if none of the rows that it can have changed can matter: by the statistics and partition
values of the files that it added and removed, and by the predicate of a DELETE or UPDATE (Blakeley 1987, theorems 3.1
and 3.2).
Rows of the commits that do matter are dropped by the relevance condition before they are netted; a row that stays
outside is dropped before and after its modification, and one whose columns in the view stay the same is netted away
(theorem 3.4).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from deferred.algebra.relevance import Relevance
from deferred.algebra.types import as_read
from deferred.log.context import Context
from deferred.log.sources import Source, source_of
from deferred.log.touched import Touched
from deferred.maintenance import definition as definitions
from deferred.maintenance.definition import Definition
from deferred.metadata import Cut, TableRecord

SECONDS = 2.0
"""The time for looking at the commits of one table; those that are left by then count as if they mattered."""


@dataclass(frozen=True)
class Relevant:
    """What matters of the commits between two cuts."""

    tables: Mapping[str, exp.Expr | None]
    """The tables with a commit that may matter, and the condition on their rows; None where all of them may."""
    commits: int
    irrelevant_commits: int
    changed_rows: int | None
    """About how many rows all commits have changed, by what they say of themselves."""

    @property
    def why_nothing(self) -> str:
        """What to say when no commit matters."""
        listed = "The new commit does not matter" if self.commits == 1 else f"None of {self.commits} commits matters"
        return f"{listed} to the view: by Delta's log, no row that was changed can be in it."

    def irrelevant_rows(self, rows: int) -> int | None:
        """About how many of the changed rows do not matter, if the logs have some rows after all."""
        return None if self.changed_rows is None else max(0, self.changed_rows - rows)


def relevant(context: Context, definition: Definition, since: Cut, cut: Cut) -> Relevant:
    """Judge the commits of a view's tables between two cuts."""
    tables: dict[str, exp.Expr | None] = {}
    commits, irrelevant = 0, 0
    changed: list[int | None] = []
    for name, table in definition.tables.items():
        after, upto = since.versions[table.id], cut.versions[table.id]
        if upto <= after:
            continue
        source, asked = source_of(context, table), definition.relevance.get(name)
        entries = len(context.metadata.ledger.between(table.id, after, upto))
        judged = [False] if asked is None else _judged(source, asked, after, upto)
        commits += entries
        irrelevant += judged.count(False) if any(judged) else entries
        changed.append(source.changed_rows(after, upto))
        if any(judged) and asked is not None:
            tables[name] = asked.condition
    known = [rows for rows in changed if rows is not None]
    return Relevant(tables, commits, irrelevant, sum(known) if len(known) == len(changed) else None)


def irrelevant_to(context: Context, table: TableRecord, after: int, upto: int) -> dict[int, list[str]]:
    """The versions of a table between two, each with the views that read the table and to which it does not matter.

    Views of an earlier version are left out: binding them may ask Spark for types.
    """
    found: dict[int, list[str]] = {}
    versions = [entry.version for entry in context.metadata.ledger.between(table.id, after, upto)]
    for view in context.metadata.views.dependents(table.id):
        if view.definition.settings is None:
            continue
        asked = definitions.load(context, view).relevance.get(table.name)
        judged = [] if asked is None else _judged(source_of(context, table), asked, after, upto)
        for version, matters in zip(versions, judged, strict=False):
            if not matters:
                found.setdefault(version, []).append(view.name)
    return found


def _judged(source: Source, asked: Relevance, after: int, upto: int) -> list[bool]:
    """Whether each commit may matter; as if they did, one entry for those that were not looked at."""
    if asked.is_open:
        return [True]
    decide = asked.decider({name: as_read(type_) for name, type_ in source.columns})
    until = time.monotonic() + SECONDS

    def matters(rows: Touched) -> bool:
        return time.monotonic() > until or decide(rows.known, rows.predicate)

    found = []
    for touched in source.touched(after, upto):
        found.append(touched is None or any(map(matters, touched)))
        if time.monotonic() > until:
            return [*found, True]
    return found
