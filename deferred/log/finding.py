"""Finding the Delta tables of a folder, or of a schema in Spark's catalog, and names for them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from deferred.errors import DeferredError, InvalidInputError
from deferred.log import tracking
from deferred.log.context import Context
from deferred.log.locating import locate
from deferred.log.storage import Storage
from deferred.sql.ddl import command
from deferred.sql.dialect import quoted

LOG = "_delta_log"


@dataclass(frozen=True)
class Found:
    """A table that was looked at, and what became of it."""

    name: str
    location: str
    outcome: str
    """tracked, tracked already, or not tracked."""
    reason: str = ""


def track_all(context: Context, where: str, log: str) -> list[Found]:
    """Track every Delta table below a folder, or of a schema in Spark's catalog; says why one cannot be."""
    place = os.fspath(where)
    is_folder = "://" in place or os.sep in place or os.path.isdir(place)
    tables = named(_below(context, place)) if is_folder else _of_schema(context, place)
    if not tables:
        raise InvalidInputError(f"There is no Delta table {'below' if is_folder else 'in the schema'} {where}.")
    return [_tracked(context, name, location, log) for name, location in tables.items()]


def _tracked(context: Context, name: str, given: str, log: str) -> Found:
    try:
        location = locate(context, given)
        known = next((table for table in context.metadata.tables.all() if table.location == location), None)
        if known is not None:
            return Found(known.name, location, "tracked already")
        record = tracking.track(context, name, given, None, None, log)
    except DeferredError as error:
        return Found(name, given, "not tracked", str(error))
    return Found(record.name, record.location, "tracked")


def _below(context: Context, folder: str) -> list[str]:
    """The locations of the Delta tables below a folder, without those of the warehouse itself."""
    if "://" in folder:
        root = folder.rstrip("/")
        files = Storage(root).files()
        paths = {path.split(f"{LOG}/")[0].strip("/") for path in files if f"{LOG}/" in path}
        found = [f"{root}/{path}" if path else root for path in sorted(paths)]
    else:
        if not os.path.isdir(folder):
            raise InvalidInputError(f"The folder {folder} does not exist.")
        found = _walked(os.path.abspath(folder))
    own = context.root.rstrip("/") + "/"
    return [location for location in found if not f"{location}/".startswith(own)]


def _walked(folder: str) -> list[str]:
    """The Delta tables below a local folder. A table's own folders are not looked into."""
    found = []
    for path, folders, _ in os.walk(folder):
        if LOG in folders:
            found.append(path)
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
    return found


def named(locations: Sequence[str]) -> dict[str, str]:
    """Tables by names: the last part of each path, or as many parts as tell two apart.

    >>> named(["/lake/shop/sales", "/lake/web/sales", "/lake/web/page-views"])
    {'shop_sales': '/lake/shop/sales', 'web_sales': '/lake/web/sales', 'page_views': '/lake/web/page-views'}
    """
    parts = {location: [p for p in location.split("/") if p] for location in locations}
    lengths = dict.fromkeys(parts, 1)
    while True:
        names = {location: plain("_".join(parts[location][-lengths[location] :])) for location in parts}
        twins = _repeated(names)
        grown = {location for location in twins if lengths[location] < len(parts[location])}
        if not grown:
            return {name: location for location, name in names.items()}
        for location in grown:
            lengths[location] += 1


def _repeated(names: Mapping[str, str]) -> list[str]:
    folded = [name.casefold() for name in names.values()]
    return [location for location, name in names.items() if folded.count(name.casefold()) > 1]


def plain(name: str) -> str:
    """A name that a table can have: letters, digits and underscores.

    >>> plain("page-views"), plain("2024")
    ('page_views', '_2024')
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


def _of_schema(context: Context, schema: str) -> dict[str, str]:
    """The tables of a schema by name, with their names in the catalog; views and temporary ones are left out."""
    path = exp.to_table(schema, dialect="spark")
    where = ".".join(quoted(part.name) for part in path.parts)
    try:
        rows = context.engine.sql(command("SHOW TABLES IN", where)).collect()
    except DeferredError as error:
        raise InvalidInputError(f"{schema} is neither a folder nor a schema in Spark's catalog: {error}") from None
    stored = [str(row["tableName"]) for row in rows if not row["isTemporary"]]
    return {plain(table): f"{where}.{quoted(table)}" for table in stored}
