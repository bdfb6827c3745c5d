"""A local Spark Connect server that stays warm between commands: start it, find it, stop it."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deferred.errors import ConfigurationError, SparkFailure
from deferred.spark import session
from deferred.spark.jars import fetching, listed, packages

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
START_SECONDS = 180.0


@dataclass(frozen=True)
class Server:
    """A server on this machine. Its token, kept in a private file, keeps other users of the machine out."""

    pid: int
    port: int
    token: str = field(repr=False)
    host: str
    started_at: float

    @property
    def address(self) -> str:
        """The address without the token, safe to show."""
        return f"sc://localhost:{self.port}"

    @property
    def remote(self) -> str:
        """The address with the token."""
        return f"{self.address}/;token={self.token}"


def file_in(folder: Path) -> Path:
    return folder / "engine.json"


def catalog_in(folder: Path) -> Path:
    """Where tables are put that are created by name in a Spark of this warehouse."""
    return folder.absolute() / "catalog"


def log_in(folder: Path) -> Path:
    return folder / "engine.log"


def find(folder: Path) -> Server | None:
    """Returns the server that was started for a warehouse folder, if it is still running."""
    try:
        server = Server(**json.loads(file_in(folder).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return server if server.host == socket.gethostname() and _is_server(server.pid) and _listens(server.port) else None


def start(
    folder: Path,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    port: int | None = None,
    timeout: float = START_SECONDS,
) -> Server:
    """Start a server for a warehouse folder and wait until it can run Delta; returns the running one if any."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes must not each start a server
        return find(folder) or _start(folder, master, conf or {}, port, timeout)


def _start(folder: Path, master: str | None, conf: Mapping[str, str], port: int | None, timeout: float) -> Server:
    port = _free_port(port)
    token = secrets.token_urlsafe(24)
    with fetching(listed(packages(), conf.get("spark.jars.packages")), {**session.defaults(), **conf}):
        process = _process(folder, _command(folder, master, conf, port), token)
        server = Server(process.pid, port, token, socket.gethostname(), time.time())
        try:
            _wait(process, server, folder, timeout)
            _warm_up(server)
            _write(folder, server)
        except BaseException:
            _end(process.pid)
            process.wait()
            raise
    return server


def _process(folder: Path, command: Sequence[str], token: str) -> subprocess.Popen[bytes]:
    with log_in(folder).open("wb") as log:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**_environment(), TOKEN_VARIABLE: token},
            )
        except OSError as error:
            raise SparkFailure(f"The Spark server cannot be started: {error}.") from error


def stop(folder: Path) -> Server | None:
    """Stop the server of a warehouse folder; returns the server that was stopped, None if none was running."""
    try:
        server = Server(**json.loads(file_in(folder).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    alive = server.host == socket.gethostname() and _is_server(server.pid)
    if alive:
        _end(server.pid)
    file_in(folder).unlink(missing_ok=True)
    return server if alive else None


# ---- starting


def _command(folder: Path, master: str | None, conf: Mapping[str, str], port: int) -> list[str]:
    import pyspark

    local = not master or master.startswith("local")
    settings = {
        **(session.LOCAL if local else {}),
        **session.DELTA,
        session.CATALOG: str(catalog_in(folder)),
        **conf,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    settings.pop("spark.jars.packages", None)
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        "--class",
        SERVER_CLASS,
        "--name",
        "deferred engine",
        "--master",
        master or "local[*]",
        "--packages",
        listed(packages(), conf.get("spark.jars.packages")),
    ]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    return [*command, "spark-internal"]


def _environment() -> dict[str, str]:
    import pyspark

    # An inherited SPARK_HOME would start another Spark with our jars.
    return {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent)}


def _free_port(port: int | None) -> int:
    """Returns the given port if it is free, or any free port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port or 0))
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                f"Port {port} cannot be used: {error}. Choose another with --port, or omit --port to use any free port."
            ) from None
        return int(probe.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], server: Server, folder: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not _listens(server.port):
        if process.poll() is not None:
            raise SparkFailure(
                f"The Spark server exited during its start (exit code {process.returncode}): "
                f"{_first_error(folder)} The whole log is {log_in(folder)}."
            )
        if time.monotonic() > deadline:
            raise SparkFailure(
                f"The Spark server did not respond within {timeout:.0f} seconds; its log is {log_in(folder)}."
            )
        time.sleep(0.2)


def _warm_up(server: Server) -> None:
    """Create and change a Delta table, so that the classes are loaded before the first command."""
    from pyspark.sql import SparkSession
    from sqlglot import exp

    from deferred.algebra.bags import call, insert_into, merge_by_key
    from deferred.spark.statements import translated
    from deferred.sql.ddl import create_table
    from deferred.sql.dialect import delta_table, text

    with tempfile.TemporaryDirectory(prefix="deferred-") as folder, translated():
        spark = SparkSession.builder.remote(server.remote).create()
        try:
            target, row = delta_table(f"{folder}/warm"), exp.select("1 AS a")
            feed = call("table_changes_by_path", exp.Literal.string(f"{folder}/warm"), exp.Literal.number(1))
            for statement in (
                create_table(target, [("a", "int")], properties={"delta.enableChangeDataFeed": "true"}),
                insert_into(target, ["a"], row),
                merge_by_key(target, ["a"], ["a"], ["a"], row, None),
                exp.select("*").from_(exp.Table(this=feed)),
            ):
                spark.sql(text(statement)).collect()
        finally:
            spark.stop()


def _write(folder: Path, server: Server) -> None:
    """Write the file atomically, readable only by its owner."""
    draft = file_in(folder).with_suffix(f".{server.pid}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(server), file)
    draft.replace(file_in(folder))


def _first_error(folder: Path) -> str:
    lines = log_in(folder).read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if "Exception" in line or "rror" in line or "JAVA_HOME" in line] or lines[-1:]
    return errors[0].strip()[:300].rstrip(".") + "." if errors else "its log is empty."


# ---- processes


def _is_server(pid: int) -> bool:
    """Whether a process is running and is a server; its number may have been reused by another process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True  # a system without /proc: the port decides
    return SERVER_CLASS.encode() in command


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _end(pid: int) -> None:
    """Terminate the process; kill it if it still runs after ten seconds."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, sign)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if not _runs(pid):
                return
            time.sleep(0.1)


def _runs(pid: int) -> bool:
    """Whether a process still runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc/self").exists() and _is_server(pid)
