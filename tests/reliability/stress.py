"""Stress: several processes work on one warehouse at once, and the whole history is checked afterwards.

Writers with their own DML and with transactions, propagate, partial_refresh, refresh, rebuild, readers, OPTIMIZE, VACUUM,
RESTORE, ALTER of a table and of a view, and views that come and go run in processes of their own on one Spark Connect server. Leases are lost while they are held, the clock of
one process is wrong, and processes are killed while the server goes on with what they have sent. One seed decides what
each process does; how the operations fall together is up to the machine.

    python -m tests.reliability.stress --seed 7 --minutes 3 [--metadata-url postgresql://…]

Checked, without Spark, from Delta's logs and what was seen: every state that a reader saw is Q at a cut, cuts go
forward, no transaction is in halves at any cut, and each one is there as often as its process was told.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deferred import Warehouse
from deferred.errors import (
    DeferredError,
    LeaseHeldError,
    LeaseLostError,
    LogLostError,
    NameTakenError,
    SparkFailure,
    TransactionError,
    UnknownObjectError,
)
from deferred.log.delta_log import DeltaLog
from deferred.metadata import Cut, records

TABLES = {"r": "k INT, v INT, tag STRING", "t": "k INT, w INT, tag STRING", "u": "k INT, x INT, tag STRING"}


def edition(number: int) -> str:
    """The query of the view that is altered: its rows say which of its definitions they are of."""
    return f"SELECT k, COUNT(*) AS n, {number} AS edition FROM t GROUP BY k"


EDITED = "edited"
PASSING = "passing"
"""A view that is created, refreshed and dropped all the time."""

VIEWS = {
    "joined": ("SELECT r.k, r.v, t.w FROM r JOIN t ON r.k = t.k AND r.tag = t.tag", "combined"),
    "groups": ("SELECT k, COUNT(*) AS n, SUM(v) AS total FROM r GROUP BY k", "combined"),
    "now": ("SELECT t.k, t.w, u.x FROM t LEFT JOIN u ON t.k = u.k", "immediate"),
    "above": ("SELECT n, COUNT(*) AS m FROM groups GROUP BY n", "combined"),
    EDITED: (edition(0), "combined"),
}
"""By name: the query, which DuckDB, the referee, reads as Spark does, and the scenario."""

KEYS = 6
WORKERS = 3
TOLERATED = (LeaseHeldError, LeaseLostError, LogLostError, SparkFailure, TransactionError)
"""What an operation may end with when others work on the same things, if the cause is one of theirs: see `excused`."""

AGAIN = re.compile(r"CONCURRENT|CONFLICT|Nothing is lost; run the same command again|could not be shut out")
"""What a failure of Spark says that comes from another writer of the same table."""

OF_U = re.compile(r"\b(?:log of|[Tt]able) u\b")
"""Of a lost log: u is restored and altered, and no other table is."""

UNFINISHED = re.compile(r"could not be undone|could not be finished|has taken over transaction")
"""Of a transaction that somebody else ends."""


def excused(note: Mapping[str, Any]) -> bool:
    """Whether an operation may have ended so, by the cause that it names: what others did to the same things."""
    error = str(note.get("error"))
    match note["outcome"]:
        case "done" | "conflict" | "LeaseHeldError" | "LeaseLostError":
            return True
        case "SparkFailure":
            return AGAIN.search(error) is not None
        case "TransactionError":
            return note["act"] == "transaction" or UNFINISHED.search(error) is not None
        case "LogLostError":
            rebuilt = note.get("rebuilt")
            repaired = rebuilt is True or (isinstance(rebuilt, dict) and excused({"act": "rebuild", **rebuilt}))
            return OF_U.search(error) is not None and repaired
    return False


PLAIN = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "false"}
"""The referee reads the tables through delta-rs, which does not know deletion vectors."""


# ---- one worker


@dataclass
class Worker:
    """One process: draws operations from its seed until the time is up, and writes down what came of each."""

    warehouse: Warehouse
    draw: random.Random
    notes: Any

    def run(self, until: float) -> None:
        acts = [act for act, weight in self.acts().items() for _ in range(weight)]
        while time.time() < until:
            act = self.draw.choice(acts)
            note: dict[str, Any] = {"act": act.__name__, "begun": time.time()}
            try:
                act(note)
                note["outcome"] = "done"
            except TOLERATED as error:
                note["outcome"], note["error"] = type(error).__name__, str(error)[:300]
                if isinstance(error, LogLostError):
                    self._rebuild(note)
            except Exception as error:
                conflict = "DELTA_" in str(error) or "CONCURRENT" in str(error).upper()
                note["outcome"] = "conflict" if conflict else "unexpected"
                note["error"] = f"{type(error).__name__}: {error}"[:600]
            note["seconds"] = round(time.time() - note["begun"], 3)
            self.notes.write(json.dumps(note) + "\n")
            self.notes.flush()

    def acts(self) -> dict[Callable[[dict[str, Any]], None], int]:
        """What may be done, and how often relative to the others."""
        return {
            self.transaction: 5,
            self.write: 4,
            self.propagate: 4,
            self.partial_refresh: 3,
            self.refresh: 4,
            self.read: 8,
            self.lose_leases: 2,
            self.optimize: 1,
            self.vacuum: 1,
            self.restore: 1,
            self.alter: 1,
            self.alter_view: 1,
            self.rebuild: 1,
            self.create: 2,
            self.use: 1,
            self.drop: 1,
        }

    def transaction(self, note: dict[str, Any]) -> None:
        """The same tag in r and t, in one transaction; sometimes its last statement fails."""
        tag = note["tag"] = f"tx-{uuid.UUID(int=self.draw.getrandbits(128)).hex}"
        key, fails = self.draw.randrange(KEYS), self.draw.random() < 0.2
        with self.warehouse.transaction() as tx:
            tx.insert("r", [(key, self.draw.randrange(9), tag)])
            tx.insert("t", [(key, self.draw.randrange(9), tag)])
            if fails:
                tx.update("t", {"w": "CAST(tag AS INT)"}, f"tag = '{tag}'")

    def write(self, note: dict[str, Any]) -> None:
        """A job of its own: it knows nothing of us."""
        name = self.draw.choice(list(TABLES))
        value = {"r": "v", "t": "w", "u": "x"}[name]
        target = f"delta.`{self._location(name)}`"
        key, number = self.draw.randrange(KEYS), self.draw.randrange(9)
        statement = self.draw.choice(
            [
                f"INSERT INTO {target} (k, {value}, tag) VALUES ({key}, {number}, 'own')",
                f"UPDATE {target} SET {value} = {value} + 1 WHERE k = {key} AND tag = 'own'",
                f"DELETE FROM {target} WHERE k = {key} AND {value} > {number} AND tag = 'own'",
            ]
        )
        note["sql"] = statement.partition(" ")[0]
        self.warehouse.spark.sql(statement).collect()

    def propagate(self, note: dict[str, Any]) -> None:
        note["state"] = self.warehouse.propagate(self._view(note)).state

    def partial_refresh(self, note: dict[str, Any]) -> None:
        note["state"] = self.warehouse.partial_refresh(self._view(note)).state

    def refresh(self, note: dict[str, Any]) -> None:
        note["state"] = self.warehouse.refresh(self._view(note)).state

    def read(self, note: dict[str, Any]) -> None:
        """MV as any reader of Delta sees it."""
        location = self._location(self._view(note))
        note["version"] = DeltaLog(location).version
        note["rows"] = sorted(map(list, rows_of(location, note["version"]).elements()), key=str)

    def lose_leases(self, note: dict[str, Any]) -> None:
        """As if their holders had not renewed them for too long."""
        store = self.warehouse._context.metadata.leases
        names = [f"{kind}:{view.id}" for view in self.warehouse.views() for kind in ("propagate", "refresh")]
        held = [holder for name in names if (holder := store.holder(name)) is not None]
        note["lost"] = [holder.name for holder in held if store.abandon(holder)]

    def optimize(self, note: dict[str, Any]) -> None:
        name = note["table"] = self.draw.choice([*TABLES, *VIEWS])
        self.warehouse.spark.sql(f"OPTIMIZE delta.`{self._location(name)}`").collect()

    def vacuum(self, note: dict[str, Any]) -> None:
        name = note["table"] = self.draw.choice([*TABLES, *VIEWS])
        self.warehouse.spark.sql(f"VACUUM delta.`{self._location(name)}`").collect()

    def restore(self, note: dict[str, Any]) -> None:
        location = self._location("u")
        newest = DeltaLog(location).version
        first = next(t.first_version for t in self.warehouse.tables() if t.name == "u")
        note["version"] = self.draw.randint(first, newest)
        self.warehouse.spark.sql(f"RESTORE TABLE delta.`{location}` TO VERSION AS OF {note['version']}").collect()

    def alter(self, note: dict[str, Any]) -> None:
        name = f"more_{self.draw.randrange(10**6)}"
        self.warehouse.spark.sql(f"ALTER TABLE delta.`{self._location('u')}` ADD COLUMNS ({name} INT)").collect()

    def alter_view(self, note: dict[str, Any]) -> None:
        note["edition"] = self.draw.randrange(10**6)
        self.warehouse.alter_view(EDITED, edition(note["edition"]))

    def rebuild(self, note: dict[str, Any]) -> None:
        note["state"] = self.warehouse.rebuild(self._view(note)).state

    def create(self, note: dict[str, Any]) -> None:
        sql = self.draw.choice(
            ["SELECT k, SUM(x) AS total FROM u GROUP BY k", "SELECT v, n FROM r JOIN groups USING (k)"]
        )
        with suppress(NameTakenError):
            note["created"] = self.warehouse.create_view(PASSING, sql).id

    def use(self, note: dict[str, Any]) -> None:
        with suppress(UnknownObjectError):
            note["state"] = self.warehouse.refresh(PASSING).state

    def drop(self, note: dict[str, Any]) -> None:
        with suppress(UnknownObjectError):
            self.warehouse.drop_view(PASSING)

    def _rebuild(self, note: dict[str, Any]) -> None:
        try:
            self.warehouse.rebuild(note["view"])
            note["rebuilt"] = True
        except DeferredError as error:
            note["rebuilt"] = {"outcome": type(error).__name__, "error": str(error)[:300]}

    def _view(self, note: dict[str, Any]) -> str:
        note["view"] = self.draw.choice(list(VIEWS))
        return str(note["view"])

    def _location(self, name: str) -> str:
        return next(t.location for t in self.warehouse.tables() if t.name == name)


def work(folder: Path, remote: str, url: str, seed: str, until: float, skew: float) -> None:
    """The life of one process."""
    if skew:
        _wrong_clock(timedelta(seconds=skew))
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(remote).create()
    with (
        (folder / f"notes-{seed}.jsonl").open("a", encoding="utf-8") as notes,
        Warehouse.open(path=folder / "warehouse", metadata_url=url, spark=session, patience=20) as warehouse,
    ):
        Worker(warehouse, random.Random(seed), notes).run(until)


def _wrong_clock(skew: timedelta) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + skew

    records.datetime = Wrong  # type: ignore[attr-defined,misc]


# ---- the history


@dataclass
class Report:
    """What was done, and everything that must not be."""

    operations: Counter[str] = field(default_factory=Counter)
    states: int = 0
    cuts: int = 0
    killed: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        done = ", ".join(f"{name} {count}" for name, count in sorted(self.operations.items()))
        return (
            f"{sum(self.operations.values())} operations ({done}); {self.killed} processes killed; {self.states} states "
            f"seen by readers and {self.cuts} cuts checked; violations: {len(self.violations)}"
        )


def rows_of(location: str, version: int) -> Counter[tuple[Any, ...]]:
    """The rows of a Delta table at a version, through delta-rs."""
    from deltalake import DeltaTable

    table = DeltaTable(location, version=version).to_pyarrow_table()
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_rows else Counter()


class Referee:
    """Recomputes views at cuts with DuckDB."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.tables = {t.id: t for t in warehouse.tables()}
        self.by_name = {t.name: t for t in warehouse.tables()}
        self._known: dict[tuple[str, str], Counter[tuple[Any, ...]]] = {}

    def shown_at(self, view: str) -> Iterator[tuple[int, Cut]]:
        """The cuts that MV has shown, from which version on, oldest first."""
        for commit in DeltaLog(self.by_name[view].location).commits(-1):
            if commit.mark is not None and commit.mark.get("kind") == "refresh":
                yield commit.version, Cut.from_json(commit.mark["cut"])

    def expected(self, query: str, cut: Cut) -> Counter[tuple[Any, ...]]:
        key = (query, json.dumps(sorted(cut.versions.items())))
        if key not in self._known:
            import duckdb
            from deltalake import DeltaTable

            with duckdb.connect() as connection:
                for table, version in cut.versions.items():
                    rows = DeltaTable(self.tables[table].location, version=version).to_pyarrow_table()
                    connection.register(self.tables[table].name, rows)
                self._known[key] = Counter(connection.execute(query).fetchall())
        return self._known[key]

    def halves(self, cut: Cut) -> set[str]:
        """The transactions of which a cut has only a part."""
        tags = [self.tags(self.by_name[name].location, cut.versions[self.by_name[name].id]) for name in ("r", "t")]
        return {tag for tag in tags[0] | tags[1] if tags[0][tag] != 1 or tags[1][tag] != 1}

    def tags(self, location: str, version: int) -> Counter[str]:
        from deltalake import DeltaTable

        found = DeltaTable(location, version=version).to_pyarrow_table(columns=["tag"]).column("tag").to_pylist()
        return Counter(tag for tag in found if tag.startswith("tx-"))


def check(warehouse: Warehouse, notes: list[dict[str, Any]], report: Report) -> None:
    """Check the whole history."""
    referee = Referee(warehouse)
    shown = {view: list(referee.shown_at(view)) for view in VIEWS}
    for view, cuts in shown.items():
        for (_, before), (version, after) in itertools.pairwise(cuts):
            if any(after.versions[t] < v for t, v in before.versions.items()):
                report.violations.append(f"{view} goes back at version {version}: from {before} to {after}.")
        for version, cut in cuts:
            report.cuts += 1
            if {"r", "t"} <= {referee.tables[table].name for table in cut.versions}:
                for tag in referee.halves(cut):
                    report.violations.append(f"{view} at version {version} has half of {tag}.")
    for note in notes:
        report.operations[note["act"]] += 1
        if not excused(note):
            report.violations.append(f"{note['act']}: {note['outcome']}: {note['error']} {note.get('rebuilt', '')}")
        if note["act"] == "read" and note["outcome"] == "done":
            report.states += 1
            cut = [cut for version, cut in shown[note["view"]] if version <= note["version"]][-1]
            seen = Counter(map(tuple, note["rows"]))
            wanted = referee.expected(_query_of(note["view"], seen), cut)
            if seen != wanted:
                report.violations.append(
                    f"{note['view']} at version {note['version']} is not Q at {cut}: too many {seen - wanted}, "
                    f"missing {wanted - seen}."
                )
    _check_transactions(referee, notes, report)


def _query_of(view: str, seen: Counter[tuple[Any, ...]]) -> str:
    """The query that rows must be of: rows of two editions of a view are of none."""
    return edition(next(iter(seen))[-1]) if view == EDITED and seen else VIEWS[view][0]


def _check_transactions(referee: Referee, notes: list[dict[str, Any]], report: Report) -> None:
    """Each transaction is in both tables once or in none, as its process was told; later it may end either way."""
    newest = {name: DeltaLog(referee.by_name[name].location).version for name in ("r", "t")}
    found = {name: referee.tags(referee.by_name[name].location, version) for name, version in newest.items()}
    for tag in found["r"] | found["t"]:
        if found["r"][tag] != 1 or found["t"][tag] != 1:
            report.violations.append(f"{tag} is {found['r'][tag]} times in r and {found['t'][tag]} times in t.")
    for note in notes:
        if note["act"] != "transaction":
            continue
        there = found["r"][note["tag"]]
        if note["outcome"] == "done" and not there:
            report.violations.append(f"{note['tag']} has succeeded and is not there.")
        if "nothing is changed" in note.get("error", "") and there:
            report.violations.append(f"{note['tag']} was undone and is there.")


# ---- the whole


def stress(folder: Path, remote: str, url: str, seed: int, seconds: float, kills: int) -> Report:
    """Run workers for some time, kill some of them, let the warehouse settle, and check the history."""
    from pyspark.sql.connect.session import SparkSession

    report = Report()
    session = SparkSession.builder.remote(remote).create()
    try:
        with Warehouse.open(path=folder / "warehouse", metadata_url=url, spark=session) as warehouse:
            _set_up(warehouse, folder)
            _work(folder, remote, url, seed, seconds, kills, report)
            _settle(warehouse, report)
            lines = [line for path in folder.glob("notes-*.jsonl") for line in path.read_text("utf-8").splitlines()]
            notes = [json.loads(line) for line in lines if line.endswith("}")]  # a killed process leaves half a line
            check(warehouse, notes, report)
    finally:
        session.stop()
    return report


def _set_up(warehouse: Warehouse, folder: Path) -> None:
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in PLAIN.items())
    for name, columns in TABLES.items():
        target = f"delta.`{folder / name}`"
        warehouse.spark.sql(f"CREATE TABLE {target} ({columns}) USING delta TBLPROPERTIES ({properties})").collect()
        rows = ", ".join(f"({key}, {key % 3}, 'own')" for key in range(KEYS))
        warehouse.spark.sql(f"INSERT INTO {target} VALUES {rows}").collect()
        warehouse.track(name, folder / name)
    for name, (sql, scenario) in VIEWS.items():
        warehouse.create_view(name, sql, scenario=scenario, refresh_policy="incremental")


def _work(folder: Path, remote: str, url: str, seed: int, seconds: float, kills: int, report: Report) -> None:
    until = time.time() + seconds
    draw = random.Random(seed)
    moments = sorted(draw.uniform(0.3, 0.8) * seconds for _ in range(kills))
    running = {number: _start(folder, remote, url, f"{seed}-{number}", until) for number in range(WORKERS)}
    begun = time.time()
    started = WORKERS
    while time.time() < until:
        time.sleep(0.2)
        if moments and time.time() - begun > moments[0]:
            moments.pop(0)
            number = draw.choice(sorted(running))
            running[number].send_signal(signal.SIGKILL)
            running[number].wait()
            report.killed += 1
            running[number] = _start(folder, remote, url, f"{seed}-{started}", until)
            started += 1
    for number, process in running.items():
        code = process.wait(timeout=180)
        if code:
            report.violations.append(f"Worker {number} has ended with {code}.")


def _start(folder: Path, remote: str, url: str, seed: str, until: float) -> subprocess.Popen[bytes]:
    """A worker in a process of its own; the clock of every third one is an hour ahead or behind."""
    number = int(seed.rpartition("-")[2])
    skew = {1: 3600, 2: -3600}.get(number % 3, 0)
    command = [sys.executable, "-m", "tests.reliability.stress", "--worker", seed, "--folder", str(folder)]
    command += ["--remote", remote, "--metadata-url", url, "--until", str(until), "--skew", str(skew)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_CONNECT_")}
    return subprocess.Popen(command, cwd=Path(__file__).parents[2], env=environment)


def _settle(warehouse: Warehouse, report: Report) -> None:
    """Whatever was left in the middle is finished, and every view is right in the end."""
    for attempt in range(3):  # a statement that a killed process has sent may still be running
        try:
            warehouse.sync()
            for name in (*VIEWS, PASSING):
                view = warehouse.find_view(name)
                if view is not None:
                    (warehouse.rebuild if view.state == "broken" else warehouse.refresh)(name)
                    warehouse.verify(name)
            return
        except DeferredError as error:
            if attempt == 2:
                report.violations.append(f"The warehouse does not settle: {type(error).__name__}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=int(datetime.now(UTC).timestamp()))
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--metadata-url", default=None)
    parser.add_argument("--remote", default=None)
    parser.add_argument("--folder", type=Path, default=None)
    for name, kind in (("--worker", str), ("--until", float), ("--skew", float)):
        parser.add_argument(name, type=kind, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        work(given.folder, given.remote, given.metadata_url, given.worker, given.until, given.skew)
        return
    from tests.reliability.servers import connect_server, databases

    failed = False
    with tempfile.TemporaryDirectory(prefix="deferred-stress-") as temporary, connect_server() as remote:
        for name, url in databases(Path(temporary)):
            folder = Path(temporary) / name
            folder.mkdir()
            report = stress(folder, remote, url, given.seed, given.minutes * 60, kills=max(1, round(given.minutes)))
            print(f"{name}, seed {given.seed}: {report}", flush=True)
            for violation in report.violations:
                print(f"  {violation}", flush=True)
            failed = failed or bool(report.violations)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
