"""docs/SOURCES.md: its examples run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from deferred.log.sources import options

TEXT = (Path(__file__).parents[1] / "docs" / "SOURCES.md").read_text(encoding="utf-8")


def test_every_log_is_listed() -> None:
    for option in options():
        assert len(re.findall(rf"^\| .*`{option}`", TEXT, re.MULTILINE)) == 2, option  # what it is, and what a cut is


def test_the_examples_run(warehouse: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(blocks) == len(options())
    names = {"wh": warehouse, "spark": warehouse.spark, "folder": tmp_path}
    for block in blocks:
        exec(block, names)
