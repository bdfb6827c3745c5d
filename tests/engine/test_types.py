"""Every type that can be compared, NULL in every position, and every name a column can have."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from deferred import DeferredError
from tests.engine.support import assert_fresh, bag, make

TYPES: dict[str, list[str]] = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["1Y", "-128Y"],
    "SMALLINT": ["1S", "32767S"],
    "INT": ["1", "-2147483648"],
    "BIGINT": ["1L", "9223372036854775807L"],
    "FLOAT": ["0.0F", "-0.0F", "FLOAT('NaN')", "FLOAT('Infinity')", "1.1F"],
    "DOUBLE": ["0.0D", "-0.0D", "DOUBLE('NaN')", "DOUBLE('-Infinity')", "0.1D", "4.9E-324D"],
    "DECIMAL(38,0)": ["1", "99999999999999999999999999999999999999"],
    "DECIMAL(10,3)": ["1.5", "-1234567.125", "1.500"],
    "STRING": ["'plain'", "''", "' '", "'Plain'", "'it\\'s \"so\" `here`'", "'ü 汉字 😀'", "'a\\\\b'", "'null'"],
    "VARCHAR(5)": ["'v'", "'v '"],
    "BINARY": ["X'00FF'", "X''"],
    "DATE": ["DATE '2024-02-29'", "DATE '0001-01-01'"],
    "TIMESTAMP": ["TIMESTAMP '2024-03-31 01:30:00.123456Z'", "TIMESTAMP '2024-03-31 03:30:00.123456+02:00'"],
    "TIMESTAMP_NTZ": ["TIMESTAMP_NTZ '2024-03-31 02:30:00'", "TIMESTAMP_NTZ '1900-01-01 00:00:00.000001'"],
    "STRUCT<x: INT, `y z`: DOUBLE>": ["STRUCT(1, 0.0D)", "STRUCT(1, -0.0D)", "STRUCT(NULL, NULL)"],
    "ARRAY<DOUBLE>": ["ARRAY(1.0D, NULL)", "ARRAY()", "ARRAY(0.0D)", "ARRAY(-0.0D)", "ARRAY(DOUBLE('NaN'))"],
    "ARRAY<STRUCT<k: STRING, v: ARRAY<INT>>>": ["ARRAY(STRUCT('a', ARRAY(1, NULL)))", "ARRAY(STRUCT('a', NULL))"],
}


def value(type_: str, text: str) -> str:
    return f"CAST({text} AS {type_})" if not type_.startswith(("STRUCT", "ARRAY")) or text == "ARRAY()" else text


def column(type_: str, first: int) -> str:
    """A column of first values, but in the rows from `first` on its other values in turn, and then NULL."""
    base, *others = [value(type_, text) for text in TYPES[type_]]
    branches = " ".join(f"WHEN {first + n} THEN {other}" for n, other in enumerate([*others, "NULL"]))
    return f"CASE id {branches} ELSE {base} END"


def test_every_type(warehouse: Any, tmp_path: Path) -> None:
    """Bag, set and groups over all types at once: rows that differ in one value only, and duplicates of them."""
    wh = warehouse
    columns = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(TYPES))
    path = make(wh.spark, tmp_path / "all", f"k INT, {columns}", **{"delta.columnMapping.mode": "name"})
    firsts = list(accumulate((len(texts) for texts in TYPES.values()), initial=1))
    values = ", ".join(column(type_, first) for type_, first in zip(TYPES, firsts, strict=False))
    wh.spark.sql(f"INSERT INTO delta.`{path}` SELECT CAST(id AS INT), {values} FROM RANGE({firsts[-1] + 3})")
    wh.track("everything", path)
    names = ", ".join(f"c{i}" for i in range(len(TYPES)))
    views = {
        "whole": f"SELECT {names} FROM everything",
        "once": f"SELECT DISTINCT {names} FROM everything",
        "groups": f"SELECT {names}, COUNT(*) AS n, MAX(k) AS last FROM everything GROUP BY {names}",
    }
    for name, sql in views.items():
        wh.create_view(name, sql, refresh_policy="incremental")
    with wh.transaction() as tx:  # a second copy of every row
        tx.sql(f"INSERT INTO everything SELECT k + 1000, {names} FROM everything")
        tx.insert("everything", [(5000, *[None] * len(TYPES)), (5001, *[None] * len(TYPES))])
    for name in views:
        wh.refresh(name)
    with wh.transaction() as tx:  # one of the copies goes, wherever it differs from the others
        tx.delete("everything", "k BETWEEN 1000 AND 1999 OR k = 5000")
        tx.update("everything", {f"c{i}": "NULL" for i in range(0, len(TYPES), 2)}, "k % 5 = 3")
    for name in views:
        wh.refresh(name)
        assert_fresh(wh, name)
    wh.verify("whole")


def test_aggregates_of_every_type(warehouse: Any, tmp_path: Path) -> None:
    wh = warehouse
    path = make(
        wh.spark,
        tmp_path / "n",
        "g STRING, i TINYINT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(38,2), "
        "s STRING, w DATE, u TIMESTAMP_NTZ, b BOOLEAN, y BINARY",
    )
    wh.spark.sql(
        f"INSERT INTO delta.`{path}` VALUES "
        "('a', 1Y, 1L, 1.5F, 0.1D, 1.25, 'x', DATE '2024-01-01', TIMESTAMP_NTZ '2024-01-01 00:00:00', true, X'01'), "
        "('a', 2Y, 4611686018427387904L, 0.25F, 0.2D, NULL, '', NULL, NULL, false, X'02'), "
        "('a', NULL, -5L, NULL, 0.3D, 2.75, NULL, DATE '2020-01-01', TIMESTAMP_NTZ '2020-01-01 00:00:00', NULL, NULL), "
        "('b', 3Y, NULL, FLOAT('NaN'), DOUBLE('Infinity'), 5, 'z', NULL, NULL, true, X''), "
        "(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    wh.track("numbers", path)
    wh.create_view(
        "v",
        "SELECT g, COUNT(i) AS n, SUM(i) AS si, AVG(i) AS ai, SUM(l) AS sl, AVG(l) AS al, "
        "MIN(f) AS nf, MAX(f) AS xf, MIN(d) AS nd, MAX(d) AS xd, SUM(m) AS sm, AVG(m) AS am, MIN(s) AS ns, "
        "MAX(s) AS xs, MIN(w) AS nw, MAX(u) AS xu, MAX(b) AS xb, MIN(y) AS ny, COUNT(DISTINCT s) AS ds "
        "FROM numbers GROUP BY g",
        refresh_policy="incremental",
    )
    with wh.transaction() as tx:
        tx.delete("numbers", "i = 2 OR f = 1.5F")
        tx.sql("INSERT INTO numbers SELECT 'b', i, l, f, d, m, concat(s, s), w, u, b, y FROM numbers WHERE g = 'a'")
        tx.insert("numbers", [{"g": "c"}, {"g": "c", "d": -0.5, "f": float("-inf"), "i": 127}])
    wh.refresh("v")
    wh.verify("v")
    assert_fresh(wh, "v")


def test_floating_sums_do_not_drift(warehouse: Any, tmp_path: Path) -> None:
    """Sums without an exact binary fraction, with rows inserted and deleted, equal a rebuild bit by bit."""
    wh = warehouse
    values = ", ".join(f"({i % 2}, {i}.1D, {i / 7}F)" for i in range(12))
    path = make(wh.spark, tmp_path / "f", "g INT, d DOUBLE, f FLOAT", values)
    wh.track("floats", path)
    wh.create_view(
        "v",
        "SELECT g, SUM(d) AS sd, AVG(d) AS ad, SUM(f) AS sf, AVG(f) AS af FROM floats GROUP BY g",
        refresh_policy="incremental",
    )
    with wh.transaction() as tx:
        tx.insert("floats", [(0, 1e16, 0.1), (1, 0.3, 0.2)])
    wh.refresh("v")
    with wh.transaction() as tx:
        tx.delete("floats", "d = 1e16")
    wh.refresh("v")
    maintained = bag(wh.read("v"))
    wh.rebuild("v")
    assert bag(wh.read("v")) == maintained


def test_overflow_is_an_error_and_changes_nothing(warehouse: Any, tmp_path: Path) -> None:
    wh = warehouse
    path = make(wh.spark, tmp_path / "o", "g INT, l BIGINT, m DECIMAL(38,0)", "(1, 1, 1), (1, 2, 2)")
    wh.track("o", path)
    wh.create_view("v", "SELECT g, SUM(l) AS l, SUM(m) AS m FROM o GROUP BY g", refresh_policy="incremental")
    shown = bag(wh.read("v"))
    wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 9223372036854775807, 0)")
    with pytest.raises(DeferredError):  # as Spark does when it computes the view from scratch
        wh.refresh("v")
    assert bag(wh.read("v")) == shown
    wh.verify("v")
    wh.spark.sql(f"DELETE FROM delta.`{path}` WHERE l > 2")
    wh.refresh("v")
    assert_fresh(wh, "v")


NAMES = [
    "a b",
    "a.b",
    "it's",
    'say "x"',
    "größe",
    "select",
    "n",
    "m",
    "copy",
    "present",
    "_change",
    "_count",
    "q",
    "t",
    "s",
    "d",
    "r",
    "l",
    "value",
    "total",
    "😀",
    "c_1",
    "CamelCase",
    "a,b;{}()=",
    "batch",
    "rows",
    "0",
]


def test_every_name(warehouse: Any, tmp_path: Path) -> None:
    """Column names with anything in them, and such as the engine's own SQL might use."""
    wh = warehouse
    listed = ["`" + name.replace("`", "``") + "`" for name in NAMES]
    columns = ", ".join(f"{name} INT" for name in listed)
    path = make(
        wh.spark,
        tmp_path / "named",
        columns,
        f"({', '.join(str(i) for i in range(len(NAMES)))})",
        **{"delta.columnMapping.mode": "name"},
    )
    wh.track("named", path)
    everything, half = ", ".join(listed), ", ".join(listed[::2])
    wh.create_view("whole", "SELECT *, n AS `tick``s` FROM named", refresh_policy="incremental")
    sums = ", ".join(f"SUM({name}) AS {name}" for name in listed[1::2])
    wh.create_view("groups", f"SELECT {half}, {sums} FROM named GROUP BY {half}", refresh_policy="incremental")
    with wh.transaction() as tx:
        tx.insert("named", [dict.fromkeys(NAMES, 7), {"a b": 1, "select": None}])
        tx.update("named", {name: f"{quoted} + 1" for name, quoted in zip(NAMES, listed, strict=True)}, "`a b` = 0")
        tx.sql(f"INSERT INTO named ({everything}) SELECT {everything} FROM named WHERE `a b` = 7")
    assert wh.log("named").count() == 4
    for name in ("whole", "groups"):
        wh.propagate(name)
        assert wh.diff(name).columns[:-2] == wh.read(name).columns
        wh.partial_refresh(name)
        wh.verify(name)
    assert wh.read("whole").columns == [*NAMES, "tick`s"]
    with wh.transaction() as tx:
        tx.delete("named", '`say "x"` = 7 AND `größe` = 7')
    for name in ("whole", "groups"):
        wh.refresh(name)
        assert_fresh(wh, name)


def test_maps_are_read_as_they_are(warehouse: Any, tmp_path: Path) -> None:
    """A map, and what it holds, in its own order."""
    wh = warehouse
    path = make(
        wh.spark,
        tmp_path / "maps",
        "id INT, m MAP<STRING, INT>",
        "(1, MAP('b', 2, 'a', 1)), (2, MAP('a', 1, 'b', 2)), (3, NULL), (3, MAP())",
    )
    wh.track("maps", path)
    wh.create_view("shown", "SELECT id, MAP_KEYS(m) AS k, m['a'] AS a FROM maps", refresh_policy="incremental_strict")
    wh.create_view("total", "SELECT MEDIAN(m['a']) AS a, COUNT(*) AS n FROM maps", refresh_policy="incremental_strict")
    wh.create_view("whole", "SELECT id, m FROM maps", refresh_policy="incremental_strict")
    wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES (4, MAP('z', 0, 'a', 7))")
    wh.spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    wh.spark.sql(f"UPDATE delta.`{path}` SET m = MAP('b', 2, 'a', 1) WHERE id = 2")
    for name in ("shown", "total", "whole"):
        wh.refresh(name)
        assert_fresh(wh, name)


def test_floating_point_in_windows_is_the_same_whatever_the_order(warehouse: Any, tmp_path: Path) -> None:
    """The last bits of a sum depend on the order of its summands: both states of a partition must use the same order."""
    wh = warehouse
    path = make(
        wh.spark,
        tmp_path / "w",
        "g INT, o INT, x DOUBLE",
        "(1, 1, 0.1), (1, 1, 1e16), (1, 2, -1e16), (1, 2, 0.2), (1, 2, 0.3), (2, 1, 0.7), (2, 2, 1)",
    )
    wh.track("w", path)
    wh.create_view(
        "v",
        """
        SELECT g, o, x, SUM(x) OVER (PARTITION BY g) AS whole, AVG(x) OVER (PARTITION BY g ORDER BY o) AS running,
               SUM(x) OVER (PARTITION BY g ORDER BY o ROWS 1 PRECEDING) AS near,
               STDDEV(x) OVER (PARTITION BY g) AS spread,
               SUM(x) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS ranged,
               MAX_BY(x, o) OVER (PARTITION BY g) AS latest
        FROM w""",
        refresh_policy="incremental_strict",
    )
    for statement in (
        f"INSERT INTO delta.`{path}` VALUES (1, 2, 0.6), (2, 1, 0.7), (1, 3, 1e16)",
        f"DELETE FROM delta.`{path}` WHERE x = 0.2 OR (g = 2 AND x = 0.7)",
        f"UPDATE delta.`{path}` SET o = 1 WHERE x < 0.5",
    ):
        wh.spark.sql(statement)
        wh.refresh("v")
        wh.verify("v")
    rows = wh.read("v").collect()
    assert len({(row["g"], row["whole"]) for row in rows}) == len({row["g"] for row in rows})


def test_a_session_that_writes_old_calendars(warehouse: Any, tmp_path: Path) -> None:
    """Days and times before 1582 that a job writes as Spark 2 did; the view's own files are read at the driver."""
    wh = warehouse
    modes = [f"spark.sql.parquet.{kind}RebaseModeInWrite" for kind in ("datetime", "int96")]
    rows = "(1, DATE '0001-03-01', TIMESTAMP '0001-03-01 00:00:00Z'), (2, DATE '1582-10-04', TIMESTAMP '1500-02-10')"
    try:
        for mode in modes:
            wh.spark.conf.set(mode, "LEGACY")
        path = make(wh.spark, tmp_path / "old", "a INT, d DATE, t TIMESTAMP", rows)
        wh.track("old", path)
        wh.create_view("rows", "SELECT a, d, t FROM old")
        wh.create_view("days", "SELECT d, COUNT(*) AS n, MIN(t) AS first FROM old GROUP BY d")
        for statement in (
            f"INSERT INTO delta.`{path}` VALUES (3, DATE '0001-03-01', TIMESTAMP '0001-03-01 00:00:01Z')",
            f"DELETE FROM delta.`{path}` WHERE a = 1",
        ):
            wh.spark.sql(statement)
            for name in ("rows", "days"):
                wh.propagate(name)
                wh.partial_refresh(name)
                assert_fresh(wh, name)
                assert wh.verify(name).holds
    finally:
        for mode in modes:
            wh.spark.conf.unset(mode)
