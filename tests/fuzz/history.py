"""Random rows, and random changes of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.fuzz.case import DOMAINS, Change, Row, Schema
from tests.fuzz.expressions import Choices


@dataclass
class Histories(Choices):
    """Rows for some tables, and what happens to them. `schemas` may be given, so that many cases share their tables."""

    schemas: dict[str, Schema] = field(default_factory=dict)

    def history(self) -> tuple[dict[str, tuple[Row, ...]], tuple[dict[str, Change], ...]]:
        """The rows of the tables, and one to three steps of changes to some of them.

        Mostly one: what later steps rest on, the support tables, is compared after every step.
        """
        initial = {
            name: self.rows(schema, self.random.choice((0, 2, 4, 6, 7))) for name, schema in self.schemas.items()
        }
        if self.chance(0.15):
            initial = self.with_copies(initial)
        if any(not rows for rows in initial.values()):
            self.saw("empty table")
        state = {name: Counter(rows) for name, rows in initial.items()}
        steps = []
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            step = self.step(state)
            for name, change in step.items():
                state[name] = state[name] - Counter(change.deleted) + Counter(change.inserted)
            steps.append(step)
        return initial, tuple(steps)

    def with_copies(self, initial: dict[str, tuple[Row, ...]]) -> dict[str, tuple[Row, ...]]:
        """One row of one table many times: its copies must be counted, wherever they go."""
        name = self.random.choice(list(initial))
        if initial[name]:
            self.saw("many copies")
            copies = (self.random.choice(initial[name]),) * self.random.choice((3, 5, 12, 50))
            return {**initial, name: initial[name] + copies}
        return initial

    def step(self, state: dict[str, Counter[Row]]) -> dict[str, Change]:
        tables = [name for name in self.schemas if self.chance(0.5)] or [self.random.choice(list(self.schemas))]
        if self.chance(0.15):
            tables = list(self.schemas)
        if len(tables) == len(self.schemas):
            self.saw("all tables at once")
        return {name: self.change(self.schemas[name], list(state[name].elements())) for name in tables}

    def change(self, schema: Schema, rows: list[Row]) -> Change:
        """Some rows deleted, some inserted, some changed in one column."""
        kind = self.random.random()
        if kind < 0.12 and rows:
            self.saw("delete everything")
            return Change(tuple(rows), ())
        if kind < 0.2:
            self.saw("inserted and deleted")
            (row,) = self.rows(schema, 1)
            kept = tuple(self.random.sample(rows, min(1, len(rows))))
            if not kept or self.chance(0.5):
                self.saw("no change in a logged table")
                return Change(kept, kept)
            return Change(kept, (row, *kept))
        deleted = tuple(row for row in rows if self.chance(0.3))
        inserted = list(self.rows(schema, self.random.choice((0, 1, 2, 3))))
        if deleted and self.chance(0.5):
            self.saw("update")
            place = self.random.randrange(len(schema))
            values = DOMAINS[schema[place][1]]
            inserted += [(*row[:place], self.random.choice(values), *row[place + 1 :]) for row in deleted]
        if inserted:
            self.saw("insert")
        if deleted:
            self.saw("delete")
        return Change(deleted, tuple(inserted))

    def rows(self, schema: Schema, count: int) -> tuple[Row, ...]:
        rows = [tuple(self.random.choice(DOMAINS[type_]) for _, type_ in schema) for _ in range(count)]
        return tuple(self.random.choice(rows) if self.chance(0.2) else row for row in rows)
