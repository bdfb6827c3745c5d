"""A Delta table with a long log: many commits, and many files that exist only in its checkpoint, made by hand.

The simulated files hold ids below FIRST by their statistics, so that a query for later ids skips them all.
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

FIRST = 1_000_000_000
"""The first id of a row that is really there."""

ROWS = 10
"""Rows of each commit that is made later."""

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "v", "type": "long", "nullable": True, "metadata": {}},
    ],
}


def table(folder: Path, commits: int, files: int) -> None:
    """Make the table: `commits` commits, the last with a checkpoint of `files` files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    log = folder / "_delta_log"
    log.mkdir(parents=True)
    for version in range(commits):
        _write_commit(log, version, [])
    last = commits - 1
    plain = pa.map_(pa.string(), pa.string())
    schema = pa.schema(
        [
            ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
            (
                "metaData",
                pa.struct(
                    [
                        ("id", pa.string()),
                        ("format", pa.struct([("provider", pa.string()), ("options", plain)])),
                        ("schemaString", pa.string()),
                        ("partitionColumns", pa.list_(pa.string())),
                        ("configuration", plain),
                        ("createdTime", pa.int64()),
                    ]
                ),
            ),
            (
                "add",
                pa.struct(
                    [
                        ("path", pa.string()),
                        ("partitionValues", plain),
                        ("size", pa.int64()),
                        ("modificationTime", pa.int64()),
                        ("dataChange", pa.bool_()),
                        ("stats", pa.string()),
                    ]
                ),
            ),
        ]
    )
    about = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": []},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": [],
        "configuration": [("delta.enableChangeDataFeed", "true")],
        "createdTime": _now(),
    }
    with pq.ParquetWriter(log / f"{last:020}.checkpoint.parquet", schema) as writer:
        first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}, {"metaData": about}]
        writer.write_table(pa.Table.from_pylist(first, schema=schema))
        for begin in range(0, files, 50_000):
            rows = [{"add": _simulated(number)} for number in range(begin, min(begin + 50_000, files))]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    (log / "_last_checkpoint").write_text(json.dumps({"version": last, "size": files + 2}))


def append(folder: Path, commits: int) -> None:
    """Add commits with a small file each, as a writer elsewhere would."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    log = folder / "_delta_log"
    newest = max(int(path.stem) for path in log.glob("*.json"))
    for version in range(newest + 1, newest + 1 + commits):
        low = FIRST + version * ROWS
        ids = list(range(low, low + ROWS))
        name = f"part-{version}.parquet"
        pq.write_table(pa.table({"id": ids, "v": ids}), folder / name)
        _write_commit(log, version, [{"add": _file(name, (folder / name).stat().st_size, low, low + ROWS - 1)}])


def _simulated(number: int) -> dict[str, Any]:
    add = _file(f"gone-{number}.parquet", 1000, number * ROWS, number * ROWS + ROWS - 1)
    return {**add, "partitionValues": []}


def _file(name: str, size: int, low: int, high: int) -> dict[str, Any]:
    bounds = {"numRecords": ROWS, "minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
    return {
        "path": name,
        "partitionValues": {},
        "size": size,
        "modificationTime": _now(),
        "dataChange": True,
        "stats": json.dumps(bounds),
    }


def _write_commit(log: Path, version: int, actions: list[dict[str, Any]]) -> None:
    about = {"commitInfo": {"timestamp": _now(), "operation": "WRITE", "operationParameters": {}}}
    lines = [json.dumps(action) for action in (about, *actions)]
    (log / f"{version:020}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _now() -> int:
    return int(time.time() * 1000)
