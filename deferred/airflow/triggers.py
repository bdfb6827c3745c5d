"""Triggers: waiting without occupying a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from deferred.airflow.opening import opened
from deferred.errors import DeferredError


class FreshnessTrigger(BaseTrigger):
    """Fires when each view shows at least the state of its time, or when the deadline has passed."""

    def __init__(
        self,
        moments: dict[str, str],
        config: str | None = None,
        metadata_conn_id: str | None = None,
        poll_seconds: float = 5.0,
        deadline: str | None = None,
    ) -> None:
        super().__init__()
        self.moments, self.config, self.metadata_conn_id = moments, config, metadata_conn_id
        self.poll_seconds, self.deadline = poll_seconds, deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "deferred.airflow.triggers.FreshnessTrigger", {
            "moments": self.moments,
            "config": self.config,
            "metadata_conn_id": self.metadata_conn_id,
            "poll_seconds": self.poll_seconds,
            "deadline": self.deadline,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        while True:
            try:
                stale = await asyncio.to_thread(stale_views, self.moments, self.config, self.metadata_conn_id)
            except DeferredError as error:
                yield TriggerEvent({"error": str(error)})
                return
            late = self.deadline is not None and datetime.now(UTC) >= datetime.fromisoformat(self.deadline)
            if not stale or late:
                yield TriggerEvent({"stale": stale})
                return
            await asyncio.sleep(self.poll_seconds)


def stale_views(moments: dict[str, str], config: str | None, metadata_conn_id: str | None) -> list[str]:
    """Returns the views that do not show the state of their time yet. Reads the metadata and Delta's logs; no Spark."""
    with opened(config, metadata_conn_id) as warehouse:
        return [view for view, moment in moments.items() if not warehouse.is_fresh(view, moment)]
