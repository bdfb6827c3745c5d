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

from deferred.algebra.operators import Scan
from deferred.algebra.plan import Conjunction, Demands, Plan, used
from deferred.algebra.prune import parents_first
from deferred.algebra.scalar import Scalar, all_true, column, columns_of, substitute
from deferred.algebra.strategy import Keeping

MOST = 16
"""More demands on a node than this are not kept: then every row may matter."""

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


def demands(plan: Plan) -> dict[Scan, Demands]:
    """The demands on the rows of every scan. A scan that no demand reaches is not in the result: no row matters."""
    conditions = Conditions()
    found: dict[Plan, list[Conjunction]] = {plan: [()]}
    for node in parents_first(plan):
        mine = _bounded(found.get(node, ()))
        for child, below in zip(node.children, conditions.below(node, mine), strict=True):
            found.setdefault(child, []).extend(below)
    for node in plan.walk():  # by promises: all rows, whatever the nodes in between ask for
        for scan in node.watched:
            found.setdefault(scan, []).append(())
    return {node: _bounded(asked) for node, asked in found.items() if isinstance(node, Scan)}


def _bounded(demanded: Demands) -> Demands:
    listed = list(demanded)
    return Conditions.ANY if () in listed or len(listed) > MOST else tuple(listed)


class Conditions:
    """One walk down a plan: what the rules of the nodes need to name rows, and facts that are known already."""

    ANY: Demands = ((),)
    """The demands on a node every row of which may matter."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._facts: dict[Plan, Conjunction] = {}

    def below(self, node: Plan, asked: Demands) -> Sequence[Demands]:
        """The demands on the rows of each input of a node, from those on its own."""
        if isinstance(node.strategy, Keeping):
            # A support table holds what all rows of its input make of it, whatever becomes of them above.
            return [self.ANY for _ in node.children]
        return node.demanded(asked, self)

    def facts(self, node: Plan) -> Conjunction:
        """The facts about the rows of a node, over its own columns and those of rows that they are made of."""
        if node not in self._facts:
            self._facts[node] = node.known(self)
        return self._facts[node]

    def facts_of(self, node: Plan) -> Conjunction:
        """The facts about one more row of a node: its columns that are not the node's own get new names."""
        return self.apart(self.facts(node), node.columns)

    def apart(self, conjunction: Conjunction, kept: Sequence[str]) -> Conjunction:
        """A conjunction in which all columns but the given ones are those of another row."""
        return self.put(conjunction, self.names(used(*conjunction) - set(kept)))

    def names(self, columns: Iterable[str]) -> dict[str, Scalar]:
        """New names for columns: those of another row."""
        number = next(self._numbers)
        return {name: column(f"{original(name)}{OTHER}{number}-{i}") for i, name in enumerate(sorted(columns))}

    def put(self, conjunction: Conjunction, by: Mapping[str, Scalar]) -> Conjunction:
        """A conjunction with columns replaced by what they are."""
        return tuple(part if columns_of(part).isdisjoint(by) else substitute(part, by) for part in conjunction)

    def renamed(self, conjunction: Conjunction, old: Sequence[str], new: Sequence[str]) -> Conjunction:
        """A conjunction over other columns, by position."""
        return self.put(conjunction, {name: column(other) for name, other in zip(old, new, strict=True)})

    def one_of(self, choices: Sequence[Conjunction]) -> Conjunction:
        """The disjunction of some conjunctions; nothing where one of them says nothing."""
        if not choices or not all(choices) or len(choices) > LISTED:
            return ()
        return (exp.or_(*(all_true(choice) for choice in choices)),)
