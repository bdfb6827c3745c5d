"""The newest results beside those before: which side of which case became faster or slower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.results import Results, load, load_all
from bench.statistics import Spread, number, spread


def main(files: Sequence[str], scale: float | None) -> int:
    """Print the comparison; 1 when there are not two results to compare."""
    given = [load(Path(file)) for file in files]
    pairs = [(given[0], given[1])] if len(given) == 2 else latest_pairs(load_all(), scale)
    if not pairs:
        print("There are no two results of one scale to compare: run `make bench` at two commits first.")
        return 1
    for old, new in pairs:
        print(f"\nscale {new.scale:g}: {old.commit} → {new.commit}")
        for line in lines(old, new):
            print(line)
    return 0


def latest_pairs(results: Sequence[Results], scale: float | None) -> list[tuple[Results, Results]]:
    """For each scale, or the one that is asked for, the last results but one, and the last."""
    pairs = []
    for each in sorted({r.scale for r in results}):
        same = [r for r in results if r.scale == each]
        if len(same) > 1 and scale in (None, each):
            pairs.append((same[-2], same[-1]))
    return pairs


def lines(old: Results, new: Results) -> Iterator[str]:
    """One line for each side that both have measured."""
    before = {m.key: m for m in old.measurements}
    for measurement in new.measurements:
        earlier = before.get(measurement.key)
        for side in measurement.sides if earlier is not None else ():
            a, b = spread(earlier.seconds(side)) if earlier else None, spread(measurement.seconds(side))
            if a is not None and b is not None and a.median > 0:
                what = " ".join(measurement.key[:4])
                times = number(b.median / a.median)
                yield f"  {what:52} {side:18} {a!s:>22} → {b!s:22} {times:>6}×  {verdict(a, b)}"


def verdict(old: Spread, new: Spread) -> str:
    """Whether two spreads tell a difference: they do when they do not overlap.

    >>> verdict(Spread(2, 1.8, 2.2, 5), Spread(1, 0.9, 1.1, 5)), verdict(Spread(2, 1, 3, 5), Spread(2.5, 2, 3, 5))
    ('faster', '')
    """
    if new.high < old.low:
        return "faster"
    return "SLOWER" if new.low > old.high else ""
