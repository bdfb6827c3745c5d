"""Programs: what a propagate runs. Steps in order, then the signed result, and how support tables move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deferred.algebra.plan import Plan


@dataclass(frozen=True)
class Step:
    """One temporary result: computed once, read by the steps after it under its name.

    With `when`, it is computed only if that earlier step has rows; otherwise it is empty, and nothing is read for it.
    """

    name: str
    plan: Plan
    when: str | None = None


@dataclass(frozen=True)
class Upkeep:
    """How a support table moves to s_c: its new rows, and the keys of deleted ones; without `keys` it is replaced."""

    rows: Plan
    gone: Plan | None
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """Steps in order, then the signed result, None when nothing can have changed."""

    steps: tuple[Step, ...]
    result: Plan | None
    supports: Mapping[str, Upkeep] = field(default_factory=dict)
