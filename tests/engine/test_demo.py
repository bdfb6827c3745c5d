"""The second act of the demo, with few sales: every way shows the same rows, and what it says was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from deferred.demo.many import ARRIVING, PLOT, Many
from deferred.demo.plot import BAR


def test_every_scenario_shows_what_has_arrived(warehouse: Any, tmp_path: Path) -> None:
    tables, compared, verified = Many(warehouse, tmp_path, sales=2000, arrivals=1).scenes()
    assert tables.rows == (("items", 1000), ("purchases", 2000))
    assert [row[0] for row in compared.rows] == [
        "recompute it all",
        "immediate",
        "base_log",
        "differential",
        "combined",
    ]
    assert warehouse.sql("SELECT COUNT(*) AS n FROM purchases").first()["n"] == 2000 + 5 * ARRIVING
    assert all(seconds >= 0 for _, seconds in compared.bars)
    assert {verdict for _, verdict in verified.rows} == {"holds"}
    with Image.open(tmp_path / PLOT) as plot:
        assert plot.format == "PNG"
        assert plot.height > 5 * 3 * BAR
