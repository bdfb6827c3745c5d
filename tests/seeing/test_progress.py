"""Progress: phases, tasks and time left; plain lines where there is no terminal; Ctrl-C says how things are."""

from __future__ import annotations

import os
import pty
import queue
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from deferred import Warehouse
from deferred.log.context import Context
from deferred.maintenance.notices import Event
from deferred.maintenance.working import refreshing
from deferred.metadata import utc_now
from deferred.progress import Progress
from deferred.spark.engine import Engine
from tests.seeing.shop import Shop, heeds_ctrl_c
from tests.test_cli import Project


def event(moment: str, **fields: object) -> Event:
    given = {"operation": "0" * 32, "kind": "refresh", "view": "v", "location": "/v", **fields}
    return Event(moment, **given)  # type: ignore[arg-type]


def test_the_line() -> None:
    progress = Progress("Refreshing v")
    assert progress.line() == "Refreshing v …"
    progress(event("START", expected_seconds=100.2))
    assert progress.line().startswith("v refresh · begins · 0 s · about 100 s left")
    progress.tasks = lambda: (3, 8)
    progress(event("PHASE", phase="compute"))
    assert progress.line() == "v refresh · compute · 3 of 8 Spark tasks · 0 s"
    progress(event("PHASE", phase="write", rows={"read": 1200}))
    assert progress.line() == "v refresh · write · 1,200 changed rows · 3 of 8 Spark tasks · 0 s"
    progress(event("COMPLETE"))
    assert progress.line() == "Refreshing v …"


def test_lines_about_work_that_takes_long() -> None:
    """Where no live line shows it: the same, again and again, until the work ends."""
    progress, said = Progress("Refreshing v"), queue.Queue[str]()
    progress.tasks = lambda: (3, 8)
    with progress.repeated(said.put, every=0.01):
        progress(event("PHASE", phase="compute"))
        assert said.get(timeout=30) == "v refresh · compute · 3 of 8 Spark tasks · 0 s"
        assert said.get(timeout=30).startswith("v refresh · compute")
        progress(event("COMPLETE"))


def test_what_is_said_after_ctrl_c() -> None:
    progress = Progress("Refreshing v")
    progress(event("START", view="first"))
    progress(event("COMPLETE", view="first"))
    progress(event("PHASE", phase="compute"))
    said = progress.stopped()
    assert "Done: refresh of first." in said
    assert "Interrupted: refresh of v in its phase compute." in said
    assert "Nothing is lost" in said


def test_several_views_at_once() -> None:
    """Each has its own line, its own clock and its own phase; the tasks are those of all of them."""
    progress, said = Progress("Refreshing all views"), list[str]()
    progress.say = said.append
    progress.tasks = lambda: (3, 8)
    progress(event("START", view="a", operation="1"))
    progress(event("START", view="b", operation="2", expected_seconds=50.2))
    progress(event("PHASE", view="a", operation="1", phase="compute"))
    progress(event("PHASE", view="b", operation="2", phase="log", expected_seconds=50.2))
    assert progress.line().splitlines() == [
        "a refresh · compute · 0 s",
        "b refresh · log · 0 s · about 50 s left",
        "3 of 8 Spark tasks",
    ]
    progress(event("COMPLETE", view="b", operation="2"))
    assert progress.line() == "a refresh · compute · 3 of 8 Spark tasks · 0 s"
    assert said == ["a refresh: compute", "b refresh: log", "b refresh: done in 0.0 s"]
    progress(event("FAIL", view="c", operation="3", error=ValueError("no")))
    progress(event("FAIL", view="d", operation="4", error=KeyboardInterrupt(), phase="apply"))
    assert progress.stopped().splitlines()[1:5] == [
        "Done: refresh of b.",
        "Failed: refresh of c.",
        "Interrupted: refresh of d in its phase apply.",
        "Interrupted: refresh of a in its phase compute.",
    ]


def test_the_steps_of_a_backfill_are_counted(shop: Shop) -> None:
    said: list[str] = []
    progress = Progress(say=said.append)
    begin = utc_now() - timedelta(minutes=3)
    with Warehouse.open(shop.folder / "conf" / "deferred.toml", listeners=[progress]) as warehouse:
        warehouse.backfill("largest", begin, begin + timedelta(minutes=2), "1m")
    assert [line for line in said if "sync" in line] == [
        "largest refresh, step 1 of 2: sync",
        "largest refresh, step 2 of 2: sync",
    ]


def test_plain_lines_and_silence(project: Project) -> None:
    assert "largest propagate: sync\nlargest propagate: done in " in project.run("propagate", "largest")[2]
    assert project.run("propagate", "largest", "-q")[2] == ""
    assert project.run("-q", "propagate", "largest")[2] == ""


def command(shop: Shop, *arguments: str, **given: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm", "COLUMNS": "100"}
    script = [sys.executable, "-m", "deferred.cli", *arguments]
    given = {"preexec_fn": heeds_ctrl_c, **given}
    return subprocess.Popen(script, cwd=shop.folder, env=environment, **given)  # type: ignore[call-overload,no-any-return]


def test_ctrl_c_while_it_waits_for_another(shop: Shop) -> None:
    """In a terminal, where the live line tells that it is there."""
    context = Context(shop.metadata, Engine(), str(shop.folder / "warehouse"))
    ours, theirs = pty.openpty()
    with refreshing(context, shop.metadata.views.get("largest")):
        process = command(shop, "partial-refresh", "big_sales", "largest", stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        shown = b""
        while b"Applying changes to" not in shown or not done(shop):
            shown += os.read(ours, 1000)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    while True:
        try:
            more = os.read(ours, 1000)
        except OSError:
            break
        shown += more
    text = shown.decode()
    assert (process.returncode, out) == (130, b"")
    assert "Stopped by Ctrl-C." in text
    assert "Done: partial_refresh of big_sales." in text
    assert "Nothing is lost" in text
    assert "Traceback" not in text


def done(shop: Shop) -> bool:
    last = shop.metadata.operations.recent("big_sales", 1)
    return bool(last) and last[0].state == "nothing"
