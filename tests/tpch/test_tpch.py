"""All 22 TPC-H queries as views: every node of their plans has a delta rule, none is recomputed as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from deferred.algebra.delta import differentiate
from tests.fuzz.duck import Database

QUERIES = sorted((Path(__file__).parent / "queries").glob("q*.sql"))

SCHEMA = {
    "lineitem": "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal, "
    "l_extendedprice decimal, l_discount decimal, l_tax decimal, l_returnflag string, l_linestatus string, "
    "l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string, l_shipmode string, "
    "l_comment string",
    "orders": "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal, o_orderdate date, "
    "o_orderpriority string, o_clerk string, o_shippriority int, o_comment string",
    "customer": "c_custkey bigint, c_name string, c_address string, c_nationkey bigint, c_phone string, "
    "c_acctbal decimal, c_mktsegment string, c_comment string",
    "part": "p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, "
    "p_container string, p_retailprice decimal, p_comment string",
    "supplier": "s_suppkey bigint, s_name string, s_address string, s_nationkey bigint, s_phone string, "
    "s_acctbal decimal, s_comment string",
    "partsupp": "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal, ps_comment string",
    "nation": "n_nationkey bigint, n_name string, n_regionkey bigint, n_comment string",
    "region": "r_regionkey bigint, r_name string, r_comment string",
}


def _columns(text: str) -> list[tuple[str, str]]:
    pairs = [column.split() for column in text.split(", ")]
    return [(name, "decimal(15,2)" if type_ == "decimal" else type_) for name, type_ in pairs]


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_every_node_has_a_rule(path: Path) -> None:
    database = Database({name: _columns(text) for name, text in SCHEMA.items()})
    bound = database.bind(path.read_text(encoding="utf-8"))
    recomputed = [type(node).__name__ for node in bound.plan.walk() if node.strategy.name == "recomputed"]
    assert recomputed == []
    program = differentiate(bound.plan, bound.tables, bound.types)
    assert program.result is not None
    database.close()
