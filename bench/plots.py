"""Plots of the results: cost against the size of the change, against the size of the tables, and by phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.changes import ORDERS, Size
from bench.goals import Evidence
from bench.results import Measurement
from bench.statistics import spread

SIDES = {
    "recompute": ("recompute", "tab:gray"),
    "by hand": ("by hand", "tab:olive"),
    "by hand, better": ("by hand, better", "tab:green"),
    "propagate": ("propagate", "tab:blue"),
    "partial_refresh": ("partial_refresh", "tab:orange"),
}
MOST = 6
"""Panels of a plot."""


def draw(evidence: Sequence[Evidence], folder: Path) -> list[Path]:
    """Draw every plot that there are measurements for; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    measurements = [e.measurement for e in evidence]
    plots: list[tuple[str, Callable[[Sequence[Measurement], Any], bool]]] = [
        ("bench-change-size.png", _by_change_size),
        ("bench-table-size.png", _by_table_size),
        ("bench-phases.png", _by_phase),
        ("bench-views.png", _by_views),
    ]
    drawn = []
    for name, plot in plots:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=(11, 6), layout="constrained")
        if plot(measurements, figure):
            figure.savefig(folder / name, dpi=110)
            drawn.append(folder / name)
        plt.close(figure)
    return drawn


def _panels(figure: Any, groups: dict[Any, list[Measurement]]) -> list[tuple[Any, Any, list[Measurement]]]:
    """A panel for each group, those with the most points first."""
    chosen = sorted(groups.items(), key=lambda group: -len(group[1]))[:MOST]
    columns = min(3, len(chosen))
    rows = -(-len(chosen) // columns) if columns else 0
    return [(figure.add_subplot(rows, columns, n + 1), key, found) for n, (key, found) in enumerate(chosen)]


def _lines(axes: Any, found: Sequence[Measurement], place: Callable[[Measurement], float]) -> None:
    """Each side as a line through its medians, with its spread."""
    for side, (label, colour) in SIDES.items():
        points = sorted((place(m), s) for m in found if (s := spread(m.seconds(side))) is not None)
        if points:
            xs, ss = [x for x, _ in points], [s for _, s in points]
            errors = [[s.median - s.low for s in ss], [s.high - s.median for s in ss]]
            axes.errorbar(xs, [s.median for s in ss], yerr=errors, label=label, color=colour, marker="o", capsize=2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(True, alpha=0.3)


def _rows(m: Measurement) -> int:
    return Size(m.size).rows(round(ORDERS * m.scale))


def _by_change_size(measurements: Sequence[Measurement], figure: Any) -> bool:
    groups: dict[Any, list[Measurement]] = {}
    for m in measurements:
        if m.suite in ("views", "recursion") and m.change != "create":
            groups.setdefault((m.name, m.change, m.scale), []).append(m)
    groups = {key: found for key, found in groups.items() if len(found) > 1}
    for axes, (name, change, scale), found in _panels(figure, groups):
        _lines(axes, found, _rows)
        axes.set_title(f"{name}, {change}, scale {scale:g}", fontsize=9)
        axes.set_xlabel("changed rows")
        axes.set_ylabel("seconds")
        axes.legend(fontsize=7)
    return bool(groups)


def _by_table_size(measurements: Sequence[Measurement], figure: Any) -> bool:
    groups: dict[Any, list[Measurement]] = {}
    for m in measurements:
        if m.suite in ("views", "growth") and m.change not in ("create",) and m.name != "log":
            groups.setdefault((m.suite, m.name, m.change, m.size), []).append(m)
    groups = {key: found for key, found in groups.items() if len({m.scale for m in found}) > 1}
    for axes, (_, name, change, size), found in _panels(figure, groups):
        _lines(axes, found, lambda m: m.scale)
        axes.set_title(f"{name}, {change}, {size}", fontsize=9)
        axes.set_xlabel("scale of TPC-H")
        axes.set_ylabel("seconds")
        axes.legend(fontsize=7)
    return bool(groups)


def _by_views(measurements: Sequence[Measurement], figure: Any) -> bool:
    """Refreshing many views over the same tables, one by one and together."""
    found = [m for m in measurements if m.suite == "many"]
    scale = max((m.scale for m in found), default=0.0)
    if len({m.name for m in found if m.scale == scale}) < 2:
        return False
    axes = figure.add_subplot(1, 1, 1)
    for side in ("one by one", "together"):
        here = [m for m in found if m.scale == scale and m.sides.get(side)]
        points = sorted((int(m.name.split()[0]), m.seconds(side)) for m in here)
        spreads = [s for _, seconds in points if (s := spread(seconds)) is not None]
        errors = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
        medians = [s.median for s in spreads]
        axes.errorbar([n for n, _ in points], medians, yerr=errors, label=side, marker="o", capsize=2)
    axes.set_xlabel(f"views, scale {scale:g}")
    axes.set_ylabel("seconds")
    axes.grid(True, alpha=0.3)
    axes.legend()
    return True


def _by_phase(measurements: Sequence[Measurement], figure: Any) -> bool:
    """The phases of propagate and partial_refresh, one bar for each view, at the largest scale."""
    phased = [m for m in measurements if m.suite == "views" and m.sides.get("propagate")]
    if not phased:
        return False
    scale = max(m.scale for m in phased)
    chosen = [m for m in phased if m.scale == scale][:24]
    axes = figure.add_subplot(1, 1, 1)
    labels = [f"{m.name}\n{m.change} {m.size}" for m in chosen]
    left = [0.0] * len(chosen)
    phases = dict.fromkeys(
        (side, phase)
        for m in chosen
        for side in ("propagate", "partial_refresh")
        for sample in m.sides.get(side, [])
        for phase in sample.get("phases") or {}
    )
    import matplotlib

    colours = matplotlib.colormaps["tab20"].colors
    for number, (side, phase) in enumerate(phases):
        widths = [_phase(m, side, phase) for m in chosen]
        axes.barh(labels, widths, left=left, label=f"{side}: {phase}", color=colours[number % len(colours)])
        left = [a + b for a, b in zip(left, widths)]
    axes.set_xlabel(f"seconds, scale {scale:g}")
    axes.tick_params(axis="y", labelsize=7)
    axes.invert_yaxis()
    axes.legend(fontsize=7)
    return True


def _phase(m: Measurement, side: str, phase: str) -> float:
    found = spread([float((sample.get("phases") or {}).get(phase, 0.0)) for sample in m.sides.get(side, [])])
    return found.median if found else 0.0
