"""What a view would keep and read under another value of its option `maintain`.

What is kept is decided when a view is created, and which rows will change is not known then: so the option is never
chosen by an estimate. `explain` names the other values that are possible, with what has changed so far as the measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from deferred.algebra.operators.promised_join import PromisedJoin
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.selfmaintenance import base_reads, described
from deferred.algebra.strategy import kept_nodes
from deferred.errors import DeferredError
from deferred.log.context import Context
from deferred.maintenance import definition, strategies
from deferred.maintenance.costs import Cost, Situation
from deferred.maintenance.definition import Definition
from deferred.metadata import ViewRecord
from deferred.options import AUTO, SELF, TREE


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
    if not mine.has_plan:
        return []
    found = []
    for maintain, differs in DIFFERS.items():
        try:
            other = definition.maintained(context, view, mine, maintain) if maintain != view.options.maintain else None
        except DeferredError:
            continue
        if other is not None and differs(mine, other):
            found.append(Other(maintain, other))
    return found


def _keeps_others(mine: Definition, other: Definition) -> bool:
    return kept_nodes(mine.plan).keys() != kept_nodes(other.plan).keys()


def _relies_on_references(mine: Definition, other: Definition) -> bool:
    return any(isinstance(node, PromisedJoin) for node in other.plan.walk())


def _keeps_good_rows(mine: Definition, other: Definition) -> bool:
    return any(node.strategy.absorbs for node in other.plan.walk())


DIFFERS: Mapping[str, Callable[[Definition, Definition], bool]] = {
    AUTO: _keeps_others,
    SELF: _relies_on_references,
    TREE: _keeps_good_rows,
}
"""Of each value of `maintain`: whether the plan under it is another one than the view's own."""
