"""`deferred init`, which makes a project and migrates its database, killed at every failpoint; without Spark.

And the migration of a database that a released version has filled.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import MetaData, create_engine, make_url, text

from deferred.failpoints import VARIABLE
from deferred.metadata import migrate
from deferred.metadata.database import VERSION_TABLE
from tests.engine.test_upgrade import FIXTURES, unpack
from tests.reliability.operations import environment

pytestmark = pytest.mark.slow


@contextmanager
def database(kind: str, folder: Path, server: str) -> Iterator[str]:
    """The address of an empty database."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/metadata/deferred.db"
        return
    address = make_url(server).set(drivername="postgresql+psycopg")
    administration = create_engine(address, isolation_level="AUTOCOMMIT")
    with administration.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {folder.name}"))
        yield address.set(database=folder.name).render_as_string(hide_password=False)
        connection.execute(text(f"DROP DATABASE {folder.name} WITH (FORCE)"))
    administration.dispose()


def init(folder: Path, url: str, failpoint: str = "") -> int:
    return deferred("init", str(folder / "project"), url=url, failpoint=failpoint)


def deferred(*arguments: str, url: str, failpoint: str = "") -> int:
    given = {**environment(), "DEFERRED_METADATA_URL": url, **({VARIABLE: failpoint} if failpoint else {})}
    command = [sys.executable, "-m", "deferred.cli", *arguments]
    return subprocess.run(command, env={**given, "PYTHONPATH": str(Path(__file__).parents[2])}, check=False).returncode


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_init_and_migration(kind: str, tmp_path: Path, postgres_server: str) -> None:
    trace = tmp_path / "trace"
    (whole := tmp_path / f"{kind}_whole").mkdir()
    with database(kind, whole, postgres_server) as url:
        assert init(whole, url, str(trace)) == 0
    effects = trace.read_text().splitlines()
    assert any("CREATE TABLE" in effect for effect in effects)
    assert "configuration file" in effects
    wanted = {file.relative_to(whole).as_posix() for file in whole.rglob("*")}
    for number in range(1, len(effects) + 1):
        (folder := tmp_path / f"{kind}_{number}").mkdir()
        with database(kind, folder, postgres_server) as url:
            assert init(folder, url, f"{folder}/effects:{number}") == -signal.SIGKILL, effects[number - 1]
            (folder / "effects").unlink()
            assert init(folder, url) == 0, effects[number - 1]
            assert migrate.current(url) == migrate.head()
        assert {file.relative_to(folder).as_posix() for file in folder.rglob("*")} == wanted, effects[number - 1]


def rows(url: str) -> dict[str, list[str]]:
    """All that a database holds."""
    engine = create_engine(url)
    metadata = MetaData()
    metadata.reflect(engine)
    with engine.connect() as connection:
        found = {table.name: sorted(map(str, connection.execute(table.select()))) for table in metadata.sorted_tables}
    engine.dispose()
    return found


def fill(url: str, old: str) -> None:
    """Put what a released version has written into an empty database, at the revision of that version."""
    revision = migrate.current(old)
    assert revision is not None
    engine, source = create_engine(url), create_engine(old)
    migrate.upgrade(url, revision)
    metadata = MetaData()
    metadata.reflect(engine)
    with engine.begin() as connection, source.connect() as held:
        for table in metadata.sorted_tables:
            if table.name != VERSION_TABLE and (found := held.execute(table.select()).mappings().all()):
                connection.execute(table.insert(), [dict(row) for row in found])
    engine.dispose()
    source.dispose()


@pytest.mark.parametrize("archive", sorted(FIXTURES.glob("warehouse-*.tar.gz")), ids=lambda path: path.name)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_migration_of_a_released_version(kind: str, archive: Path, tmp_path: Path, postgres_server: str) -> None:
    """Killed before any commit of it, and run again: the same rows as of a migration that was never killed."""

    def prepared(name: str) -> tuple[Path, AbstractContextManager[str]]:
        (folder := tmp_path / name).mkdir()
        (folder / "metadata").mkdir()
        return folder, database(kind, folder, postgres_server)

    old = f"sqlite:///{unpack(archive, tmp_path)}/deferred.db"
    folder, opened = prepared(f"{kind}_never")
    with opened as url:
        fill(url, old)
        assert len(rows(url)["views"]) > 10
        assert deferred("db", "upgrade", url=url, failpoint=f"{folder}/effects") == 0
        assert migrate.current(url) == migrate.head()
        wanted = rows(url)
    effects = (folder / "effects").read_text().splitlines()
    assert len(effects) > 0
    for number in range(1, len(effects) + 1):
        folder, opened = prepared(f"{kind}_at_{number}")
        with opened as url:
            fill(url, old)
            assert deferred("db", "upgrade", url=url, failpoint=f"{folder}/effects:{number}") == -signal.SIGKILL
            assert deferred("db", "upgrade", url=url) == 0, effects[number - 1]
            assert migrate.current(url) == migrate.head()
            assert rows(url) == wanted, effects[number - 1]
