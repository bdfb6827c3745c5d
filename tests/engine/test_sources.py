"""Sources that are no change feed, from the first row to the view: after every batch a view equals its recomputation."""

from __future__ import annotations

import json
import random
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from deferred.errors import DeferredError, InvalidInputError, TransactionError
from deferred.log.delta_log import DeltaLog
from deferred.log.sources import source_of
from deferred.log.sources.timestamps import Timestamps
from deferred.sql.dialect import text
from tests.engine.support import assert_fresh, bag, dying, dying_after, make, refused

SEED = 12


# ---- log='files'


def test_a_table_without_a_feed(warehouse: Any, tmp_path: Path) -> None:
    """Whatever is done to the table: deletion vectors, partitions, mapped names, compacted files, other columns."""
    wh, rng = warehouse, random.Random(SEED)
    path = tmp_path / "marked é'"
    wh.spark.sql(
        f"CREATE TABLE delta.`{path}` (`a b` INT, s STRING, `p/é` STRING) USING delta PARTITIONED BY (`p/é`) "
        f"TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name')"
    )

    def rows(count: int) -> str:
        kinds = (("1", "2", "NULL"), ("'x'", "'y'", "'z'"), ("NULL", "' a%/é '", "'b'"))
        return ", ".join(f"({', '.join(map(rng.choice, kinds))})" for _ in range(count))

    target = f"delta.`{path}`"
    wh.spark.sql(f"INSERT INTO {target} VALUES {rows(12)}")
    wh.track("r", path, log="files")
    wh.create_view("shown", "SELECT s, `a b`, `p/é` FROM r WHERE s <> 'z'", refresh_policy="incremental")
    version = DeltaLog(str(path)).version
    batches = [
        [
            f"DELETE FROM {target} WHERE `a b` = 1 AND s = 'x'",
            f"INSERT INTO {target} VALUES {rows(3)}",
            f"ALTER TABLE {target} ADD COLUMN more INT",
            f"DELETE FROM {target} WHERE s = 'y'",
            f"OPTIMIZE {target}",
        ],
        [f"ALTER TABLE {target} RENAME COLUMN more TO other", f"RESTORE TABLE {target} TO VERSION AS OF {version}"],
    ]
    for batch in batches:
        for statement in batch:
            wh.spark.sql(statement)
        assert wh.refresh("shown").strategy == "incremental"
        assert_fresh(wh, "shown")
    wh.verify("shown")
    log = DeltaLog(str(path))
    assert not log.has_feed
    assert not any(commit.mark for commit in log.commits(-1))  # nothing of ours was written to it


def test_only_the_files_of_the_commits_are_read(warehouse: Any, tmp_path: Path) -> None:
    wh = warehouse
    path = make(wh.spark, tmp_path / "r", "a INT, s STRING")
    for number in range(5):
        wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES ({number}, 'x'), ({number}, 'y')")
    source = source_of(wh._context, wh.track("r", path, log="files"))
    version = source.version
    wh.spark.sql(f"DELETE FROM delta.`{path}` WHERE a = 3 AND s = 'x'")
    wh.spark.sql(f"OPTIMIZE delta.`{path}`")
    changes = wh.spark.sql(text(source_of(wh._context, source.record).changes(version, version + 2, ["a", "s"])))
    assert len(wh.spark.sql(f"SELECT * FROM delta.`{path}` VERSION AS OF {version}").inputFiles()) == 5
    assert 1 <= len({file.rsplit("/")[-1] for file in changes.inputFiles()}) <= 2
    logged = wh.log("r").collect()
    assert [(row["a"], row["s"], row["_change"], row["_count"]) for row in logged] == [(3, "x", "delete", 1)]


def test_a_table_without_a_feed_in_transactions(warehouse: Any, tmp_path: Path) -> None:
    """They are undone from the files, too. A column of the feed's name is one reason why it cannot be turned on."""
    wh = warehouse
    path = make(wh.spark, tmp_path / "r", "a INT, _change_type STRING", "(1, NULL), (2, 'x'), (2, 'x')")
    with refused(DeferredError, "feed of r could not be turned on", "log='files'"):
        wh.track("r", path)
    wh.track("r", path, log="auto")
    wh.spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT few CHECK (a < 10)")
    failing = wh.transaction()
    failing.delete("r", "a = 2")
    failing.insert("r", [(11, None)])
    with refused(TransactionError, "was undone"):
        failing.__exit__(None, None, None)
    assert sorted(row["a"] for row in wh.spark.sql(f"SELECT * FROM delta.`{path}`").collect()) == [1, 2, 2]
    assert wh.log("r").collect() == []


# ---- log='debezium'


class Remote:
    """A table that exists only as its events."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: dict[int, dict[str, Any]] = {}
        self.lsn = 100

    def event(self, op: str, before: Any, after: Any) -> str:
        self.lsn += 1
        return json.dumps({"payload": {"before": before, "after": after, "op": op, "source": {"lsn": self.lsn}}})

    def step(self, op: str = "c") -> str:
        key = self.random.randint(1, 6)
        old = self.rows.get(key)
        if old is not None and self.random.random() < 0.4:
            return self.event("d", self.rows.pop(key), None)
        self.rows[key] = {"id": key, "s": self.random.choice("xyz"), "n": self.random.choice([None, "1.50", "2.25"])}
        return self.event("u" if old else op, old, self.rows[key])

    def shown(self) -> list[Any]:
        return sorted((r["id"], r["s"], r["n"]) for r in self.rows.values())


def _copied(wh: Any, name: str) -> list[Any]:
    return sorted(
        (r["id"], r["s"], None if r["n"] is None else str(r["n"])) for r in wh.sql(f"SELECT * FROM {name}").collect()
    )


def test_a_table_that_only_sends_its_changes(warehouse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshot, repeated and reordered deliveries, a death between the two commits, truncation, malformed events."""
    wh, remote = warehouse, Remote(SEED)
    events = tmp_path / "events"
    events.mkdir()
    wh.track("orders", events, key=["id"], log="debezium", columns="id INT, s STRING, n DECIMAL(8,2)")
    (events / "0.json").write_text("\n".join(remote.step("r") for _ in range(8)))
    wh.create_view("v", "SELECT s, COUNT(*) AS c, SUM(n) AS total FROM orders GROUP BY s")
    assert _copied(wh, "orders") == remote.shown()

    sent = [remote.step() for _ in range(5)]
    (events / "1.jsonl").write_text("\n".join([*sent, "", "null"]))
    wh.refresh("v")
    assert _copied(wh, "orders") == remote.shown()
    version = wh.positions()["orders"]
    assert wh.ingest("orders", remote.random.sample(sent, 5)) == 0  # again, in another order
    wh.sync()
    assert wh.positions()["orders"] == version

    more = [remote.step() for _ in range(6)]
    with monkeypatch.context() as patch:
        dying_after(patch, 1)
        with dying():
            wh.ingest("orders", more[::-1])
    assert wh.ingest("orders", [*more[:3], *sent]) == 0  # what was applied counts, although its process died

    with refused(InvalidInputError, "Event 2 for orders", "op 'z'", "Nothing was changed"):
        wh.ingest("orders", [remote.event("c", None, {"id": 9, "s": "x", "n": None}), remote.event("z", None, None)])
    assert wh.ingest("orders", [remote.event("t", None, None)]) == 0
    assert wh.ingest("orders", more) == 0  # older than the truncation
    assert _copied(wh, "orders") == []
    created = [remote.event("c", None, {"id": key, "s": "x", "n": key}) for key in (7, 8)]
    (events / "2.json").write_text(f"[{','.join(created)}]")
    with refused(InvalidInputError, "positions of another kind (ts_ms)", "(lsn)", "Nothing was changed"):
        wh.ingest("orders", [{"op": "c", "after": {"id": 9, "s": "x", "n": 1}, "source": {"ts_ms": 1}}])
    wh.refresh("v")
    assert _copied(wh, "orders") == [(7, "x", "7.00"), (8, "x", "8.00")]
    assert_fresh(wh, "v")
    wh.verify("v")
    with refused(InvalidInputError, "copy of a remote table"), wh.transaction() as tx:
        tx.delete("orders", "id = 7")


def test_positions_that_several_events_share(warehouse: Any) -> None:
    """Oracle's SCN is that of a moment, SQL Server's snapshots have none of a change: what comes later holds."""
    wh = warehouse

    def sent(name: str, state: str, **source: Any) -> int:
        return int(wh.ingest(name, [{"op": "u", "before": None, "after": {"id": 1, "s": state}, "source": source}]))

    def state(name: str) -> str:
        return str(wh.sql(f"SELECT s FROM {name}").first()["s"])

    for name in ("oracle", "timed", "server", "mysql"):
        wh.track(name, key=["id"], log="debezium", columns="id INT, s STRING")
    for name, source in (("oracle", {"scn": "7", "commit_scn": "9"}), ("timed", {"ts_ms": 7})):
        assert [sent(name, each, **source) for each in "abc"] == [1, 1, 1]
        assert state(name) == "c"
    assert (sent("oracle", "old", scn="6", commit_scn="9"), state("oracle")) == (0, "c")
    snapshot = {"commit_lsn": "00000025:00000d98:00a2", "change_lsn": None}
    change = {"commit_lsn": "00000025:00000e00:0003", "change_lsn": "00000025:00000e00:0002", "event_serial_no": 2}
    assert [sent("server", "read", **snapshot), sent("server", "new", **change)] == [1, 1]
    assert (sent("server", "read", **snapshot), state("server")) == (0, "new")
    assert sent("mysql", "a", file="bin.000007", pos=900, server_id=1, ts_ms=100_000) == 1
    with refused(InvalidInputError, "numbered anew", "as after a failover", "Nothing was changed"):
        sent("mysql", "b", file="bin.000001", pos=4, server_id=2, ts_ms=200_000)
    assert (sent("mysql", "again", file="bin.000006", pos=4, server_id=1, ts_ms=90_000), state("mysql")) == (0, "a")


# ---- log='timestamps'


def test_a_table_with_a_key_and_timestamps(warehouse: Any, tmp_path: Path) -> None:
    """Inserted, modified and deleted rows, rows that appear late, ties, no timestamp at all; and a key that is none."""
    wh = warehouse

    def at(day: int) -> str:
        return f"TIMESTAMP'2026-01-{day:02} 12:00:00.000001'"

    path = make(wh.spark, tmp_path / "t", "id INT, at TIMESTAMP, s STRING", f"(1, {at(1)}, 'x'), (2, {at(5)}, 'y')")
    target = f"delta.`{path}`"
    wh.track("t", path, key=["ID"], log="timestamps", updated_at="AT")
    wh.create_view("v", "SELECT id, s FROM t WHERE s <> 'z'")
    assert_fresh(wh, "v")
    source = source_of(wh._context, next(table for table in wh.tables() if table.name == "t"))
    batches = [
        f"INSERT INTO {target} VALUES (3, {at(5)}, 'tie'), (4, NULL, 'none'), (5, {at(2)}, 'late')",
        (
            f"MERGE INTO {target} USING (SELECT 2 AS k) ON id = k WHEN MATCHED THEN UPDATE SET s = 'w', at = {at(9)} "
            f"WHEN NOT MATCHED BY SOURCE AND id IN (3, 4) THEN DELETE"
        ),
    ]
    for batch in batches:
        wh.spark.sql(batch)
        wh.refresh("v")
        assert bag(wh.sql("SELECT id, at, s FROM t")) == bag(wh.spark.sql(f"SELECT id, at, s FROM {target}"))
        assert_fresh(wh, "v")
    version = wh.positions()["t"]
    wh.sync()
    assert (source.pull(), wh.positions()["t"]) == (0, version)
    wh.spark.sql(f"INSERT INTO {target} VALUES (2, {at(12)}, 'again')")
    with refused(InvalidInputError, "2 rows with the key (id) = (2)", "Nothing was changed"):
        wh.sync()
    assert not DeltaLog(path).has_feed


@pytest.fixture
def port(postgres_server: str) -> Iterator[int]:
    """A TCP port of the PostgreSQL server, which itself listens on a Unix socket; JDBC knows no such sockets."""
    folder = parse_qs(urlsplit(postgres_server).query)["host"][0]

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as server:
                server.connect(f"{folder}/.s.PGSQL.5432")
                back = threading.Thread(target=pump, args=(server, self.request), daemon=True)
                back.start()
                pump(self.request, server)
                back.join()

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Forward) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def _copied_lines(wh: Any) -> list[Any]:
    return sorted((row["id"], str(row["amount"])) for row in wh.sql("SELECT id, amount FROM lines").collect())


def test_tables_in_postgresql(warehouse: Any, postgres_server: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read through one of Spark's catalogs; deletions by comparing keys, and from a trace table."""
    import psycopg

    wh = warehouse
    wh.spark.sql("ADD JAR ivy://org.postgresql:postgresql:42.7.4")
    catalog = "spark.sql.catalog.office"  # a session keeps it, and tests of pages have a schema named shop
    wh.spark.conf.set(catalog, "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog")
    wh.spark.conf.set(f"{catalog}.url", f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=postgres")
    wh.spark.conf.set(f"{catalog}.driver", "org.postgresql.Driver")
    with psycopg.connect(postgres_server, autocommit=True) as shop:
        for table in ("orders", "lines"):
            shop.execute(
                f"CREATE TABLE {table} (id INT, amount NUMERIC(8,2), updated_at TIMESTAMPTZ DEFAULT clock_timestamp())"
            )
            shop.execute(f"INSERT INTO {table} (id, amount) VALUES (1, 10), (2, 20), (3, 30)")
        shop.execute("CREATE TABLE deleted_lines (id INT, updated_at TIMESTAMPTZ DEFAULT clock_timestamp())")
        options = {"key": ["id"], "log": "timestamps", "updated_at": "updated_at"}
        wh.track("orders", "office.public.orders", **options)
        wh.track("lines", "office.public.lines", deletions="office.public.deleted_lines", **options)
        wh.create_view("v", "SELECT id, amount FROM orders UNION ALL SELECT id, amount FROM lines")
        assert wh.read("v").count() == 6
        for table in ("orders", "lines"):
            shop.execute(f"UPDATE {table} SET amount = 21, updated_at = clock_timestamp() WHERE id = 2")
            shop.execute(f"DELETE FROM {table} WHERE id = 1")
            shop.execute(f"INSERT INTO {table} (id, amount) VALUES (4, 5)")
        shop.execute("INSERT INTO deleted_lines VALUES (1)")
        wh.refresh("v")
        wanted = [(2, "21.00"), (3, "30.00"), (4, "5.00")]
        assert sorted((row["id"], str(row["amount"])) for row in wh.read("v").collect()) == sorted(2 * wanted)
        wh.verify("v")

        read = Timestamps._read

        def moving(self: Timestamps, path: str, *more: Any) -> Any:
            """Between the rows and the keys of a pull, a transaction moves an order to another key. After each read of
            the lines, and of their trace, a line is deleted and then another one modified."""
            done = read(self, path, *more)
            if self.record.name == "lines" and doomed:
                line = doomed.pop()
                shop.execute("DELETE FROM lines WHERE id = %s", [line])
                shop.execute("INSERT INTO deleted_lines VALUES (%s)", [line])
                shop.execute("UPDATE lines SET amount = amount + 1, updated_at = clock_timestamp() WHERE id = 2")
            elif path.endswith("/0/rows") and moves:
                moves.pop()
                with shop.transaction():
                    shop.execute("DELETE FROM orders WHERE id = 3")
                    shop.execute("INSERT INTO orders (id, amount) VALUES (5, 30)")
            return done

        moves, doomed = ["order"], [3, 4]
        monkeypatch.setattr(Timestamps, "_read", moving)
        wh.sync()
        assert sorted(row["id"] for row in wh.sql("SELECT id FROM orders").collect()) == [2, 4, 5]  # not in halves
        wh.sync()
        assert _copied_lines(wh) == [(2, "23.00")]  # no deletion between two reads is missed
        shop.execute("INSERT INTO lines (id, amount) VALUES (4, 7)")  # a key that was deleted before
        wh.sync()
        assert _copied_lines(wh) == [(2, "23.00"), (4, "7.00")]
        for table in ("orders", "lines", "deleted_lines"):
            shop.execute(f"DROP TABLE {table}")
    for name in (catalog, f"{catalog}.url", f"{catalog}.driver"):
        wh.spark.conf.unset(name)
