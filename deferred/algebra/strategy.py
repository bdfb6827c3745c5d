"""Strategies: how a node is maintained, as types.

| strategy | a change reads | kept beside the view |
|---|---|---|
| Linear | the changed rows | – |
| TouchedKeys, TouchedRows, TouchedGroups, TouchedPartitions | New − Old at what the change touches | – |
| Counted (operators/counted.py) | the kept parts of the touched groups | parts per group |
| KeptRows (operators/limit.py) | the kept first rows | first rows |
| KeptValues (operators/kept.py) | kept values | values with counts |
| GoodCounters (operators/good_counters.py) | the kept counts of the changed rows | rows with counts |
| OverKept | all rows of its input, which is kept | – |
| Recomputed | the whole input | – |

A strategy never changes a result. A strategy with a support table is `Keeping`: the old state is what the table holds
at s_i, the new state the same with its moved rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.operators.aggregate import Aggregate
    from deferred.algebra.operators.distinct import Distinct
    from deferred.algebra.operators.limit import Limit
    from deferred.algebra.operators.recursion import Recursion
    from deferred.algebra.operators.window import Window
    from deferred.algebra.plan import Keys, Plan


class Strategy:
    """How a node is maintained; `explain` shows `name`."""

    name: ClassVar[str]
    absorbs: ClassVar[bool] = False
    """Whether most changes of its input leave the node as it is, so that a step for its change is worth skipping."""


class Linear(Strategy):
    """Δ of the node is the node on Δ of its inputs."""

    name = "linear"


class TouchedKeys(Strategy):
    """New − Old at the join keys that a change touches."""

    name = "touched keys"


class TouchedRows(Strategy):
    """New − Old at the rows that a change touches."""

    name = "touched rows"


class TouchedPartitions(Strategy):
    """New − Old in the partitions that a change touches."""

    name = "touched partitions"


class Recomputed(Strategy):
    """New − Old of everything: it is not known which part of the input a change touches."""

    name = "recomputed"


class OverKept(Strategy):
    """New − Old of everything, over an input of which both states are kept: no base table is read."""

    name = "kept values"


class NotMaintained(Strategy):
    """A node of a derived plan, or of constants: it has no change of its own."""

    name = "derived"


LINEAR, TOUCHED_KEYS, TOUCHED_ROWS, TOUCHED_PARTITIONS = Linear(), TouchedKeys(), TouchedRows(), TouchedPartitions()
RECOMPUTED, OVER_KEPT, DERIVED = Recomputed(), OverKept(), NotMaintained()


class Keeping(Strategy, ABC):
    """A strategy that keeps rows of its node in a support table, so that both states are read there."""

    support: str
    """The name of the support table."""

    @abstractmethod
    def contents(self, node: Any) -> Plan:
        """What the support table holds, as a plan over the base tables."""

    @abstractmethod
    def past(self, node: Any, keys: Keys | None) -> Plan:
        """Old(node|K), from the support table as it is at s_i."""

    @abstractmethod
    def present(self, node: Any, d: Differentiator, keys: Keys | None) -> Plan:
        """New(node|K), from the support table and its moved rows. The node's change must be computed first."""


class SupportTables(Protocol):
    """Gives the nodes of one plan their support tables; each node says which way is its own (`Plan.supported`)."""

    def names(self) -> str:
        """The name of another support table."""
        ...

    def counted(self, node: Aggregate) -> Plan:
        """The aggregate over kept parts, or over kept values, itself where neither is possible."""
        ...

    def good_counters(self, node: Distinct) -> Plan:
        """ε with the counts of its rows kept, itself where they are not wanted or not possible."""
        ...

    def over_kept_rows(self, node: Limit | Window) -> Plan:
        """A node that reads all rows of its input at every change, over rows that are kept: here or further down."""
        ...

    def recursion(self, node: Recursion) -> Plan:
        """The recursion with its rows kept."""
        ...


def support_tables(plan: Plan) -> dict[str, Plan]:
    """What each support table of a view holds, as plans over the base tables."""
    found: dict[str, Plan] = {}
    for node in plan.walk():
        strategy = node.strategy
        if isinstance(strategy, Keeping):
            found[strategy.support] = strategy.contents(node)
    return found
