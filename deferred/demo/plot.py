"""A plot of a few bars as SVG: every browser shows it, and nothing has to be installed for it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

COLOURS = ("#4c78a8", "#bab0ac", "#e45756")
LEFT, WIDTH, BAR, GAP, TOP = 180, 520, 14, 14, 70


def svg(title: str, names: Sequence[str], groups: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Groups of horizontal bars, one bar per name; each has its value beside it.

    >>> print(svg("Seconds", ["write"], [("plain", [0.5])]).splitlines()[-2])
    <text x="708" y="81">0.50</text>
    """
    longest = max((value for _, values in groups for value in values), default=0.0) or 1.0
    lines = [f'<text x="16" y="24" font-size="16">{escape(title)}</text>']
    for n, name in enumerate(names):
        x = 16 + n * 220
        lines.append(f'<rect x="{x}" y="38" width="12" height="12" fill="{COLOURS[n]}"/>')
        lines.append(f'<text x="{x + 18}" y="48">{escape(name)}</text>')
    y = TOP
    for group, values in groups:
        middle = y + 11 + BAR * (len(values) - 1) // 2
        lines.append(f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end">{escape(group)}</text>')
        for n, value in enumerate(values):
            width = round(WIDTH * value / longest)
            lines.append(f'<rect x="{LEFT}" y="{y}" width="{width}" height="{BAR - 2}" fill="{COLOURS[n]}"/>')
            lines.append(f'<text x="{LEFT + width + 8}" y="{y + 11}">{value:.2f}</text>')
            y += BAR
        y += GAP
    size = f'width="{LEFT + WIDTH + 70}" height="{y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *lines, "</svg>"])
