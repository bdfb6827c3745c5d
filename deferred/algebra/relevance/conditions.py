"""What must hold of a row of a base table for it to reach the view: the conditions on its way up, from the plan alone.

A *demand* on the rows of a node E is a conjunction over columns of E and of rows that they meet: a row e of E can
change the view, or a support table, only if there are values for the other columns with which every conjunct is true. A
node has several demands where several ways lead up from it; a row matters if it meets one of them. A *fact* about E is
a conjunction that holds for every row of E, in any state of the base tables, again for some values of other columns.

All rules are about one row of E in any state of everything else, so they hold for any set of rows, one after the other.
Nothing here is evaluated, so an expression that may fail does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from sqlglot import exp

from deferred.algebra.operators import (
    ANTI,
    EXCEPT,
    FULL,
    LEFT,
    SEMI,
    Aggregate,
    Distinct,
    Filter,
    Generate,
    Join,
    Kept,
    Limit,
    OuterJoin,
    Project,
    Scan,
    SetOperation,
    UnionAll,
    Values,
    Window,
)
from deferred.algebra.operators.promised_join import PromisedJoin
from deferred.algebra.plan import Plan, used
from deferred.algebra.prune import parents_first
from deferred.algebra.scalar import Scalar, all_true, column, columns_of, conjuncts, is_column, same, substitute
from deferred.algebra.strategy import Keeping

Conjunction = tuple[Scalar, ...]
"""Conditions that are all true; none of them means true."""

ANY: tuple[Conjunction, ...] = ((),)
"""The demands on a node every row of which may matter."""

MOST = 16
"""More demands on a node than this are not told apart: then every row may matter."""

LISTED = 32
"""Longer lists of VALUES, and of branches of a union, say nothing about their rows."""

OTHER = "~"
"""Stands between the id of a column and a number: the same column of another row."""


OWN = "."
"""Begins the name of a column of the base table itself, which may be any name."""


def original(name: str) -> str:
    """The column of the plan that a column of another row is; others are as they are.

    >>> original("c_1~7"), original(".a~b")
    ('c_1', '.a~b')
    """
    return name if name.startswith(OWN) else name.partition(OTHER)[0]


def demands(plan: Plan) -> dict[Scan, tuple[Conjunction, ...]]:
    """The demands on the rows of every scan. A scan that no demand reaches is not in the result: no row matters."""
    walk = _Walk()
    found: dict[Plan, list[Conjunction]] = {plan: [()]}
    for node in parents_first(plan):
        mine = _bounded(found.get(node, ()))
        for child, below in zip(node.children, walk.below(node, mine), strict=True):
            found.setdefault(child, []).extend(below)
    for node in plan.walk():
        for scan in node.watched if isinstance(node, PromisedJoin) else ():
            found.setdefault(scan, []).append(())
    return {node: _bounded(asked) for node, asked in found.items() if isinstance(node, Scan)}


def _bounded(demanded: Iterable[Conjunction]) -> tuple[Conjunction, ...]:
    listed = list(demanded)
    return ANY if () in listed or len(listed) > MOST else tuple(listed)


class _Walk:
    """One walk down a plan, which gives other rows new names."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._facts: dict[Plan, Conjunction] = {}

    # ---- demands

    def below(self, node: Plan, asked: Sequence[Conjunction]) -> list[Sequence[Conjunction]]:
        """The demands on the rows of each input of a node, from those on its own."""
        if isinstance(node.strategy, Keeping):
            # A support table holds what all rows of its input make of it, whatever becomes of them above.
            return [ANY for _ in node.children]
        if isinstance(node, Filter):
            return [[(*demand, *conjuncts(node.condition)) for demand in asked]]
        if isinstance(node, Project):
            outputs = dict(node.outputs)
            return [[_put(demand, outputs) for demand in asked]]
        if isinstance(node, Join):
            return [self._in_join(node, i, asked) for i in range(len(node.inputs))]
        if isinstance(node, OuterJoin):
            return self._in_outer_join(node, asked)
        if isinstance(node, UnionAll):
            return [self._renamed(node.ids, side, asked) for side in node.inputs]
        if isinstance(node, SetOperation):
            return self._in_set_operation(node, asked)
        if isinstance(node, Aggregate):
            # A row changes the values of its own group: its keys are the group's, anything may be computed of it.
            return [[self._apart(demand, node.keys) for demand in asked]]
        if isinstance(node, Window):
            # A row changes the values of all rows of its partition.
            facts = self.facts(node.child)
            return [[self._apart((*demand, *facts), node.partition) for demand in asked]]
        if isinstance(node, (Distinct, Generate)):
            return [[self._apart(demand, node.child.columns) for demand in asked]]
        return [ANY for _ in node.children]

    def _in_join(self, node: Join, i: int, asked: Sequence[Conjunction]) -> list[Conjunction]:
        """A row of Eᵢ is joined with rows of the other inputs, of which what holds for all their rows holds."""
        others = [f for j, plan in enumerate(node.inputs) if j != i for f in self._facts_of(plan)]
        met = (*conjuncts(node.condition), *others)
        return [self._apart((*demand, *met), node.inputs[i].columns) for demand in asked]

    def _in_outer_join(self, node: OuterJoin, asked: Sequence[Conjunction]) -> list[Sequence[Conjunction]]:
        """A row changes what it is joined with, and whether a partner, or itself, has a partner at all.

        Rows of E matter in (e, f) for a partner f, or alone, as (e, NULL). Rows f of F matter only to partners e: as
        (e, f), or because e is no longer, or is again, without a partner. In ⟗ both hold for both sides.
        """
        left, right, met = node.left, node.right, tuple(conjuncts(node.condition))
        of_left, of_right = (*met, *self._facts_of(left)), (*met, *self._facts_of(right))
        if node.kind in (SEMI, ANTI):
            matched = of_right if node.kind == SEMI else ()
            for_left, for_right = [(*d, *matched) for d in asked], [(*d, *of_left) for d in asked]
        else:
            alone = [_put(d, dict.fromkeys(right.columns, exp.Null())) for d in asked]
            unmatched = [_put(d, dict.fromkeys(left.columns, exp.Null())) for d in asked] if node.kind == FULL else []
            for_left = [*((*d, *of_right) for d in [*asked, *unmatched]), *alone]
            for_right = [*((*d, *of_left) for d in [*asked, *alone]), *unmatched]
        return [
            [self._apart(d, left.columns) for d in for_left],
            [self._apart(d, right.columns) for d in for_right],
        ]

    def _in_set_operation(self, node: SetOperation, asked: Sequence[Conjunction]) -> list[Sequence[Conjunction]]:
        """A row changes only the result's own copies of it; without a copy in E there is none at all."""
        facts = [_put(self._facts_of(side), _columns(side.columns, node.ids)) for side in (node.left, node.right)]
        needs_right = () if node.kind == EXCEPT else facts[1]
        left = [(*demand, *needs_right) for demand in asked]
        right = [(*demand, *facts[0]) for demand in asked]
        return [self._renamed(node.ids, node.left, left), self._renamed(node.ids, node.right, right)]

    def _renamed(self, ids: Sequence[str], side: Plan, asked: Sequence[Conjunction]) -> list[Conjunction]:
        names = _columns(ids, side.columns)
        return [_put(demand, names) for demand in asked]

    # ---- facts

    def _facts_of(self, node: Plan) -> Conjunction:
        """The facts about one more row of a node: its columns that are not the node's own get new names."""
        return self._apart(self.facts(node), node.columns)

    def facts(self, node: Plan) -> Conjunction:
        if node not in self._facts:
            self._facts[node] = self._known(node)
        return self._facts[node]

    def _known(self, node: Plan) -> Conjunction:
        if isinstance(node, Filter):
            return (*self._facts_of(node.child), *conjuncts(node.condition))
        if isinstance(node, Project):
            return self._known_of_project(node)
        if isinstance(node, Join):
            return (*(f for plan in node.inputs for f in self._facts_of(plan)), *conjuncts(node.condition))
        if isinstance(node, OuterJoin):
            return self._known_of_outer_join(node)
        if isinstance(node, SetOperation):
            sides = (node.left,) if node.kind == EXCEPT else (node.left, node.right)
            return tuple(f for side in sides for f in _put(self._facts_of(side), _columns(side.columns, node.ids)))
        if isinstance(node, UnionAll):
            return _one_of([_put(self._facts_of(side), _columns(side.columns, node.ids)) for side in node.inputs])
        if isinstance(node, Values):
            return _one_of([tuple(map(same, map(column, node.ids), row)) for row in node.rows])
        if isinstance(node, Aggregate) and not node.keys:
            return ()  # it has a row even if its input has none
        if isinstance(node, (Aggregate, Distinct, Window, Limit, Generate, Kept)):
            return self._facts_of(node.children[0])
        return ()

    def _known_of_project(self, node: Project) -> Conjunction:
        """A column that is passed on is known by its new name, of the others how they are computed."""
        passed = {e.name: column(name) for name, e in reversed(node.outputs) if is_column(e)}
        names = self._names(node.child.columns) | passed
        computed = [(name, e) for name, e in node.outputs if not is_column(e) or passed[e.name].name != name]
        outputs = tuple(same(column(name), substitute(e, names)) for name, e in computed)
        return (*_put(self._facts_of(node.child), names), *outputs)

    def _known_of_outer_join(self, node: OuterJoin) -> Conjunction:
        if node.kind == FULL:
            return ()
        of_left = self._facts_of(node.left)
        if node.kind in (LEFT, ANTI):
            return of_left
        return (*of_left, *conjuncts(node.condition), *self._facts_of(node.right))

    # ---- names

    def _apart(self, conjunction: Conjunction, kept: Sequence[str]) -> Conjunction:
        """A conjunction in which all columns but the given ones are those of another row."""
        return _put(conjunction, self._names(used(*conjunction) - set(kept)))

    def _names(self, columns: Iterable[str]) -> dict[str, Scalar]:
        number = next(self._numbers)
        return {name: column(f"{original(name)}{OTHER}{number}-{i}") for i, name in enumerate(sorted(columns))}


def _columns(old: Sequence[str], new: Sequence[str]) -> dict[str, Scalar]:
    return {name: column(other) for name, other in zip(old, new, strict=True)}


def _put(conjunction: Conjunction, by: Mapping[str, Scalar]) -> Conjunction:
    return tuple(part if columns_of(part).isdisjoint(by) else substitute(part, by) for part in conjunction)


def _one_of(choices: Sequence[Conjunction]) -> Conjunction:
    """The disjunction of some conjunctions; nothing where one of them says nothing."""
    if not choices or not all(choices) or len(choices) > LISTED:
        return ()
    return (exp.or_(*(all_true(choice) for choice in choices)),)
