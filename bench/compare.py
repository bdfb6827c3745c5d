"""The newest measurement of each thing beside the one before: which side of which case became faster or slower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.goals import Evidence, by_age
from bench.results import Results, load, load_all
from bench.statistics import Spread, number, spread


def main(files: Sequence[str], scale: float | None) -> int:
    """Print the comparison; 1 when nothing was measured twice."""
    results = [load(Path(file)) for file in files] if files else load_all()
    told = list(lines(pairs(results, scale)))
    if not told:
        print("Nothing was measured at two commits: run `make bench` at another one first.")
        return 1
    print("\n".join(told))
    return 0


def pairs(results: Sequence[Results], scale: float | None = None) -> list[tuple[Evidence, Evidence]]:
    """For each thing that was measured in several results: the last measurement but one, and the last."""
    histories: dict[object, list[Evidence]] = {}
    for evidence in by_age(results):
        if scale in (None, evidence.measurement.scale):
            histories.setdefault(evidence.measurement.key, []).append(evidence)
    return [(history[-2], history[-1]) for history in histories.values() if len(history) > 1]


def lines(compared: Sequence[tuple[Evidence, Evidence]]) -> Iterator[str]:
    """One line for each side that both have measured, below the commits that they are from."""
    commits = None
    for old, new in sorted(compared, key=_commits):
        for side in new.measurement.sides:
            a, b = spread(old.measurement.seconds(side)), spread(new.measurement.seconds(side))
            if a is not None and b is not None and a.median > 0:
                if _commits((old, new)) != commits:
                    commits = _commits((old, new))
                    yield f"{commits[0]} → {commits[1]}"
                *names, measured_at = new.measurement.key
                what = " ".join([*names, *([f"scale {measured_at:g}"] if measured_at else [])])
                times = number(b.median / a.median)
                yield f"  {what:60} {side:18} {a!s:>22} → {b!s:22} {times:>6}×  {verdict(a, b)}"


def _commits(compared: tuple[Evidence, Evidence]) -> tuple[str, str]:
    old, new = compared
    return old.results.commit, new.results.commit


def verdict(old: Spread, new: Spread) -> str:
    """Whether two spreads tell a difference: they do when they do not overlap.

    >>> verdict(Spread(2, 1.8, 2.2, 5), Spread(1, 0.9, 1.1, 5)), verdict(Spread(2, 1, 3, 5), Spread(2.5, 2, 3, 5))
    ('faster', '')
    """
    if new.high < old.low:
        return "faster"
    return "SLOWER" if new.low > old.high else ""
