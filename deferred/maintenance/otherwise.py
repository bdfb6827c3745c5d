"""What a view would keep and read under another value of its option `maintain`.

What is kept is decided when a view is created, and which rows will change is not known then: so the option is never
chosen by an estimate. `explain` names the other values that are possible, with what has changed so far as the measure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from deferred.algebra.operators.promised_join import PromisedJoin
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.selfmaintenance import base_reads, described
from deferred.algebra.strategy import kept_nodes
from deferred.errors import DeferredError
from deferred.log.context import Context
from deferred.maintenance import definition, strategies
from deferred.maintenance.costs import Cost, Situation
from deferred.maintenance.definition import SELF, Definition
from deferred.metadata import ViewRecord

AUTO, TREE = "auto", "tree"


@dataclass(frozen=True)
class Other:
    """A view as it would be under another value of `maintain`."""

    maintain: str
    definition: Definition

    @property
    def lines(self) -> Iterator[str]:
        """What it would keep, and what a change would make it read."""
        plan = self.definition.plan
        read = ", ".join(sorted(base_reads(plan, self.definition.column_types))) or "no base table"
        yield f"maintain = '{self.maintain}': a change reads {read}."
        if self.maintain == SELF:
            yield from (f"  {line}" for line in described(plan))
        else:
            for name, (node, strategy) in kept_nodes(plan).items():
                yield f"  {name}: {strategy.name} of {listed_tables(node)}"

    def cost(self, now: Situation) -> Cost:
        """What it would cost; of tables that do not exist, at most."""
        return strategies.SELF.cost(replace(now, definition=self.definition))


def otherwise(context: Context, view: ViewRecord, mine: Definition) -> list[Other]:
    """The other values of `maintain` under which the view would read other things than it does now."""
    if mine.bound is None:
        return []
    found = []
    for maintain in (AUTO, SELF, TREE):
        try:
            other = definition.maintained(context, view, mine, maintain) if maintain != view.options.maintain else None
        except DeferredError:
            continue
        if other is not None and _differs(maintain, mine, other):
            found.append(Other(maintain, other))
    return found


def _differs(maintain: str, mine: Definition, other: Definition) -> bool:
    """Whether declared references, or sets that are kept, make a plan another one."""
    if maintain == SELF:
        return any(isinstance(node, PromisedJoin) for node in other.plan.walk())
    if maintain == TREE:
        return any(node.strategy.absorbs for node in other.plan.walk())
    return kept_nodes(mine.plan).keys() != kept_nodes(other.plan).keys()
