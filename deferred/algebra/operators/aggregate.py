"""γ: GROUP BY and global aggregates.

How a group follows its rows is a strategy, a type of its own:
- `TouchedGroups`: the rows of the touched groups are read again. Any aggregate, any argument.
- `Counted` (counted.py): counts, exact sums and extremes are kept per group, and a change updates them.
- `TotalOverKept`: a total over values that are kept with their counts (kept.py); no base table is read.
- `WholeInput`: a total over everything that is not kept; the whole input is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.aggregates.calls import ignores_copies, over_nothing
from deferred.algebra.nodes import Barrier, Unary
from deferred.algebra.operators.outer_join import LEFT, OuterJoin
from deferred.algebra.operators.project import Project, needed_outputs, pick
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer, used
from deferred.algebra.scalar import Scalar, all_true, column
from deferred.algebra.strategy import OverKept, ReadsInputs, Recomputed, Strategy, SupportTables

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.paper.interpret import Row
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


class GroupStrategy(Strategy, ABC):
    """How the groups of an aggregate follow their rows."""

    @abstractmethod
    def delta(self, node: Aggregate, d: Differentiator, change: Plan) -> Plan:
        """Δ(γ(E)) from Δ(E)."""

    @abstractmethod
    def restricted(self, node: Aggregate, keys: Keys) -> Plan:
        """γ(E) ⋉ K."""

    @abstractmethod
    def reads(self, node: Aggregate, labels: Labels) -> str:
        """What a change makes the aggregate read."""


class Reading(GroupStrategy, ReadsInputs):
    """Both states of the touched groups are computed from their rows."""

    def delta(self, node: Aggregate, d: Differentiator, change: Plan) -> Plan:
        """Δ(γ(E)) = γ(New(E|K)) − γ(Old(E|K)), K the groups that Δ(E) touches.

        A group outside K has the same rows as before. Gupta et al.'s Algorithm 4.1 for aggregation, without assuming
        that the aggregate can be decremented. Where copies do not matter, as to COUNT(DISTINCT x), none is written out.
        """
        change = d.shared(change)
        keys = Keys.same(change, node.keys) if node.keys else None
        if keys is not None and all(map(ignores_copies, node.expressions)):
            new, old = (pick(rows, node.child.columns) for rows in d.states_with_counts(node.child, change, keys))
        else:
            new, old = d.states(node.child, change, keys)
        return d.difference(replace(node, child=new), replace(node, child=old), node.columns)

    def restricted(self, node: Aggregate, keys: Keys) -> Plan:
        """γ(E) ⋉ K = γ(E ⋉ K) on the grouping columns: whole groups stay or go."""
        below = keys.within(node.keys)
        plan = node if below is None else replace(node, child=node.child.restricted(below))
        return plan if below is not None and below.completes(keys) else Restrict(plan, keys)


class TouchedGroups(Reading):
    """Any aggregate of any argument: the rows of the touched groups are read again."""

    name: ClassVar[str] = "touched groups"

    def reads(self, node: Aggregate, labels: Labels) -> str:
        groups = labels.columns(node.keys)
        return f"the changed rows, and in {listed_tables(node)} all rows of their groups ({groups})"


class WholeInput(Reading, Recomputed):
    """A total over everything that is not kept: its one group is the whole input."""

    def reads(self, node: Aggregate, labels: Labels) -> str:
        return f"its whole input: {listed_tables(node)}"


class TotalOverKept(Reading, OverKept):
    """A total over values that are kept with their counts below it: no base table is read."""

    def reads(self, node: Aggregate, labels: Labels) -> str:
        return "all kept values, and no table"


TOUCHED_GROUPS, WHOLE_INPUT, TOTAL_OVER_KEPT = TouchedGroups(), WholeInput(), TotalOverKept()


@dataclass(frozen=True, eq=False)
class Aggregate(Barrier, Unary):
    """γ: one row per group of `keys` (columns of E), with one aggregate expression per output.

    Without keys there is exactly one row, over an empty input too. `chosen` is its strategy if that is not the
    default of reading the touched groups again.
    """

    keys: tuple[str, ...]
    outputs: tuple[tuple[str, Scalar], ...]
    chosen: GroupStrategy | None = None

    called = "an aggregate"
    row_by_row = False
    in_recursion = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *(name for name, _ in self.outputs))

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return tuple(e for _, e in self.outputs)

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return self.keys

    @property
    def one_row(self) -> bool:
        return not self.keys

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        return self.keys

    def origin(self, name: str) -> Origin | None:
        return None

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(self.keys) | used(*(e for _, e in self._needed_outputs(needed))),)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        (child,) = children
        return replace(self, child=child, outputs=self._needed_outputs(needed))

    def _needed_outputs(self, needed: frozenset[str]) -> tuple[tuple[str, Scalar], ...]:
        if self.keys:  # the keys alone give one row per group
            return tuple(o for o in self.outputs if o[0] in needed)
        return needed_outputs(self.outputs, needed)

    @property
    def strategy(self) -> GroupStrategy:
        if self.chosen is not None:
            return self.chosen
        return TOUCHED_GROUPS if self.keys else WHOLE_INPUT

    def delta(self, d: Differentiator) -> Plan | None:
        change = d.delta(self.child)
        return None if change is None else self.strategy.delta(self, d, change)

    def restricted(self, keys: Keys) -> Plan:
        return self.strategy.restricted(self, keys)

    def supported(self, tables: SupportTables) -> Plan:
        return tables.counted(self)

    def reads(self, labels: Labels) -> str:
        return self.strategy.reads(self, labels)

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        """Groups within each value; a global aggregate keeps its one row for a value without rows."""
        child, values = u.plan(self.child)
        outputs = tuple((name, u.put(e, values)) for name, e in self.outputs)
        grouped = Aggregate(child, (*self.keys, *values.values()), outputs)
        if self.keys:
            return grouped, values
        domain, mine = u.instance()
        marker = u.new("boolean")
        marked = Project(grouped, (*((c, column(c)) for c in grouped.columns), (marker, exp.true())))
        joined = OuterJoin(domain, marked, LEFT, all_true(u.equal(mine, values)))
        absent = exp.Is(this=column(marker), expression=exp.Null())
        filled: list[tuple[str, Scalar]] = [
            (name, exp.Case(ifs=[exp.If(this=absent.copy(), true=over_nothing(e))], default=column(name)))
            for name, e in outputs
        ]
        return Project(joined, (*filled, *u.carried(mine))), mine

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        """A row changes the values of its own group: its keys are the group's, anything may be computed of it."""
        return [[c.apart(demand, self.keys) for demand in asked]]

    def known(self, c: Conditions) -> Conjunction:
        """Without keys there is a row even if the input has none."""
        return c.facts_of(self.child) if self.keys else ()

    def figure2(self, f: Figure2) -> Pair:
        return f.grouped(self, self.keys)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {out: labels.computed(out, expression) for out, expression in self.outputs}

    def notation(self, labels: Labels) -> str:
        return f"γ[{labels.columns(self.keys)}; {labels.outputs(self.outputs)}]({labels.text(self.child)})"

    def evaluate(self, e: Evaluation) -> Bag:
        columns = self.child.columns
        positions = [columns.index(key) for key in self.keys]
        groups: dict[Row, Bag] = {} if self.keys else {(): Counter()}
        for row, n in e(self.child).items():
            groups.setdefault(tuple(row[i] for i in positions), Counter())[row] = n

        def outputs(key: Row, group: Bag) -> tuple[Any, ...]:
            return tuple(e.over_group(expression, self.keys, key, columns, group) for expression in self.expressions)

        return Counter((*key, *outputs(key, group)) for key, group in groups.items())

    def sql(self, w: Writer) -> exp.Query:
        outputs = [*map(bags.column, self.keys), *(bags.alias(w.scalar(e), name) for name, e in self.outputs)]
        query = bags.select(outputs, w.below(self.child, "q"))
        if self.keys:
            query.set("group", exp.Group(expressions=[bags.column(key) for key in self.keys]))
        return query
