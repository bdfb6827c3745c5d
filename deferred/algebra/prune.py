"""Column pruning: every node keeps only the columns that something above it reads.

It makes logs small and updates irrelevant: a change of a column that the view never reads nets to nothing.
"""

from __future__ import annotations

from dataclasses import replace

from deferred.algebra.generate import Generate
from deferred.algebra.group import Aggregate
from deferred.algebra.join import Join
from deferred.algebra.outer import OuterJoin
from deferred.algebra.plan import Filter, Plan, Project, Scan, UnionAll, pick, used
from deferred.algebra.scalar import Scalar
from deferred.algebra.window import Window


def prune(plan: Plan) -> Plan:
    """The same query, reading no column in vain. A subplan that several nodes share stays one object."""
    needed: dict[Plan, set[str]] = {plan: set(plan.columns)}
    for node in _parents_first(plan):
        for child in node.children:
            needed.setdefault(child, set()).update(_asked(node, child, needed[node]))
    kept: dict[Plan, Plan] = {}
    for node in reversed(_parents_first(plan)):
        kept[node] = _rebuilt(node.with_children([kept[c] for c in node.children]), node, needed[node])
    return kept[plan]


def _parents_first(plan: Plan) -> list[Plan]:
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


def _asked(node: Plan, child: Plan, needed: set[str]) -> set[str]:
    """The columns of a child that a node reads when `needed` of its own are asked for."""
    if isinstance(node, Project):
        return set(used(*(e for name, e in _kept_outputs(node, needed))))
    if isinstance(node, Filter):
        return needed | used(node.condition)
    if isinstance(node, (Join, OuterJoin)):
        return (needed | used(node.condition)) & set(child.columns)
    if isinstance(node, Generate):
        return (needed & set(child.columns)) | used(node.generator)
    if isinstance(node, Window):
        functions = [f for name, f in node.functions if name in needed]
        return (needed & set(child.columns)) | set(node.partition) | used(*functions)
    if isinstance(node, UnionAll):
        asked = {mine for mine, name in zip(child.columns, node.ids, strict=True) if name in needed}
        return asked or {child.columns[0]}
    if isinstance(node, Aggregate):
        return set(node.keys) | used(*(e for _, e in _kept_outputs(node, needed)))
    return set(child.columns)


def _kept_outputs(node: Project | Aggregate, needed: set[str]) -> tuple[tuple[str, Scalar], ...]:
    """The outputs that are needed; one at least where there would be no column left."""
    kept = tuple(o for o in node.outputs if o[0] in needed)
    keyed = isinstance(node, Aggregate) and node.keys
    return kept if kept or keyed else node.outputs[:1]


def _rebuilt(node: Plan, original: Plan, needed: set[str]) -> Plan:
    if isinstance(node, Scan):
        pairs = [(n, i) for n, i in zip(node.names, node.ids, strict=True) if i in needed]
        pairs = pairs or [(node.names[0], node.ids[0])]
        return replace(node, names=tuple(n for n, _ in pairs), ids=tuple(i for _, i in pairs))
    if isinstance(node, Project):
        return replace(node, outputs=_kept_outputs(node, needed))
    if isinstance(node, Window):
        functions = tuple(f for f in node.functions if f[0] in needed)
        return replace(node, functions=functions) if functions else node.child
    if isinstance(node, Aggregate):
        return replace(node, outputs=_kept_outputs(node, needed))
    if isinstance(node, UnionAll) and isinstance(original, UnionAll):
        positions = [p for p, name in enumerate(original.ids) if name in needed] or [0]
        inputs = tuple(pick(new, [old.columns[p] for p in positions])
                       for new, old in zip(node.inputs, original.inputs, strict=True))
        return UnionAll(inputs, tuple(original.ids[p] for p in positions))
    return node
