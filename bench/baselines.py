"""What each side is compared with. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from bench.results import Measurement
from bench.statistics import Spread, ratio

REFRESH = "propagate+partial_refresh"

BASELINES = {
    "propagate": ("recompute",),
    REFRESH: ("recompute",),
    "partial_refresh": ("bare",),
    "create": ("create table",),
    "from the view": ("propagate", "recompute"),
    "self": ("propagate", "recompute"),
    "tree": ("auto", "recompute"),
    "auto": ("recompute",),
    "alter": ("rebuild",),
    "together": ("one by one",),
    "tracked": ("untracked",),
    "transaction": ("bare", "untracked"),
}
"""Of each of our operations, what else does the same work."""


def sides(found: Measurement) -> list[str]:
    """The sides of a measurement, and a whole refresh where both its parts are among them."""
    both = [REFRESH] if {"propagate", "partial_refresh"} <= found.sides.keys() else []
    return [*found.sides, *both]


def against(found: Measurement, side: str) -> Iterator[tuple[str, Spread]]:
    """How many times of each of its baselines a side takes, where they have been measured."""
    for baseline in BASELINES.get(side, ()):
        value = ratio(found.seconds(side), found.seconds(baseline))
        if value is not None:
            yield baseline, value
