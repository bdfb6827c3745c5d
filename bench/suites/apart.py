"""The smallest work in a process of its own, on another kind of Spark than this process has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.options import Options
from bench.results import Measurement, load
from bench.tables import ROOT


def smallest(
    suite: str,
    options: Options,
    folder: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Iterator[Measurement]:
    """What the suite `smallest` measures there, under the name of another suite."""
    file = folder / "results.json"
    asked = [f"--repetitions={options.repetitions}", f"--warm-up={options.warm_up}", f"--into={file}", *arguments]
    asked.append(f"--changes={','.join(options.changes)}")
    command = [sys.executable, "-m", "bench", "run", "--suites=smallest", *asked]
    place = {**os.environ, **(environment or {})}
    done = subprocess.run(command, cwd=ROOT, env=place, capture_output=True, text=True, check=False)
    found = load(file).measurements if file.exists() else []
    for measurement in found:
        yield replace(measurement, suite=suite)
    if done.returncode and all(measurement.correct is not False for measurement in found):
        raise RuntimeError(f"The suite {suite} failed: {done.stderr[-4000:]}")
