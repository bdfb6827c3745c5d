"""The same through a Spark Connect server, and clients of it that are killed for real."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deferred import DeferredError, Warehouse
from deferred.spark import temporaries
from deferred.spark.engine import Engine
from tests.conftest import ConnectServer, connected
from tests.engine.conftest import with_tables
from tests.engine.support import assert_fresh, bag, mv, recomputed, refused
from tests.spark.test_tasks import watched

pytestmark = pytest.mark.slow

JOIN = "SELECT r.a, r.s, t.d FROM r JOIN t ON r.a = t.a"


@pytest.fixture
def wh(server: ConnectServer, tmp_path: Path) -> Iterator[Any]:
    with connected(server.remote) as session, Warehouse.open(path=tmp_path / "warehouse", spark=session) as opened:
        yield with_tables(opened, tmp_path / "tables")


def test_from_creation_to_verify(wh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wh.create_view("v", JOIN)
    wh.create_view("g", "SELECT a, COUNT(*) AS n, SUM(d) AS total FROM t GROUP BY a HAVING COUNT(*) > 0")
    wh.create_view("now", "SELECT a FROM r EXCEPT ALL SELECT a FROM t", scenario="immediate")
    with wh.transaction() as tx:
        tx.insert("r", [(2, 2, "new"), (1, None, "x")])
        tx.insert("t", wh.spark.sql("SELECT 1 AS a, CAST(4 AS DECIMAL(8,2)) AS d"))
        tx.update("t", {"d": "d + 1"}, "a = 2")
        tx.delete("r", "b = 1 AND s = 'x'")
    assert_fresh(wh, "now")
    for name in ("v", "g"):
        wh.propagate(name)
        wh.verify(name)
        wh.partial_refresh(name)
    wh.verify("now")
    assert_fresh(wh, "v", "g", "now")
    assert bag(wh.log("t").select("a", "_change")) == {(1, "insert"): 1, (2, "insert"): 1, (2, "delete"): 1}
    assert wh.explain("v").sql
    wh.sql("DELETE FROM r WHERE s = 'new'")
    wh.propagate("v")
    wh.sql("INSERT INTO t VALUES (1, 7.00)")
    fresh, wanted = wh.read("v", fresh=True, where="d > 0"), bag(recomputed(wh, JOIN))
    monkeypatch.setattr(temporaries, "LOCAL_ROWS", 0)
    large = wh.read("v", fresh=True)
    wh.rebuild("v")
    assert bag(fresh) == bag(large) == wanted != bag(wh.diff("v"))
    assert large.join(wh.read("v"), ["a", "s", "d"]).count() == len(list(wanted.elements()))
    assert wh.history("v")[0].state == "succeeded"


def test_types(wh: Any, tmp_path: Path) -> None:
    path = tmp_path / "types"
    wh.spark.sql(
        f"CREATE TABLE delta.`{path}` (f DOUBLE, m DECIMAL(38,3), b BINARY, n TIMESTAMP_NTZ, t TIMESTAMP, "
        "s STRUCT<x: INT>, l ARRAY<STRING>, `a.b` STRING) USING delta"
    )
    wh.track("types", str(path))
    wh.create_view("d", "SELECT DISTINCT * FROM types")
    rows = (
        "(-0.0D, 1.5, X'00', TIMESTAMP_NTZ '2024-01-01 00:00:00', TIMESTAMP '2024-01-01 00:00:00Z', STRUCT(1), "
        "ARRAY('ü', NULL), 'x'), (DOUBLE('NaN'), NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    for statement in (f"INSERT INTO types VALUES {rows}, {rows}", "DELETE FROM types WHERE m IS NULL"):
        wh.sql(statement)
        wh.refresh("d")
        assert_fresh(wh, "d")


def test_errors_are_ours(wh: Any) -> None:
    wh.create_view("v", JOIN)
    with refused(DeferredError, "nope"):
        wh.create_view("w", "SELECT nope FROM r")
    with refused(DeferredError, "nofunction"):
        wh.create_view("w", "SELECT nofunction(a) AS x FROM r")
    with refused(DeferredError, "nope"), wh.transaction() as tx:
        tx.delete("r", "nope = 1")
    with refused(DeferredError, "r"), wh.transaction() as tx:
        tx.insert("r", [("one", 2, "x")])
    with refused(DeferredError, "undone"), wh.transaction() as tx:
        tx.insert("t", [(1, 9)])
        tx.update("r", {"b": "CAST(s AS INT)"})
    with refused(DeferredError, "nope"):
        wh.sql("SELECT nope FROM r")
    wh.refresh("v")
    assert_fresh(wh, "v")


def test_a_lost_log_is_recognised(wh: Any) -> None:
    wh.create_view("v", "SELECT a FROM r")
    path = next(t.location for t in wh.tables() if t.name == "r")
    wh.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    wh.spark.sql(f"UPDATE delta.`{path}` SET a = 9")
    wh.spark.sql(f"UPDATE delta.`{path}` SET a = 10")
    wh.spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    with refused(DeferredError, "r", "rebuild"):
        wh.propagate("v")
    assert wh.views()[0].state == "broken"
    wh.rebuild("v")
    assert_fresh(wh, "v")


KILLED = """
import os, signal, sys
from deferred import Warehouse
from deferred.metadata.{module} import {store}
from pyspark.sql.connect.session import SparkSession

path, remote = sys.argv[1:]
wh = Warehouse.open(path=path, spark=SparkSession.builder.remote(remote).create())
original = {store}.{method}

def killed(self, *args, **fields):
    if {when}:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, *args, **fields)

{store}.{method} = killed
{work}
"""
TRANSACTION = """
with wh.transaction() as tx:
    tx.insert("r", [(1, 9, "killed")])
    tx.insert("t", [(1, 9)])
"""
KILLS = {
    "propagate": ("views", "ViewStore", "update", "'propagated_batch' in fields", "wh.propagate('v')"),
    "partial_refresh": ("views", "ViewStore", "update", "'applied_batch' in fields", "wh.refresh('v')"),
    "rebuild": ("views", "ViewStore", "update", "'applied_batch' in fields", "wh.rebuild('v')"),
    "transaction": ("transactions", "TransactionStore", "set_state", "True", TRANSACTION),
}


def test_processes_that_are_killed(wh: Any, server: ConnectServer) -> None:
    """SIGKILL between the Delta commit and the metadata: the next process takes over and completes the work."""
    wh.create_view("v", JOIN)
    for name, (module, store, method, when, work) in KILLS.items():
        wh.sql("INSERT INTO t VALUES (1, 3)")
        wh.sql("DELETE FROM t WHERE d = 2.25")
        script = KILLED.format(module=module, store=store, method=method, when=when, work=work)
        done = subprocess.run(
            [sys.executable, "-c", script, str(wh.settings.path), server.remote],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == -signal.SIGKILL, (name, done.stderr)
        wh.verify("v")
        wh.refresh("v")
        assert_fresh(wh, "v")
    assert (1, 9, "killed") in bag(wh.sql("SELECT * FROM r"))
    assert wh.spark.sql(f"DESCRIBE HISTORY delta.`{mv(wh, 'v')}`").count() < 12


class Proxy:
    """A way to a server that can be cut, as if the server were gone."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)

    def cut(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


LEAVES = """
import sys
import threading
from deferred import Warehouse
wh = Warehouse.open(path=sys.argv[1])
assert wh.read("v").count()
wh.refresh("v")
print("done", flush=True)
sys.stdin.readline()
{end}
"""


@pytest.mark.skipif(
    "DEFERRED_TEST_GONE_SERVER" not in os.environ,
    reason="waits for a server that is gone; run it with DEFERRED_TEST_GONE_SERVER=1",
)
@pytest.mark.parametrize("end", ["", "wh.close()"], ids=["left open", "closed"])
def test_a_process_ends_when_its_server_is_gone(wh: Any, server: ConnectServer, tmp_path: Path, end: str) -> None:
    """pyspark itself would try again for many minutes."""
    wh.create_view("v", JOIN)
    address, _, rest = server.remote.partition("/;")
    proxy = Proxy(int(address.rsplit(":", 1)[1]))
    with wh.transaction() as tx:
        tx.insert("r", [(2, 2, "new")])
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVES.format(end=end), str(wh.settings.path)],
        env={**os.environ, "DEFERRED_SPARK_REMOTE": f"sc://localhost:{proxy.port}/;{rest}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "done"
    proxy.cut()
    process.communicate("\n", timeout=60)
    assert process.returncode == 0


def test_how_far_the_server_has_come(server: ConnectServer) -> None:
    """It tells its clients every two seconds."""
    with connected(server.remote) as session:
        engine = Engine(session)
        seen = watched(engine, milliseconds=1000, tasks=6)
        assert 6 in {total for _, total in seen}
        assert engine.tasks() is None
        engine.release()
