"""Strategies: how a node is maintained, as types.

| strategy | a change reads | kept beside the view |
|---|---|---|
| Linear | the changed rows | – |
| Telescoped | the changed rows, and what they meet in the other inputs | – |
| TouchedKeys, TouchedRows, TouchedGroups, TouchedPartitions | New − Old at what the change touches | – |
| Counted (operators/counted.py) | the kept parts of the touched groups | parts per group |
| KeptRows (operators/limit.py) | the kept first rows | first rows |
| KeptValues (operators/kept.py) | kept values | values with counts |
| Auxiliary (operators/kept.py) | kept rows of a base table | its rows that can matter |
| InView (operators/in_view.py) | the view's own rows | – |
| InShared (operators/in_view.py) | rows of a table that several views share | – |
| UnmetKeys (operators/unmet.py) | – | foreign keys that were not found |
| Promised (operators/referring.py, promised_join.py) | what keys and references leave to be read | – |
| GoodCounters (operators/good_counters.py) | the kept counts of the changed rows | rows with counts |
| DeleteRederive (operators/rederiving.py) | in rounds, what derives the touched rows | a recursion's set |
| CountedLevels (operators/levels.py) | the same, level by level | a recursion's rows with levels and counts |
| OverKept, TotalOverKept (operators/aggregate.py) | all rows of its input, which is kept | – |
| Recomputed | the whole input | – |

A strategy never changes a result. One that is `Stateful` reads both states of its node without the node's inputs. With
a support table it is `Keeping`: the old state is what the table holds at s_i, the new state the same with its moved
rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.operators.aggregate import Aggregate
    from deferred.algebra.operators.distinct import Distinct
    from deferred.algebra.operators.limit import Limit
    from deferred.algebra.operators.recursion import Recursion
    from deferred.algebra.operators.window import Window
    from deferred.algebra.plan import Keys, Plan
    from deferred.algebra.sharing import Sharing


class Strategy(ABC):
    """How a node is maintained; `explain` shows `name`."""

    name: ClassVar[str]
    absorbs: ClassVar[bool] = False
    """Whether most changes of its input leave the node as it is, so that a step for its change is worth skipping."""

    @abstractmethod
    def reads_inputs(self, node: Any, is_read: bool) -> bool:
        """Whether rows of the node's inputs are read, beside their changes; `is_read` says so of its own rows."""


class Linear(Strategy):
    """Δ of the node is the node on Δ of its inputs."""

    name = "linear"

    def reads_inputs(self, node: Plan, is_read: bool) -> bool:
        return is_read


class ReadsInputs(Strategy):
    """A strategy that reads rows of the node's inputs."""

    def reads_inputs(self, node: Plan, is_read: bool) -> bool:
        return True


class Telescoped(ReadsInputs):
    """Δ(E₁ ⋈ … ⋈ Eₙ) is linear in each input, and reads the others."""

    name = "linear"


class TouchedKeys(ReadsInputs):
    """New − Old at the join keys that a change touches."""

    name = "touched keys"


class TouchedRows(ReadsInputs):
    """New − Old at the rows that a change touches."""

    name = "touched rows"


class TouchedPartitions(ReadsInputs):
    """New − Old in the partitions that a change touches."""

    name = "touched partitions"


class Recomputed(ReadsInputs):
    """New − Old of everything: it is not known which part of the input a change touches."""

    name = "recomputed"


class OverKept(ReadsInputs):
    """New − Old of everything, over an input of which both states are kept: no base table is read."""

    name = "kept values"


class Promised(ReadsInputs):
    """Declared keys and references say which changes can meet which rows, so that fewer are read."""

    name = "keys and references"


class NotMaintained(ReadsInputs):
    """A node of a derived plan, or of constants: it has no change of its own."""

    name = "derived"


LINEAR, TELESCOPED = Linear(), Telescoped()
TOUCHED_KEYS, TOUCHED_ROWS, TOUCHED_PARTITIONS = TouchedKeys(), TouchedRows(), TouchedPartitions()
RECOMPUTED, OVER_KEPT, PROMISED, DERIVED = Recomputed(), OverKept(), Promised(), NotMaintained()


class Stateful(Strategy, ABC):
    """A strategy that reads both states of its node from rows that are at hand, and no base table."""

    @abstractmethod
    def past(self, node: Any, keys: Keys | None) -> Plan:
        """Old(node|K), from the rows as they are at s_i."""

    @abstractmethod
    def present(self, node: Any, d: Differentiator, keys: Keys | None) -> Plan:
        """New(node|K), from those rows and how they move. The node's change must be computed first."""

    @abstractmethod
    def reads_again(self, node: Any) -> bool:
        """Whether a change can make the node read rows of its inputs, beside their changes."""

    def reads_inputs(self, node: Plan, is_read: bool) -> bool:
        return self.reads_again(node)

    @abstractmethod
    def base_rows_in(self, node: Any, labels: Labels) -> str | None:
        """Where the rows of the one base table are that the node is made of; None if its rows are others."""


class Keeping(Stateful):
    """A strategy that keeps rows of its node in a support table, so that both states are read there."""

    support: str
    """The name of the support table."""

    is_exact: ClassVar[bool] = True
    """Whether the support table always holds what `contents` gives; if not, it may hold more."""

    @abstractmethod
    def contents(self, node: Any) -> Plan:
        """What the support table holds, as a plan over the base tables."""

    def order(self, node: Any) -> Sequence[str]:
        """The columns in whose order the rows are stored, because they are looked up by them; none by default.

        Rows with equal values are then neighbours, so that the statistics of files and pages leave out the rest.
        """
        return ()

    @abstractmethod
    def carried_over(self, node: Any, old: Any, kept: Keeping, sharing: Sharing) -> Plan | None:
        """The contents, from the support table of a node of another plan; None where they do not follow from it."""

    def base_rows_in(self, node: Any, labels: Labels) -> str | None:
        return None


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


def kept_nodes(plan: Plan) -> dict[str, tuple[Plan, Keeping]]:
    """The nodes that keep rows, by the names of their support tables."""
    found: dict[str, tuple[Plan, Keeping]] = {}
    for node in plan.walk():
        strategy = node.strategy
        if isinstance(strategy, Keeping):
            found[strategy.support] = node, strategy
    return found


def support_tables(plan: Plan) -> dict[str, Plan]:
    """What each support table of a view holds, as plans over the base tables."""
    return {name: strategy.contents(node) for name, (node, strategy) in kept_nodes(plan).items()}
