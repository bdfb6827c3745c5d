"""TPC-H as Delta tables: generated once per scale, kept under build/bench, and linked into the folder of each run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.cases import TABLES

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "build" / "bench"

FILES = {"lineitem": 16, "orders": 4}
"""The number of files of the large tables at scale 1 and up: about 20 MB each at scale 1."""

KEYS = {
    "lineitem": ["l_orderkey", "l_linenumber"],
    "orders": ["o_orderkey"],
    "customer": ["c_custkey"],
    "part": ["p_partkey"],
    "supplier": ["s_suppkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "nation": ["n_nationkey"],
    "region": ["r_regionkey"],
}
REFERENCES = {
    "lineitem": {"l_orderkey": "orders.o_orderkey"},
    "orders": {"o_custkey": "customer.c_custkey"},
    "customer": {"c_nationkey": "nation.n_nationkey"},
    "supplier": {"s_nationkey": "nation.n_nationkey"},
    "partsupp": {"ps_partkey": "part.p_partkey", "ps_suppkey": "supplier.s_suppkey"},
    "nation": {"n_regionkey": "region.r_regionkey"},
}


def cached(spark: Any, scale: float) -> Path:
    """The folder with the Delta tables of a scale, which are made when they are not there."""
    folder = CACHE / f"tpch-{scale:g}"
    if not folder.exists():
        draft = CACHE / f"tpch-{scale:g}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        _generate(draft / "parquet", scale)
        for name in TABLES:
            _convert(spark, draft / "parquet", draft / "delta" / name, scale)
        (draft / "delta").rename(folder)
        shutil.rmtree(draft)
    return folder


def _generate(folder: Path, scale: float) -> None:
    program = Path(sys.executable).parent / "tpchgen-cli"
    found = str(program) if program.exists() else shutil.which("tpchgen-cli")
    if not found:
        raise SystemExit("tpchgen-cli is missing; it comes with the extra [dev].")
    subprocess.run([found, "parquet", "-s", f"{scale:g}", "-o", str(folder)], check=True, capture_output=True)


def _convert(spark: Any, parquet: Path, target: Path, scale: float) -> None:
    """Write one table, in the order of its key, as loads of a growing table leave it."""
    rows = spark.read.parquet(str(parquet / f"{target.name}.parquet"))
    files = max(1, round(FILES.get(target.name, 1) * max(1.0, scale))) if scale >= 1 else 1
    ordered = rows.repartitionByRange(files, *KEYS[target.name]).sortWithinPartitions(*KEYS[target.name])
    ordered.write.format("delta").option("delta.enableChangeDataFeed", "true").save(str(target))


def linked(source: Path, target: Path) -> None:
    """A copy of a folder of Delta tables in which data files are links: they never change. The logs are copied."""
    for folder, _, files in os.walk(source):
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        copy = shutil.copy2 if "_delta_log" in Path(folder).parts else os.link
        for file in files:
            copy(os.path.join(folder, file), there / file)


def track(warehouse: Any, folder: Path, names: frozenset[str]) -> None:
    """Track the tables that are named, with their keys and references."""
    for name in (table for table in reversed(TABLES) if table in names):
        references = {c: t for c, t in REFERENCES.get(name, {}).items() if t.split(".")[0] in names}
        warehouse.track(name, folder / name, key=KEYS[name], references=references or None)


def name_in_session(spark: Any, folder: Path, names: frozenset[str]) -> None:
    """Let plain SQL in the session find the tables by their names."""
    for name in names:
        spark.sql(f"CREATE OR REPLACE TEMP VIEW `{name}` AS SELECT * FROM delta.`{folder / name}`")
