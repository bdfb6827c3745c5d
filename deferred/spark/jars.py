"""Delta's jar: which one goes with the installed Spark, and fetching it once.

Spark fetches it through Ivy when it is first started. Two processes that start at once would write the same files of
Ivy's cache, and both fail: so the first to come fetches, and the others wait until it has.
"""

from __future__ import annotations

import fcntl
import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

IVY = "spark.jars.ivy"
"""Where Ivy keeps what it has fetched."""

IVY_FOLDER = ".ivy2.5.2"
"""Where Spark has Ivy keep it by default, in the home folder of Java."""


def packages() -> str:
    """The Maven coordinates of the Delta jar that goes with the installed Spark."""
    from importlib.metadata import version

    spark = ".".join(version("pyspark").split(".")[:2])
    return f"io.delta:delta-spark_{spark}_2.13:{version('delta-spark')}"


def listed(*coordinates: str | None) -> str:
    """Several coordinates as Spark's settings want them."""
    return ",".join(name for name in coordinates if name)


@contextmanager
def fetching(coordinates: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Starts of Spark that may have to fetch jars, one at a time; those that find all of them do not wait.

    A file in Ivy's cache, which goes when the cache goes, tells that a start with these coordinates has succeeded.
    """
    cache = Path(settings.get(IVY) or _home() / IVY_FOLDER)
    fetched = cache / f"fetched-{coordinates.replace(':', '_').replace('/', '_').replace(',', '+')[:200]}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = os.open(cache / "deferred.lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:  # what Spark cannot write either, it says itself
        yield
        return
    try:
        if not fetched.exists():
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        fetched.touch()
    finally:
        os.close(lock)


def _home() -> Path:
    """The home folder as Java sees it: that of the user, whatever HOME says."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir)
