"""A process that forks one process for each job, which may be killed: importing everything once saves seconds a job.

It is told a job per line of JSON and answers with a line of JSON. It never connects to anything itself, so that a fork
inherits no connection and no thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.reliability import operations

PREPARE = "prepare"
"""Makes the warehouse that all others are copies of."""


@dataclass(frozen=True)
class Job:
    """One process: an operation, or its repetition and what follows, on the warehouse in a folder."""

    operation: str
    folder: str
    metadata_url: str | None
    remote: str
    failpoint: str | None = None
    """The value of failpoints.VARIABLE while the operation runs."""
    afterwards: bool = False
    """Repeat the operation and answer with the state; otherwise only run it."""
    carries_on: bool = False
    """Before that, the history goes on."""


class Worker:
    """The forking process, from outside."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=operations.environment(),
            cwd=Path(__file__).parents[2],
        )

    def run(self, job: Job) -> dict[str, Any]:
        """Run a job; `status` is as os.waitpid has it, `answer` what it said, or its traceback."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._one_at_a_time:
            self._process.stdin.write(json.dumps(asdict(job)) + "\n")
            self._process.stdin.flush()
            return dict(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _serve() -> None:
    import deltalake  # noqa: F401
    import psycopg  # noqa: F401
    import pyarrow.fs  # noqa: F401
    import pyspark.sql.connect.session  # noqa: F401

    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # whatever else prints
        for line in sys.stdin:
            job = Job(**json.loads(line))
            with tempfile.NamedTemporaryFile("r", encoding="utf-8") as said:
                child = os.fork()
                if not child:
                    _child(job, Path(said.name))
                _, status = os.waitpid(child, 0)
                answer = said.read()
            answers.write(json.dumps({"status": os.waitstatus_to_exitcode(status), "answer": answer}) + "\n")
            answers.flush()


def _child(job: Job, said: Path) -> None:
    code = 1
    try:
        said.write_text(_perform(job), encoding="utf-8")
        code = 0
    except BaseException:
        said.write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(code)


def _perform(job: Job) -> str:
    from deferred import DeferredError, failpoints

    if job.operation == PREPARE:
        operations.prepare(Path(job.folder), job.remote)
        return "done"
    operation = operations.OPERATIONS[job.operation]
    if operation.given and not job.afterwards:
        with operations.opened(Path(job.folder), job.metadata_url, job.remote) as wh:
            operation.given(wh)
    if job.failpoint:
        os.environ[failpoints.VARIABLE] = job.failpoint
    with operations.opened(Path(job.folder), job.metadata_url, job.remote) as wh:
        if job.afterwards:
            repeated = operation.repeat(wh)
            state = operations.carry_on(wh, operation) if job.carries_on else operations.settled(wh)
            return json.dumps({"repeated": repeated, "state": state})
        try:
            operation.run(wh)
        except DeferredError as error:
            failpoints.reached("end")
            return f"{type(error).__name__}: {error}"
        failpoints.reached("end")  # the work is done, and nobody has been told
        return "done"


if __name__ == "__main__":
    _serve()
