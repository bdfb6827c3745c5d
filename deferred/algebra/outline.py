"""A plan as indented lines: each node, how it is maintained, and what a change makes it read."""

from __future__ import annotations

from deferred.algebra.notation import Labels
from deferred.algebra.plan import Plan


def outline(plan: Plan) -> list[str]:
    """The lines of a plan, children below their parents.

    >>> from sqlglot import parse_one
    >>> from deferred.algebra.operators import Aggregate, Scan
    >>> sales = Scan("sales", ("shop", "price"), ("c1", "c2"))
    >>> print("\\n".join(outline(Aggregate(sales, ("c1",), (("c3", parse_one("median(c2)")),)))))
    aggregate · touched groups: reads the changed rows, and in sales all rows of their groups (shop)
      table sales (shop, price) · linear: reads its changes
    """
    return _lines(plan, Labels(plan), 0)


def _lines(plan: Plan, labels: Labels, depth: int) -> list[str]:
    what = plan.title.removeprefix("a ").removeprefix("an ")
    if not plan.children:
        what += f" {plan.notation(labels)} ({labels.columns(plan.columns)})"
    lines = ["  " * depth + f"{what} · {plan.strategy.name}: reads {plan.reads(labels)}"]
    for child in plan.children:
        lines.extend(_lines(child, labels, depth + 1))
    return lines
