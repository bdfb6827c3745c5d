"""A view's own table (MV) as a base table of other views: its changes are its change feed, once a view reads it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar

from deferred.log.delta_log import Commit, DeltaLog
from deferred.log.sources.change_feed import ChangeFeed

LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)
"""Before every other time: the ledger places such a commit just after the one before it."""


class ViewTable(ChangeFeed):
    """▼MV and ▲MV are what refreshes deleted and inserted; only refreshes write the table."""

    kind: ClassVar[str] = "view"
    option: ClassVar[str | None] = None
    summary: ClassVar[str] = "the refreshes of a view"
    noun: ClassVar[str] = "view"

    def commits(self, after: int) -> list[Commit]:
        """The refreshes, and commits of others, such as OPTIMIZE and ALTER, which change no row.

        The latter have no time of their own, but that of the refresh before them: refreshes are placed by the cuts
        that they show, and one that comes later may show an earlier time than that of another's commit.
        """
        return [
            commit if commit.mark is not None and "cut" in commit.mark else replace(commit, timestamp=LONG_AGO)
            for commit in super().commits(after)
        ]

    @property
    def write_refusal(self) -> str | None:
        return f"{self.record.name} is a view: its rows come from its query. Change its base tables."

    def serve(self) -> None:
        """Turn the feed on for the first reader: commits before that have no changes to read."""
        if not self.log.has_feed:
            self.resume()
            version = DeltaLog(self.record.location).version
            self.context.metadata.tables.update(self.record.id, first_version=version)
