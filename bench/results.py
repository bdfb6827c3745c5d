"""Results as JSON files, bench/results/SCALE-COMMIT.json: machine, versions, commit, command, every measurement."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "bench" / "results"
PACKAGES = ("pyspark", "delta-spark", "deltalake", "sqlglot", "SQLAlchemy")


@dataclass
class Measurement:
    """One case after one change of one size: the samples of each side, one per repetition."""

    suite: str
    name: str
    change: str
    size: str
    scale: float
    sides: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    correct: bool | None = None
    """Whether every answer was the recomputation's; None where there is no answer to compare."""
    note: str | None = None
    run: str = ""
    """When the run began that measured it. Only what one run has measured can be compared."""

    @property
    def key(self) -> tuple[str, str, str, str, float]:
        return self.suite, self.name, self.change, self.size, self.scale

    def seconds(self, side: str) -> list[float]:
        """The seconds of each repetition of a side; of several sides together, written with +."""
        parts = [[float(s["seconds"]) for s in self.sides.get(part, [])] for part in side.split("+")]
        return [sum(together) for together in zip(*parts)]

    def values(self, side: str, metric: str) -> list[float]:
        """A metric of each repetition, where it is known."""
        return [float(s[metric]) for s in self.sides.get(side, []) if s.get(metric) is not None]


@dataclass
class Results:
    """The measurements of one commit at one scale, on one machine."""

    scale: float
    commit: str
    started: str
    machine: dict[str, Any]
    versions: dict[str, str]
    settings: dict[str, str] = field(default_factory=dict)
    """The settings of Spark that matter."""
    commands: list[str] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)

    file: Path | None = None
    """Where to save them, if not in the folder of results."""

    @property
    def path(self) -> Path:
        return self.file or FOLDER / f"{self.scale:g}-{self.commit}.json"

    def add(self, measurement: Measurement) -> None:
        """Add a measurement in the place of an earlier one of the same thing, and save."""
        measurement.run = self.started
        self.measurements = [m for m in self.measurements if m.key != measurement.key] + [measurement]
        self.save()

    def save(self) -> None:
        """Write the file; a run that is cut off keeps what it has."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        document = {**vars(self), "measurements": [vars(m) for m in self.measurements]}
        del document["file"]
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        draft.replace(self.path)

    def find(self, suite: str, name: str, change: str, size: str) -> Measurement | None:
        return next((m for m in self.measurements if m.key[:4] == (suite, name, change, size)), None)


def load(path: Path) -> Results:
    document = json.loads(path.read_text(encoding="utf-8"))
    measurements = [Measurement(**{"run": document["started"], **m}) for m in document.pop("measurements")]
    return Results(**document, measurements=measurements)


def load_all(paths: Iterable[Path] | None = None) -> list[Results]:
    """All results, the oldest first."""
    return sorted(map(load, paths if paths is not None else FOLDER.glob("*.json")), key=lambda r: r.started)


def begin(scale: float, file: Path | None = None) -> Results:
    """The results to add to: those of this commit, scale and machine, if there are any."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    new = Results(scale, commit(), now, machine(), _versions(), file=file)
    if new.path.exists():
        old = load(new.path)
        if old.machine == new.machine:
            new.measurements, new.commands, new.settings = old.measurements, old.commands, old.settings
    arguments = " ".join(shlex.quote(argument) for argument in sys.argv[1:])
    new.commands = [*dict.fromkeys([*new.commands, f"python -m bench {arguments}"])]
    return new


def commit() -> str:
    """The commit of the working tree; with -dirty when a file of the package differs from it."""
    short = _git("rev-parse", "--short=10", "HEAD")
    return f"{short}-dirty" if _git("status", "--porcelain", "--", "deferred") else short


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or ("" if done.returncode == 0 else "unknown")


def machine() -> dict[str, Any]:
    """The processor, its cores and the memory."""
    processor = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [
            line.split(":", 1)[1] for line in information.read_text().splitlines() if line.startswith("model name")
        ]
        processor = names[0].strip() if names else processor
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"processor": processor, "cores": os.cpu_count(), "memory_gib": round(memory), "system": platform.system()}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found
