"""What another job does just before an operation writes: at a moment that threads would rarely meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deferred.spark import copy_on_write, driver, engine
from deferred.spark.engine import Engine


@contextmanager
def before_statement(word: str, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once, when a commit to a place has passed all checks and is about to be made, by Spark or the driver.

    The driver has then opened the table already: what it knows of it is old when `act` has changed it.
    """
    run, commit = engine._analyzed, driver.committed
    todo = [act]

    def analyzed(spark: Any, statement: Any, *frames: Any) -> Any:
        if todo and word in engine.statement_text(statement):
            todo.pop()()
        return run(spark, statement, *frames)

    def written(table: Any, *more: Any, **how: Any) -> bool:
        if todo and word in table.table_uri:
            todo.pop()()
        return commit(table, *more, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_analyzed", analyzed)
        for module in (driver, copy_on_write):
            patch.setattr(module, "committed", written)
        yield
    assert not todo, f"nothing was about to be written to {word}"


@contextmanager
def before_commit(word: str, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once, before a commit to a place is checked, whoever makes it."""
    todo = [act]

    def acting(method: Callable[..., Any]) -> Callable[..., Any]:
        def committing(self: Engine, target: Any, *more: Any, **how: Any) -> Any:
            if todo and word in engine.statement_text(target):
                todo.pop()()
            return method(self, target, *more, **how)

        return committing

    with pytest.MonkeyPatch.context() as patch:
        for name in ("commit", "append_rows", "rewrite_rows", "replace"):
            patch.setattr(Engine, name, acting(getattr(Engine, name)))
        yield
    assert not todo, f"no commit to {word} was made"
