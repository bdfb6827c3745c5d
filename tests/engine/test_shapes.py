"""Tables that change their shape, and columns of every shape: followed exactly, or refused when the view is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deferred.errors import LogLostError, UnsupportedSQLError
from tests.engine.support import FEED, assert_fresh, bag, make, refused

MAPPED = {"delta.columnMapping.mode": "name", FEED: "true"}


def kept_up(wh: Any, *names: str, strategy: str = "incremental") -> None:
    """Each view is brought up to date by a strategy, its invariant holds on the way, and it is right."""
    for name in names:
        assert wh.propagate(name).strategy in (strategy, None)
        wh.verify(name)
        wh.partial_refresh(name)
    assert_fresh(wh, *names)


def repartition(spark: Any, path: str, *columns: str) -> None:
    rows = spark.table(f"delta.`{path}`")
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy(*columns).save(path)


def test_another_partitioning(warehouse: Any, tmp_path: Path) -> None:
    """The feed of such a commit has NULLs for the new partition columns of the rows that it deletes."""
    wh = warehouse
    path = make(wh.spark, tmp_path / "p", "a INT, b INT, c INT", "(1, 1, 1), (2, 2, 2), (2, 2, 2)", **{FEED: "true"})
    wh.track("p", path)
    wh.create_view("sums", "SELECT a, SUM(b) AS b, COUNT(*) AS n FROM p GROUP BY a", refresh_policy="incremental")
    wh.create_view("pairs", "SELECT a, b FROM p WHERE c > 0", refresh_policy="incremental")
    wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES (3, 3, 3)")
    repartition(wh.spark, path, "a")
    wh.spark.sql(f"DELETE FROM delta.`{path}` WHERE a = 1")
    repartition(wh.spark, path, "b", "c")
    wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES (3, 4, 5)")
    kept_up(wh, "sums", "pairs")
    wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES (6, 6, 6)")
    repartition(wh.spark, path, "a")
    wh.spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    with refused(LogLostError, "p", "version", "rebuild"):
        wh.refresh("sums")
    wh.rebuild("sums")
    assert_fresh(wh, "sums")


def test_columns_that_come_and_go(warehouse: Any, tmp_path: Path) -> None:
    """A column that was dropped and added again is another one; what happens to other columns does not matter."""
    wh = warehouse
    path = make(wh.spark, tmp_path / "m", "a INT, b INT, c INT, d INT", "(1, 1, 1, 1), (2, 2, 2, 2)", **MAPPED)
    wh.track("m", path)
    wh.create_view("again", "SELECT a, MAX(b) AS b FROM m GROUP BY a", refresh_policy="incremental")
    wh.create_view("others", "SELECT a, d FROM m", refresh_policy="incremental")
    for statement in (
        "INSERT INTO {} VALUES (3, 3, 3, 3)",
        "ALTER TABLE {} DROP COLUMN b",
        "INSERT INTO {} VALUES (4, 4, 4)",
        "ALTER TABLE {} RENAME COLUMN c TO e",
        "ALTER TABLE {} ADD COLUMNS (b INT)",
        "DELETE FROM {} WHERE a = 1",
        "INSERT INTO {} (a, b, d) VALUES (5, 5, 5)",
    ):
        wh.spark.sql(statement.format(f"delta.`{path}`"))
    kept_up(wh, "again", "others")
    assert bag(wh.read("again")) == {(2, None): 1, (3, None): 1, (4, None): 1, (5, 5): 1}


def test_fields_that_are_added_to_structs(warehouse: Any, tmp_path: Path) -> None:
    """A view goes on with the fields that it knows, also where it shows the whole struct."""
    wh = warehouse
    path = make(
        wh.spark,
        tmp_path / "s",
        "id INT, s STRUCT<x: INT, y: STRUCT<z: INT>>, l ARRAY<STRUCT<k: INT>>, m MAP<STRING, STRUCT<v: INT>>",
        "(1, STRUCT(1, STRUCT(1)), ARRAY(STRUCT(1)), MAP('a', STRUCT(1))), (2, NULL, ARRAY(NULL), MAP('a', NULL))",
        **{FEED: "true"},
    )
    wh.track("st", path)
    queries = {
        "whole": "SELECT id, s, l, m FROM st",
        "field": "SELECT s.y.z, COUNT(*) AS n FROM st GROUP BY s.y.z",
        "set": "SELECT DISTINCT s, l[0].k AS k FROM st",
    }
    for name, sql in queries.items():
        wh.create_view(name, sql, refresh_policy="incremental")
    types = {name: wh.read(name).schema for name in queries}
    wh.spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (s.w INT, s.y.q INT, l.element.j INT, m.value.u INT)")
    wh.spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    wh.spark.sql(
        f"INSERT INTO delta.`{path}` VALUES (3, STRUCT(3, STRUCT(3, 4), 5), ARRAY(STRUCT(3, 4)), MAP('a', STRUCT(3, 4)))"
    )
    for name in queries:
        assert wh.refresh(name).strategy == "incremental"
        wh.verify(name)
        assert wh.read(name).schema == types[name]
    wh.rebuild("whole")
    assert [tuple(row) for row in wh.read("whole").where("id = 3").collect()] == [
        (3, (3, (3,)), [(3,)], {"a": (3,)}),
    ]
    assert bag(wh.read("field")) == {(3, 1): 1, (None, 1): 1}
    assert wh.read("set").count() == 2


def test_varchar_and_char(warehouse: Any, tmp_path: Path) -> None:
    wh = warehouse
    path = make(
        wh.spark,
        tmp_path / "c",
        "id INT, c CHAR(5), v VARCHAR(5)",
        "(1, 'ab', 'ab'), (2, 'ab', 'ab '), (3, NULL, 'c')",
        **{FEED: "true"},
    )
    wh.track("c", path)
    queries = {
        "texts": "SELECT c, v, COUNT(*) AS n, MAX(c) AS most FROM c GROUP BY c, v",
        "found": "SELECT id, CONCAT(c, '|') AS c FROM c WHERE v = 'ab'",
    }
    for name, sql in queries.items():
        wh.create_view(name, sql, refresh_policy="incremental_strict")
    with refused(UnsupportedSQLError, "CHAR", "pads"):
        wh.create_view("padded", "SELECT id FROM c WHERE c = 'ab'", refresh_policy="incremental_strict")
    wh.create_view("padded", "SELECT id FROM c WHERE c = 'ab'")
    wh.spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES (4, 'ab', 'ab'), (5, 'xyz', 'x')")
    wh.spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN v TYPE VARCHAR(9)")
    kept_up(wh, *queries)
    kept_up(wh, "padded", strategy="full")


def test_maps_and_variants(warehouse: Any, tmp_path: Path) -> None:
    """Maps are told apart to the last bit, wherever they are; of variants nothing can be known."""
    wh = warehouse
    path = make(
        wh.spark,
        tmp_path / "n",
        "id INT, m MAP<STRING, STRING>, l ARRAY<MAP<STRING, DOUBLE>>, s STRUCT<m: MAP<INT, STRING>>",
        "(1, MAP('a', 'null'), ARRAY(MAP('x', 0.0D)), STRUCT(MAP(1, 'b'))), "
        "(1, MAP('a', 'null'), ARRAY(MAP('x', 0.0D)), STRUCT(MAP(1, 'b'))), "
        "(2, NULL, ARRAY(NULL), STRUCT(NULL)), (3, MAP(), NULL, NULL)",
        **{FEED: "true"},
    )
    wh.track("n", path)
    queries = {
        "whole": "SELECT id, m, l, s FROM n",
        "values": "SELECT MAP_VALUES(m) AS v, COUNT(*) AS n FROM n GROUP BY MAP_VALUES(m)",
    }
    for name, sql in queries.items():
        wh.create_view(name, sql, refresh_policy="incremental_strict")
    wh.create_view("keys", "SELECT m, COUNT(*) AS n FROM n GROUP BY m")
    wh.track("va", make(wh.spark, tmp_path / "va", "id INT, v VARIANT", "(1, PARSE_JSON('1'))", **{FEED: "true"}))
    for sql in ("SELECT id, v FROM va", "SELECT CAST(v AS INT) AS i FROM va", "SELECT STRUCT(v) AS s FROM va"):
        with refused(UnsupportedSQLError, "variant"):
            wh.create_view("refused", sql)
    wh.create_view("ids", "SELECT id FROM va", refresh_policy="incremental_strict")
    wh.sql("UPDATE va SET v = PARSE_JSON('2'), id = 2")
    wh.spark.sql(f"UPDATE delta.`{path}` SET m = MAP('a', CAST(NULL AS STRING)) WHERE id = 1")
    kept_up(wh, "ids", *queries)
    kept_up(wh, "keys", strategy="full")
    wh.spark.sql(
        f"UPDATE delta.`{path}` SET l = ARRAY(MAP('x', -0.0D)), s = NAMED_STRUCT('m', MAP(1, 'null')) WHERE id = 1"
    )
    wh.spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
    kept_up(wh, *queries)
