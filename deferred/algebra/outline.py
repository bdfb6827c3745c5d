"""A plan as indented lines: each node, how it is maintained, and what a change makes it read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from deferred.algebra.group import Aggregate
from deferred.algebra.join import Join
from deferred.algebra.notation import Labels
from deferred.algebra.outer import OuterJoin
from deferred.algebra.plan import Plan, Scan, Values, reads
from deferred.algebra.scalar import conjuncts, equated
from deferred.algebra.sets import Distinct, SetOperation
from deferred.algebra.support import EXTREMES, Kept
from deferred.algebra.window import Limit, Window


def outline(plan: Plan) -> list[str]:
    """The lines of a plan, children below their parents.

    >>> from sqlglot import parse_one
    >>> sales = Scan("sales", ("shop", "price"), ("c1", "c2"))
    >>> print("\\n".join(outline(Aggregate(sales, ("c1",), (("c3", parse_one("median(c2)")),)))))
    Aggregate · touched groups: reads the changed rows, and in sales all rows of their groups (shop)
      Scan sales (shop, price) · linear: reads its changes
    """
    return _lines(plan, Labels(plan), 0)


def _lines(plan: Plan, labels: Labels, depth: int) -> list[str]:
    what = f"Scan {plan.table} ({', '.join(plan.names)})" if isinstance(plan, Scan) else type(plan).__name__
    lines = ["  " * depth + f"{what} · {plan.maintained}: reads {_read(plan, labels)}"]
    for child in plan.children:
        lines.extend(_lines(child, labels, depth + 1))
    return lines


@singledispatch
def _read(plan: Plan, labels: Labels) -> str:
    return "the changed rows"


@_read.register
def _scan(plan: Scan, labels: Labels) -> str:
    return "its changes"


@_read.register
def _values(plan: Values, labels: Labels) -> str:
    return "nothing"


@_read.register
def _join(plan: Join, labels: Labels) -> str:
    linked = [part for part in conjuncts(plan.condition) if equated(part)]
    at = f"at their keys ({' AND '.join(map(labels.scalar, linked))})" if linked else "whole: no equality links them"
    return f"the changed rows of each input, and the other inputs {at}"


@_read.register
def _outer(plan: OuterJoin, labels: Labels) -> str:
    if plan.maintained == "touched keys":
        linked = ' AND '.join(labels.scalar(part) for part in conjuncts(plan.condition) if equated(part))
        return f"the changed rows, and both sides at their keys ({linked})"
    return "the changed rows, the rows of the other side that match them, and the partners of these"


@_read.register
def _distinct(plan: Distinct, labels: Labels) -> str:
    return f"the changed rows, and the same rows in {_tables(plan)}"


@_read.register
def _set(plan: SetOperation, labels: Labels) -> str:
    return f"the changed rows, and the same rows of both sides in {_tables(plan)}"


@_read.register
def _aggregate(plan: Aggregate, labels: Labels) -> str:
    if plan.support is not None:
        kept = f"kept parts of their groups ({_named(plan.keys, labels)})" if plan.keys else "kept parts of the total"
        extreme = any(part.kind in EXTREMES for part in plan.support.parts)
        again = f"; {_tables(plan)} only where a least or greatest value was deleted" if extreme else ""
        return f"the changed rows, and the {kept}{again}"
    if isinstance(plan.child, Kept):
        return "all kept values, and no table"
    if not plan.keys:
        return _whole(plan)
    return f"the changed rows, and in {_tables(plan)} all rows of their groups ({_named(plan.keys, labels)})"


@_read.register
def _kept(plan: Kept, labels: Labels) -> str:
    return f"the changed rows, and the kept counts of their values ({_named(plan.read, labels)})"


@_read.register
def _window(plan: Window, labels: Labels) -> str:
    if not plan.partition:
        return _whole(plan)
    return f"the changed rows, and in {_tables(plan)} all rows of their partitions ({_named(plan.partition, labels)})"


@_read.register
def _limit(plan: Limit, labels: Labels) -> str:
    if plan.count is None:
        return _whole(plan)
    rows = plan.count + plan.offset
    return f"the changed rows, and the first {rows} rows as kept; {_tables(plan)} only where one of them has gone"


def _whole(plan: Plan) -> str:
    return f"its whole input: {_tables(plan)}"


def _tables(plan: Plan) -> str:
    return ", ".join(sorted(reads(plan))) or "no table"


def _named(columns: Iterable[str], labels: Labels) -> str:
    return ", ".join(map(labels.column, columns))
