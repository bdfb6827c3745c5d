"""One history through everything that a view goes through, each state compared with Spark's own answer."""

from __future__ import annotations

from typing import Any

from tests.engine.support import assert_fresh, make

GROUPS = "SELECT r.a, COUNT(*) AS n, SUM(t.d) AS total FROM r JOIN t ON r.a = t.a GROUP BY r.a"
VIEWS = {
    "groups": ("combined", GROUPS),
    "first": ("base_log", "SELECT a, s FROM r ORDER BY a DESC, s LIMIT 2"),
    "followed": ("immediate", "SELECT r.a, r.s, t.d FROM r LEFT JOIN t ON r.a = t.a"),
    "above": ("differential", "SELECT n, COUNT(*) AS groups FROM groups GROUP BY n"),
}


def play(wh: Any, tables: str) -> int:
    """Returns how many times views were compared. `tables` is the folder of the base tables."""
    spark, compared = wh.spark, 0
    wh.track("r", make(spark, f"{tables}/r", "a INT, b INT, s STRING", "(1, 1, 'x'), (1, 1, 'x'), (2, NULL, 'y')"))
    wh.track("t", make(spark, f"{tables}/t", "a INT, d DECIMAL(8,2)", "(1, 1.50), (2, 2.25)"), log="files")
    for name, (scenario, sql) in VIEWS.items():
        wh.create_view(name, sql, scenario=scenario)

    def compare(*names: str) -> None:
        nonlocal compared
        for name in names:
            wh.verify(name)
            assert_fresh(wh, name)
            compared += 1

    def refresh() -> None:
        for name in VIEWS:
            wh.refresh(name)
        compare(*VIEWS)

    compare(*VIEWS)
    with wh.transaction() as tx:
        tx.insert("r", [(3, 30, "new"), (3, 30, "new")])
        tx.insert("t", [(3, 4)])
        tx.delete("r", "a = 2")
    compare("followed")
    wh.propagate("groups")
    wh.verify("groups")
    wh.partial_refresh("groups")
    compare("groups")
    spark.sql(f"MERGE INTO delta.`{tables}/t` AS x USING (SELECT 3 AS k) AS y ON x.a = y.k WHEN MATCHED THEN DELETE")
    spark.sql(f"UPDATE delta.`{tables}/r` SET s = 'z' WHERE a = 1")
    spark.sql(f"OPTIMIZE delta.`{tables}/r`")
    wh.sync()
    refresh()
    wh.alter_view("groups", GROUPS.replace("SUM(t.d) AS total", "SUM(t.d) AS total, MAX(r.b) AS most"))
    refresh()
    spark.sql(f"INSERT INTO delta.`{tables}/r` VALUES (2, 5, 'late')")
    wh.rebuild("groups")
    refresh()
    wh.gc(retain_hours=0)
    with wh.transaction() as tx:
        tx.update("t", {"d": "d + 1"})
    refresh()
    return compared
