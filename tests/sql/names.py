"""Queries in which a name could mean two things, with the rows that Spark 4.2 gives for them."""

from __future__ import annotations

SCHEMA = (("a", "int"), ("b", "int"), ("s", "string"))
ROWS = ((1, 10, "x"), (-3, 20, "y"), (2, 30, "x"), (-1, 40, "y"))

NAMES: dict[str, list[tuple[object, ...]]] = {
    # ORDER BY: an alias first
    "SELECT ABS(a) AS a FROM t ORDER BY -a LIMIT 2": [(3,), (2,)],
    "SELECT -a AS a FROM t ORDER BY -a LIMIT 2": [(3,), (1,)],
    "SELECT -a AS a FROM t ORDER BY a LIMIT 2": [(-2,), (-1,)],
    "SELECT -a AS a FROM t ORDER BY t.a LIMIT 2": [(3,), (1,)],
    "SELECT -a AS a FROM t ORDER BY -t.a LIMIT 2": [(-2,), (-1,)],
    "SELECT a AS b FROM t ORDER BY a + b LIMIT 2": [(-3,), (-1,)],
    "SELECT s, b AS c FROM t ORDER BY c + a, b LIMIT 2": [("x", 10), ("y", 20)],
    "SELECT a, b FROM t ORDER BY ALL LIMIT 2": [(-3, 20), (-1, 40)],
    "SELECT s, -SUM(b) AS b FROM t GROUP BY s ORDER BY b LIMIT 1": [("y", -60)],
    "SELECT s, -SUM(b) AS b FROM t GROUP BY s ORDER BY -b LIMIT 1": [("x", -40)],
    "SELECT s, -SUM(b) AS b FROM t GROUP BY s ORDER BY b + MIN(a) LIMIT 1": [("y", -60)],
    "SELECT CASE s WHEN 'x' THEN 'z' ELSE 'a' END AS s, COUNT(*) AS n FROM t GROUP BY s ORDER BY CONCAT(s, '') LIMIT 1": [
        ("a", 2)
    ],
    "SELECT CASE s WHEN 'x' THEN 'z' ELSE 'a' END AS s, COUNT(*) AS n FROM t GROUP BY s ORDER BY CONCAT(t.s, '') LIMIT 1": [
        ("z", 2)
    ],
    "SELECT s, RANK() OVER (ORDER BY SUM(b)) AS b FROM t GROUP BY s ORDER BY -b LIMIT 1": [("y", 2)],
    # after DISTINCT and set operations: columns of the result
    "SELECT DISTINCT a FROM t ORDER BY -a LIMIT 1": [(2,)],
    "SELECT DISTINCT -a AS a FROM t ORDER BY -a LIMIT 1": [(3,)],
    "SELECT a FROM t UNION ALL SELECT b FROM t ORDER BY -a LIMIT 2": [(40,), (30,)],
    "(SELECT a, s FROM t) ORDER BY -a LIMIT 2": [(2, "x"), (1, "x")],
    # HAVING: a grouped column first, then an alias
    "SELECT s, SUM(b) AS b FROM t GROUP BY s HAVING b > 45": [("y", 60)],
    "SELECT s, -SUM(b) AS b FROM t GROUP BY s HAVING SUM(b) > 45": [("y", -60)],
    "SELECT SUM(a) AS b FROM t GROUP BY b HAVING b > 15": [(-3,), (2,), (-1,)],
    "SELECT 'q' AS s, COUNT(*) AS n FROM t GROUP BY s HAVING s = 'x'": [("q", 2)],
    "SELECT CONCAT(s, s) AS s, COUNT(*) AS n FROM t GROUP BY CONCAT(s, s) HAVING s = 'xx'": [("xx", 2)],
    # GROUP BY: a column first, then the first item of that name
    "SELECT -a AS a, COUNT(*) AS n FROM t GROUP BY a": [(-1, 1), (3, 1), (-2, 1), (1, 1)],
    "SELECT ABS(a) % 2 AS k, COUNT(*) AS n FROM t GROUP BY k, k + 1": [(1, 3), (0, 1)],
    # SELECT: a column first, then an alias further left
    "SELECT -a AS a, a + 1 AS c FROM t": [(-1, 2), (3, -2), (-2, 3), (1, 0)],
    "SELECT -a AS c, c + 1 AS d, d * 2 AS e FROM t": [(-1, 0, 0), (3, 4, 8), (-2, -1, -2), (1, 2, 4)],
    "SELECT -a AS a, ROW_NUMBER() OVER (ORDER BY a) AS n FROM t": [(3, 1), (1, 2), (-1, 3), (-2, 4)],
    # QUALIFY: a column first, then an alias
    "SELECT -a AS a, b FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY a) = 1": [(3, 20)],
    "SELECT -a AS c, b FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY c) = 1": [(-2, 30)],
    # inside a subquery: its own columns first
    "SELECT -a AS a, (SELECT MAX(u.b) FROM t u WHERE u.a = a) AS m FROM t": [(-1, 40), (3, 40), (-2, 40), (1, 40)],
}
