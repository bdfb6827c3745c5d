"""The views that are measured, each as a small record. Another case is another record here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlglot import exp, parse_one

QUERIES = Path(__file__).parents[1] / "tests" / "tpch" / "queries"
TABLES = ("lineitem", "orders", "customer", "part", "supplier", "partsupp", "nation", "region")


@dataclass(frozen=True)
class Handwritten:
    """What an engineer would write for this view after a change of orders: the signed change of the view.

    `{changes}` is the change feed of orders with a column `sign`. In the better one `{low}` and `{high}` are the
    smallest and the largest changed key, which a statement before it finds out.
    """

    plain: str
    better: str | None = None


@dataclass(frozen=True)
class Case:
    """A view over TPC-H: its name, what it stands for, its query, and the views below it."""

    name: str
    about: str
    sql: str
    group: str = "operators"
    below: tuple[tuple[str, str], ...] = ()
    """Views that the query reads, (name, query), each created and refreshed before it."""
    by_hand: Handwritten | None = None

    @property
    def views(self) -> tuple[tuple[str, str], ...]:
        """Every view to create, in order; the last is the one whose rows are compared."""
        return (*self.below, (self.name, self.sql))

    @property
    def recomputation(self) -> str:
        """The same query over base tables alone."""
        if not self.below:
            return self.sql
        return f"WITH {', '.join(f'{name} AS ({sql})' for name, sql in self.below)} {self.sql}"

    @property
    def tables(self) -> frozenset[str]:
        """The base tables that it reads."""
        named = parse_one(self.recomputation, dialect="spark").find_all(exp.Table)
        return frozenset({table.name for table in named} & set(TABLES))


SIGN = "CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS sign"

_GROUPED = """
SELECT c_nationkey, c_mktsegment, month, SUM(sign) AS lines, SUM(sign * revenue) AS revenue FROM (
  SELECT {hint} c_nationkey, c_mktsegment, TRUNC(o_orderdate, 'MM') AS month, sign,
    l_extendedprice * (1 - l_discount) AS revenue
  FROM {{changes}} JOIN lineitem ON l_orderkey = o_orderkey JOIN customer ON c_custkey = o_custkey{where})
GROUP BY c_nationkey, c_mktsegment, month
"""
_FILTERED = """
SELECT {hint} o_orderdate, o_orderpriority, l_quantity, l_extendedprice, sign
FROM {{changes}} JOIN lineitem ON l_orderkey = o_orderkey WHERE l_quantity > 36{where}
"""
_RANGE = "l_orderkey BETWEEN {low} AND {high}"
_BROADCAST = "/*+ BROADCAST(changes) */"

THREE = (
    Case(
        "join_group",
        "customer ⋈ orders ⋈ lineitem, grouped (10,000 groups)",
        """SELECT c_nationkey, c_mktsegment, TRUNC(o_orderdate, 'MM') AS month, COUNT(*) AS lines,
  SUM(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
GROUP BY c_nationkey, c_mktsegment, TRUNC(o_orderdate, 'MM')""",
        "three",
        by_hand=Handwritten(
            _GROUPED.format(hint="", where=""), _GROUPED.format(hint=_BROADCAST, where=f" WHERE {_RANGE}")
        ),
    ),
    Case(
        "join_filter",
        "orders ⋈ lineitem, filtered (a bag, 28 % of lineitem)",
        """SELECT o_orderdate, o_orderpriority, l_quantity, l_extendedprice
FROM orders JOIN lineitem ON l_orderkey = o_orderkey WHERE l_quantity > 36""",
        "three",
        by_hand=Handwritten(
            _FILTERED.format(hint="", where=""), _FILTERED.format(hint=_BROADCAST, where=f" AND {_RANGE}")
        ),
    ),
    Case(
        "group",
        "orders grouped by customer (two thirds of the customers)",
        """SELECT o_custkey, COUNT(*) AS orders, SUM(o_totalprice) AS total, MAX(o_orderdate) AS last
FROM orders GROUP BY o_custkey""",
        "three",
        by_hand=Handwritten(
            "SELECT o_custkey, SUM(sign) AS orders, SUM(sign * o_totalprice) AS total FROM {changes} GROUP BY o_custkey"
        ),
    ),
)

OPERATORS = (
    Case(
        "select",
        "select-project of one table",
        "SELECT o_orderkey, o_custkey, o_totalprice FROM orders WHERE o_totalprice > 200000",
    ),
    Case(
        "join2",
        "join of two tables",
        """SELECT o_orderkey, o_orderdate, o_totalprice, c_name, c_mktsegment
FROM orders JOIN customer ON o_custkey = c_custkey WHERE o_totalprice > 100000""",
    ),
    Case(
        "join3",
        "join of three tables",
        """SELECT l_orderkey, l_linenumber, l_extendedprice, o_orderdate, c_name, c_nationkey
FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey WHERE l_quantity > 45""",
    ),
    Case(
        "left_join",
        "outer join",
        """SELECT c_custkey, c_name, o_orderkey, o_totalprice
FROM customer LEFT JOIN orders ON c_custkey = o_custkey AND o_totalprice > 150000""",
    ),
    Case(
        "not_exists",
        "customers without an order above a price",
        """SELECT c_custkey, c_name, c_acctbal FROM customer
WHERE NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey AND o_totalprice > 250000)""",
    ),
    Case("distinct", "DISTINCT", "SELECT DISTINCT o_custkey, o_orderpriority, o_orderstatus FROM orders"),
    Case(
        "count_distinct",
        "COUNT DISTINCT per group",
        """SELECT o_orderdate, COUNT(DISTINCT o_custkey) AS customers, COUNT(DISTINCT o_clerk) AS clerks
FROM orders GROUP BY o_orderdate""",
    ),
    Case(
        "top_k",
        "the three largest orders of each customer, by a window",
        """SELECT o_custkey, o_orderkey, o_totalprice, place FROM (
  SELECT o_custkey, o_orderkey, o_totalprice,
    ROW_NUMBER() OVER (PARTITION BY o_custkey ORDER BY o_totalprice DESC, o_orderkey) AS place FROM orders)
WHERE place <= 3""",
    ),
    Case(
        "extremes",
        "MIN and MAX per group, whose extremes are deleted",
        """SELECT o_custkey, MIN(o_totalprice) AS smallest, MAX(o_totalprice) AS largest, MAX(o_orderdate) AS last
FROM orders GROUP BY o_custkey""",
    ),
    Case(
        "union",
        "UNION ALL of three",
        """SELECT o_orderkey AS id, o_totalprice AS amount, 'order' AS kind FROM orders WHERE o_totalprice > 300000
UNION ALL SELECT c_custkey, c_acctbal, 'customer' FROM customer WHERE c_acctbal > 5000
UNION ALL SELECT l_orderkey, l_extendedprice, 'line' FROM lineitem WHERE l_extendedprice > 90000""",
    ),
    Case(
        "view_over_view",
        "groups of a view that is itself grouped",
        """SELECT c_nationkey, COUNT(*) AS customers, SUM(total) AS total
FROM customer JOIN order_totals ON c_custkey = o_custkey GROUP BY c_nationkey""",
        below=(("order_totals", "SELECT o_custkey, SUM(o_totalprice) AS total FROM orders GROUP BY o_custkey"),),
    ),
)


def _tpch(path: Path) -> Case:
    return Case(path.stem, f"TPC-H {path.stem.upper()}", path.read_text(encoding="utf-8").strip(), "tpch")


CASES = {case.name: case for case in (*THREE, *OPERATORS, *(_tpch(path) for path in sorted(QUERIES.glob("q*.sql"))))}


def chosen(names: str) -> list[Case]:
    """The cases of a comma-separated list of names and groups; all of them for 'all'.

    >>> [case.name for case in chosen("three,q01")]
    ['join_group', 'join_filter', 'group', 'q01']
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    found: dict[str, Case] = {}
    for name in wanted:
        matching = [case for case in CASES.values() if name in ("all", case.name, case.group)]
        if not matching:
            raise SystemExit(
                f"There is no case or group {name!r}. Cases: {', '.join(CASES)}; groups: three, tpch, all."
            )
        found.update({case.name: case for case in matching})
    return list(found.values())
