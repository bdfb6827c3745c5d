"""The second act of the demo, with few sales: every way shows the same rows, and what it says was measured."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from deferred.demo.many import ARRIVING, PLOT, Many
from deferred.demo.plot import BAR
from tests.seeing.shop import heeds_ctrl_c

ROOT = Path(__file__).parents[2]


def test_every_scenario_shows_what_has_arrived(warehouse: Any, tmp_path: Path) -> None:
    tables, compared, verified = Many(warehouse, tmp_path, sales=2000, arrivals=1).scenes()
    assert tables.rows == (("items", 1000), ("purchases", 2000))
    assert [row[0] for row in compared.rows] == [
        "recompute it all",
        "immediate",
        "base_log",
        "differential",
        "combined",
    ]
    assert warehouse.sql("SELECT COUNT(*) AS n FROM purchases").first()["n"] == 2000 + 5 * ARRIVING
    assert all(seconds >= 0 for _, seconds in compared.bars)
    assert {verdict for _, verdict in verified.rows} == {"holds"}
    with Image.open(tmp_path / PLOT) as plot:
        assert plot.format == "PNG"
        assert plot.height > 5 * 3 * BAR


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEFERRED_")}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def demo(*arguments: str, **given: Any) -> subprocess.Popen[str]:
    """The command, as a user runs it: it has a Spark of its own."""
    script = [sys.executable, "-m", "deferred.cli", "demo", *arguments]
    return subprocess.Popen(
        script, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **given
    )


@pytest.mark.spark
@pytest.mark.slow
def test_the_command_and_what_it_says_to_do_next(tmp_path: Path) -> None:
    """Both acts, on few rows; then the commands at its end, as they are printed, in a shell."""
    folder = tmp_path / "a demo"
    process = demo("--path", str(folder), "--sales", "500")
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    assert re.findall(r"^(\d+)\. ", out, re.MULTILINE) == [str(n) for n in range(1, 14)]
    assert "DOES NOT HOLD" not in out
    assert "high_value_sales propagate: compute" in err, "what is being done"
    assert (folder / PLOT).is_file()
    said, _, commands = out.partition("go on with it:\n")
    assert str(folder) in said
    listed = [line.strip() for line in commands.splitlines()]
    assert len(listed) == 3
    assert listed[0] == f"cd {shlex.quote(str(folder))}"
    script = "set -e\n" + "\n".join(listed)
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "refresh" in done.stdout
    assert "succeeded" in done.stdout


@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_in_the_demo(tmp_path: Path) -> None:
    process = demo("--path", str(tmp_path / "demo"), "--sales", "0", preexec_fn=heeds_ctrl_c)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("1. Two Delta tables")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Stopped by Ctrl-C." in err
    assert f"What the demo has made is in {tmp_path / 'demo'}; it begins anew in another folder." in err
    assert "Traceback" not in err
