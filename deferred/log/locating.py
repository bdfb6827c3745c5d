"""Where a table is: the path of a Delta table that is given by path or by its name in Spark's catalog."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sqlglot import exp

from deferred.errors import DeferredError, InvalidInputError, NameTakenError, UnknownObjectError
from deferred.log.context import Context
from deferred.log.delta_log import is_delta
from deferred.sql.dialect import text


@dataclass(frozen=True)
class Place:
    """Where a tracked table is: the Delta table that the engine reads, and what it is a copy of, if it is one."""

    location: str
    original: str | None = None


@dataclass(frozen=True)
class Given:
    """What a user gives to `track` beside the name: a source takes what it needs and refuses the rest."""

    path_or_name: str | None
    key: tuple[str, ...] = ()
    columns: str | None = None
    """The columns as DDL, for a source that cannot be asked for them."""
    updated_at: str | None = None
    """The column with the time of a row's last change, for a source that has nothing else."""
    deletions: str | None = None
    """The trace table of such a source: the keys that were deleted, and when."""

    def delta_table(self, context: Context) -> str | None:
        """The path of the Delta table that is given, if it is one and nothing is said of another kind of source."""
        if self.path_or_name is None or self.columns is not None or self.updated_at is not None:
            return None
        try:
            return locate(context, self.path_or_name)
        except (InvalidInputError, UnknownObjectError):
            return None

    def refuse(self, name: str, option: str, *fields: str) -> None:
        """Refuse what a source has no use for."""
        for field in fields:
            if getattr(self, field) is not None:
                raise InvalidInputError(f"track({name!r}, log={option!r}) takes no {field}; see docs/SOURCES.md.")


def located(context: Context, given: str | None, name: str) -> str:
    """The path of a Delta table that is not tracked yet."""
    if given is None:
        raise InvalidInputError(f"track({name!r}) needs the path of a Delta table, or its name in Spark's catalog.")
    location = locate(context, given)
    if "%" in location:
        raise InvalidInputError(
            f"{location} has a percent sign in its path, which delta-rs reads as an escape; "
            "move the table to another path."
        )
    same = next((t for t in context.metadata.tables.all() if t.location == location), None)
    if same is not None:
        raise NameTakenError(f"{given} is tracked already, as {same.name}.")
    return location


def locate(context: Context, path_or_name: str) -> str:
    """The path of a Delta table that is given by path or by its name in Spark's catalog."""
    given = os.fspath(path_or_name)
    if "://" in given or os.sep in given or os.path.isfile(given) or is_delta(given):
        location = given if "://" in given else os.path.abspath(given)
        location = location.removeprefix("file://")
        if not is_delta(location):
            there = "is not a Delta table" if os.path.exists(location) else "does not exist"
            raise InvalidInputError(
                f"{given} {there}. Write it as Delta first (df.write.format('delta').save(…)); "
                f"only Delta tables can be tracked."
            )
        return location.rstrip("/")
    parts = [exp.to_identifier(part.strip("`"), quoted=True) for part in given.split(".")]
    named = exp.Dot.build(parts) if len(parts) > 1 else parts[0]
    try:
        # In the user's session, which may have another current schema than ours.
        (detail,) = context.engine.sql(text(exp.Describe(this=named, style="DETAIL"))).collect()
    except DeferredError as error:
        raise UnknownObjectError(
            f"{given} is neither the path of a Delta table nor a table in Spark's catalog: {error}"
        ) from None
    if detail["format"] != "delta":
        raise InvalidInputError(f"Table {given} is {detail['format']}, not Delta; only Delta tables can be tracked.")
    return str(detail["location"]).removeprefix("file://").removeprefix("file:").rstrip("/")
