"""What is told of every table and view that is recorded, changed or removed, so that it can be kept elsewhere too."""

from __future__ import annotations

from typing import Protocol

from deferred.metadata.records import TableRecord, ViewRecord


class Journal(Protocol):
    """A second place for what a table or a view is. Cuts and batches are not told: Delta's logs have them."""

    def keep(self, record: TableRecord | ViewRecord) -> None:
        """Something was recorded or changed."""

    def forget(self, record: TableRecord | ViewRecord) -> None:
        """Something is about to be removed: what is left of it by a crash must not bring it back."""


class NoJournal:
    """For a database that nothing else is kept of."""

    def keep(self, record: TableRecord | ViewRecord) -> None:
        """Nothing is kept."""

    def forget(self, record: TableRecord | ViewRecord) -> None:
        """Nothing was kept."""
