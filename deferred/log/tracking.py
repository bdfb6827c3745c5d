"""Tracking: which Delta tables a warehouse knows, where they lie, and which kind of log they have."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping, Sequence

from deferred.algebra.plan import COUNT
from deferred.errors import (
    DeferredError,
    InvalidInputError,
    InvalidNameError,
    NameTakenError,
    UnknownObjectError,
    nearest,
)
from deferred.log.changes import BATCH
from deferred.log.context import Context
from deferred.log.history import DeltaLog, is_delta
from deferred.metadata import LedgerEntry, TableRecord
from deferred.spark import bags
from deferred.spark.engine import table
from deferred.sql.dialect import quoted

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check_name(name: str, what: str) -> str:
    """A table's or view's name: a plain identifier, so that it can be a folder, a DAG and a word in SQL.

    >>> check_name("sales_2024", "view")
    'sales_2024'
    """
    if not isinstance(name, str) or not _PLAIN.match(name) or len(name) > 128:
        raise InvalidNameError(f"{name!r} cannot be the name of a {what}: use letters, digits and underscores, and "
                               f"begin with a letter or underscore.")
    return name


def check_free(context: Context, name: str) -> None:
    taken = context.metadata.tables.find(name)
    if taken is not None:
        raise NameTakenError(f"There is a {'view' if taken.kind == 'view' else 'tracked table'} {taken.name} already. "
                             f"Choose another name, or drop it first.")


def track(context: Context, name: str, path_or_name: str, key: Sequence[str] | None,
          references: Mapping[str, str] | None, log: str) -> TableRecord:
    """Register a Delta table; its change feed is turned on, unless its owner will hand us the changes."""
    check_name(name, "table")
    if log not in ("feed", "table"):
        raise InvalidInputError(f"log={log!r}: a table's log is 'feed' (its change data feed) or 'table' (rows that "
                                f"its owner hands over with append_changes).")
    check_free(context, name)
    location = locate(context, path_or_name)
    same = next((t for t in context.metadata.tables.all() if t.location == location), None)
    if same is not None:
        raise NameTakenError(f"{path_or_name} is tracked already, as {same.name}.")
    state = DeltaLog(location)
    _check_columns(state, name, key, references)
    log_location = None
    if log == "feed":
        enable_feed(context, location)
        state = DeltaLog(location)
    else:
        log_location = _log_table(context, name, state)
    record = context.metadata.tables.add(
        name=name, location=location, kind="feed" if log == "feed" else "log", delta_id=state.id,
        log_location=log_location, key=tuple(key or ()), references=dict(references or {}), columns=state.columns,
        first_version=state.version)
    _begin(context, record, state)
    return record


def _log_table(context: Context, name: str, state: DeltaLog) -> str:
    location = context.folder("logs", f"{name}-{uuid.uuid4().hex[:8]}")
    bags.create(context.engine, location, [*state.columns, (COUNT, "bigint"), (BATCH, "bigint")], [BATCH])
    return location


def _begin(context: Context, record: TableRecord, state: DeltaLog) -> None:
    first = next(iter(state.newest_first()))
    context.metadata.ledger.append([LedgerEntry(record.id, first.version, first.timestamp, None, first.operation)])


def trusted_again(context: Context, source: TableRecord) -> None:
    """Make sure that a table's log can be relied on from now on: its feed is on, and it is the table we know.

    One that was made anew at its place, or replaced by an older copy, is taken as it is. Every view that reads it is
    marked then: its cuts mean a table that is no more.
    """
    if not is_delta(source.location):
        return  # the next look at its log says so, by name
    if source.kind != "log":
        enable_feed(context, source.location)
    state = DeltaLog(source.location)
    last = context.metadata.ledger.last(source.id)
    if state.id == source.delta_id and (last is None or state.version >= last.version):
        return
    for view in context.metadata.views.dependents(source.id):
        context.metadata.views.update(view.id, state="broken", problem=f"Table {source.name} was made anew.")
    context.metadata.ledger.prune(source.id, 2**62)
    record = context.metadata.tables.update(
        source.id, delta_id=state.id, columns=state.columns, first_version=state.version,
        log_location=_log_table(context, source.name, state) if source.kind == "log" else None)
    _begin(context, record, state)


def untrack(context: Context, name: str) -> None:
    record = context.metadata.tables.get(name)
    if record.kind == "view":
        raise InvalidInputError(f"{name} is a view; drop it instead.")
    users = context.metadata.views.dependents(record.id)
    if users:
        raise InvalidInputError(f"Table {name} is read by {', '.join(v.name for v in users)}; drop those views first.")
    context.metadata.tables.remove(record.id)


def enable_feed(context: Context, location: str) -> None:
    """Turn on the change data feed: from here on every commit says what it changed, whoever makes it."""
    if not DeltaLog(location).has_feed:
        context.engine.write(f"ALTER TABLE {table(location)} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")


def locate(context: Context, path_or_name: str) -> str:
    """The path of a Delta table that is given by path or by its name in Spark's catalog."""
    given = os.fspath(path_or_name)
    if "://" in given or os.sep in given or is_delta(given):
        location = given if "://" in given else os.path.abspath(given)
        location = location.removeprefix("file://")
        if not is_delta(location):
            there = "is not a Delta table" if os.path.exists(location) else "does not exist"
            raise InvalidInputError(f"{given} {there}. Write it as Delta first (df.write.format('delta').save(…)); "
                                    f"only Delta tables can be tracked.")
        return location.rstrip("/")
    name = ".".join(quoted(part.strip("`")) for part in given.split("."))
    try:
        (detail,) = context.engine.rows(f"DESCRIBE DETAIL {name}")
    except DeferredError as error:
        raise UnknownObjectError(f"{given} is neither the path of a Delta table nor a table in Spark's catalog: "
                                 f"{error}") from None
    if detail["format"] != "delta":
        raise InvalidInputError(f"Table {given} is {detail['format']}, not Delta; only Delta tables can be tracked.")
    return str(detail["location"]).removeprefix("file://").removeprefix("file:").rstrip("/")


def find(context: Context, path: tuple[str, ...]) -> TableRecord:
    """The tracked table or view that a dotted name in SQL means."""
    if len(path) == 1:
        record = context.metadata.tables.find(path[0])
        if record is None:
            names = [t.name for t in context.metadata.tables.all()]
            raise UnknownObjectError(f"No tracked table or view {path[0]}{nearest(path[0], names)}. "
                                     f"Track a Delta table with track(name, path) before a view reads it.")
        return record
    location = locate(context, ".".join(path))
    record = next((t for t in context.metadata.tables.all() if t.location == location), None)
    if record is None:
        raise UnknownObjectError(f"Table {'.'.join(path)} is not tracked; track it with "
                                 f"track(name, {'.'.join(path)!r}) first.")
    return record


def _check_columns(state: DeltaLog, name: str, key: Sequence[str] | None, references: Mapping[str, str] | None) -> None:
    known = [column for column, _ in state.columns]
    for column in [*(key or ()), *(references or {})]:
        if column.casefold() not in {k.casefold() for k in known}:
            raise UnknownObjectError(f"Table {name} has no column {column}{nearest(column, known)}")
