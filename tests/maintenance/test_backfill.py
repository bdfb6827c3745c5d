"""Stepping through time without Spark: each step is the scenario's refresh, and a step that fails leaves none behind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deferred.errors import StorageError
from deferred.log.context import Context
from deferred.maintenance.backfill import backfill
from deferred.maintenance.operation import Operation
from deferred.maintenance.scenarios import BY_NAME, Combined
from deferred.metadata import Cut, LedgerEntry, Metadata, TableRecord, ViewRecord
from deferred.options import ViewOptions
from deferred.spark.engine import Engine

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with Metadata.open(f"sqlite:///{tmp_path}/metadata.db", create=True) as metadata:
        yield Context(metadata, Engine(), str(tmp_path), patience=0.2)


def table(context: Context, name: str, path: str, kind: str) -> TableRecord:
    write_deltalake(path, pa.table({"a": [1]}), configuration={"delta.enableChangeDataFeed": "true"})
    record = context.metadata.tables.add(name=name, location=path, kind=kind, columns=[("a", "bigint")])
    context.metadata.ledger.append([LedgerEntry(record.id, 0, START, None, "WRITE")])
    return record


def view(context: Context, name: str, reads: TableRecord, scenario: str) -> ViewRecord:
    location = context.folder("views", name)
    own = table(context, name, f"{location}/mv", "view")
    write_deltalake(f"{location}/differential", pa.table({"a": [1]}))
    return context.metadata.views.add(
        name=name,
        sql=f"SELECT a FROM {reads.name}",
        options=ViewOptions(scenario=scenario),
        columns=[("a", "bigint")],
        location=location,
        table_id=own.id,
        depends_on=[reads.id],
        shown=Cut(START, {reads.id: 0}),
        propagated=Cut(START, {reads.id: 0}),
    )


@pytest.fixture
def below(context: Context) -> ViewRecord:
    """A view over a table, and one over it that follows at once."""
    below = view(context, "v", table(context, "r", context.folder("r"), "feed"), "combined")
    view(context, "w", context.metadata.tables.by_id(below.table_id), "immediate")
    return below


def operations(context: Context, name: str) -> list[str]:
    return [operation.kind for operation in context.metadata.operations.recent(name, 20)]


def test_a_step_that_fails_leaves_no_follower_behind(
    context: Context, below: ViewRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[datetime | None] = []

    class OutOfReach(Combined):
        """After its second step the storage cannot be reached any more."""

        def refresh(
            self, context: Context, view: ViewRecord, until: datetime | None, order: str, full: bool
        ) -> Operation:
            ends.append(until)
            if len(ends) == 3:
                raise StorageError("out of reach")
            return super().refresh(context, view, until, order, full)

    monkeypatch.setitem(BY_NAME, "combined", OutOfReach())
    with pytest.raises(StorageError, match="out of reach"):
        backfill(context, "v", START, START + timedelta(hours=4), "1h")
    assert ends == [START + timedelta(hours=hours) for hours in (1, 2, 3)]
    assert operations(context, "v") == ["refresh"] * 4
    assert operations(context, "w") == ["refresh"] * 2, "propagate and partial_refresh of the one that follows"
