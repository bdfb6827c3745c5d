"""The catalog and the object store's settings, without Spark: what is written beside the tables can be read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deferred.log import object_store
from deferred.log.catalog import Catalog
from deferred.metadata import Metadata, RememberedDefinition, ViewRecord
from deferred.options import ViewOptions
from tests.metadata.conftest import postgres_url, url  # noqa: F401


def filled(metadata: Metadata) -> ViewRecord:
    """A table and a view, neither of them the first of its kind."""
    metadata.tables.remove(metadata.tables.add(name="gone", location="/gone", kind="feed").id)
    base = metadata.tables.add(name="r", location="/r", kind="feed", key=["a"], columns=[("a", "int")], first_version=3)
    own = metadata.tables.add(name="v", location="/w/views/v-1/mv", kind="view")
    view = metadata.views.add(
        name="v",
        sql="SELECT a FROM r",
        options=ViewOptions(scenario="base_log", target_lag="1h"),
        columns=[("a", "int")],
        location="/w/views/v-1",
        table_id=own.id,
        depends_on=[base.id],
        definition=RememberedDefinition({"r": (("a", "int"),)}, key=("a",), settings={"zone": "UTC"}),
    )
    return metadata.views.update(view.id, applied_batch=4, propagated_batch=5)


def test_a_database_that_was_lost_is_filled_again(url: str, tmp_path: Path) -> None:  # noqa: F811
    """Ids are what they were, also for what comes later: cuts and the numbers of commits speak of them."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    with Metadata.open(f"sqlite:///{tmp_path}/lost.db", create=True, journal=catalog) as lost:
        view = filled(lost)
        tables = lost.tables.all()
    with Metadata.open(url, create=True, journal=catalog) as metadata:
        for table in catalog.tables():
            metadata.tables.restore(table)
        for kept in catalog.views():
            metadata.views.restore(kept)
        assert metadata.tables.all() == tables
        found = metadata.views.get("v")
        assert (found.applied_batch, found.propagated_batch) == (0, 0)  # Delta's logs have these
        same = (
            "id",
            "name",
            "sql",
            "options",
            "columns",
            "definition",
            "location",
            "table_id",
            "depends_on",
            "created_at",
        )
        assert [getattr(found, name) for name in same] == [getattr(view, name) for name in same]
        assert metadata.tables.add(name="later", location="/later", kind="feed").id > max(t.id for t in tables)


def test_the_catalog_follows_the_database(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    with Metadata.open(f"sqlite:///{tmp_path}/metadata.db", create=True, journal=catalog) as metadata:
        view = filled(metadata)
        written = (tmp_path / "catalog" / f"view-{view.id}-v.json").stat().st_mtime_ns
        metadata.views.update(view.id, applied_batch=5)
        catalog.complete([*metadata.tables.all(), *metadata.views.all()])
        assert (tmp_path / "catalog" / f"view-{view.id}-v.json").stat().st_mtime_ns == written
        metadata.views.update(view.id, sql="SELECT a FROM r WHERE a > 1")
        assert [kept.sql for kept in catalog.views()] == ["SELECT a FROM r WHERE a > 1"]
        catalog.complete([view])  # an old database must not take back what the catalog knows
        assert [kept.sql for kept in catalog.views()] == ["SELECT a FROM r WHERE a > 1"]
        (tmp_path / "catalog" / f"view-{view.id}-v.json").unlink()
        catalog.complete(list(metadata.views.all()))
        assert [kept.id for kept in catalog.views()] == [view.id]
        metadata.views.remove(view.id)
        assert (catalog.views(), [table.name for table in catalog.tables()]) == ([], ["r"])
    assert Catalog(str(tmp_path / "none")).tables() == []


@pytest.fixture
def known() -> Iterator[dict[str, str]]:
    """What is known of object stores, as if nothing was."""
    before = dict(object_store._settings)
    object_store._settings.clear()
    yield object_store._settings
    object_store._settings.clear()
    object_store._settings.update(before)


def test_delta_rs_gets_the_credentials_of_spark(known: dict[str, str]) -> None:
    s3a = object_store.PREFIX
    object_store.learn(
        {
            f"{s3a}access.key": "all",
            f"{s3a}secret.key": "secret",
            f"{s3a}bucket.mine.access.key": "mine",
            f"{s3a}endpoint": "http://127.0.0.1:1",
            f"{s3a}endpoint.region": "eu-central-1",
            f"{s3a}path.style.access": "true",
            "spark.sql.shuffle.partitions": "3",
        }
    )
    assert "spark.sql.shuffle.partitions" not in known
    assert object_store.options("s3a://mine/t") == {
        "AWS_ACCESS_KEY_ID": "mine",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    }
    assert (object_store.options("s3a://other/t") or {})["AWS_ACCESS_KEY_ID"] == "all"
    assert object_store.options("/local/t") is None
    assert object_store.options("gs://bucket/t") is None
