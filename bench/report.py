"""docs/PERFORMANCE.md from the results: each goal with what was measured, and tables of all measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.baselines import REFRESH, against, sides
from bench.cases import CASES
from bench.goals import GOALS, Evidence, Finding, Goal, newest
from bench.results import ROOT, Measurement, Results, load_all
from bench.statistics import number, ratio, spread

FILE = ROOT / "docs" / "PERFORMANCE.md"
IMAGES = ROOT / "docs" / "img"

INTRODUCTION = """# Performance

This page is made by `python -m bench report` from bench/results; every number is measured, none is expected.
`make bench` measures (`SCALE`, `CASES`, `CHANGES`, `FRACTIONS`, `SUITES`, `REPETITIONS`), `make bench-compare` shows
the newest measurement of each thing beside the one before, `python -m bench list` shows what there is. Shown is the
newest measurement of each thing.

How it is measured: TPC-H by tpchgen-cli as Delta tables, one warm Spark session, all sides at the same state of the
tables, in turn, every second repetition in the opposite order, after one repetition that is not counted. *Recompute* is
CREATE OR REPLACE TABLE … AS the view's query, by Spark itself. *By hand* is the change of the view as an engineer would
write it over the change feed, appended to a table; *better* with the range of the changed keys as literals. *Bare* is
the plain MERGE or INSERT of the same rows into a copy of the view's table. The view is compared with the recomputation
as a bag. Ratios are taken repetition by repetition, and of medians where one side is too slow for as many repetitions
as the other; what is compared was measured in one run. A value is the median; in parentheses are the smallest and the
largest. *Driver* is the time in which no task ran; bytes read are the sizes of the files that scans chose, of which
they may read only some columns.

OpenIVM's extension of DuckDB is not among the sides: PyPI and npm do not have it, and its authors give a build from
source as the only way to get it.
"""


def write(files: Sequence[str] = (), plots: bool = True) -> int:
    """Write the page and its plots from all results, or from some files; 1 when there are none."""
    results = load_all(map(Path, files) if files else None)
    if not results:
        print("There are no results yet: run `make bench` first.")
        return 1
    images: list[Path] = []
    if plots:
        from bench.plots import draw

        images = draw(newest(results), IMAGES)
    FILE.write_text(page(results, [image.name for image in images]), encoding="utf-8")
    print(f"{FILE.relative_to(ROOT)}, {len(images)} plots")
    return 0


def page(results: Sequence[Results], images: Sequence[str] = ()) -> str:
    """The whole page."""
    evidence = newest(results)
    parts = [INTRODUCTION, _runs(results, evidence), "## Goals\n", _goals(evidence)]
    if images:
        parts += ["## Plots\n", "\n".join(f"![{name}](img/{name})" for name in images) + "\n"]
    parts += [_views(evidence), _others(evidence)]
    return "\n".join(part for part in parts if part)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown.

    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    <BLANKLINE>
    """
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _runs(results: Sequence[Results], evidence: Sequence[Evidence]) -> str:
    used = [r for r in results if any(e.results is r for e in evidence)]
    rows = []
    for r in used:
        m = r.machine
        machine = f"{m.get('processor')}, {m.get('cores')} cores, {m.get('memory_gib')} GiB"
        versions = ", ".join(f"{name} {r.versions[name]}" for name in ("pyspark", "delta-spark") if name in r.versions)
        driver = r.settings.get("spark.driver.memory", "")
        rows.append([f"{r.scale:g}", r.commit, r.started[:16], machine, versions, driver])
    head = ["scale", "commit", "started (UTC)", "machine", "versions", "driver"]
    commands = dict.fromkeys(command for r in used for command in r.commands)
    listed = "\n".join(commands)
    return f"## Runs\n\n{table(head, rows)}\n```sh\n{listed}\n```\n"


# ---- goals


def _goals(evidence: Sequence[Evidence]) -> str:
    rows = [_goal(goal, list(goal.find(evidence))) for goal in GOALS]
    return table(["what", "goal", "measured", "reached", "where, and what the time goes into", "commit"], rows)


def _goal(goal: Goal, found: Sequence[Finding]) -> list[str]:
    """A goal with its worst finding, which decides."""
    if not found:
        return [goal.what, goal.goal, "not measured", "–", "", ""]
    worst = worst_of(found)
    reached = sum(finding.reached for finding in found)
    verdict = ("yes" if reached else "no") if len(found) == 1 else f"{reached} of {len(found)}"
    about = f"{worst.where}: {worst.limits}" if worst.limits else worst.where
    return [
        goal.what,
        goal.goal,
        f"{worst.value} {worst.unit}, n = {worst.value.count}",
        verdict,
        about,
        worst.commit[:7],
    ]


def worst_of(found: Sequence[Finding]) -> Finding:
    """The finding that is furthest from its goal: the largest, or of a speed the smallest."""
    faster = found[0].unit.endswith("faster")
    return (min if faster else max)(found, key=lambda finding: finding.value.median)


# ---- all measurements


def _seconds(m: Measurement, side: str) -> str:
    return str(spread(m.seconds(side)) or "–")


def _ratio(m: Measurement, side: str, baseline: str) -> str:
    return str(ratio(m.seconds(side), m.seconds(baseline)) or "–")


def _median(m: Measurement, side: str, metric: str, unit: float = 1.0) -> str:
    found = spread(m.values(side, metric))
    return "–" if found is None else number(found.median / unit) if unit > 1 else str(round(found.median))


def _views(evidence: Sequence[Evidence]) -> str:
    parts = []
    chosen = [e for e in evidence if e.measurement.suite == "views"]
    order = {name: place for place, name in enumerate(CASES)}
    for scale in sorted({e.measurement.scale for e in chosen}):
        here = sorted(
            (e.measurement for e in chosen if e.measurement.scale == scale),
            key=lambda m: (order.get(m.name.split()[0], 99), m.name, m.change, m.size),
        )
        maintained = [m for m in here if m.change != "create"]
        created = [m for m in here if m.change == "create"]
        if maintained:
            parts += [f"## Views at scale {scale:g}\n", _maintained(maintained)]
        if created:
            parts += [f"### Creating them, scale {scale:g}\n", _created(created)]
    return "\n".join(parts)


def _maintained(found: Sequence[Measurement]) -> str:
    head = ["view", "change", "size", "recompute, s", "by hand, s", "better, s", "propagate, s", "partial_refresh, s"]
    head += ["bare, s", "refresh / recompute", "jobs", "commits", "MB written", "driver, s", "strategy", "n", "answer"]
    rows = []
    for m in found:
        strategies = {str(s["strategy"]) for s in m.sides.get("propagate", []) if s.get("strategy")}
        rows.append(
            [
                m.name,
                m.change,
                m.size,
                *(
                    _seconds(m, side)
                    for side in ("recompute", "by hand", "by hand, better", "propagate", "partial_refresh", "bare")
                ),
                _ratio(m, REFRESH, "recompute"),
                *(
                    f"{_median(m, 'propagate', metric, unit)} + {_median(m, 'partial_refresh', metric, unit)}"
                    for metric, unit in (("jobs", 1), ("commits", 1), ("bytes_written", 1e6))
                ),
                f"{_driver(m, 'propagate')} + {_driver(m, 'partial_refresh')}",
                ", ".join(sorted(strategies)),
                str(len(m.sides.get("propagate", []))),
                _answer(m),
            ]
        )
    return table(head, rows)


def _driver(m: Measurement, side: str) -> str:
    found = spread(m.values(side, "driver_seconds"))
    return number(found.median) if found else "–"


def _answer(m: Measurement) -> str:
    return {True: "right", False: "WRONG", None: ""}[m.correct]


def _created(found: Sequence[Measurement]) -> str:
    head = ["view", "create table, s", "create, s", "ratio", "jobs", "commits", "driver, s", "n", "answer"]
    rows = [
        [
            m.name,
            _seconds(m, "create table"),
            _seconds(m, "create"),
            _ratio(m, "create", "create table"),
            _median(m, "create", "jobs"),
            _median(m, "create", "commits"),
            _driver(m, "create"),
            str(len(m.sides.get("create", []))),
            _answer(m),
        ]
        for m in found
    ]
    return table(head, rows)


def _others(evidence: Sequence[Evidence]) -> str:
    """The other suites, one line for each side."""
    head = ["case", "change", "size", "scale", "side", "seconds", "ratio", "jobs", "commits", "driver, s", "n"]
    head += ["answer", "note"]
    parts = []
    for suite in dict.fromkeys(e.measurement.suite for e in evidence if e.measurement.suite != "views"):
        rows = [
            [
                m.name,
                m.change,
                m.size,
                f"{m.scale:g}" if m.scale else "",
                side,
                _seconds(m, side),
                ", ".join(f"{value}× of {baseline}" for baseline, value in against(m, side)),
                _median(m, side, "jobs"),
                _median(m, side, "commits"),
                _driver(m, side),
                str(len(m.seconds(side))),
                _answer(m),
                m.note or "",
            ]
            for m in (e.measurement for e in evidence if e.measurement.suite == suite)
            for side in sides(m)
        ]
        parts += [f"## {suite.capitalize()}\n", table(head, rows)]
    return "\n".join(parts)
