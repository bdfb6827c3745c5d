"""`make airflow`: the demo's project is made and filled, and it stops when it is told to. Airflow itself is the site's."""

from __future__ import annotations

import os
import subprocess
import sys

from deferred.airflow.local import USER
from tests.conftest import ConnectServer

PROGRAM = """
import os, signal, threading
import deferred.airflow.__main__ as shown

class Airflow(shown.LocalAirflow):
    def start(self, timeout=0):
        print("DAGs", *sorted(file.name for file in self.dags.iterdir()))
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return self

    def stop(self):
        print("Airflow was asked to stop")

shown.LocalAirflow = Airflow
shown.server.start = shown.server.stop = lambda folder: None
shown.main()
"""


def test_the_demo_is_shown_until_it_is_stopped(server: ConnectServer) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "DEFERRED_SPARK_REMOTE": server.remote},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for words in (
        "DAGs ingest.py refresh.py sync.py views.py",
        "http://127.0.0.1:",
        f"user       {USER}",
        "password   ",
        "Airflow was asked to stop\nStopped.",
    ):
        assert words in done.stdout
