"""What a page is about: views with their health, histories and explanations, read without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deferred.errors import DeferredError
from deferred.maintenance.explain import Summary
from deferred.maintenance.operation import Operation
from deferred.metadata import utc_now

if TYPE_CHECKING:
    from deferred.maintenance.warehouse import Warehouse

OPERATIONS = 40
"""So many operations of each view are shown."""

COMMITS = 500
"""So many commits of each table are shown."""


@dataclass(frozen=True)
class Details:
    """What is shown of one view beside its line."""

    operations: Sequence[Operation]
    """Newest first."""
    commits: Mapping[str, Sequence[datetime]]
    """When each table that it reads was changed, oldest first."""
    explanation: Summary | str
    """In words; or why there is none."""
    sql: str


@dataclass(frozen=True)
class Facts:
    """A warehouse at one moment."""

    at: datetime
    views: Sequence[dict[str, Any]]
    tables: Sequence[str]
    details: Mapping[str, Details]


def gather(warehouse: Warehouse, only: Sequence[str] | None = None) -> Facts:
    """Reads what the pages show: every view in the list, and the details of all or of some."""
    views = warehouse.status()
    asked = None if only is None else {warehouse.view(name).name for name in only}
    detailed = [view for view in views if asked is None or view["name"] in asked]
    histories, times = warehouse.histories(OPERATIONS), warehouse.commit_times(COMMITS)
    texts = {view.name: view.sql for view in warehouse.views()}
    return Facts(
        at=utc_now(),
        views=views,
        tables=[table.name for table in warehouse.base_tables()],
        details={
            name: Details(
                operations=histories.get(name, []),
                commits={table: times[table] for table in view["reads"]},
                explanation=_explanation(warehouse, name),
                sql=texts[name],
            )
            for view in detailed
            if (name := view["name"]) in texts
        },
    )


def _explanation(warehouse: Warehouse, name: str) -> Summary | str:
    try:
        return warehouse.explain_briefly(name)
    except DeferredError as error:  # a page about a broken view is there to show that it is broken
        return f"[{error.code}] {error}"
