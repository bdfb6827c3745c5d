"""The folders of a view's tables without Spark: its history tables are its own, and go with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deferred.errors import InvalidInputError
from deferred.log.catalog import Catalog
from deferred.log.context import Context
from deferred.maintenance import views
from deferred.maintenance.garbage import gc
from deferred.maintenance.view_tables import history_path
from deferred.metadata import Metadata, ViewRecord
from deferred.options import HISTORIES, ViewOptions
from deferred.spark.engine import Engine


def make(path: Path | str) -> None:
    write_deltalake(str(path), pa.table({"a": [1]}))


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    journal = Catalog(str(tmp_path))
    with Metadata.open(f"sqlite:///{tmp_path}/metadata.db", create=True, journal=journal) as metadata:
        yield Context(metadata, Engine(), str(tmp_path))


def registered(context: Context, folder: str) -> ViewRecord:
    """A view v with its tables, as `create` leaves them."""
    location = context.folder("views", folder)
    make(f"{location}/mv")
    make(f"{location}/differential")
    own = context.metadata.tables.add(name="v", location=f"{location}/mv", kind="view")
    return context.metadata.views.add(
        name="v", sql="SELECT 1 AS a", options=ViewOptions(), columns=[("a", "bigint")], location=location,
        table_id=own.id, depends_on=[],
    )  # fmt: skip


@pytest.mark.parametrize("of", HISTORIES)
def test_a_history_goes_with_its_view(context: Context, of: str) -> None:
    view = registered(context, "v-1")
    make(path := Path(history_path(context, view, of)))
    gc(context, 0)
    assert path.exists()
    context.metadata.views.update(view.id, definition=replace(view.definition, generation="g1"))
    make(f"{view.location}/g1/differential")
    gc(context, 0)  # removes what the former definition has left
    assert path.exists()
    assert not Path(view.location, "differential").exists()
    views.drop(context, view)
    assert not path.exists()
    assert not Path(history_path(context, registered(context, "v-2"), of)).exists()


@pytest.mark.parametrize("of", HISTORIES)
def test_a_history_that_version_0_1_has_made(context: Context, of: str) -> None:
    view = registered(context, "v-1")
    make(path := Path(context.root, "history", f"v_{of}"))
    make(nobodys := path.with_name(f"w_{of}"))
    assert history_path(context, view, of) == str(path)
    gc(context, 0)
    assert path.exists()
    assert not nobodys.exists()
    views.drop(context, view)
    assert not path.exists()
    assert history_path(context, registered(context, "v-2"), of) != str(path)


def test_a_history_of_something_else(context: Context) -> None:
    with pytest.raises(InvalidInputError, match="rows or changes, not 'gaps'"):
        history_path(context, registered(context, "v-1"), "gaps")
