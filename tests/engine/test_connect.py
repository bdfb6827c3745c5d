"""The same through a Spark Connect server, and clients of it that are killed for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deferred import DeferredError, Warehouse
from deferred.spark import server
from tests.conftest import SMALL
from tests.engine.conftest import with_tables
from tests.engine.support import assert_fresh, bag, mv, refused

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOIN = "SELECT r.a, r.s, t.d FROM r JOIN t ON r.a = t.a"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server on a free port of this machine, for this module alone."""
    folder = tmp_path_factory.mktemp("engine")
    before = dict(os.environ)
    started = server.start(folder, "local[2]", SMALL)
    try:
        yield started.remote
    finally:
        server.stop(folder)
        # pyspark notes there that this process is a client; the other tests are none.
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def wh(remote: str, tmp_path: Path) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(remote).create()
    with Warehouse.open(path=tmp_path / "warehouse", spark=session) as opened:
        yield with_tables(opened, tmp_path / "tables")
    session.stop()


def test_from_creation_to_verify(wh: Any) -> None:
    wh.create_view("v", JOIN)
    wh.create_view("g", "SELECT a, COUNT(*) AS n, SUM(d) AS total FROM t GROUP BY a HAVING COUNT(*) > 0")
    wh.create_view("above", "SELECT DISTINCT n FROM g")
    wh.create_view("now", "SELECT a FROM r EXCEPT ALL SELECT a FROM t", scenario="immediate")
    with wh.transaction() as tx:
        tx.insert("r", [(2, 2, "new"), (1, None, "x")])
        tx.insert("t", wh.spark.sql("SELECT 1 AS a, CAST(4 AS DECIMAL(8,2)) AS d"))
        tx.update("t", {"d": "d + 1"}, "a = 2")
        tx.delete("r", "b = 1 AND s = 'x'")
    assert_fresh(wh, "now")
    for name in ("v", "g", "above"):
        wh.propagate(name)
        wh.verify(name)
        wh.partial_refresh(name)
    wh.refresh("above")
    for name in ("v", "g", "above", "now"):
        wh.verify(name)
    assert_fresh(wh, "v", "g", "above", "now")
    assert bag(wh.log("t").select("a", "_change")) == {(1, "insert"): 1, (2, "insert"): 1, (2, "delete"): 1}
    assert wh.explain("v").sql
    wh.rebuild("v")
    assert wh.history("v")[0].state == "succeeded"


def test_types(wh: Any, tmp_path: Path) -> None:
    path = tmp_path / "types"
    wh.spark.sql(f"CREATE TABLE delta.`{path}` (f DOUBLE, m DECIMAL(38,3), b BINARY, n TIMESTAMP_NTZ, t TIMESTAMP, "
                 "s STRUCT<x: INT>, l ARRAY<STRING>, `a.b` STRING) USING delta")
    wh.track("types", str(path))
    wh.create_view("v", "SELECT * FROM types")
    wh.create_view("d", "SELECT DISTINCT * FROM types")
    rows = ("(-0.0D, 1.5, X'00', TIMESTAMP_NTZ '2024-01-01 00:00:00', TIMESTAMP '2024-01-01 00:00:00Z', STRUCT(1), "
            "ARRAY('ü', NULL), 'x'), (DOUBLE('NaN'), NULL, NULL, NULL, NULL, NULL, NULL, NULL)")
    for statement in (f"INSERT INTO types VALUES {rows}", f"INSERT INTO types VALUES {rows}",
                      "DELETE FROM types WHERE m IS NULL"):
        wh.sql(statement)
        for name in ("v", "d"):
            wh.refresh(name)
            assert_fresh(wh, name)
    wh.verify("v")


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


def test_processes_that_are_killed(wh: Any, remote: str) -> None:
    """SIGKILL between the Delta commit and the metadata: leases and half-done work are nobody's, and taken up."""
    wh.create_view("v", JOIN)
    for name, (module, store, method, when, work) in KILLS.items():
        wh.sql("INSERT INTO t VALUES (1, 3)")
        wh.sql("DELETE FROM t WHERE d = 2.25")
        script = KILLED.format(module=module, store=store, method=method, when=when, work=work)
        done = subprocess.run([sys.executable, "-c", script, str(wh.settings.path), remote], capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, (name, done.stderr)
        wh.verify("v")
        wh.refresh("v")
        wh.verify("v")
        assert_fresh(wh, "v")
    assert (1, 9, "killed") in bag(wh.sql("SELECT * FROM r"))
    assert wh.spark.sql(f"DESCRIBE HISTORY delta.`{mv(wh, 'v')}`").count() < 12
