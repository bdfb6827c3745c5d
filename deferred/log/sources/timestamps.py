"""A table with a key and a time of its last change, and without old values (Blakeley 1987, 7.3.2).

The key is the tuple-id, the time the timestamp, and the snapshot is a copy that the warehouse keeps: there the old
values are. Rows that were inserted or modified since the copy's latest timestamp τ are σ[ts ≥ τ](R). Rows that were
deleted leave no trace in R: their keys are π[key](copy) − π[key](R), the second way of 7.3.2, or they are in a trace
table, the first way.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import ClassVar

from sqlglot import exp
from sqlglot.errors import ParseError

from deferred.algebra.bags import (
    alias,
    call,
    column,
    difference,
    from_item,
    matching,
    merge_by_key,
    positive,
    same_key,
    select,
    signed,
    union_all,
    unmatched,
)
from deferred.errors import DeferredError, InvalidInputError, UnknownObjectError, nearest
from deferred.log.context import Context
from deferred.log.delta_log import FEED, DeltaLog, is_delta, last_mark
from deferred.log.lease import bar, lease
from deferred.log.locating import Given, Place
from deferred.log.sources.change_feed import ChangeFeed
from deferred.spark import bags
from deferred.spark.engine import Mark, ddl
from deferred.spark.rows import staged
from deferred.spark.temporaries import Temporaries
from deferred.sql.dialect import cast, delta_table, parquet_files, text

UPDATED_AT = "deferred.updatedAt"
"""The property of a copy that names the column with the time of a row's last change."""

DELETIONS = "deferred.deletions"
"""The property of a copy that names the trace table: the keys that were deleted, and when."""

ROUNDS = 3
"""How often a source is read again that changes while it is read."""


class Timestamps(ChangeFeed):
    """▼R and ▲R are the change feed of the copy; a cut is the state of the copy after a pull.

    A pull reads the rows first (σ[ts ≥ τ](R)), then all keys with their timestamps. If every one of these is in the
    copy or among the rows, the copy becomes R as it was when the keys were read: every change of a row changes its
    timestamp. If not, R has changed in between, or a transaction became visible later than another one with a greater
    timestamp; then it is read again from the least timestamp that is missing.
    """

    kind: ClassVar[str] = "timestamps"
    option: ClassVar[str | None] = "timestamps"
    summary: ClassVar[str] = "a key and the time of each row's last change"
    noun: ClassVar[str] = "tracked table"

    # ---- pulling

    def pull(self) -> int:
        """Bring the copy along in one commit; returns how many rows were changed or deleted."""
        version = self._original_version
        done = last_mark(self.record.location, "copy")
        if version is not None and done is not None and done["version"] == version and self._deletions is None:
            return 0
        with lease(self.context, f"copy:{self.record.id}", f"The copy of {self.record.name}", self._shut_out) as held:
            folder = self.context.folder("transactions", f"rows-{uuid.uuid4().hex}")
            with self.context.engine.temporaries() as temporaries:
                original, since = self._original(version), self._since(delta_table(self.record.location))
                if self._deletions is None:
                    rows, gone = self._compared(temporaries, folder, original, since)
                else:
                    rows, gone = self._traced(temporaries, folder, original, since, (done or {}).get("since"))
                changed = temporaries.rows(rows) + temporaries.rows(gone)
                if changed:
                    names, key = self._names, self._key
                    statement = merge_by_key(delta_table(self.record.location), names, key, names, rows, gone)
                    details = {"kind": "copy", "version": version, "since": since}
                    self.context.engine.commit(text(statement), Mark(self._application, held.lease.committing, details))
        return changed

    def _compared(
        self, temporaries: Temporaries, folder: str, original: exp.Table, since: str | None
    ) -> tuple[exp.Table, exp.Table]:
        """The changed rows and the deleted keys, by comparing all keys and their timestamps."""
        pair, copy = [*self._key, self._updated_at], delta_table(self.record.location)
        for number in range(ROUNDS):
            rows = self._read(f"{folder}/{number}/rows", self._names, original, since)
            keys = self._read(f"{folder}/{number}/keys", pair, original, None)
            self._check_key(keys)
            known = union_all([select(map(column, pair), copy), select(map(column, pair), rows)])
            late = temporaries.compute(f"late{number}", unmatched(keys, pair, known, pair))
            if not temporaries.rows(late):
                break
            since = None if number + 2 == ROUNDS else self._since(copy, late)  # the last time without a bound
        here = matching(rows, self._names, keys, self._key_columns)
        gone = temporaries.compute("gone", unmatched(select(map(column, self._key), copy), self._key, keys, self._key))
        return temporaries.compute("changed", self._new(here)), gone

    def _traced(
        self, temporaries: Temporaries, folder: str, original: exp.Table, since: str | None, earlier: str | None
    ) -> tuple[exp.Table, exp.Table]:
        """The changed rows, and the keys in the trace table that are not among them.

        The trace is read after the rows: whatever is deleted when it has been read is younger than all of them, and so
        than the copy's τ, from which the next pull reads. It is read from the τ of the pull before, because a deletion
        may become visible later than a row with a greater timestamp. A row of the copy that is younger than its
        deletion was inserted again; one that is among the rows and was deleted since goes with the next pull.
        """
        pair, copy = [*self._key, self._updated_at], delta_table(self.record.location)
        rows = self._read(f"{folder}/rows", self._names, original, since)
        self._check_key(rows)
        trace = self._read(f"{folder}/trace", pair, _table(str(self._deletions)), earlier)
        traced = exp.Join(this=from_item(trace, "d"), on=same_key(self._key, "c", "d"))
        older = exp.LTE(this=column(self._updated_at, "c"), expression=column(self._updated_at, "d"))
        gone = select([column(name, "c") for name in self._key], copy, "c").distinct()
        gone.set("joins", [traced])
        gone = gone.where(exp.or_(older, exp.Is(this=column(self._updated_at, "c"), expression=exp.Null())))
        return (
            temporaries.compute("changed", self._new(rows)),
            temporaries.compute("gone", unmatched(gone, self._key, rows, self._key)),
        )

    def _new(self, rows: exp.Expr) -> exp.Select:
        """The rows that the copy does not have: those with the latest timestamp are read every time."""
        names = self._names
        held = matching(delta_table(self.record.location), names, rows, self.columns)
        added = difference(signed(rows, names), signed(held, names), self.columns)
        return select(map(column, names), positive(added, names))

    def _read(self, path: str, names: Sequence[str], relation: exp.Table, since: str | None) -> exp.Table:
        """Read a relation once, in the user's session, where its name means something; returns what was staged."""
        query = select(map(column, names), relation)
        if since is not None:
            time = column(self._updated_at)
            bound = exp.GTE(this=time, expression=self._moment(since))
            query = query.where(exp.or_(bound, exp.Is(this=time.copy(), expression=exp.Null())))
        engine = self.context.engine
        try:
            staged(engine.sql(query), self.record, path)
        except DeferredError as error:
            raise type(error)(f"{self.record.log_location}, of which {self.record.name} is a copy: {error}") from error
        return parquet_files(path)

    def _since(self, copy: exp.Expr, late: exp.Expr | None = None) -> str | None:
        """τ, the latest timestamp of the copy, or the least of the late ones if that is before it; as text."""
        latest = select([alias(call("MAX", column(self._updated_at)), "ts")], copy)
        if late is not None:
            each = select([alias(column(self._updated_at), "ts")], late)
            latest = select([alias(call("MIN", column("ts")), "ts")], union_all([latest, each]))
        value = call("UNIX_MICROS", column("ts")) if self._is_instant else column("ts")
        (row,) = self.context.engine.rows(select([alias(cast(value, "string"), "ts")], latest))
        return None if row["ts"] is None else str(row["ts"])

    def _moment(self, since: str) -> exp.Expr:
        """What `_since` has written, as a value that means the same in every time zone."""
        if self._is_instant:
            return call("TIMESTAMP_MICROS", exp.Literal.number(since))
        return cast(exp.Literal.string(since), self._type_of(self._updated_at))

    def _check_key(self, rows: exp.Expr) -> None:
        """Refuse rows whose key does not tell them apart."""
        counted = select([*map(column, self._key), alias(call("COUNT", exp.Star()), "_deferred_rows")], rows)
        counted.set("group", exp.Group(expressions=[column(name) for name in self._key]))
        several = exp.GT(this=column("_deferred_rows"), expression=exp.Literal.number(1))
        empty = [exp.Is(this=column(name), expression=exp.Null()) for name in self._key]
        wrong = self.context.engine.rows(select([exp.Star()], counted).where(exp.or_(several, *empty)).limit(1))
        if wrong:
            *values, times = wrong[0]
            raise InvalidInputError(
                f"{self.record.log_location} has {times} rows with the key ({', '.join(self._key)}) = "
                f"({', '.join(map(str, values))}); the key of {self.record.name} must be unique. Nothing was "
                f"changed."
            )

    # ---- what it is a copy of

    @property
    def _original_version(self) -> int | None:
        """The newest version of the table, if it is a Delta table: all reads of a pull then see one state."""
        given = str(self.record.log_location)
        return DeltaLog(given).version if is_delta(given) else None

    def _original(self, version: int | None) -> exp.Table:
        given = str(self.record.log_location)
        return _table(given) if version is None else delta_table(given, version)

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in self.columns]

    @property
    def _key(self) -> list[str]:
        return [name for name, _ in self._key_columns]

    @property
    def _key_columns(self) -> list[tuple[str, str]]:
        return [(_own(name, self._names), self._type_of(name)) for name in self.record.key]

    def _type_of(self, name: str) -> str:
        return next(type_ for known, type_ in self.columns if known.casefold() == name.casefold())

    @property
    def _updated_at(self) -> str:
        return self.log.properties[UPDATED_AT]

    @property
    def _is_instant(self) -> bool:
        return self._type_of(self._updated_at) == "timestamp"

    @property
    def _deletions(self) -> str | None:
        return self.log.properties.get(DELETIONS)

    @property
    def _application(self) -> str:
        return f"deferred-copy-{self.record.id}"

    def _shut_out(self, number: int) -> None:
        bar(self.context, self.record.location, Mark(self._application, number, {"kind": "bar"}))

    # ---- tracking

    @property
    def write_refusal(self) -> str | None:
        return f"{self.record.name} is a copy of {self.record.log_location}. Write that table."

    @classmethod
    def suits(cls, context: Context, given: Given) -> str | None:
        return None if given.updated_at is None else "the time of a row's last change is given (updated_at)"

    @classmethod
    def locate(cls, context: Context, name: str, given: Given) -> Place:
        """A new copy, empty, with the columns of the table; the first pull fills it."""
        given.refuse(name, "timestamps", "columns")
        if given.path_or_name is None or given.updated_at is None or not given.key:
            raise InvalidInputError(
                f"track({name!r}, log='timestamps') needs a table, its key and the column with the time of a row's "
                f"last change, such as key=['id'], updated_at='updated_at'."
            )
        original = _absolute(given.path_or_name)
        tables = {original: _table(original)} | (
            {} if given.deletions is None else {given.deletions: _table(given.deletions)}
        )
        found = {
            text_: context.engine.sql(select([exp.Star()], table).limit(0)).schema for text_, table in tables.items()
        }
        columns = [(field.name, ddl(field.dataType)) for field in found[original].fields]
        for text_, schema in found.items():
            for part in (*given.key, given.updated_at):
                _own(part, schema.names, text_)
        properties = {FEED: "true", UPDATED_AT: _own(given.updated_at, [n for n, _ in columns])}
        if given.deletions is not None:
            properties[DELETIONS] = _absolute(given.deletions)
        location = context.folder("copies", f"{name}-{uuid.uuid4().hex[:8]}", "rows")
        bags.create(context.engine, location, columns, properties=properties)
        return Place(location, original)

    def resume(self) -> str | None:
        return self.record.log_location


def _own(given: str, names: Sequence[str], table: str = "The table") -> str:
    """A column by the name that its table gives it."""
    found = next((name for name in names if name.casefold() == given.casefold()), None)
    if found is None:
        raise UnknownObjectError(f"{table} has no column {given}{nearest(given, names)}")
    return found


def _absolute(given: str) -> str:
    return os.path.abspath(given) if "://" not in given and os.path.exists(given) else given


def _table(given: str) -> exp.Table:
    """What may stand in FROM: a name in one of Spark's catalogs, format.`path`, or the path of Delta or Parquet files.

    >>> text(_table("shop.public.orders")), text(_table("csv.`/data/x y`"))
    ('`shop`.`public`.`orders`', '`csv`.`/data/x y`')
    """
    if is_delta(given):
        return delta_table(given)
    if os.path.isdir(given):
        return parquet_files(given)
    try:
        table = exp.to_table(given, dialect="spark")
    except ParseError:
        raise UnknownObjectError(
            f"{given} is neither the path of a table nor a name that Spark can read, such as catalog.schema.table or "
            f"csv.`path`."
        ) from None
    for part in table.parts:
        part.set("quoted", True)
    return table
