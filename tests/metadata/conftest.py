"""A metadata database of each kind: a SQLite file, and a database of a real PostgreSQL server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from deferred.metadata import Metadata


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The address of an empty PostgreSQL database of this test alone."""
    name = f"test_{uuid.uuid4().hex}"
    administration = create_engine(
        make_url(postgres_server).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with administration.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield make_url(postgres_server).set(database=name).render_as_string(hide_password=False)
    with administration.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    administration.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/folder/metadata.db"
    address: str = request.getfixturevalue("postgres_url")
    return address


@pytest.fixture
def metadata(url: str) -> Iterator[Metadata]:
    """The stores on an empty database, once of each kind."""
    with Metadata.open(url, create=True) as opened:
        yield opened
