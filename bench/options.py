"""What a run is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.cases import Case
from bench.changes import Size


@dataclass(frozen=True)
class Options:
    """Which cases, changes and sizes, at which scale, how often."""

    scale: float = 0.1
    cases: Sequence[Case] = ()
    changes: Sequence[str] = ()
    sizes: Sequence[Size] = field(default_factory=lambda: [Size("0.1%")])
    repetitions: int = 5
    warm_up: int = 1
    check: str = "each"
    """When answers are compared with the recomputation: after each repetition, or after the last."""
    policy: str = "auto"
    """The refresh_policy of the views."""
    maintain: str = "auto"
    """How the cases of the suite `views` are maintained: auto, self or tree."""
    bare: bool = True
    """Whether the bare statement is measured beside partial_refresh."""
    views: int | None = None
    """How many views, where a suite is about their number."""
    master: str | None = None
    """A cluster's master, instead of a local Spark."""
    events: str | None = None
    """The folder into which a Connect server writes its events."""
