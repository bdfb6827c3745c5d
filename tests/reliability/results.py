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
    """Lines of JSON: what an operation does when nothing is killed, and what each crash has led to."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._code = code()
        self._lock = threading.Lock()
        self._expected: dict[tuple[str, str], tuple[list[str], dict[str, Any]]] = {}
        self._found: dict[Case, str | None] = {}
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            value = json.loads(line)
            if value.get("code") != self._code:
                continue
            if "case" in value:
                self._found[Case(**value["case"])] = value["problem"]
            else:
                self._expected[value["operation"], value["database"]] = value["effects"], value["state"]

    def remember(self, crashes: Crashes) -> None:
        """Tell what earlier runs have learned."""
        crashes.known.update(self._expected)

    def learned(self, crashes: Crashes) -> None:
        """Keep what this run has learned."""
        for (operation, database), (effects, state) in list(crashes.known.items()):
            with self._lock:
                is_new = (operation, database) not in self._expected
                self._expected[operation, database] = effects, state
            if is_new:
                self._write({"operation": operation, "database": database, "effects": effects, "state": state})

    def has(self, case: Case) -> bool:
        return case in self._found

    def add(self, case: Case, problem: str | None) -> None:
        self._found[case] = problem
        self._write({"case": asdict(case), "problem": problem})

    @property
    def violations(self) -> int:
        return sum(problem is not None for problem in self._found.values())

    def figures(self, seed: int) -> str:
        """How many crashes there are, how many were made, and how many left a trace."""
        total: Counter[str] = Counter()
        for (_, database), (effects, _) in self._expected.items():
            total[database] += len(Crashes.crashes_at(effects))
        done = Counter(case.database for case in self._found)
        return (
            "; ".join(f"{done[database]} of {total[database]} crashes on {database}" for database in sorted(total))
            + f"; {len({case.operation for case in self._found})} operations"
            + f"; {sum(case.during for case in self._found)} in the middle of a statement; seed {seed}; "
            + f"violations {self.violations}"
        )

    def _write(self, value: Any) -> None:
        with self._lock:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"code": self._code, **value}) + "\n")
