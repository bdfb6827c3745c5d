"""What the crashes have shown, in a file, so that a run that is stopped goes on where it was.

Each line says which code it is about: lines of other code are kept, and count for nothing.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.reliability.crashes import Case, Crashes

ROOT = Path(__file__).parents[2]


def code() -> str:
    """What `deferred` and the crashes are made of: a hash of the files as they are, committed or not."""
    digest = hashlib.sha256()
    for folder in ("deferred", "tests/reliability"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


class Results:
    """Lines of JSON: the effects of an operation when nothing is killed, and what each crash has led to."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._code = code()
        self._lock = threading.Lock()
        self._effects: dict[str, list[str]] = {}
        self._found: dict[Case, str | None] = {}
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            value = json.loads(line)
            if value.get("code") != self._code:
                continue
            if "case" in value:
                self._found[Case(**value["case"])] = value["problem"]
            else:
                self._effects[value["operation"]] = value["effects"]

    def remember(self, crashes: Crashes) -> None:
        """Tell what earlier runs have learned."""
        crashes.known.update(self._effects)

    def learned(self, crashes: Crashes) -> None:
        """Keep what this run has learned."""
        for operation, effects in list(crashes.known.items()):
            with self._lock:
                is_new = operation not in self._effects
                self._effects[operation] = effects
            if is_new:
                self._write({"operation": operation, "effects": effects})

    def has(self, case: Case) -> bool:
        return case in self._found

    def add(self, case: Case, problem: str | None) -> None:
        self._found[case] = problem
        self._write({"case": asdict(case), "problem": problem})

    @property
    def violations(self) -> int:
        return sum(problem is not None for problem in self._found.values())

    def figures(self, seed: int) -> str:
        """How many failpoints and crashes there are, how many were made, and how many left a trace."""
        failpoints = sum(len(effects) + 1 for effects in self._effects.values())  # and one after the last effect
        total = sum(len(Crashes.crashes_at(effects)) for effects in self._effects.values())
        done = Counter(case.database for case in self._found)
        return (
            f"{failpoints} failpoints of {len(self._effects)} operations, × 2 databases: "
            + "; ".join(f"{done[database]} of {total} crashes on {database}" for database in ("sqlite", "postgresql"))
            + f"; of {len({case.operation for case in self._found})} operations"
            + f"; {sum(case.during for case in self._found)} in the middle of a statement"
            + f"; {sum(case.carries_on for case in self._found)} carried on with; seed {seed}; "
            + f"violations {self.violations}"
        )

    def _write(self, value: Any) -> None:
        with self._lock:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"code": self._code, **value}) + "\n")
