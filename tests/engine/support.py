"""What the engine's tests share: small Delta tables, and a reference that is independent of the engine.

The reference is Spark running the view's query over the base tables as they are, compared as a bag of exact values.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from deferred import DeferredError, failpoints
from deferred.log import lease
from deferred.spark.engine import Engine

FEED = "delta.enableChangeDataFeed"


def exact(value: Any) -> Any:
    """A value that is equal to another only when both are the same to the last bit; NaN equals itself."""
    if isinstance(value, float):
        return ("float", repr(value))
    if isinstance(value, Decimal):
        return ("decimal", str(value))
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, (bytes, bytearray)):
        return ("binary", bytes(value))
    if isinstance(value, Mapping):
        return ("map", tuple(sorted((exact(k), exact(v)) for k, v in value.items())))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, tuple(exact(v) for v in value))
    return value


def bag(frame: Any) -> Counter[Any]:
    """The rows of a DataFrame with their multiplicities."""
    return Counter(tuple(exact(value) for value in row) for row in frame.collect())


def make(spark: Any, path: Path | str, columns: str, values: str | None = None, **properties: str) -> str:
    """A Delta table at a path, filled with VALUES; returns the path."""
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in properties.items())
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta" + (f" TBLPROPERTIES ({listed})" if listed else ""))
    if values:
        spark.sql(f"INSERT INTO delta.`{path}` VALUES {values}")
    return str(path)


def recomputed(wh: Any, sql: str, versions: Mapping[str, int] | None = None) -> Any:
    """The rows of a view's query, run by Spark over the base tables now or at given versions."""
    at = {name: f" VERSION AS OF {version}" for name, version in (versions or {}).items()}
    texts = {t.name: f"SELECT * FROM delta.`{t.location}`{at.get(t.name, '')}" for t in wh.tables() if t.kind != "view"}
    texts.update({view.name: view.sql for view in wh.views()})

    def define(text: str) -> None:
        """Temporary views of what a text reads, and of what those read."""
        for name in re.findall(r"\w+", text):
            if name in texts:
                define(body := texts.pop(name))
                wh.spark.sql(f"CREATE OR REPLACE TEMP VIEW `{name}` AS {body}")

    define(sql)
    return wh.spark.sql(sql)


def assert_fresh(wh: Any, *names: str) -> None:
    """Each view shows what a recomputation gives."""
    for name in names:
        record = next(v for v in wh.views() if v.name == name)
        shown, wanted = bag(wh.read(name)), bag(recomputed(wh, record.sql))
        assert shown == wanted, f"{name}: too many {shown - wanted}, missing {wanted - shown}"


def commits(spark: Any, path: str) -> list[Any]:
    """A Delta table's history, oldest first."""
    return sorted(spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect(), key=lambda row: row["version"])


def mv(wh: Any, name: str) -> str:
    """The path of a view's MV."""
    return next(t.location for t in wh.tables() if t.name == name)


def refused(kind: type[DeferredError], *words: str) -> Any:
    """Expect a DeferredError whose message contains the given words, in any order."""
    pattern = "".join(f"(?=.*{re.escape(word)})" for word in words)
    return pytest.raises(kind, match=f"(?s){pattern}")


def state_of(wh: Any) -> dict[str, Any]:
    """What must be unchanged after a refused request: tables, views, folders of views, versions of base tables."""
    from deferred.log.delta_log import DeltaLog

    folder = Path(str(wh.settings.path)) / "views"
    return {
        "tables": wh.tables(),
        "views": wh.views(),
        "folders": sorted(p.name for p in folder.iterdir()) if folder.exists() else [],
        "versions": {t.name: DeltaLog(t.location).version for t in wh.tables() if Path(t.location).exists()},
    }


class Death(BaseException):
    """Simulates the death of a process at a chosen place."""


@contextmanager
def dying() -> Iterator[None]:
    """Expect that the block ends in death."""
    with pytest.raises(Death):
        yield


def dying_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let the process die when it is about to make the commit after `count` of them, by Spark or by the driver."""
    made = [0]

    def counted(name: str) -> None:
        original = getattr(Engine, name)

        def commit(self: Engine, *arguments: Any, **more: Any) -> Any:
            if made[0] == count:
                raise Death
            result = original(self, *arguments, **more)
            made[0] += result is not False  # the driver leaves some commits to Spark
            return result

        monkeypatch.setattr(Engine, name, commit)

    for name in ("commit", "append_rows", "rewrite_rows"):
        counted(name)


def killed_at_each_effect(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> Iterator[str]:
    """Runs an operation again and again, each time up to one durable effect later: the names of these effects.

    From the effect at which the process dies on it makes no other one, and its leases are void. It ends with a run
    that nothing has stopped.
    """
    number, ended = 0, False
    while not ended:
        number, made = number + 1, list[str]()

        def reached(place: str, last: int = number, made: list[str] = made) -> None:
            if threading.current_thread().daemon:
                return
            made.append(place)
            if len(made) >= last:
                raise Death

        with monkeypatch.context() as patch:
            patch.setattr(failpoints, "reached", reached)
            patch.setattr(lease, "is_dead", lambda owner: True)
            try:
                act()
                ended = True
            except Death:
                pass
        if not ended:
            with monkeypatch.context() as patch:
                patch.setattr(lease, "is_dead", lambda owner: True)
                yield made[number - 1]
