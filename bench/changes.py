"""The changes that base tables go through, each as a small record. Another change is another record here.

Statements name their tables as TPC-H does; orders are numbered 0, 1, …, and number n has the key that TPC-H gives it:
the first 8 of every 32 keys are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ORDERS, CUSTOMERS, PARTS = 1_500_000, 150_000, 200_000
"""Rows at scale 1."""


@dataclass(frozen=True)
class Size:
    """How much changes: a part of the rows, or a number of rows."""

    text: str

    def rows(self, of: int) -> int:
        """The number of rows that change, of so many.

        >>> [Size(text).rows(150_000) for text in ("row", "0.1%", "50%", "1500rows")]
        [1, 150, 75000, 1500]
        """
        if self.text == "row":
            return 1
        if self.text.endswith("rows"):
            return min(int(self.text.removesuffix("rows")), of)
        return max(1, round(of * float(self.text.removesuffix("%")) / 100))


SIZES = ("row", "0.01%", "0.1%", "1%", "10%", "50%")


def order_key(number: int) -> int:
    """The key of an order, by its number.

    >>> [order_key(n) for n in (0, 7, 8, 15, 16)]
    [1, 8, 33, 40, 65]
    """
    return number // 8 * 32 + number % 8 + 1


@dataclass(frozen=True)
class Step:
    """One of several changes of the same kind and size: each takes other rows while there are others."""

    number: int
    scale: float
    size: Size

    def range(self, total: int) -> tuple[int, int]:
        """Numbers, first and last, of so many consecutive rows; a later step takes later ones."""
        all_rows = max(1, round(total * self.scale))
        rows = self.size.rows(all_rows)
        first = (all_rows // 3 + self.number * rows) % max(1, all_rows - rows + 1)
        return first, first + rows - 1

    def orders(self) -> tuple[int, int]:
        """Keys, first and last, of consecutive orders."""
        first, last = self.range(ORDERS)
        return order_key(first), order_key(last)

    @property
    def every(self) -> int:
        """One of so many rows changes when they are scattered."""
        all_rows = round(ORDERS * self.scale)
        return max(1, round(all_rows / self.size.rows(all_rows)))


@dataclass(frozen=True)
class Change:
    """A kind of change: the tables that it touches, and its statements."""

    name: str
    about: str
    tables: frozenset[str]
    statements: Callable[[Step], Sequence[str]]
    size: Size | None = None
    """The only size that it has, if it has only one."""


def _new_orders(step: Step) -> list[str]:
    low, high = step.orders()
    shift = order_key(round(ORDERS * step.scale) + 8) * (step.number + 1) // 32 * 32
    return [
        f"""INSERT INTO orders SELECT o_orderkey + {shift}, o_custkey, o_orderstatus, o_totalprice + 10, o_orderdate,
  o_orderpriority, o_clerk, o_shippriority, o_comment FROM orders WHERE o_orderkey BETWEEN {low} AND {high}""",
        f"""INSERT INTO lineitem SELECT l_orderkey + {shift}, l_partkey, l_suppkey, l_linenumber, l_quantity,
  l_extendedprice + 10, l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate,
  l_shipinstruct, l_shipmode, l_comment FROM lineitem WHERE l_orderkey BETWEEN {low} AND {high}""",
    ]


_MOVED = "o_totalprice = o_totalprice + 100, o_orderdate = DATE_ADD(o_orderdate, 31), o_orderpriority = '1-URGENT'"


def _update_together(step: Step) -> list[str]:
    low, high = step.orders()
    return [f"UPDATE orders SET {_MOVED} WHERE o_orderkey BETWEEN {low} AND {high}"]


def _update_scattered(step: Step) -> list[str]:
    number = "(o_orderkey DIV 32 * 8 + o_orderkey % 32 - 1)"
    return [f"UPDATE orders SET {_MOVED} WHERE {number} % {step.every} = {step.number * 7 % step.every}"]


def _delete(step: Step) -> list[str]:
    low, high = step.orders()
    return [
        f"DELETE FROM orders WHERE o_orderkey BETWEEN {low} AND {high}",
        f"DELETE FROM lineitem WHERE l_orderkey BETWEEN {low} AND {high}",
    ]


def _delete_extremes(step: Step) -> list[str]:
    first, last = step.range(CUSTOMERS)
    return [
        f"""MERGE INTO orders AS t USING (SELECT MAX_BY(o_orderkey, o_totalprice) AS key FROM orders
  WHERE o_custkey BETWEEN {first + 1} AND {last + 1} GROUP BY o_custkey) AS s
ON t.o_orderkey = s.key WHEN MATCHED THEN DELETE"""
    ]


def _customer(step: Step) -> list[str]:
    first, last = step.range(CUSTOMERS)
    return [
        f"""UPDATE customer SET c_acctbal = c_acctbal + 50, c_mktsegment = 'BUILDING', c_name = CONCAT(c_name, '*'),
  c_nationkey = (c_nationkey + 1) % 25 WHERE c_custkey BETWEEN {first + 1} AND {last + 1}"""
    ]


def _part(step: Step) -> list[str]:
    first, last = step.range(PARTS)
    return [
        f"""UPDATE part SET p_size = 15, p_type = 'PROMO POLISHED BRASS', p_container = 'MED BOX'
WHERE p_partkey BETWEEN {first + 1} AND {last + 1}"""
    ]


def _nation(step: Step) -> list[str]:
    return [f"UPDATE nation SET n_regionkey = (n_regionkey + 1) % 5 WHERE n_nationkey = {step.number % 25}"]


def _mixed(step: Step) -> list[str]:
    elsewhere = Step(step.number + 1000, step.scale, step.size)
    return [*_new_orders(step), *_update_scattered(step), *_delete(elsewhere), *_customer(step)]


CHANGES = {
    change.name: change
    for change in (
        Change("new_orders", "new orders with their lines", frozenset({"orders", "lineitem"}), _new_orders),
        Change("update_together", "updates of orders whose keys lie together", frozenset({"orders"}), _update_together),
        Change("update_scattered", "updates of scattered orders", frozenset({"orders"}), _update_scattered),
        Change("delete", "deletes of orders with their lines", frozenset({"orders", "lineitem"}), _delete),
        Change("delete_extremes", "deletes of customers' largest orders", frozenset({"orders"}), _delete_extremes),
        Change("customer", "updates of a dimension: customer", frozenset({"customer"}), _customer),
        Change("part", "updates of a dimension: part", frozenset({"part"}), _part),
        Change("nation", "an update of one nation", frozenset({"nation"}), _nation, Size("row")),
        Change("mixed", "all at once", frozenset({"orders", "lineitem", "customer"}), _mixed),
    )
}

CREATE = "create"
"""Beside the changes: the creation of the view, against a table made of its query."""


def chosen(names: str) -> list[str]:
    """The names of a comma-separated list; all of them for 'all'.

    >>> chosen("create, delete")
    ['create', 'delete']
    """
    known = [CREATE, *CHANGES]
    wanted = known if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SystemExit(f"There is no change {', '.join(unknown)}. Changes: {', '.join(known)}.")
    return wanted


def chosen_sizes(names: str) -> list[Size]:
    """The sizes of a comma-separated list: row, a number of rows (100rows), a percentage (0.1%, or only 0.1).

    >>> [size.text for size in chosen_sizes("row, 0.1, 50%")]
    ['row', '0.1%', '50%']
    """
    texts = SIZES if names == "all" else tuple(name.strip() for name in names.split(",") if name.strip())
    return [Size(text if text.endswith(("row", "rows", "%")) else f"{text}%") for text in texts]
