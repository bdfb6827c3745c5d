"""Counted aggregates: the parts of every group are kept (Gupta et al.'s counting).

A change adds to the parts or subtracts from them. No row of the group is read again, except where a deleted value
reaches a kept minimum or maximum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint, call
from deferred.algebra.operators.aggregate import Aggregate, GroupStrategy
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.join import Join
from deferred.algebra.operators.outer_join import LEFT, OuterJoin
from deferred.algebra.operators.project import Project, pick
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.operators.signed import Net
from deferred.algebra.operators.temporary import Stored
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.program import Upkeep
from deferred.algebra.scalar import Scalar, all_true, column, product, same
from deferred.algebra.strategy import Keeping
from deferred.algebra.support_tables import AGAIN, keys_gone, looked_up, rows_at_new_cut

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.sharing import Sharing

ADDED = "_deferred_moved_"
LOST = "_deferred_lost_"


@dataclass(frozen=True)
class GroupPart(ABC):
    """One kept number of a group, of the values in the column `argument`."""

    id: str
    type: str
    argument: str | None = None

    kind: ClassVar[str]
    """Its name in the registry of aggregates."""

    @property
    def value(self) -> Scalar:
        assert self.argument is not None
        return column(self.argument)

    @abstractmethod
    def computed(self) -> Scalar:
        """The part computed from the rows of a group."""

    @abstractmethod
    def added(self) -> list[tuple[str, Scalar]]:
        """What Δ(E) adds to the part of a group."""

    def advanced(self) -> Scalar:
        """The new part, from the old one and what was added."""
        return self.cast(exp.Add(this=_or_zero(column(self.id)), expression=_or_zero(column(ADDED + self.id))))

    def cast(self, value: Scalar) -> Scalar:
        return exp.cast(value, self.type, dialect="spark")


class Rows(GroupPart):
    """The number of rows."""

    kind = "rows"

    def computed(self) -> Scalar:
        return call("COUNT", exp.Star())

    def added(self) -> list[tuple[str, Scalar]]:
        return [(ADDED + self.id, _sum(column(COUNT)))]


class Count(GroupPart):
    """The number of values that are not NULL."""

    kind = "count"

    def computed(self) -> Scalar:
        return call("COUNT", self.value)

    def added(self) -> list[tuple[str, Scalar]]:
        return [(ADDED + self.id, _sum(_case(_is_null(self.value), bigint(0), column(COUNT))))]


class Sum(GroupPart):
    """The sum of the values, 0 without any."""

    kind = "sum"

    def computed(self) -> Scalar:
        return self.cast(_or_zero(_sum(self.cast(self.value))))

    def added(self) -> list[tuple[str, Scalar]]:
        times = exp.cast(column(COUNT), "DECIMAL(9, 0)", dialect="spark")
        return [(ADDED + self.id, self.cast(_or_zero(_sum(product(self.value, times)))))]


class Extreme(GroupPart):
    """The least or the greatest value."""

    function: ClassVar[str]
    """The aggregate that finds it."""
    of_two: ClassVar[str]
    """The function that chooses it of two values."""
    at_or_beyond: ClassVar[type[exp.Binary]]
    """Compares a value with it that may be it."""

    def computed(self) -> Scalar:
        return call(self.function, self.value)

    def added(self) -> list[tuple[str, Scalar]]:
        """The best inserted and the best deleted value."""
        best = []
        for prefix, sign in ((ADDED, exp.GT), (LOST, exp.LT)):
            chosen = _case(sign(this=column(COUNT), expression=bigint(0)), self.value, exp.Null())
            best.append((prefix + self.id, call(self.function, chosen)))
        return best

    def advanced(self) -> Scalar:
        return call(self.of_two, column(self.id), column(ADDED + self.id))

    def reached(self) -> Scalar:
        """Whether a deleted value reaches it, so that the next one must be found in the rows."""
        return self.at_or_beyond(this=column(LOST + self.id), expression=column(self.id))


class Least(Extreme):
    kind, function, of_two, at_or_beyond = "min", "MIN", "LEAST", exp.LTE


class Greatest(Extreme):
    kind, function, of_two, at_or_beyond = "max", "MAX", "GREATEST", exp.GTE


PARTS: Mapping[str, type[GroupPart]] = {part.kind: part for part in (Rows, Count, Sum, Least, Greatest)}
"""The parts by their names in the registry of aggregates."""


@dataclass(frozen=True)
class Counted(GroupStrategy, Keeping):
    """An aggregate maintained by counting: its parts, and `finals`, the expression of each output over the parts."""

    name: ClassVar[str] = "counted"
    support: str
    parts: tuple[GroupPart, ...]
    finals: tuple[tuple[str, Scalar], ...]

    # ---- the support table

    def contents(self, node: Aggregate) -> Plan:
        return self._parts_of(node, node.child)

    def carried_over(self, node: Aggregate, old: Plan, kept: Keeping, sharing: Sharing) -> Plan | None:
        """The parts of the same groups; those that were not kept are computed, and joined to them by the group."""
        if not isinstance(old, Aggregate) or not isinstance(kept, Counted):
            return None
        pairs = sharing.columns(old.child, node.child)
        if pairs is None or len(old.keys) != len(node.keys) or {pairs.get(k) for k in node.keys} != set(old.keys):
            return None
        known = {(type(part), part.argument, part.type): part.id for part in kept.parts}
        found = {
            part: known.get((type(part), part.argument and pairs.get(part.argument, ""), part.type))
            for part in self.parts
        }
        names = [*((k, pairs[k]) for k in node.keys), *((part.id, held) for part, held in found.items() if held)]
        taken = sharing.taken(kept._stored(old), names)
        missing = tuple((part.id, part.computed()) for part, held in found.items() if held is None)
        if not missing:
            return taken
        others = {k: f"_deferred_new_{k}" for k in node.keys}
        more = Aggregate(node.child, node.keys, missing)
        more_named = Project(more, tuple((others.get(c, c), column(c)) for c in more.columns))
        condition = all_true(same(column(k), column(others[k])) for k in node.keys) if node.keys else None
        return pick(Join((taken, more_named), condition), self._stored(node).columns)

    def past(self, node: Aggregate, keys: Keys | None) -> Plan:
        return self._groups_at(node, keys, lambda own: looked_up(self._stored(node), own))

    def present(self, node: Aggregate, d: Differentiator, keys: Keys | None) -> Plan:
        return self._groups_at(node, keys, lambda own: rows_at_new_cut(d, node, self._stored(node), own))

    def reads_again(self, node: Aggregate) -> bool:
        """A deleted minimum or maximum makes it look for the next one."""
        return any(isinstance(part, Extreme) for part in self.parts)

    def restricted(self, node: Aggregate, keys: Keys) -> Plan:
        """γ(E) ⋉ K is looked up in the support table, see `Differentiator.reading`."""
        return Restrict(node, keys)

    def reads(self, node: Aggregate, labels: Labels) -> str:
        kept = f"kept parts of their groups ({labels.columns(node.keys)})" if node.keys else "kept parts of the total"
        extremes = any(isinstance(part, Extreme) for part in self.parts)
        again = f"; {listed_tables(node)} only where a least or greatest value was deleted" if extremes else ""
        return f"the changed rows, and the {kept}{again}"

    # ---- the rule

    def delta(self, node: Aggregate, d: Differentiator, change: Plan) -> Plan:
        """Δ(γ(E)) from the kept parts: new parts = old parts + Σ over Δ(E), at the groups that Δ(E) touches.

        Δ(E) itself is not a step: only what it adds to each group leaves the query that computes it.

        Counts and sums are subtracted exactly. A minimum or maximum stays unless a deleted value reaches it; only the
        groups where that happens are read again, New(E|K).
        """
        stored = self._stored(node)
        kept = stored.columns
        touched = change
        if any(isinstance(part, Extreme) for part in self.parts):
            # A value that Δ(E) both inserts and deletes was never there, and must not be the best inserted one.
            read = tuple(dict.fromkeys((*node.keys, *(part.argument for part in self.parts if part.argument))))
            change = Net(pick(change, (*read, COUNT)), d.bitwise(read))
        added: Plan = Aggregate(change, node.keys, tuple(output for part in self.parts for output in part.added()))
        if not d.is_leaf(touched):  # else the keys are known already, and what is added is read once
            added = touched = d.shared(added)
        old_parts = looked_up(stored, Keys.same(touched, node.keys) if node.keys else None)
        both = d.shared(self._with_old_parts(node, added, old_parts))
        old = pick(Filter(both, exp.Not(this=_is_null(column(self._rows)))), kept)

        new_parts = self._new_parts(node, d, both)
        # One input is a projection of a step: computing it again costs no more than reading it would.
        current = new_parts[0] if len(new_parts) == 1 else d.shared(united(new_parts, kept))
        d.supports[self.support] = Upkeep(current, keys_gone(both, current, node.keys), node.keys)
        return d.difference(self._outputs_of(node, current), self._outputs_of(node, old), node.columns)

    def _new_parts(self, node: Aggregate, d: Differentiator, both: Plan) -> list[Plan]:
        """The parts of the touched groups now: advanced, or read again where an extreme was reached."""
        reached = [part.reached() for part in self.parts if isinstance(part, Extreme)]
        if not reached:
            return [self._advanced(node, both)]
        unsafe: Scalar = reached[0]
        for other in reached[1:]:
            unsafe = exp.Or(this=unsafe, expression=other)
        known = call("COALESCE", exp.Paren(this=unsafe), exp.false())
        advanced = self._advanced(node, Filter(both, exp.Not(this=known.copy())))
        to_read = d.shared(Project(Filter(both, known), (*((k, column(k)) for k in node.keys), (AGAIN, exp.true()))))
        rows = d.shared(node.child.restricted(Keys.same(to_read, node.keys)) if node.keys else node.child, when=to_read)
        again = self._parts_of(node, rows)
        if not node.keys:
            again = pick(Join((again, to_read)), self._stored(node).columns)
        return [advanced, again]

    def _advanced(self, node: Aggregate, both: Plan) -> Plan:
        """New parts, from the old parts and what was added, without groups that have no rows left."""
        outputs = (*((k, column(k)) for k in node.keys), *((part.id, part.advanced()) for part in self.parts))
        plan = Project(both, outputs)
        if not node.keys:
            return plan
        return Filter(plan, exp.GT(this=column(self._rows), expression=bigint(0)))

    def _with_old_parts(self, node: Aggregate, added: Plan, old: Plan) -> Plan:
        """Each touched group with its old parts, NULL if the group is new."""
        names = {k: f"_deferred_old_{k}" for k in node.keys}
        ids = tuple(part.id for part in self.parts)
        side = Project(old, (*((names[k], column(k)) for k in node.keys), *((i, column(i)) for i in ids)))
        condition = all_true(same(column(k), column(names[k])) for k in node.keys)
        return pick(OuterJoin(added, side, LEFT, condition), (*added.columns, *ids))

    # ---- pieces

    @property
    def _rows(self) -> str:
        """The part that tells how many rows a group has: the first one."""
        return self.parts[0].id

    def _stored(self, node: Aggregate) -> Stored:
        return Stored(self.support, (*node.keys, *(part.id for part in self.parts)), node.keys)

    def _parts_of(self, node: Aggregate, rows: Plan) -> Plan:
        return Aggregate(rows, node.keys, tuple((part.id, part.computed()) for part in self.parts))

    def _outputs_of(self, node: Aggregate, parts: Plan) -> Plan:
        """The rows of the aggregate, computed from kept parts."""
        return Project(parts, (*((k, column(k)) for k in node.keys), *self.finals))

    def _groups_at(self, node: Aggregate, keys: Keys | None, parts: Callable[[Keys | None], Plan]) -> Plan:
        """The groups with the given keys: looked up by grouping columns; other key columns are compared afterwards."""
        own = None if keys is None else keys.within(node.keys)
        groups = self._outputs_of(node, parts(own))
        return groups if keys is None or (own is not None and own.completes(keys)) else Restrict(groups, keys)


def _sum(value: Scalar) -> Scalar:
    return call("SUM", value.copy())


def _or_zero(value: Scalar) -> Scalar:
    return call("COALESCE", value.copy(), exp.Literal.number(0))


def _is_null(value: Scalar) -> Scalar:
    return exp.Is(this=value.copy(), expression=exp.Null())


def _case(condition: Scalar, then: Scalar, otherwise: Scalar) -> Scalar:
    return exp.Case(ifs=[exp.If(this=condition, true=then.copy())], default=otherwise.copy())
