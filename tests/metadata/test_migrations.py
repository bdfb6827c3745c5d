"""The schema's history, and opening a database that is missing, older, newer or out of reach."""

from __future__ import annotations

import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, text

from deferred.errors import MetadataError
from deferred.metadata import Metadata, migrate, store
from deferred.metadata.database import VERSION_TABLE, Database, parse_url
from deferred.metadata.models import REVISION, Base


def execute(url: str, *statements: str) -> None:
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def differences(url: str) -> list[Any]:
    """Returns what a database lacks or has too much, compared with the models."""
    database = Database(url)
    with database.connection() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        found = list(compare_metadata(context, Base.metadata))
    database.close()
    return found


def test_models_and_migrations_agree(url: str) -> None:
    migrate.upgrade(url)
    assert differences(url) == []
    assert migrate.current(url) == migrate.head() == REVISION


def test_a_difference_is_seen(url: str) -> None:
    migrate.upgrade(url)
    execute(url, "ALTER TABLE leases ADD COLUMN color TEXT")
    assert "color" in str(differences(url))


def test_upgrade_downgrade_and_upgrade_again(url: str) -> None:
    assert migrate.current(url) is None
    migrate.upgrade(url)
    migrate.downgrade(url, "base")
    assert migrate.current(url) is None
    migrate.upgrade(url)
    migrate.upgrade(url)
    assert differences(url) == []
    Metadata.open(url).close()


def test_leases_get_tokens_and_lose_them_again(url: str) -> None:
    """A lease that an earlier version left is free after the upgrade: nobody works during a migration."""
    migrate.upgrade(url, "0001")
    lease = "INSERT INTO leases VALUES ('view:top', 'old', '2026-01-01 00:00:00+00:00', '2999-01-01 00:00:00+00:00')"
    execute(url, lease)
    migrate.upgrade(url)
    with Metadata.open(url) as metadata:
        taken = metadata.leases.acquire("view:top", "new", 60)
    assert taken is not None
    assert taken.token > 0
    migrate.downgrade(url, "0001")
    execute(url, lease)
    migrate.upgrade(url)
    assert differences(url) == []


def test_a_revision_that_does_not_exist_is_refused(url: str) -> None:
    migrate.upgrade(url)
    with pytest.raises(MetadataError, match="nowhere"):
        migrate.upgrade(url, "nowhere")
    assert migrate.current(url) == migrate.head()


def test_many_may_create_one_database_at_once(url: str) -> None:
    def create(_: int) -> None:
        Metadata.open(url, create=True).close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(create, range(6)))
    assert migrate.current(url) == migrate.head()


def test_a_database_without_schema_is_refused(url: str) -> None:
    with pytest.raises(MetadataError, match="deferred init"):
        Metadata.open(url)


def test_opening_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match="There is no metadata database"):
        Metadata.open(f"sqlite:///{tmp_path}/missing.db")
    assert list(tmp_path.iterdir()) == []


def test_a_database_with_other_tables_is_left_alone(url: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(exist_ok=True)
    execute(url, "CREATE TABLE of_somebody_else (id INTEGER)")
    with pytest.raises(MetadataError, match="deferred db upgrade"):
        Metadata.open(url, create=True)
    assert migrate.current(url) is None


@pytest.mark.parametrize("create", [False, True])
def test_an_older_schema_is_never_upgraded_silently(url: str, create: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate.upgrade(url)
    monkeypatch.setattr(store, "REVISION", "0999")
    monkeypatch.setattr(migrate, "REVISION", "0999")
    with pytest.raises(
        MetadataError, match=f"older revision {REVISION}, and 0999 is needed; run `deferred db upgrade`"
    ):
        Metadata.open(url, create=create)
    assert migrate.current(url) == REVISION


@pytest.mark.parametrize("create", [False, True])
def test_a_newer_schema_asks_for_a_newer_package(url: str, create: bool) -> None:
    migrate.upgrade(url)
    execute(url, f"UPDATE {VERSION_TABLE} SET version_num = '0999'")
    with pytest.raises(MetadataError, match="upgrade the package deferred"):
        Metadata.open(url, create=create)
    with pytest.raises(MetadataError, match="0999"):
        migrate.upgrade(url)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("This is not a database. " * 100)
    with pytest.raises(MetadataError, match="file is not a database"):
        Metadata.open(f"sqlite:///{tmp_path}/text.db", create=True)
    with pytest.raises(MetadataError, match="cannot be created"):
        Metadata.open(f"sqlite:///{tmp_path}/text.db/metadata.db", create=True)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://people:pass%20w0rd@127.0.0.1:1/deferred", "cannot be used"),
        ("postgresql+psycopg://people@127.0.0.1:1/deferred?password=pass+w0rd", "cannot be used"),
        ("postgresql://people:pass w0rd@127.0.0.1:port/deferred", "cannot be read"),
        ("postgresql://people:x@pass w0rd@127.0.0.1:1/deferred", "%40"),
        ("mysql://people:pass w0rd@host/deferred", "SQLite or PostgreSQL"),
        ("people:pass w0rd@host", "cannot be read"),
        ("sqlite://", "memory"),
    ],
)
def test_an_unusable_url_is_explained_without_its_password(url: str, message: str) -> None:
    for action in (Metadata.open, migrate.upgrade, migrate.current):
        with pytest.raises(MetadataError, match=message) as caught:
            action(url)
        shown = "".join(traceback.format_exception(caught.value))
        assert not any(secret in shown.split("Error: ")[-1] for secret in ("pass w0rd", "pass%20w0rd", "pass+w0rd"))
        assert not any(secret in str(caught.value.__cause__) for secret in ("pass w0rd", "pass%20w0rd", "pass+w0rd"))


def test_a_refused_login_shows_no_password(postgres_url: str) -> None:
    url = parse_url(postgres_url).set(username="nobody", password="pass w0rd")
    with pytest.raises(MetadataError, match="nobody") as caught:
        Metadata.open(url.render_as_string(hide_password=False))
    assert "w0rd" not in str(caught.value)


def test_a_database_that_goes_away_is_an_error_of_ours(metadata: Metadata, url: str) -> None:
    execute(url, "DROP TABLE leases")
    with pytest.raises(MetadataError, match="leases"):
        metadata.leases.acquire("a", "me", 1)
