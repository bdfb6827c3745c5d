"""The command line of the bench: python -m bench run, report, compare or list."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from bench import cases, changes, results, show
from bench.measure import Bench, session
from bench.options import Options
from bench.results import Measurement, Results
from deferred.options import MAINTAIN

SUITES = {
    "views": "the views of bench/cases.py through the changes of bench/changes.py",
    "smallest": "tables of 1,000 rows, one row changed",
    "writes": "writes to tracked tables, with and without views",
    "nothing": "commands with nothing to do, from the shell",
    "many": "5, 10 and 20 views over the same tables, one by one and together",
    "recursion": "recursive views over a tree and graphs, 1 to 1,000 edges changed, and their recomputation",
    "less": "a deletion that the view answers itself, and a star join that needs no base table",
    "altering": "views over TPC-H whose definition changes, and their recomputation",
    "trees": "tree joins over TPC-H with good-counters, without and recomputed: 95 % of the lines dangle, and none",
    "growth": "a fixed change of larger tables, and of a table with a long log",
    "cluster": "the smallest work on a standalone cluster of two workers",
    "connect": "the smallest work through Spark Connect",
}
DEFAULT_CASES = "three,operators"
DEFAULT_CHANGES = "create,new_orders,update_together,update_scattered"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run_ = commands.add_parser("run", help="measure, and write bench/results/SCALE-COMMIT.json")
    _add_options(run_)
    report_ = commands.add_parser("report", help="write docs/PERFORMANCE.md and its plots from the results")
    report_.add_argument("--no-plots", action="store_true", help="only the text")
    report_.add_argument("files", nargs="*", help="files of results; all by default")
    compare_ = commands.add_parser("compare", help="the newest measurements beside those before")
    compare_.add_argument("--scale", type=float, default=None)
    compare_.add_argument("files", nargs="*", help="files of results; all by default")
    commands.add_parser("list", help="the suites, cases and changes")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers and folders are cleared away
    if arguments.command == "run":
        return run(arguments)
    if arguments.command == "report":
        from bench import report

        return report.write(arguments.files, plots=not arguments.no_plots)
    if arguments.command == "compare":
        from bench import compare

        return compare.main(arguments.files, arguments.scale)
    show.catalogue(SUITES)
    return 0


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H's scale factor")
    parser.add_argument("--suites", default="views", help="names of suites, or all")
    parser.add_argument("--cases", default=DEFAULT_CASES, help="names and groups of cases, or all")
    parser.add_argument("--changes", default=DEFAULT_CHANGES, help="names of changes, or all")
    parser.add_argument("--fractions", default="0.1", help="percentages, row, NUMBERrows, or all")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1, help="repetitions before those that count")
    parser.add_argument("--check", choices=("each", "last"), default="each", help="when answers are compared")
    parser.add_argument("--policy", default="auto", help="the views' refresh_policy")
    parser.add_argument("--maintain", choices=MAINTAIN, default="auto", help="how views are maintained (suite views)")
    parser.add_argument("--no-bare", action="store_true", help="without the bare statement beside partial_refresh")
    parser.add_argument("--views", type=int, default=None, help="the number of views, where a suite is about it")
    parser.add_argument("--master", default=None, help="a cluster's master instead of a local Spark")
    parser.add_argument("--events", default=None, help="where the Connect server of DEFERRED_SPARK_REMOTE logs events")
    parser.add_argument("--into", type=Path, default=None, help="another file for the results")


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen suites in one session; 1 when an answer was wrong."""
    options = Options(
        scale=arguments.scale,
        cases=cases.chosen(arguments.cases),
        changes=changes.chosen(arguments.changes),
        sizes=changes.chosen_sizes(arguments.fractions),
        repetitions=arguments.repetitions,
        warm_up=arguments.warm_up,
        check=arguments.check,
        policy=arguments.policy,
        maintain=arguments.maintain,
        bare=not arguments.no_bare,
        views=arguments.views,
        master=arguments.master,
        events=arguments.events,
    )
    names = list(SUITES) if arguments.suites == "all" else [name.strip() for name in arguments.suites.split(",")]
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        raise SystemExit(f"There is no suite {', '.join(unknown)}. Suites: {', '.join(SUITES)}.")
    into = results.begin(options.scale, arguments.into)
    begun = time.monotonic()
    wrong: list[Measurement] = []
    for measurement in _measurements(names, options, into):
        into.add(measurement)
        show.measurement(measurement)
        if measurement.correct is False:
            wrong.append(measurement)
    print(f"{time.monotonic() - begun:.0f} s; {into.path}")
    for measurement in wrong:
        print(f"WRONG {' '.join(map(str, measurement.key))}: {measurement.note}", file=sys.stderr)
    return 1 if wrong else 0


def _measurements(names: list[str], options: Options, into: Results) -> Iterator[Measurement]:
    """What the suites measure; those that use this process's Spark share one session."""
    modules = [import_module(f"bench.suites.{name}") for name in names]
    inside: list[Callable[[Bench, Options], Iterator[Measurement]]] = [m.run for m in modules if not _outside(m)]
    if inside:
        conf = {"spark.eventLog.dir": f"file:{options.events}"} if options.events else {}
        with session(options.master, conf) as bench:
            into.settings = bench.settings()
            for suite in inside:
                yield from suite(bench, options)
    for module in modules:
        if _outside(module):
            yield from module.run(options)


def _outside(module: object) -> bool:
    """Whether a suite works in processes of its own."""
    return bool(getattr(module, "OUTSIDE", False))


if __name__ == "__main__":
    sys.exit(main())
