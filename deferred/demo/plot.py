"""A plot of a few bars as a PNG file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

COLOURS = ("#4c78a8", "#bab0ac", "#e45756")
LEFT, WIDTH, BAR, GAP, TOP, MARGIN = 360, 1040, 28, 28, 140, 32
"""Pixels: twice as many as a page shows, so that letters are sharp on any screen."""


def draw(file: Path, title: str, names: Sequence[str], groups: Sequence[tuple[str, Sequence[float]]]) -> None:
    """Draw groups of horizontal bars, one bar per name, each with its value beside it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw(Path(folder, "plot.png"), "Seconds", ["write", "refresh"], [("plain", [0.5, 2.0])])
    ...     plot = Image.open(Path(folder, "plot.png")).convert("RGB")
    >>> [[plot.getpixel((x, TOP + row * BAR)) for x in range(LEFT, LEFT + WIDTH)].count((255,) * 3) for row in (0, 1)]
    [780, 0]
    """
    height = TOP + sum(len(values) * BAR + GAP for _, values in groups)
    image = Image.new("RGB", (LEFT + WIDTH + 140, height), "white")
    drawing = ImageDraw.Draw(image)
    large, plain = ImageFont.load_default(32), ImageFont.load_default(24)

    def write(
        x: float, y: float, text: str, anchor: str = "lm", font: ImageFont.FreeTypeFont | ImageFont.ImageFont = plain
    ) -> None:
        drawing.text((x, y), text, fill="black", anchor=anchor, font=font)

    write(MARGIN, 44, title, font=large)
    x: float = MARGIN
    for name, colour in zip(names, COLOURS, strict=False):
        drawing.rectangle((x, 84, x + 23, 107), fill=colour)
        write(x + 36, 96, name)
        x += 84 + drawing.textlength(name, font=plain)
    longest = max((value for _, values in groups for value in values), default=0.0) or 1.0
    y = TOP
    for group, values in groups:
        write(LEFT - 20, y + len(values) * BAR / 2, group, anchor="rm")
        for value, colour in zip(values, COLOURS, strict=False):
            width = round(WIDTH * value / longest)
            if width:
                drawing.rectangle((LEFT, y, LEFT + width - 1, y + BAR - 5), fill=colour)
            write(LEFT + width + 16, y + BAR / 2 - 2, f"{value:.2f}")
            y += BAR
        y += GAP
    image.save(file)
