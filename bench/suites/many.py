"""Many views over the same tables: refreshed one by one, and together by `deferred refresh --all`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any

from bench import tables
from bench.cases import CASES, TABLES, Case
from bench.changes import CHANGES, Size, Step
from bench.measure import Bench, difference
from bench.options import Options
from bench.results import Measurement

SUITE = "many"
FEWER = (5, 10)
VIEWS = (
    *("join_group", "join_filter", "group", "select", "join2", "join3", "left_join", "not_exists", "distinct"),
    *("count_distinct", "top_k", "extremes", "union", "q01", "q03", "q05", "q06", "q10", "q12", "q14"),
)


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    """The same change again and again; after it, all views one by one, or all at once, in turn.

    Fewer views than all are only measured for the shape of the curve, twice.
    """
    from deferred import Warehouse

    cases = [CASES[name] for name in VIEWS[: options.views or len(VIEWS)]]
    source = tables.cached(bench.spark, options.scale)
    with bench.scratch(SUITE) as folder:
        tables.linked(source, folder / "tables")
        tables.name_in_session(bench.spark, folder / "tables", frozenset(TABLES))
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            tables.track(wh, folder / "tables", frozenset(TABLES))
            steps = count()
            for number, case in enumerate(cases, 1):
                wh.create_view(case.name, case.sql)
                if number == len(cases):
                    yield _measured(bench, options, wh, folder, cases, steps)
                elif number in FEWER:
                    few = replace(options, repetitions=min(2, options.repetitions))
                    yield _measured(bench, few, wh, folder, cases[:number], steps)


def _measured(
    bench: Bench, options: Options, wh: Any, folder: Path, cases: list[Case], steps: Iterator[int]
) -> Measurement:
    measurement = Measurement(SUITE, f"{len(cases)} views", "update_together", "0.1%", options.scale)
    works = [("one by one", lambda: [wh.refresh(c.name) for c in cases]), ("together", lambda: _all(folder))]
    for number in range(2 * (options.warm_up + options.repetitions)):
        _change(bench, options, folder, next(steps))
        side, work = works[number % 2]
        sample = bench.measure(work, [folder / "warehouse"])
        if number >= 2 * options.warm_up:
            measurement.sides.setdefault(side, []).append(sample)
    bench.settle()
    measurement.correct = all(_right(bench, wh, case) for case in cases)
    return measurement


def _change(bench: Bench, options: Options, folder: Path, number: int) -> None:
    for statement in CHANGES["update_together"].statements(Step(number, options.scale, Size("0.1%"))):
        bench.spark.sql(statement.replace("UPDATE orders", f"UPDATE delta.`{folder / 'tables' / 'orders'}`", 1))


def _all(folder: Path) -> None:
    """`deferred refresh --all` in this process: it finds the session that is running, and no JVM is started."""
    from deferred.cli import main

    os.environ["DEFERRED_PATH"] = str(folder / "warehouse")
    try:
        with redirect_stdout(StringIO()) as printed:
            main(["refresh", "--all"])
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"deferred refresh --all failed: {printed.getvalue()}") from None
    finally:
        del os.environ["DEFERRED_PATH"]


def _right(bench: Bench, wh: Any, case: Case) -> bool:
    shown = f"SELECT * FROM delta.`{wh.find_view(case.name).location}/mv`"
    return difference(bench.spark, shown, case.sql) == 0
