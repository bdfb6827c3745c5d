"""TPC-H at a small scale as Delta tables, and its refresh functions, with updates of every table besides."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TABLES = ("lineitem", "orders", "customer", "part", "supplier", "partsupp", "nation", "region")


def generate(folder: Path, scale: float) -> None:
    """The benchmark's tables as Parquet files in a folder."""
    program = Path(sys.executable).parent / "tpchgen-cli"
    found = str(program) if program.exists() else shutil.which("tpchgen-cli")
    assert found, "tpchgen-cli comes with the extra [dev]"
    subprocess.run([found, "parquet", "-s", str(scale), "-o", str(folder)], check=True, capture_output=True)


def as_delta(spark: Any, parquet: Path, folder: Path) -> dict[str, str]:
    """The tables as Delta tables; returns their paths."""
    paths = {name: str(folder / name) for name in TABLES}
    for name, path in paths.items():
        spark.read.parquet(str(parquet / f"{name}.parquet")).coalesce(1).write.format("delta").save(path)
    return paths


RF1 = """
INSERT INTO orders
  SELECT o_orderkey + {free}, (o_custkey * 7) % {customers} + 1, o_orderstatus, o_totalprice + 10, o_orderdate + {step},
    o_orderpriority, o_clerk, o_shippriority, concat('new ', o_comment)
  FROM orders WHERE (o_orderkey DIV 32) % {spread} BETWEEN {added} AND {added} + 1;
INSERT INTO lineitem
  SELECT l_orderkey + {free}, l_partkey, l_suppkey, l_linenumber, l_quantity + 1, l_extendedprice + 10, l_discount,
    l_tax, l_returnflag, l_linestatus, l_shipdate + {step}, l_commitdate, l_receiptdate + 1, l_shipinstruct,
    l_shipmode, l_comment
  FROM lineitem WHERE (l_orderkey DIV 32) % {spread} BETWEEN {added} AND {added} + 1
"""
"""The benchmark uses the first 8 of every 32 order keys and leaves the others to this function."""

RF2 = """
DELETE FROM orders WHERE (o_orderkey DIV 32) % {spread} BETWEEN {deleted} AND {deleted} + 1;
DELETE FROM lineitem WHERE (l_orderkey DIV 32) % {spread} BETWEEN {deleted} AND {deleted} + 1
"""

UPDATES = (
    """
UPDATE customer SET c_acctbal = c_acctbal - 500, c_mktsegment = 'BUILDING', c_nationkey = (c_nationkey + 1) % 25
  WHERE c_custkey % 100 = 1;
UPDATE part SET p_size = 15, p_type = 'PROMO POLISHED BRASS', p_container = 'MED BOX' WHERE p_partkey % 100 = 1
""",
    """
UPDATE supplier SET s_acctbal = s_acctbal + 100, s_nationkey = (s_nationkey + 3) % 25 WHERE s_suppkey % 20 = 1
""",
    """
UPDATE partsupp SET ps_availqty = ps_availqty + 4000, ps_supplycost = ps_supplycost / 2 WHERE ps_partkey % 100 = 1
""",
    """
UPDATE nation SET n_regionkey = (n_regionkey + 1) % 5 WHERE n_nationkey % 8 = 1;
UPDATE region SET r_name = IF(r_name = 'EUROPE', 'ASIA', 'EUROPE') WHERE r_name IN ('EUROPE', 'ASIA')
""",
    """
UPDATE orders SET o_orderstatus = 'F', o_orderpriority = '1-URGENT' WHERE o_orderkey % 997 = 1;
UPDATE lineitem SET l_quantity = l_quantity + 30, l_receiptdate = l_commitdate + 1 WHERE l_orderkey % 499 = 1
""",
)
"""Updates of every table, one group after the other."""


def refresh(step: int, scale: float, updates: Sequence[str]) -> list[str]:
    """The statements of one refresh: RF1 and RF2, each two of every `spread` blocks of order keys, and updates."""
    spread = round(100_000 * scale)
    added = step * spread // 25
    functions = (RF1 + ";" + RF2).format(
        step=step,
        free=8 + 8 * (step % 3),
        customers=round(150_000 * scale),
        spread=spread,
        added=added,
        deleted=spread // 2 + added,
    )
    return [statement.strip() for text in (functions, *updates) for statement in text.split(";")]
