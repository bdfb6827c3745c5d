"""A remote table that only sends its changes, as Debezium's events: the warehouse keeps a copy of its rows.

The copy is a Delta table with a change feed, and one delivery of events is one commit to it. Beside it is a table
of positions: for each key, also for those that are gone, the position of the last event that was applied. An event is
applied only if its position is greater, so that each one counts once, in whatever order and how often it comes.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from sqlglot import exp

from deferred.algebra.bags import (
    GONE,
    alias,
    call,
    column,
    from_item,
    matching,
    merge_by_key,
    same_key,
    select,
    union_all,
    unmatched,
)
from deferred.errors import InvalidInputError
from deferred.log.context import Context
from deferred.log.debezium import COARSE, Newest, Statements, check_columns, lines, statements
from deferred.log.delta_log import FEED, last_mark
from deferred.log.lease import bar, lease
from deferred.log.locating import Given, Place
from deferred.log.sources.change_feed import ChangeFeed
from deferred.log.storage import Storage
from deferred.spark import bags
from deferred.spark.engine import Mark
from deferred.spark.rows import frame, staged
from deferred.spark.temporaries import Temporaries
from deferred.sql.dialect import delta_table, parquet_files, text

POSITION = "_deferred_position"
"""The position of the last event that was applied to a key; GONE says whether that event deleted the row."""

COPY = "copy"
"""The mark of the commits that apply events."""

DETAILS = ("kind", "batch", "staged", "position", "truncated", "newest")
"""What these marks say: which delivery it is, where it was staged, the kind of its positions, the last truncation, and
how far the source has been read."""

READ = "read.json"
"""The file beside a copy that lists the files of events that have been applied, with their sizes."""

ENDINGS = (".json", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class _Staged:
    """A table that rows are staged for: its columns."""

    name: str
    location: str
    columns: tuple[tuple[str, str], ...]


class Debezium(ChangeFeed):
    """▼R and ▲R are the change feed of the copy. A cut is the state after a delivery of events, never within one."""

    kind: ClassVar[str] = "debezium"
    option: ClassVar[str | None] = "debezium"
    summary: ClassVar[str] = "Debezium's events, in the files of a folder or handed over with ingest"
    noun: ClassVar[str] = "tracked table"

    # ---- taking in events

    def pull(self) -> int:
        """Take in the files of the folder that are new, or longer than before, in one delivery."""
        if self.record.log_location is None:
            return 0
        folder, kept = Storage(self.record.log_location), Storage(self._folder)
        seen = json.loads(kept.read(READ) or "{}")
        sizes = {name: size for name, size in folder.files().items() if name.endswith(ENDINGS)}
        new = sorted(name for name, size in sizes.items() if seen.get(name) != size)
        if not new:
            return 0
        changed = self._apply(event for name in new for event in lines(folder.read(name) or "", name))
        # After the commit: files that are read twice change nothing.
        kept.write(READ, json.dumps(sizes))
        return changed

    def ingest(self, events: Any) -> int:
        if isinstance(events, (str, bytes, Mapping)) or not isinstance(events, Iterable):
            raise InvalidInputError(
                f"Events for {self.record.name} must be a list of JSON texts, objects or rows, not "
                f"{type(events).__name__}."
            )
        numbered = enumerate(events, start=1)
        # A pair says what messages call the event; a row of Spark is a tuple, too, but of a type of its own.
        return self._apply(event if type(event) is tuple else (f"Event {n}", event) for n, event in numbered)

    def _apply(self, events: Iterable[tuple[str, Any]]) -> int:
        """Apply the events that are newer than what is known of their keys, in one commit; returns how many keys."""
        read = (last_mark(self._positions, COPY) or {}).get("newest")
        newest = None if read is None else Newest(**read)
        said = statements(events, self.columns, self.record.key, self.record.name, newest)
        if not said.by_key and said.truncated is None:
            return 0
        what = f"The copy of {self.record.name}"
        with lease(self.context, self._lease, what, self._shut_out) as held:
            self._settle(held.lease.committing)
        with lease(self.context, self._lease, what, self._shut_out) as held:
            return self._merge(said, held.lease.committing)

    def _merge(self, said: Statements, number: int) -> int:
        """Stage what the events say, change the copy, then the positions: the copy's commit names what was staged."""
        engine, keys = self.context.engine, [name for name, _ in self._key_columns]
        details = self._details(said)
        truncated, folder = details["truncated"], details["staged"]
        self._stage(said, folder)
        with engine.temporaries() as temporaries:
            newer = self._newer(temporaries, folder, truncated)
            changed = temporaries.rows(newer)
            if not changed and said.truncated is None:
                return 0
            there = select(map(column, keys), newer).where(exp.Not(this=column(GONE)))
            new = matching(parquet_files(f"{folder}/rows"), self._names, there, self._key_columns)
            gone: exp.Query = select(map(column, keys), newer).where(column(GONE))
            if said.truncated is not None:
                older = exp.LT(this=column(POSITION), expression=exp.Literal.string(said.truncated))
                emptied = select(map(column, keys), delta_table(self._positions)).where(older)
                gone = union_all([gone, unmatched(emptied, keys, newer, keys)])
            statement = merge_by_key(delta_table(self.record.location), self._names, keys, self._names, new, gone)
            engine.commit(text(statement), Mark(self._application, number, details))
            self._remember(newer, details, number)
        return changed

    def _details(self, said: Statements) -> dict[str, Any]:
        """What the commits of a delivery say of it. Refuses positions that cannot be compared with the known ones."""
        known = last_mark(self._positions, COPY) or {}
        one = next(iter(said.by_key.values()), None)
        kind = (one.position if one else str(said.truncated)).partition("/")[0]
        if known.get("position", kind) != kind:
            raise InvalidInputError(
                f"The events for {self.record.name} have positions of another kind ({kind}) than those before them "
                f"({known['position']}): their order is not known. Nothing was changed. Untrack the table and "
                f"track it again, from a new snapshot."
            )
        written = last_mark(self.record.location, COPY) or {}
        return {
            "kind": COPY,
            "batch": 1 + max(int(mark.get("batch", 0)) for mark in (known, written)),
            "staged": self.context.folder("transactions", f"events-{uuid.uuid4().hex}"),
            "position": kind,
            "truncated": max(filter(None, (said.truncated, known.get("truncated"))), default=None),
            "newest": None if said.newest is None else asdict(said.newest),
        }

    def _stage(self, said: Statements, folder: str) -> None:
        """Write what events say as Parquet files: what is known of keys, and the rows that are there."""
        engine = self.context.engine
        told = _Staged(self.record.name, self._positions, (*self._key_columns, (POSITION, "string"), (GONE, "boolean")))
        keys = [(*key, statement.position, statement.row is None) for key, statement in said.by_key.items()]
        staged(frame(engine, keys, told), told, f"{folder}/positions")
        rows = [statement.row for statement in said.by_key.values() if statement.row is not None]
        staged(frame(engine, rows, self.record), self.record, f"{folder}/rows")

    def _newer(self, temporaries: Temporaries, folder: str, truncated: str | None) -> exp.Table:
        """The staged statements with a greater position than what is known of their keys, and of all of them.

        Where several events may share a position, one of the same position is newer, too: it came later.
        """
        keys = [name for name, _ in self._key_columns]
        known = exp.Join(this=from_item(delta_table(self._positions), "k"), side="LEFT", on=same_key(keys, "s", "k"))
        query = select(
            [column(name, "s") for name in (*keys, POSITION, GONE)], parquet_files(f"{folder}/positions"), "s"
        )
        query.set("joins", [known])
        last = exp.func("COALESCE", column(POSITION, "k"), exp.Literal.string(""))
        condition: exp.Expr = exp.GT(this=column(POSITION, "s"), expression=last)
        for kind in COARSE:
            shared = exp.func("STARTSWITH", column(POSITION, "s"), exp.Literal.string(f"{kind}/"))
            condition = exp.or_(condition, exp.and_(shared, exp.EQ(this=column(POSITION, "s"), expression=last.copy())))
        conditions = [condition]
        if truncated is not None:
            conditions.append(exp.GT(this=column(POSITION, "s"), expression=exp.Literal.string(truncated)))
        return temporaries.compute("newer", query.where(*conditions))

    def _remember(self, newer: exp.Expr, details: Mapping[str, Any], number: int) -> None:
        """Enter the positions of the statements that were applied."""
        keys, values = [name for name, _ in self._key_columns], [POSITION, GONE]
        rows = select(map(column, [*keys, *values]), newer)
        statement = merge_by_key(delta_table(self._positions), [*keys, *values], keys, values, rows, None)
        self.context.engine.commit(text(statement), Mark(self._application, number, details))

    def _settle(self, number: int) -> None:
        """Complete a delivery whose process died between its two commits: the first one names what was staged."""
        written, known = last_mark(self.record.location, COPY), last_mark(self._positions, COPY) or {}
        if written is None or int(written["batch"]) <= int(known.get("batch", 0)):
            return
        with self.context.engine.temporaries() as temporaries:
            newer = self._newer(temporaries, written["staged"], written["truncated"])
            self._remember(newer, {key: written.get(key) for key in DETAILS}, number)

    # ---- where things are

    @property
    def _folder(self) -> str:
        return self.record.location.removesuffix("/rows")

    @property
    def _positions(self) -> str:
        return f"{self._folder}/positions"

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in self.columns]

    @property
    def _key_columns(self) -> tuple[tuple[str, str], ...]:
        types = {name.casefold(): (name, type_) for name, type_ in self.columns}
        return tuple(types[name.casefold()] for name in self.record.key)

    @property
    def _lease(self) -> str:
        return f"copy:{self.record.id}"

    @property
    def _application(self) -> str:
        return f"deferred-copy-{self.record.id}"

    def _shut_out(self, number: int) -> None:
        for path in (self.record.location, self._positions):
            bar(self.context, path, Mark(self._application, number, {"kind": "bar"}))

    # ---- tracking

    @property
    def write_refusal(self) -> str | None:
        return (
            f"{self.record.name} is a copy of a remote table, which Debezium's events change. Write the remote table."
        )

    @classmethod
    def suits(cls, context: Context, given: Given) -> str | None:
        return None if given.columns is None else "its columns are declared: it cannot be asked for them, only sends"

    @classmethod
    def locate(cls, context: Context, name: str, given: Given) -> Place:
        """A new copy: empty tables of the declared columns, and of the positions by key."""
        given.refuse(name, "debezium", "updated_at", "deletions")
        if given.columns is None or not given.key:
            raise InvalidInputError(
                f"track({name!r}, log='debezium') needs the table's columns and its key, such as columns='id INT, "
                f"amount DECIMAL(8,2)', key=['id']: events may come without either."
            )
        engine = context.engine
        columns = engine.columns(_declared(given.columns))
        check_columns(name, columns)
        types = {column_name.casefold(): (column_name, type_) for column_name, type_ in columns}
        missing = [part for part in given.key if part.casefold() not in types]
        if missing:
            raise InvalidInputError(f"The key of {name} has {', '.join(missing)}, which is none of its columns.")
        events = given.path_or_name
        if events is not None:
            events = events if "://" in events else os.path.abspath(events)
            Storage(events).files()
        folder = context.folder("copies", f"{name}-{uuid.uuid4().hex[:8]}")
        bags.create(engine, f"{folder}/rows", columns, properties={FEED: "true"})
        keys = [types[part.casefold()] for part in given.key]
        bags.create(engine, f"{folder}/positions", [*keys, (POSITION, "string"), (GONE, "boolean")])
        return Place(f"{folder}/rows", events)

    def resume(self) -> str | None:
        return self.record.log_location


def _declared(columns: str) -> exp.Select:
    """A query with columns that are given as DDL: Spark reads the types.

    >>> text(_declared("id INT"))
    "SELECT r.* FROM (SELECT FROM_JSON('{}', 'id INT') AS `r`) AS q"
    """
    row = call("FROM_JSON", exp.Literal.string("{}"), exp.Literal.string(columns))
    return select(
        [exp.Column(this=exp.Star(), table=exp.to_identifier("r"))], exp.Select(expressions=[alias(row, "r")])
    )
