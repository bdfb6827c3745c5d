"""What a scene of the demo shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """One scene: a line, a small table, and seconds side by side."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    bars: tuple[tuple[str, float], ...] = ()
    """What was measured, in seconds, by name."""
