"""docs/SOURCES.md: every kind of log is described, and has an example."""

from __future__ import annotations

import re
from pathlib import Path

from deferred.log.sources import options

TEXT = (Path(__file__).parents[1] / "docs" / "SOURCES.md").read_text(encoding="utf-8")


def test_every_log_is_listed() -> None:
    for option in options():
        assert len(re.findall(rf"^\| .*`{option}`", TEXT, re.MULTILINE)) == 2, option  # what it is, and what a cut is


def test_every_log_has_an_example() -> None:
    """tests/test_docs.py runs them."""
    assert len(re.findall(r"^```python$", TEXT, re.MULTILINE)) == len(options())
