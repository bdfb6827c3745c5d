"""Tracking: which Delta tables a warehouse knows, where they are, and where their changes come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from deferred.errors import (
    InvalidInputError,
    InvalidNameError,
    MetadataError,
    NameTakenError,
    UnknownObjectError,
    nearest,
)
from deferred.log.catalog import FOLDER, Catalog
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog, is_delta
from deferred.log.locating import Given, locate
from deferred.log.sources import AUTO, class_of, is_tracked, source_of, suggested, trackable
from deferred.metadata import Lease, LedgerEntry, TableRecord, ViewRecord, utc_now

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check_name(name: str, what: str) -> str:
    """The name of a table or view: a plain identifier, so that it can be a folder, a DAG and a name in SQL.

    >>> check_name("sales_2024", "view")
    'sales_2024'
    """
    if not isinstance(name, str) or not _PLAIN.match(name) or len(name) > 128:
        raise InvalidNameError(
            f"{name!r} cannot be the name of a {what}: use letters, digits and underscores, and "
            f"begin with a letter or underscore."
        )
    return name


def check_free(context: Context, name: str) -> None:
    """Refuse a name that a tracked table or a view has, and any name in a database that was lost and starts empty."""
    taken = context.metadata.tables.find(name)
    if taken is None and not context.metadata.tables.all() and Catalog(context.root).tables():
        raise MetadataError(
            f"The metadata database is empty, but the warehouse {context.root} has tables: the database was lost. Run "
            f"`deferred recover` first; or remove {context.folder(FOLDER)} to start without them."
        )
    if taken is not None:
        raise NameTakenError(
            f"There is a {class_of(taken).noun} {taken.name} already. Choose another name, or drop it first."
        )


def track(
    context: Context,
    name: str,
    path_or_name: str | None,
    key: Sequence[str] | None,
    references: Mapping[str, str] | None,
    log: str,
    **options: str | None,
) -> TableRecord:
    """Register a table; `log` says where its changes come from, see deferred.log.sources.

    `options` are what some of the sources need to know, see Given.
    """
    check_name(name, "table")
    given = Given(path_or_name, tuple(key or ()), **options)
    source = trackable(suggested(context, given)[0] if log == AUTO else log)
    check_free(context, name)
    place = source.locate(context, name, given)
    location = place.location
    _check_columns(DeltaLog(location), name, key, references)
    _check_targets(context, name, references)
    log_location = source.set_up(context, name, location) or place.original
    state = DeltaLog(location)
    record = context.metadata.tables.add(
        name=name,
        location=location,
        kind=source.kind,
        delta_id=state.id,
        log_location=log_location,
        key=tuple(key or ()),
        references=dict(references or {}),
        columns=state.columns,
        first_version=state.version,
    )
    _begin(context, record, state)
    return record


def _begin(context: Context, record: TableRecord, state: DeltaLog) -> None:
    """Enter the version at which a table is tracked as the first one of the ledger."""
    first = next(state.newest_first(), None)
    moment, operation = (first.timestamp, first.operation) if first else (utc_now(), None)  # its file may be gone
    context.metadata.ledger.append([LedgerEntry(record.id, state.version, moment, None, operation)])


def trusted_again(context: Context, record: TableRecord, under: Iterable[Lease] = ()) -> list[ViewRecord]:
    """Make sure that a table's changes are recorded from now on, and that it is the table that the ledger knows.

    A table that was recreated, or replaced by an older copy, is taken as it is. Every view that reads it is marked
    then: the versions in its cuts are those of a table that no longer exists. `under` are the leases of the worker that
    does this: one that was away for too long must not mark what another has rebuilt since. Returns the views that were
    not broken yet.
    """
    if not is_delta(record.location):
        return []  # the next look at its log raises an error that names the table
    source = source_of(context, record)
    replaced = source.was_replaced
    log_location = source.resume()
    if not replaced:
        return []
    state = DeltaLog(record.location)
    problem = f"Table {record.name} was dropped and recreated."
    readers = context.metadata.views.dependents(record.id)
    marked = [context.metadata.views.update(view.id, under, state="broken", problem=problem) for view in readers]
    context.metadata.ledger.prune(record.id, 2**62)
    record = context.metadata.tables.update(
        record.id,
        delta_id=state.id,
        columns=state.columns,
        first_version=state.version,
        log_location=log_location,
    )
    _begin(context, record, state)
    broken_before = {view.id for view in readers if view.state == "broken"}
    return [view for view in marked if view.id not in broken_before]


def untrack(context: Context, name: str) -> None:
    """Forget a table that no view reads."""
    record = context.metadata.tables.get(name)
    if not is_tracked(record):
        raise InvalidInputError(f"{name} is a {class_of(record).noun}; drop it instead.")
    users = context.metadata.views.dependents(record.id)
    if users:
        raise InvalidInputError(f"Table {name} is read by {', '.join(v.name for v in users)}; drop those views first.")
    context.metadata.tables.remove(record.id)


def find(context: Context, path: tuple[str, ...]) -> TableRecord:
    """The tracked table or view that a dotted name in SQL means."""
    if len(path) == 1:
        record = context.metadata.tables.find(path[0])
        if record is None:
            names = [t.name for t in context.metadata.tables.all()]
            raise UnknownObjectError(
                f"No tracked table or view {path[0]}{nearest(path[0], names)} "
                f"Track a Delta table with track(name, path) before a view reads it."
            )
        return record
    location = locate(context, ".".join(path))
    record = next((t for t in context.metadata.tables.all() if t.location == location), None)
    if record is None:
        raise UnknownObjectError(
            f"Table {'.'.join(path)} is not tracked; track it with track(name, {'.'.join(path)!r}) first."
        )
    return record


def _check_columns(state: DeltaLog, name: str, key: Sequence[str] | None, references: Mapping[str, str] | None) -> None:
    known = [column for column, _ in state.columns]
    for column in [*(key or ()), *(references or {})]:
        if column.casefold() not in {k.casefold() for k in known}:
            raise UnknownObjectError(f"Table {name} has no column {column}{nearest(column, known)}")


def _check_targets(context: Context, name: str, references: Mapping[str, str] | None) -> None:
    """Refuse references to columns that a tracked table does not have. The table itself may be tracked later."""
    for column, target in (references or {}).items():
        other, _, theirs = target.rpartition(".")
        record = context.metadata.tables.find(other)
        known = [] if record is None else [known for known, _ in record.columns]
        if record is not None and theirs.casefold() not in {each.casefold() for each in known}:
            raise UnknownObjectError(
                f"{name}.{column} refers to {target}, but {record.name} has no column {theirs}{nearest(theirs, known)}"
            )


def unused_references(context: Context, *names: str) -> list[str]:
    """The declared references of some tables, or to them, that nothing relies on, each with the reason."""
    from deferred.algebra.selfmaintenance.promises import unused  # takes longer to load than most commands run

    tables = context.metadata.tables.all()
    wanted = {name.casefold() for name in names}
    found = unused({table.name: table.key for table in tables}, {table.name: table.references for table in tables})
    return [f"{why}: it is not relied on." for table, other, why in found if {table.casefold(), other} & wanted]
