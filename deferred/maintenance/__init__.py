"""Keeping views right: create, propagate, partial_refresh, refresh, rebuild, backfill, verify, explain, gc.

Its modules are loaded when they are first used, as `maintenance.altering`: most commands need few of them, and all
together take as long to load as a small command takes.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
