"""Changes from the files that commits add and remove: which files, and that their rows are the difference.

The tables are written with delta-rs and without a change feed, so no Spark is started.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deferred.errors import InvalidInputError, LogLostError, SparkFailure, StorageError
from deferred.log import ledger, tracking
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog
from deferred.log.file_changes import Action, absolute, file_changes, log_of_files, vector_path
from deferred.log.sources import Source, source_of
from deferred.metadata import Metadata
from deferred.spark.engine import Engine
from deferred.sql.dialect import text

HISTORIES = 300


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with Metadata.open(f"sqlite:///{tmp_path}/metadata.db", create=True) as metadata:
        opened = Context(metadata, Engine(), str(tmp_path / "warehouse"))
        yield opened
        assert not opened.engine.started


def write(location: Path, *values: int, mode: str = "append") -> str:
    rows = pa.table({"a": pa.array(values, pa.int32()), "p ü": pa.array([f"{v % 2} %/" for v in values])})
    write_deltalake(location, rows, mode=mode, partition_by=["p ü"])  # type: ignore[arg-type]
    return str(location)


def tracked(context: Context, location: str) -> Source:
    return source_of(context, tracking.track(context, "r", location, None, None, "files"))


# ---- the net of actions


class Model:
    """A table whose files are known with their rows, written at random: the reference is its bag of rows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.live: dict[tuple[str, str], Counter[int]] = {}
        self.rows: dict[tuple[str, str], Counter[int]] = {}
        self.states: list[Counter[int]] = []
        self.snapshots: list[set[tuple[str, str]]] = []
        self.commits: list[list[Action]] = []
        self.made = 0
        self.commit([])
        for _ in range(self.random.randint(2, 12)):
            self.step()

    def commit(self, actions: list[Action]) -> None:
        self.commits.append([{"commitInfo": {}}, *actions])
        self.states.append(sum(self.live.values(), Counter()))
        self.snapshots.append(set(self.live))

    def add(self, rows: Counter[int], path: str | None = None, changes: bool = True) -> Action:
        self.made += 1
        key = (path or f"f{self.made}", "" if path is None else f"v{self.made}")
        self.live[key] = self.rows[key] = rows
        return {"add": self.action(key, changes)}

    def remove(self, key: tuple[str, str], changes: bool = True) -> Action:
        del self.live[key]
        return {"remove": self.action(key, changes)}

    def action(self, key: tuple[str, str], changes: bool) -> Action:
        vector = {"storageType": "i", "pathOrInlineDv": key[1], "offset": 1} if key[1] else None
        size = 10 * (1 + self.rows[key].total())
        return {
            "path": key[0],
            "size": size,
            "partitionValues": {},
            "dataChange": changes,
            **({"deletionVector": vector} if vector else {}),
        }

    def step(self) -> None:
        kind = self.random.choice(["insert", "insert", "rewrite", "mark", "optimize", "truncate", "restore"])
        files = self.random.sample(sorted(self.live), min(len(self.live), self.random.randint(1, 3)))
        values = Counter(self.random.choices(range(5), k=self.random.randint(1, 4)))
        if kind == "insert" or not files:
            self.commit([self.add(values)])
        elif kind == "rewrite":
            self.commit([self.remove(files[0]), self.add(values)])
        elif kind == "mark":
            left = self.live[files[0]] - Counter([next(iter(self.live[files[0]].elements()), 0)])
            self.commit([self.remove(files[0]), self.add(left, files[0][0])])
        elif kind == "optimize":
            together = sum((self.live[key] for key in files), Counter[int]())
            self.commit([*(self.remove(key, False) for key in files), self.add(together, changes=False)])
        elif kind == "truncate":
            self.commit([self.remove(key) for key in sorted(self.live)])
        else:
            wanted = self.random.choice(self.snapshots)
            gone = [self.remove(key) for key in sorted(set(self.live) - wanted)]
            back = sorted(wanted - set(self.live))
            self.live.update({key: self.rows[key] for key in back})
            self.commit([*gone, *({"add": self.action(key, True)} for key in back)])

    def bag(self, files: tuple[Action, ...]) -> Counter[int]:
        keys = [(f["path"], (f.get("deletionVector") or {}).get("pathOrInlineDv", "")) for f in files]
        return sum((self.rows[key] for key in keys), Counter())


def test_the_files_added_minus_the_files_removed_are_the_difference() -> None:
    for seed in range(HISTORIES):
        _check_history(seed)


def _check_history(seed: int) -> None:
    model = Model(seed)
    last = len(model.commits) - 1
    for after in range(last):
        for upto in range(after + 1, last + 1):
            changes = file_changes(model.commits[after + 1 : upto + 1])
            assert changes is not None, seed
            net = model.bag(changes.added)
            net.subtract(model.bag(changes.removed))
            wanted = model.states[upto].copy()
            wanted.subtract(model.states[after])
            assert {k: n for k, n in net.items() if n} == {k: n for k, n in wanted.items() if n}, (seed, after, upto)
            shared = model.snapshots[after] ^ model.snapshots[upto]
            assert changes.size <= sum(model.action(key, True)["size"] for key in shared)  # never more than all of it


def test_compacting_alone_changes_nothing_and_what_came_and_went_neither() -> None:
    model = Model(0)
    model.live.clear()
    first, second = model.add(Counter([1])), model.add(Counter([2]))
    keys = sorted(model.live)
    compacted = [*(model.remove(key, False) for key in keys), model.add(Counter([1, 2]), changes=False)]
    gone = [model.remove(next(iter(model.live)))]
    assert file_changes([compacted]) == file_changes([[first, second], compacted, gone])
    assert file_changes([[{"commitInfo": {}}]]) == file_changes([compacted])
    written = file_changes([[first, second], compacted])
    assert written is not None
    assert len(written.added) == 1  # the file that holds the rows now is smaller than those that were written


def test_a_remove_that_says_too_little_is_not_guessed() -> None:
    assert file_changes([[{"remove": {"path": "a", "dataChange": True}}]]) is None
    assert file_changes([[{"remove": {"path": "a", "size": 1, "partitionValues": {}}}]]) is not None


def test_paths() -> None:
    assert absolute("s3a://bucket/a b", "x%20y.parquet") == "s3a://bucket/a%20b/x%20y.parquet"
    assert absolute("/t", "file:///other/x.parquet") == "file:///other/x.parquet"
    assert (
        vector_path({"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"})
        is None
    )
    assert vector_path({"storageType": "p", "pathOrInlineDv": "s3://b/a%20b.bin"}) == "s3://b/a b.bin"
    prefixed = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}
    (action,) = (
        json.loads(line)["add"]
        for line in log_of_files(
            "/a b",
            [{"path": "f", "size": 1, "partitionValues": {}, "deletionVector": prefixed}],
            {"schemaString": '{"type": "struct", "fields": []}', "partitionColumns": [], "configuration": {}},
            ["deletionVectors"],
        ).splitlines()
        if "add" in json.loads(line)
    )
    assert action["path"] == "file:///a%20b/f"
    assert action["deletionVector"] == {
        "storageType": "p",
        "pathOrInlineDv": "file:///a%20b/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        "offset": 4,
    }


def test_what_is_about_writing_stays_behind() -> None:
    field: dict[str, Any] = {"name": "a", "type": "integer", "nullable": True}
    kept = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    field["metadata"] = {**kept, "delta.generationExpression": "1 + 1", "CURRENT_DEFAULT": "3"}
    metadata = {
        "schemaString": json.dumps({"type": "struct", "fields": [field]}),
        "partitionColumns": [],
        "configuration": {"delta.columnMapping.mode": "name", "delta.enableInCommitTimestamps": "true"},
    }
    features = ["columnMapping", "inCommitTimestamp", "generatedColumns", "timestampNtz", "v2Checkpoint"]
    protocol, described = map(json.loads, log_of_files("/t", [], metadata, features).splitlines())
    assert protocol["protocol"]["readerFeatures"] == ["columnMapping", "timestampNtz"]
    assert described["metaData"]["configuration"] == {"delta.columnMapping.mode": "name"}
    assert json.loads(described["metaData"]["schemaString"])["fields"][0]["metadata"] == kept


# ---- the source


def test_tracking_leaves_the_table_as_it_is(context: Context, tmp_path: Path) -> None:
    location = write(tmp_path / "a table", 1, 2)
    source = tracked(context, location)
    write(tmp_path / "a table", 3)
    assert ledger.sync(context, [source.record], lambda transaction: None) == 1
    log = DeltaLog(location)
    assert (log.version, log.has_feed) == (1, False)
    assert source_of(context, source.record).changed_rows(0, 1) == 1
    with pytest.raises(InvalidInputError, match="read from the files of its commits"):
        source.append_changes([], [])


def test_a_table_of_just_these_files_is_made(context: Context, tmp_path: Path) -> None:
    location = write(tmp_path / "a table", 1, 2)
    write(tmp_path / "a table", 3)
    write(tmp_path / "a table", 5, mode="overwrite")
    source = tracked(context, location)
    sql = text(source.changes(1, 2, ["a"]))
    folders = re.findall(r"delta\.`([^`]*)`", sql)
    assert "VERSION AS OF" not in sql
    assert len(folders) == 2
    files = [DeltaTable(folder).metadata() and _adds(Path(folder)) for folder in folders]
    assert [len(listed) for listed in files] == [1, 3]
    for listed in files:
        for file in listed:
            assert file["path"].startswith(f"file://{tmp_path}/a%20table/")
            assert set(file["partitionValues"]) == {"p ü"}
    assert text(source.changes(2, 2, ["a"])).endswith("WHERE FALSE")


def _adds(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    return [action["add"] for action in map(json.loads, lines) if "add" in action]


def test_where_the_log_says_too_little_whole_versions_are_compared(context: Context, tmp_path: Path) -> None:
    location = write(tmp_path / "r", 1)
    source = tracked(context, location)
    for value in (2, 3, 4):
        write(tmp_path / "r", value)
    DeltaTable(location, version=1).create_checkpoint()
    (tmp_path / "r" / "_delta_log" / f"{0:020}.json").unlink()
    (tmp_path / "r" / "_delta_log" / f"{1:020}.json").unlink()
    source = source_of(context, source.record)
    assert re.findall(r"VERSION AS OF (\d+)", text(source.changes(0, 3, ["a"]))) == ["3", "0"]
    assert "VERSION AS OF" not in text(source.changes(1, 3, ["a"]))
    with pytest.raises(LogLostError, match=r"0\.json does not exist.*rebuild"), source.guarded(0, 3):
        raise SparkFailure("DELTA_VERSION_NOT_FOUND")


def test_a_commit_that_repartitions_the_table_is_read_from_the_table_itself(context: Context, tmp_path: Path) -> None:
    source = tracked(context, write(tmp_path / "r", 1))
    rows = pa.table({"a": pa.array([1], pa.int32()), "p ü": ["x"]})
    write_deltalake(tmp_path / "r", rows, mode="overwrite", schema_mode="overwrite", partition_by=["a"])
    source = source_of(context, source.record)
    assert re.findall(r"VERSION AS OF (\d+)", text(source.changes(0, 1, ["a"]))) == ["1", "0"]


def test_changes_are_lost_only_if_a_file_of_them_is_gone(context: Context, tmp_path: Path) -> None:
    source = tracked(context, write(tmp_path / "a table", 1))
    for value in (2, 3):
        write(tmp_path / "a table", value)
    source = source_of(context, source.record)
    with pytest.raises(StorageError, match="Its files are there"), source.guarded(0, 2):
        raise SparkFailure("FAILED_READ_FILE")
    (first,) = (f for f in (tmp_path / "a table").rglob("*.parquet") if _holds(f, 1))
    first.unlink()  # not among the changes
    with pytest.raises(StorageError, match="Its files are there"), source.guarded(0, 2):
        raise SparkFailure("FAILED_READ_FILE")
    (second,) = (f for f in (tmp_path / "a table").rglob("*.parquet") if _holds(f, 2))
    second.unlink()
    with pytest.raises(LogLostError, match=f"{second.name} does not exist"), source.guarded(0, 2):
        raise SparkFailure("FAILED_READ_FILE")


def _holds(file: Path, value: int) -> bool:
    import pyarrow.parquet as pq

    return pq.ParquetFile(file).read(["a"]).column("a").to_pylist() == [value]
