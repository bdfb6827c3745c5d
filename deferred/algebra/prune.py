"""Column pruning: every node keeps only the columns that something above it reads.

It makes logs small: a change of a column that the view never reads nets to nothing.
"""

from __future__ import annotations

from deferred.algebra.plan import Plan


def prune(plan: Plan) -> Plan:
    """The same query without the columns that nothing reads. A subplan that several nodes share stays one object."""
    needed = needed_columns(plan)
    pruned: dict[Plan, Plan] = {}
    for node in reversed(list(needed)):
        pruned[node] = node.pruned([pruned[c] for c in node.children], needed[node])
    return pruned[plan]


def needed_columns(plan: Plan) -> dict[Plan, frozenset[str]]:
    """The columns of every node that something above it reads, each node before everything that it reads."""
    needed: dict[Plan, set[str]] = {plan: set(plan.columns)}
    order = parents_first(plan)
    for node in order:
        for child, asked in zip(node.children, node.needs(frozenset(needed[node])), strict=True):
            needed.setdefault(child, set()).update(asked)
    return {node: frozenset(needed[node]) for node in order}


def parents_first(plan: Plan) -> list[Plan]:
    """All nodes, each before everything that it reads."""
    order: list[Plan] = []
    done: set[Plan] = set()

    def visit(node: Plan) -> None:
        if node not in done:
            done.add(node)
            for child in node.children:
                visit(child)
            order.append(node)

    visit(plan)
    return order[::-1]
