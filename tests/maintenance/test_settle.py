"""What a worker that was away for too long may not record: another has taken over its lease, and changed the view."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from deferred.errors import LeaseLostError
from deferred.log.context import Context
from deferred.log.tracking import trusted_again
from deferred.maintenance.batch import BATCHES_LEFT, remove_applied_batches
from deferred.maintenance.settle import settled
from deferred.maintenance.working import propagating, propagation
from deferred.metadata import Alteration, Cut, Metadata, RememberedDefinition, ViewRecord
from deferred.options import ViewOptions
from deferred.spark.engine import Engine, Statement

CUT = Cut(datetime(2026, 1, 1, tzinfo=UTC), {1: 0})
COLUMNS = (("a", "bigint"),)


class Stalled(Engine):
    """Spark takes so long for a statement that something else happens meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = lambda: None

    def write(self, statement: Statement) -> None:
        self.meanwhile()


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with Metadata.open(f"sqlite:///{tmp_path}/metadata.db", create=True) as metadata:
        yield Context(metadata, Stalled(), str(tmp_path), patience=0.2)


def commit(path: Path | str, **mark: Any) -> None:
    details = CommitProperties(custom_metadata={"userMetadata": json.dumps({"deferred": mark})} if mark else None)
    write_deltalake(str(path), pa.table({"a": [1]}), mode="append", commit_properties=details)


@pytest.fixture
def view(context: Context) -> ViewRecord:
    """A view over r, whose MV shows so many batches that they are removed from the differential table."""
    location = context.folder("views", "v")
    commit(context.folder("r"))
    commit(f"{location}/mv", kind="refresh", batch=BATCHES_LEFT, cut=CUT.to_json(), alteration="one")
    commit(f"{location}/differential")
    tables = context.metadata.tables
    base = tables.add(name="r", location=context.folder("r"), kind="feed", delta_id="another", columns=COLUMNS)
    own = tables.add(name="v", location=f"{location}/mv", kind="view", columns=COLUMNS)
    added = context.metadata.views.add(
        name="v",
        sql="SELECT a FROM r",
        options=ViewOptions(),
        columns=COLUMNS,
        location=location,
        table_id=own.id,
        depends_on=[base.id],
        shown=CUT,
        propagated=CUT,
    )
    return context.metadata.views.update(added.id, applied_batch=BATCHES_LEFT, propagated_batch=BATCHES_LEFT)


def taken_over(context: Context, view: ViewRecord) -> None:
    store = context.metadata.leases
    holder = store.holder(propagation(view))
    assert holder is not None
    assert store.steal(holder.name, holder.owner, "another", 60) is not None


def alteration(view: ViewRecord, id_: str, columns: tuple[tuple[str, str], ...] = COLUMNS) -> Alteration:
    definition = replace(view.definition, generation=id_, alteration=None)
    return Alteration(id_, f"SELECT {id_} FROM r", ViewOptions(), columns, view.depends_on, definition)


def test_removed_batches_are_noted(context: Context, view: ViewRecord) -> None:
    with propagating(context, view) as held:
        remove_applied_batches(context, view, held)
    assert context.metadata.views.by_id(view.id).definition.tidied == BATCHES_LEFT


def test_a_definition_that_was_altered_while_batches_were_removed_stays(context: Context, view: ViewRecord) -> None:
    new = RememberedDefinition(generation="new")

    def altered() -> None:
        taken_over(context, view)
        context.metadata.views.update(view.id, definition=new)

    assert isinstance(context.engine, Stalled)
    context.engine.meanwhile = altered
    with pytest.raises(LeaseLostError), propagating(context, view) as held:
        remove_applied_batches(context, view, held)
    assert context.metadata.views.by_id(view.id).definition == new


def test_the_note_of_the_next_alteration_stays(context: Context, view: ViewRecord) -> None:
    """A reader looks at a view whose alteration is in MV; before it records that, another one records it and goes on."""
    views = context.metadata.views
    commit(f"{view.location}/one/differential")
    columns = (("b", "bigint"),)
    seen = views.update(view.id, definition=replace(view.definition, alteration=alteration(view, "one", columns)))
    done = settled(context, seen)
    assert (done.sql, done.columns, done.definition.generation) == ("SELECT one FROM r", columns, "one")
    assert context.metadata.tables.by_id(view.table_id).columns == columns
    noted = views.update(view.id, definition=replace(done.definition, alteration=alteration(done, "two")))
    assert settled(context, seen) == noted


@pytest.mark.parametrize(
    "work",
    [
        lambda context, view, under: settled(context, view, under),
        lambda context, view, under: trusted_again(context, context.metadata.tables.get("r"), under),
    ],
    ids=["settled", "trusted_again"],
)
def test_nothing_is_recorded_without_the_lease(context: Context, view: ViewRecord, work: Callable[..., object]) -> None:
    before = context.metadata.views.update(view.id, applied_batch=BATCHES_LEFT + 1)
    with pytest.raises(LeaseLostError), propagating(context, view) as held:  # noqa: PT012
        taken_over(context, view)
        work(context, before, [held.lease])
    assert context.metadata.views.by_id(view.id) == before
