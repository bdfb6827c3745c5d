"""Random views against recomputation: python -m tests.fuzz --n 5000 --seed 0 --minutes 10."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.case import Case
from tests.fuzz.check import Failure, script, shrink
from tests.fuzz.run import Result, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--n", type=int, default=1000, help="how many views")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each view takes the next")
    parser.add_argument("--minutes", type=float, default=None, help="stop after this long")
    parser.add_argument("--stop", type=int, default=5, help="stop after this many failures")
    arguments = parser.parse_args()
    started = time.monotonic()
    result = Result()
    failures = 0
    for case, failure in run(range(arguments.seed, arguments.seed + arguments.n), result):
        if failure is not None:
            failures += 1
            _show(case, failure)
        if (case.seed + 1 - arguments.seed) % 500 == 0:
            print(f"{case.seed + 1 - arguments.seed} views, {time.monotonic() - started:.0f} s", flush=True)
        if failures >= arguments.stop or (arguments.minutes and time.monotonic() - started > arguments.minutes * 60):
            break
    print(
        f"{result.checked} views checked, {result.refused} refused, {result.skipped} that DuckDB cannot run, "
        f"{failures} failed, {time.monotonic() - started:.0f} s"
    )
    for reason, count in result.reasons.most_common(10):
        print(f"  {count:4} × {reason}")
    return 1 if failures else 0


def _show(case: Case, failure: Failure) -> None:
    print(f"seed {case.seed} fails ({failure.kind}); shrinking …", flush=True)
    small = shrink(case, failure.kind)
    print(script(small, failure))
    print(f"# {str(failure)[:600]}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
