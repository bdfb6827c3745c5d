"""Growth: the same number of changed rows in tables ten times as large, and in a table with a long log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench import simulated
from bench.cases import CASES
from bench.changes import ORDERS, Size
from bench.measure import Bench, difference
from bench.options import Options
from bench.results import Measurement
from bench.suites import views

SUITE = "growth"
COMMITS, FILES = 100_000, 1_000_000
"""Of the long log at scale 1 and up; less at a smaller scale."""
NEW = 100
"""New commits before each measurement; also the commits and files of the short log."""


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    yield from _tables(bench, options)
    part = min(1.0, options.scale)
    for commits, files in ((NEW, NEW), (max(NEW, round(COMMITS * part)), max(NEW, round(FILES * part)))):
        yield _log(bench, options, commits, files)


def _tables(bench: Bench, options: Options) -> Iterator[Measurement]:
    """0.1 % of the orders of a tenth of the scale, changed there and at the scale itself."""
    rows = Size("0.1%").rows(round(ORDERS * options.scale / 10))
    asked = replace(options, cases=[CASES["join_group"]], changes=["update_together"], sizes=[Size(f"{rows}rows")])
    for scale in (options.scale / 10, options.scale):
        for measurement in views.run(bench, replace(asked, scale=scale)):
            yield replace(measurement, suite=SUITE)


def _log(bench: Bench, options: Options, commits: int, files: int) -> Measurement:
    """sync, status and propagate after new commits to a table with so many commits and files before."""
    from deferred import Warehouse

    measurement = Measurement(SUITE, "log", f"{commits} commits", f"{files} files", options.scale)
    query = f"SELECT id, v FROM t WHERE id >= {simulated.FIRST}"
    with bench.scratch(SUITE) as folder:
        simulated.table(folder / "t", commits, files)
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            wh.track("t", folder / "t")
            wh.create_view("v", query, refresh_policy="incremental")
            for number in range(options.warm_up + options.repetitions):
                simulated.append(folder / "t", NEW)
                for side, work in (("status", wh.status), ("sync", wh.sync), ("propagate", lambda: wh.propagate("v"))):
                    sample = bench.measure(work)
                    if number >= options.warm_up:
                        measurement.sides.setdefault(side, []).append(sample)
            bench.settle()
            wh.partial_refresh("v")
            wanted = f"SELECT id, v FROM delta.`{folder / 't'}` WHERE id >= {simulated.FIRST}"
            shown = f"SELECT * FROM delta.`{wh.find_view('v').location}/mv`"
            measurement.correct = difference(bench.spark, shown, wanted) == 0
    return measurement
