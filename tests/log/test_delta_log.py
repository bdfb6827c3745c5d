"""Reading Delta's log by version number: every commit has its own version and mark, whatever happens around it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler

from deferred.errors import StorageError
from deferred.log import delta_log, tracking
from deferred.log.context import Context
from deferred.log.delta_log import FEED, DeltaLog, last_mark
from deferred.log.heads import Heads
from deferred.log.recent import Recent
from deferred.metadata import Metadata
from deferred.spark.engine import Engine


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "a table"


def write(table: Path, number: int | None = None) -> None:
    """One commit; with a number, one that carries it as its mark."""
    mark = json.dumps({"deferred": {"kind": "refresh", "number": number}})
    write_deltalake(
        table,
        pa.table({"a": [1]}),
        mode="append",
        configuration={FEED: "true"},
        commit_properties=None if number is None else CommitProperties(custom_metadata={"userMetadata": mark}),
    )


def file(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def edit(table: Path, version: int, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Rewrite the actions of a commit."""
    actions = [json.loads(line) for line in file(table, version).read_text().splitlines()]
    file(table, version).write_text("".join(json.dumps(action) + "\n" for action in change(actions)))


def without_info(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [action for action in actions if "commitInfo" not in action]


def numbers(log: DeltaLog, after: int = -1) -> list[tuple[int, int | None]]:
    return [(c.version, c.mark["number"] if c.mark else None) for c in log.commits(after)]


def test_a_commit_that_arrives_between_loading_and_reading(table: Path) -> None:
    for number in range(3):
        write(table, number)
    log = DeltaLog(str(table))
    write(table)  # a foreign one
    write(table, 4)
    assert numbers(log) == [(0, 0), (1, 1), (2, 2)]
    assert numbers(log, after=0) == [(1, 1), (2, 2)]
    assert [c.version for c in log.newest_first()] == [2, 1, 0]
    assert numbers(DeltaLog(str(table))) == [(0, 0), (1, 1), (2, 2), (3, None), (4, 4)]


def test_a_commit_that_says_nothing_of_itself(table: Path) -> None:
    for number in range(5):
        write(table, number)
    edit(table, 1, without_info)
    edit(table, 3, without_info)
    edit(table, 4, lambda actions: [*without_info(actions), *(a for a in actions if "commitInfo" in a)])
    os.utime(file(table, 3), (1_700_000_000, 1_700_000_000))
    log = DeltaLog(str(table))
    assert numbers(log) == [(0, 0), (1, None), (2, 2), (3, None), (4, 4)]
    assert log.commits(2)[0].timestamp == datetime.fromtimestamp(1_700_000_000, UTC)
    assert last_mark(str(table), "refresh") == {"kind": "refresh", "number": 4}


def test_the_time_of_a_commit(table: Path) -> None:
    write(table)
    write(table)

    def both(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {"commitInfo": {**a["commitInfo"], "timestamp": 5_000, "inCommitTimestamp": 7_000}}
            if "commitInfo" in a
            else a
            for a in actions
        ]

    edit(table, 1, both)
    first, second = DeltaLog(str(table)).commits(-1)
    assert second.timestamp == datetime.fromtimestamp(7, UTC)
    assert first.timestamp.timestamp() * 1000 == DeltaTable(table).history()[1]["timestamp"]


def test_commits_that_were_cleaned_up_are_not_there(table: Path) -> None:
    for number in range(12):
        write(table, number)
    DeltaTable(table).create_checkpoint()
    for version in range(10):
        file(table, version).unlink()
    assert numbers(DeltaLog(str(table))) == [(10, 10), (11, 11)]
    assert numbers(DeltaLog(str(table)), after=4) == [(10, 10), (11, 11)]
    write(table)
    assert last_mark(str(table), "refresh") == {"kind": "refresh", "number": 11}
    assert last_mark(str(table), "propagate") is None


def test_a_table_whose_last_commit_was_cleaned_up_can_be_tracked(table: Path, tmp_path: Path) -> None:
    write(table)
    DeltaTable(table).create_checkpoint()
    file(table, 0).unlink()
    with Metadata.open(f"sqlite:///{tmp_path}/metadata.db", create=True) as metadata:
        record = tracking.track(Context(metadata, Engine(), str(tmp_path)), "t", str(table), None, None, "feed")
        last = metadata.ledger.last(record.id)
        assert last is not None
        assert last.version == 0


def test_only_the_commits_that_are_needed_are_read(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        write(table, number)
    read: list[int] = []
    original = DeltaLog._read

    def counted(self: DeltaLog, version: int) -> Any:
        read.append(version)
        return original(self, version)

    def refuse(*_: object) -> None:
        raise AssertionError("the log was listed")

    monkeypatch.setattr(DeltaLog, "_read", counted)
    monkeypatch.setattr(DeltaStorageHandler, "get_file_info_selector", refuse)
    log = DeltaLog(str(table))
    assert next(log.newest_first()).version == 39
    assert len(read) <= 4
    read.clear()
    assert numbers(log, after=9) == [(number, number) for number in range(10, 40)]
    assert sorted(read) == list(range(10, 40))
    read.clear()
    assert log.commits(39) == log.commits(50) == []
    assert read == []


def test_a_table_that_stays_the_same_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only where its files are asked for. A new commit, and another table in its place, are seen at once."""
    opened: list[str] = []

    class Counting(DeltaTable):
        def __init__(self, *given: Any, **more: Any) -> None:
            opened.append(str(given[0]))
            super().__init__(*given, **more)

    monkeypatch.setattr("deltalake.DeltaTable", Counting)
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"a": [1]}))
    before = [DeltaLog(str(path)) for _ in range(3)]
    assert [log.columns for log in before] == 3 * [(("a", "bigint"),)]
    assert opened == []
    assert [log.row_count() for log in before] == [1, 1, 1]
    assert len(opened) == 1
    write_deltalake(path, pa.table({"a": [2]}), mode="append")
    after = DeltaLog(str(path))
    assert [log.version for log in (*before, after)] == [0, 0, 0, 1]
    assert [log.row_count() for log in (after, *before, after)] == [2, 1, 1, 1, 2]
    shutil.rmtree(path)
    write_deltalake(path, pa.table({"a": [1]}))
    write_deltalake(path, pa.table({"b": [2]}), mode="overwrite", schema_mode="overwrite")
    another = DeltaLog(str(path))
    assert another.version == 1
    assert another.id != after.id
    assert [name for name, _ in another.columns] == ["b"]
    shutil.rmtree(path)
    with pytest.raises(StorageError):
        DeltaLog(str(path))


def test_only_new_commits_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns, properties and the number of rows follow the commits; the list of files is read once."""
    opened: list[str] = []

    class Counting(DeltaTable):
        def __init__(self, *given: Any, **more: Any) -> None:
            opened.append(str(given[0]))
            super().__init__(*given, **more)

    path = tmp_path / "t"
    write(path)
    assert DeltaLog(str(path)).row_count() == 1
    monkeypatch.setattr("deltalake.DeltaTable", Counting)
    for number in range(25):
        write_deltalake(path, pa.table({"a": [number]}), mode="append")
        log = DeltaLog(str(path))
        assert (log.version, log.row_count()) == (number + 1, number + 2)
    write_deltalake(path, pa.table({"a": [1], "b": ["x"]}), mode="append", schema_mode="merge")
    assert [name for name, _ in log.columns] == ["a"]
    later = DeltaLog(str(path))
    assert (later.columns, later.row_count()) == ((("a", "bigint"), ("b", "string")), 27)
    assert (later.id, later.properties, later.features) == (log.id, log.properties, log.features)
    assert opened == []
    DeltaTable(path).delete("a = 3")
    assert DeltaLog(str(path)).row_count() == 26


def test_what_is_known_without_the_files_is_what_delta_rs_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table with a checkpoint, a large one and a small one, and of one without, looked at for the first time."""
    for commits, large in ((3, 20_000), (9, 20_000), (9, 1)):
        monkeypatch.setattr("deferred.log.heads.LARGE", large)
        path = tmp_path / f"{commits}-{large}"
        for number in range(commits):
            write(path)
            if number == 5:
                DeltaTable(path).create_checkpoint()
        log, table = DeltaLog(str(path)), DeltaTable(path)
        assert log.version == table.version() == commits - 1
        assert log.id == table.metadata().id
        assert log.properties == table.metadata().configuration
        assert json.loads(log.metadata["schemaString"]) == json.loads(table.schema().to_json())
        assert (log.partitions, log.has_feed) == ((), True)


def test_threads_look_at_more_tables_than_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them forgets what another one has just looked up, or is about to."""
    monkeypatch.setattr(delta_log, "_HEADS", Heads(most=2))
    monkeypatch.setattr(delta_log, "_OPENED", delta_log._Opened(most=2))
    tables = [tmp_path / f"t{number}" for number in range(5)]
    for number, path in enumerate(tables):
        write_deltalake(path, pa.table({f"c{number}": [1]}))

    def look(seed: int) -> list[str]:
        found = []
        for number in range(100):
            path = tables[(seed + number * (1 + seed % 3)) % len(tables)]
            log = DeltaLog(str(path))
            if log.columns != ((f"c{tables.index(path)}", "bigint"),) or len(log.listed("path")) != 1:
                found.append(path.name)
        return found

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as threads:
            assert list(threads.map(look, range(6))) == [[]] * 6
    finally:
        sys.setswitchinterval(switching)


def test_only_what_was_asked_for_last_is_kept_whatever_threads_do() -> None:
    kept = Recent[int](3)

    def work(seed: int) -> None:
        for number in range(60_000):
            key = (seed * 7 + number) % 11
            assert kept.get(key) in (None, key)
            kept.put(key, key)
            if number % 5 == 0:
                kept.forget(key)

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as threads:
            list(threads.map(work, range(6)))
    finally:
        sys.setswitchinterval(switching)
    assert len(kept) <= 3
    kept.put("a", 1)
    known = kept.get("a")
    assert known == 1
    kept.replace("a", known, 2)
    kept.replace("a", known, 3)  # somebody else has found something since
    assert kept.get("a") == 2
    kept.put("b", 4)
    kept.put("c", 6)
    assert kept.get("a") == 2
    kept.put("d", 8)  # b was not asked for longest
    assert [kept.get(key) for key in "abcd"] == [2, None, 6, 8]


def test_a_log_with_a_hole(table: Path) -> None:
    """A commit in the middle is gone: the versions before it are not taken for all of the table."""
    for _ in range(5):
        write(table)
    assert DeltaLog(str(table)).version == 4
    file(table, 3).unlink()
    edit(table, 4, list)  # another file, so that nothing is known of the table any more
    with pytest.raises(StorageError):
        DeltaLog(str(table))
