"""Commands of ours in a process of their own, as they are run from a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.tables import ROOT


def command(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
    """Run `deferred …` in a folder; what it prints on a failure is the error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEFERRED_", "SPARK_CONNECT_"))}
    done = subprocess.run(
        [sys.executable, "-m", "deferred.cli", *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"deferred {' '.join(arguments)} failed: {done.stderr or done.stdout}")
