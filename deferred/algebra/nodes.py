"""The bases of nodes: what holds for many operators, said once.

How many inputs a node has: `Leaf`, `Unary`, `Binary`, `Nary`. What its parts have in common with those of others:
`QueryLeaf`, `RowByRow`, `Barrier`, `AtHand`, `Derived`. None of them is an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from sqlglot import exp

from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer
from deferred.algebra.scalar import Scalar
from deferred.algebra.strategy import DERIVED, LINEAR, Strategy, SupportTables

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.operators.scan import Scan
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True, eq=False)
class Leaf(Plan, abstract=True):
    """A node without inputs."""

    @property
    def children(self) -> tuple[Plan, ...]:
        return ()

    def with_children(self, children: Sequence[Plan]) -> Self:
        assert not children
        return self

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return ()

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return ()

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        return ()

    @property
    def watched(self) -> Sequence[Scan]:
        return ()


@dataclass(frozen=True, eq=False)
class Unary(Plan, abstract=True):
    """A node with one input, whose columns it has unless it defines others."""

    child: Plan

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.child,)

    def with_children(self, children: Sequence[Plan]) -> Self:
        (child,) = children
        return replace(self, child=child)

    @property
    def watched(self) -> Sequence[Scan]:
        return ()


@dataclass(frozen=True, eq=False)
class Binary(Plan, abstract=True):
    """A node with two inputs."""

    left: Plan
    right: Plan

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.left, self.right)

    def with_children(self, children: Sequence[Plan]) -> Self:
        left, right = children
        return replace(self, left=left, right=right)

    @property
    def watched(self) -> Sequence[Scan]:
        return ()


@dataclass(frozen=True, eq=False)
class Nary(Plan, abstract=True):
    """A node with any number of inputs."""

    inputs: tuple[Plan, ...]

    @property
    def children(self) -> tuple[Plan, ...]:
        return self.inputs

    def with_children(self, children: Sequence[Plan]) -> Self:
        return replace(self, inputs=tuple(children))


@dataclass(frozen=True, eq=False)
class Barrier(Plan, abstract=True):
    """A node that joins nothing, and that no condition moves out of or through."""

    def pulled_up(self) -> tuple[Plan, list[Scalar]]:
        return self, []

    def joined_on(self, equality: Scalar) -> Plan | None:
        return None

    def with_join_condition(self, change: Callable[[Scalar], Scalar]) -> Plan:
        return self


@dataclass(frozen=True, eq=False)
class RowByRow(Plan, abstract=True):
    """A node that looks at one row at a time: of a change it makes its own change, and reads nothing else."""

    row_by_row = True
    in_recursion = True
    looked_up_by = ()

    @property
    def strategy(self) -> Strategy:
        return LINEAR

    def supported(self, tables: SupportTables) -> Plan:
        return self

    def reads(self, labels: Labels) -> str:
        return "the changed rows"

    def figure2(self, f: Figure2) -> Pair:
        return f.linear(self)


@dataclass(frozen=True, eq=False)
class QueryLeaf(Barrier, Leaf, abstract=True):
    """A leaf of a query: rows that are there, of which nothing is computed and nothing kept."""

    in_recursion = True
    one_row = False
    looked_up_by = ()

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    def origin(self, name: str) -> Origin | None:
        return None

    def restricted(self, keys: Keys) -> Plan:
        from deferred.algebra.operators.restrict import Restrict

        return Restrict(self, keys)

    @property
    def strategy(self) -> Strategy:
        return LINEAR

    def supported(self, tables: SupportTables) -> Plan:
        return self


@dataclass(frozen=True, eq=False)
class AtHand(Barrier, Unary, abstract=True):
    """E itself, with rows at hand from which both its states are read: its strategy is `Stateful`.

    It has E's rows, and so E's notation, evaluation and SQL. No condition and no list of needed columns goes through
    it, because the rows at hand are those of E as it is.
    """

    row_by_row = False
    in_recursion = True
    one_row = False
    looked_up_by = ()

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return ()

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    def origin(self, name: str) -> Origin | None:
        return None

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(self.columns),)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def restricted(self, keys: Keys) -> Plan:
        from deferred.algebra.operators.restrict import Restrict

        return Restrict(self, keys)

    def supported(self, tables: SupportTables) -> Plan:
        return self

    def known(self, c: Conditions) -> Conjunction:
        return c.facts_of(self.child)

    def figure2(self, f: Figure2) -> Pair:
        return f.linear(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}

    def notation(self, labels: Labels) -> str:
        return labels.text(self.child)

    def evaluate(self, e: Evaluation) -> Bag:
        return e(self.child)

    def sql(self, w: Writer) -> exp.Query:
        return w.query(self.child)


@dataclass(frozen=True, eq=False)
class Derived(Plan, abstract=True):
    """A node that only rules create: it is evaluated and rendered, never differentiated or pruned."""

    called = "rows that a rule derives"
    row_by_row = False
    in_recursion = False

    def _not_in_queries(self, what: str) -> TypeError:
        return TypeError(f"{type(self).__name__} occurs only in derived plans, so it has no {what}.")

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    @property
    def one_row(self) -> bool:
        raise self._not_in_queries("known number of rows")

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        raise self._not_in_queries("delta rule")

    def pulled_up(self) -> tuple[Plan, list[Scalar]]:
        raise self._not_in_queries("conditions to move")

    def joined_on(self, equality: Scalar) -> Plan | None:
        raise self._not_in_queries("conditions to move")

    def with_join_condition(self, change: Callable[[Scalar], Scalar]) -> Plan:
        raise self._not_in_queries("conditions to move")

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        raise self._not_in_queries("columns to prune")

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        raise self._not_in_queries("columns to prune")

    def delta(self, d: Differentiator) -> Plan | None:
        raise self._not_in_queries("delta rule")

    def restricted(self, keys: Keys) -> Plan:
        from deferred.algebra.operators.restrict import Restrict

        return Restrict(self, keys)

    def supported(self, tables: SupportTables) -> Plan:
        raise self._not_in_queries("support table")

    def reads(self, labels: Labels) -> str:
        raise self._not_in_queries("maintenance")

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        raise self._not_in_queries("free columns")

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        raise self._not_in_queries("rows that matter")

    def known(self, c: Conditions) -> Conjunction:
        raise self._not_in_queries("rows that matter")

    @property
    def watched(self) -> Sequence[Scan]:
        raise self._not_in_queries("rows that matter")

    def figure2(self, f: Figure2) -> Pair:
        raise self._not_in_queries("rule in Figure 2")

    @property
    def strategy(self) -> Strategy:
        return DERIVED

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}
