"""Drawings as SVG: the lineage of views, cuts on a timeline, seconds of operations. The page's style colours them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from deferred.maintenance.lineage import levels
from deferred.maintenance.operation import Operation

WIDTH = 900
BOX, ROW, GAP = (190, 34), 50, 90


def lineage(views: Sequence[Mapping[str, Any]], name: str) -> str:
    """What a view is made of, to its left, and what is made of it, to its right; views are links."""
    related = _related(views, name)
    health = {view["name"]: view["health"] for view in views}
    columns: dict[int, list[str]] = {}
    for member, level in levels([view for view in views if view["name"] in related]).items():
        if member in related:
            columns.setdefault(level, []).append(member)
    places = {
        member: (10 + x * (BOX[0] + GAP), 10 + y * ROW)
        for x, level in enumerate(sorted(columns))
        for y, member in enumerate(sorted(columns[level]))
    }
    edges = "".join(
        _edge(places[read], places[view["name"]])
        for view in views
        if view["name"] in places
        for read in view["reads"]
        if read in places
    )
    nodes = "".join(_node(member, place, health.get(member), member == name) for member, place in places.items())
    width = max(x for x, _ in places.values()) + BOX[0] + 10
    height = max(y for _, y in places.values()) + BOX[1] + 10
    return _svg(width, height, edges + nodes, f"Lineage of {name}")


def _related(views: Sequence[Mapping[str, Any]], name: str) -> set[str]:
    reads = {view["name"]: set(view["reads"]) for view in views}
    above, below = {name}, {name}
    while more := {read for member in below for read in reads.get(member, ())} - below:
        below |= more
    while more := {view for view, read in reads.items() if read & above} - above:
        above |= more
    return above | below


def _edge(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1, x2, y2 = start[0] + BOX[0], start[1] + BOX[1] // 2, end[0], end[1] + BOX[1] // 2
    middle = (x1 + x2) // 2
    return f'<path class="edge" d="M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}"/>'


def _node(name: str, place: tuple[int, int], health: str | None, chosen: bool) -> str:
    x, y = place
    shown = name if len(name) <= 24 else f"{name[:23]}…"
    box = (
        f'<rect class="node {health or "table"}{" chosen" if chosen else ""}" x="{x}" y="{y}" width="{BOX[0]}" '
        f'height="{BOX[1]}" rx="6"/>'
        f'<text x="{x + BOX[0] // 2}" y="{y + 22}" text-anchor="middle">{escape(shown)}</text>'
    )
    titled = f"<g>{box}<title>{escape(name)}: {health or 'base table'}</title></g>"
    return titled if health is None else f'<a href="#view-{escape(name)}">{titled}</a>'


def timeline(
    commits: Mapping[str, Sequence[datetime]], shown: datetime | None, propagated: datetime | None, now: datetime
) -> str:
    """Commits of the tables that a view reads, the cut that it shows (s_p) and the one it is propagated to (s_i)."""
    cuts = [("s_p shown", shown), ("s_i propagated", propagated), ("now", now)]
    moments = [m for times in commits.values() for m in times] + [m for _, m in cuts if m is not None]
    first = min(moments)
    length = max((now - first).total_seconds(), 1.0)
    left, right = 170, WIDTH - 20

    def x(moment: datetime) -> float:
        return round(left + (right - left) * (moment - first).total_seconds() / length, 1)

    parts = []
    for row, (table, times) in enumerate(commits.items()):
        y = 40 + row * 26
        parts.append(f'<text x="10" y="{y + 4}">{escape(table)}</text>')
        parts.append(f'<line class="axis" x1="{left}" y1="{y}" x2="{right}" y2="{y}"/>')
        parts += [
            f'<circle class="commit" cx="{x(moment)}" cy="{y}" r="4"><title>{_time(moment)}</title></circle>'
            for moment in times
        ]
    bottom = 40 + len(commits) * 26
    for row, (label, moment) in enumerate(cuts):
        if moment is not None:
            at = x(moment)
            anchor = "end" if at > WIDTH / 2 else "start"
            kind = label.split()[0].replace("_", "")
            parts.append(f'<line class="cut {kind}" x1="{at}" y1="22" x2="{at}" y2="{bottom + row * 16}"/>')
            parts.append(
                f'<text x="{at}" y="{bottom + row * 16 + 12}" text-anchor="{anchor}">{label}: {_time(moment)}</text>'
            )
    return _svg(WIDTH, bottom + 56, "".join(parts), "Cuts")


PHASES = ("sync", "relevance", "log", "compute", "write", "net", "apply", "verify")


def phases(operations: Sequence[Operation]) -> str:
    """The seconds of operations, newest first, each bar made of its phases."""
    longest = max((op.seconds for op in operations), default=0.0) or 1.0
    left, right = 270, WIDTH - 90
    parts = [_legend(operations)]
    for row, op in enumerate(operations, start=1):
        y, at = 8 + row * 22, float(left)
        parts.append(f'<text x="10" y="{y + 13}">{_time(op.started_at)} {escape(op.kind)}</text>')
        for name, seconds in op.phases.items():
            width = round((right - left) * seconds / longest, 1)
            parts.append(
                f'<rect class="phase {_kind(name)}" x="{at}" y="{y}" width="{width}" height="16">'
                f"<title>{escape(name)}: {seconds:.2f} s</title></rect>"
            )
            at = round(at + width, 1)
        failed = "" if op.state in ("succeeded", "nothing") else f" {escape(op.state)}"
        parts.append(f'<text x="{at + 6}" y="{y + 13}">{op.seconds:.2f} s{failed}</text>')
    return _svg(WIDTH, 38 + 22 * len(operations), "".join(parts), "Operations by phase")


def _legend(operations: Sequence[Operation]) -> str:
    """The phases that there are, each with its colour."""
    found = {_kind(name) for op in operations for name in op.phases}
    return "".join(
        f'<rect class="key {kind}" x="{10 + n * 85}" y="8" width="10" height="10"/>'
        f'<text x="{24 + n * 85}" y="17">{kind}</text>'
        for n, kind in enumerate(kind for kind in (*PHASES, "other") if kind in found)
    )


def _kind(phase: str) -> str:
    return phase if phase in PHASES else "other"


def downtime(operations: Sequence[Operation]) -> str:
    """The seconds of each commit to the view, oldest first."""
    found = [(op.started_at, op.phases["apply"]) for op in reversed(operations) if "apply" in op.phases]
    if not found:
        return "<p>Nothing was applied so far.</p>"
    highest = max(seconds for _, seconds in found) or 1.0
    left, right, top, bottom = 70, WIDTH - 30, 12, 132
    step = (right - left) / max(1, len(found) - 1)
    points = [
        (round(left + step * n, 1), round(bottom - (bottom - top) * seconds / highest, 1), moment, seconds)
        for n, (moment, seconds) in enumerate(found)
    ]
    line = " ".join(f"{x},{y}" for x, y, _, _ in points)
    dots = "".join(
        f'<circle class="commit" cx="{x}" cy="{y}" r="4"><title>{_time(moment)}: {seconds:.3f} s</title></circle>'
        for x, y, moment, seconds in points
    )
    return _svg(
        WIDTH,
        160,
        f'<line class="axis" x1="{left}" y1="{bottom}" x2="{right}" y2="{bottom}"/>'
        f'<text x="10" y="{top + 6}">{highest:.2f} s</text><text x="10" y="{bottom + 4}">0 s</text>'
        f'<polyline class="line" points="{line}"/>{dots}'
        f'<text x="{left}" y="152">{_time(found[0][0])}</text>'
        f'<text x="{right}" y="152" text-anchor="end">{_time(found[-1][0])}</text>',
        "Downtime",
    )


def _time(moment: datetime | str) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if isinstance(moment, datetime) else moment[:19].replace("T", " ")


def _svg(width: float, height: float, content: str, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{escape(title)}">{content}</svg>'
    )
