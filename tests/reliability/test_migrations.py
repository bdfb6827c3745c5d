"""`deferred init`, which makes a project and migrates its database, killed at every failpoint; without Spark."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from deferred.failpoints import VARIABLE
from deferred.metadata import migrate
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
    given = {**environment(), "DEFERRED_METADATA_URL": url, **({VARIABLE: failpoint} if failpoint else {})}
    command = [sys.executable, "-m", "deferred.cli", "init", str(folder / "project")]
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
