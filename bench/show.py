"""What is printed while the bench runs."""

from __future__ import annotations

from collections.abc import Mapping

from bench.baselines import against, sides
from bench.cases import CASES
from bench.changes import CHANGES, CREATE
from bench.results import Measurement
from bench.statistics import number, spread


def measurement(found: Measurement) -> None:
    """One measurement as a small table: each side with its seconds, ratio, jobs, commits, bytes and driver time."""
    told = {True: "right", False: "WRONG", None: ""}[found.correct]
    note = f" ({found.note})" if found.note else ""
    print(f"\n{found.suite}: {found.name}, {found.change}, {found.size}, scale {found.scale:g}  {told}{note}")
    for side in sides(found):
        seconds = spread(found.seconds(side))
        if seconds is not None:
            ratios = ", ".join(f"{value}× of {baseline}" for baseline, value in against(found, side))
            print(f"  {side:26} {seconds!s:>24} s {ratios:26}{_metrics(found, side)}", flush=True)


def _metrics(found: Measurement, side: str) -> str:
    def median(metric: str) -> float | None:
        values = spread(found.values(side, metric))
        return values.median if values else None

    words = []
    for metric, text in (("jobs", "jobs"), ("commits", "commits")):
        if (value := median(metric)) is not None:
            words.append(f"{value:.0f} {text}")
    if (value := median("driver_seconds")) is not None:
        words.append(f"driver {number(value)} s")
    for metric, text in (("bytes_read", "read"), ("bytes_written", "written")):
        if (value := median(metric)) is not None:
            words.append(f"{number(value / 1e6)} MB {text}")
    strategies = {str(s["strategy"]) for s in found.sides.get(side, []) if s.get("strategy")}
    return "  " + ", ".join([*words, *sorted(strategies)])


def catalogue(suites: Mapping[str, str]) -> None:
    """All suites, cases and changes."""
    print("Suites")
    for name, about in suites.items():
        print(f"  {name:18} {about}")
    print("Cases")
    for case in CASES.values():
        print(f"  {case.name:18} {case.about} [{case.group}]")
    print("Changes")
    print(f"  {CREATE:18} the creation of the view")
    for change in CHANGES.values():
        print(f"  {change.name:18} {change.about}")
