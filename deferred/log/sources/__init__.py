"""What a base table can be: one class per kind of source, and the registry that finds the class of a tracked table.

To add a kind, write its class in a file of this package and name it in SOURCES. Nothing else compares kinds.
"""

from __future__ import annotations

from deferred.errors import InvalidInputError
from deferred.log.context import Context
from deferred.log.locating import Given
from deferred.log.sources.change_feed import ChangeFeed
from deferred.log.sources.debezium import Debezium
from deferred.log.sources.files import Files
from deferred.log.sources.handed_over import HandedOver
from deferred.log.sources.source import Source, in_types
from deferred.log.sources.timestamps import Timestamps
from deferred.log.sources.view_table import ViewTable
from deferred.metadata import TableRecord

SOURCES: dict[str, type[Source]] = {
    source.kind: source for source in (ChangeFeed, Files, HandedOver, Timestamps, Debezium, ViewTable)
}
"""The class of each kind that the metadata database stores."""

__all__ = ["SOURCES", "Source", "class_of", "in_types", "is_tracked", "options", "source_of", "suggested", "trackable"]


def class_of(record: TableRecord) -> type[Source]:
    """The class of a table's source, for what can be said without looking at the table."""
    return SOURCES[record.kind]


def is_tracked(record: TableRecord) -> bool:
    """Whether a user tracked the table; the table of a view is not tracked, it belongs to its view."""
    return class_of(record).option is not None


def source_of(context: Context, record: TableRecord) -> Source:
    """The source of a table. It reads the table's log when first asked, so a new one sees later commits."""
    return class_of(record)(context, record)


def options() -> dict[str, type[Source]]:
    """The values of track(log=…) with the classes that they ask for."""
    return {source.option: source for source in SOURCES.values() if source.option is not None}


AUTO = "auto"
"""The value of track(log=…) that leaves the choice to `suggested`."""


def suggested(context: Context, given: Given) -> tuple[str, str]:
    """The log that suits what is given to `track`, and why."""
    for option, source in options().items():
        reason = source.suits(context, given)
        if reason is not None:
            return option, reason
    raise InvalidInputError(
        f"No log suits {given.path_or_name}: it is not a Delta table. Give its key and updated_at for "
        f"log='timestamps', or its key and columns for log='debezium'; see docs/SOURCES.md."
    )


def trackable(log: str) -> type[Source]:
    """The class that track(log=…) asks for.

    >>> trackable("feed").__name__
    'ChangeFeed'
    """
    known = options()
    if log not in known:
        listed = " or ".join(f"{option!r} ({source.summary})" for option, source in known.items())
        raise InvalidInputError(f"log must be {listed}, not {log!r}.")
    return known[log]
