"""Outer, semi and anti joins: linear in the left side while the right one stays, else decided at the touched keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deferred.algebra.join import Join
from deferred.algebra.plan import COUNT, Filter, Keys, Plan, Project, Restrict, pick, union
from deferred.algebra.scalar import Scalar, column, columns_of, conjunction, conjuncts, equated_columns
from deferred.algebra.sets import Distinct

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator

LEFT, FULL, SEMI, ANTI = "LEFT", "FULL", "SEMI", "ANTI"


@dataclass(frozen=True, eq=False)
class OuterJoin(Plan):
    """E ⟕ F (LEFT), E ⟗ F (FULL), E ⋉ F (SEMI: rows of E with a partner), E ▷ F (ANTI: rows of E without one)."""

    left: Plan
    right: Plan
    kind: str
    condition: Scalar

    @property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns if self.kind in (SEMI, ANTI) else (*self.left.columns, *self.right.columns)

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.left, self.right)

    def with_children(self, children: Sequence[Plan]) -> Plan:
        left, right = children
        return replace(self, left=left, right=right)

    @property
    def maintained(self) -> str:
        return "touched keys" if self._equated() else "touched rows"

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E ∘ F) = Δ(E) ∘ New(F) while F stays: each row of E asks F for itself.

        When F changes, Δ = New(E|K) ∘ New(F|K) − Old(E|K) ∘ Old(F|K), K the join keys that Δ(E) or Δ(F) touch: a row
        with another key has the partners it had. Without an equality to take keys from, K is the rows that have
        changed, those that match a changed row, and the partners of these. Gupta et al.'s rule for negation, at the
        keys instead of the whole relation.
        """
        left, right = d.delta(self.left), d.delta(self.right)
        if left is None and right is None:
            return None
        left = None if left is None else d.shared(left)
        if right is None and left is not None and self.kind != FULL:
            return self._linear(d, left)
        right = None if right is None else d.shared(right)
        pairs = self._pairs(d)
        if pairs:
            keys = self._touched_keys(d, left, right, pairs)
            new_left, old_left = d.states(self.left, left, Keys.of(keys, ((a, a) for a, _ in pairs)))
            new_right, old_right = d.states(self.right, right, Keys.of(keys, ((b, a) for a, b in pairs)))
        else:
            left_rows, right_rows = self._touched_rows(d, left, right)
            new_left, old_left = d.states(self.left, left, left_rows)
            new_right, old_right = d.states(self.right, right, right_rows)
        return d.difference(replace(self, left=new_left, right=new_right),
                            replace(self, left=old_left, right=old_right), self.columns)

    def _linear(self, d: Differentiator, change: Plan) -> Plan:
        pairs = self._pairs(d)
        right = self.right
        if pairs:  # Spark can send the change to the right side to restrict it, but not to join it from the left
            right = right.restricted(Keys.of(change, ((b, a) for a, b in pairs)))
        return pick(replace(self, left=change, right=right), (*self.columns, COUNT))

    def _touched_keys(self, d: Differentiator, left: Plan | None, right: Plan | None,
                      pairs: Sequence[tuple[str, str]]) -> Plan:
        names = tuple(a for a, _ in pairs)
        sides = []
        if left is not None:
            sides.append(pick(left, names))
        if right is not None:
            sides.append(Project(right, tuple((a, column(b)) for a, b in pairs)))
        keys = union(sides, names)
        assert keys is not None
        return d.shared(Distinct(keys))

    def _touched_rows(self, d: Differentiator, left: Plan | None, right: Plan | None) -> tuple[Keys, Keys]:
        """The rows of E and of F, in either state, on which the changed part of the result depends.

        Touched is a row that has changed or matches a changed row: its partners are not what they were. Beside the
        touched rows the partners that decide over them are kept. Those may show other partners than they have, but
        the same ones in both states, so they cancel.
        """
        changed = [None if change is None else pick(change, side.columns)
                   for change, side in zip((left, right), self.children, strict=True)]
        touched_left = self._and_partners(d, 0, changed, changed[0], changed[1])
        if self.kind == FULL:
            touched_right = self._and_partners(d, 1, changed, changed[1], changed[0])
            rows = self._and_partners(d, 0, changed, touched_left, touched_right)
            others = self._and_partners(d, 1, changed, touched_right, touched_left)
        else:
            rows, others = touched_left, self._and_partners(d, 1, changed, changed[1], touched_left)
        return Keys.same(rows, rows.columns), Keys.same(others, others.columns)

    def _and_partners(self, d: Differentiator, side: int, changed: Sequence[Plan | None], rows: Plan | None,
                      partners: Plan | None) -> Plan:
        """`rows` of one side, and all rows of that side, in either state, that match one of the other side's."""
        plan, change = self.children[side], changed[side]
        found = [] if rows is None else [rows]
        if partners is not None:
            either = union([plan, *([] if change is None else [change])], plan.columns)
            assert either is not None
            found.append(pick(Join((partners, either), self.condition), plan.columns))
        both = union(found, plan.columns)
        assert both is not None
        return d.shared(Distinct(both))

    def _pairs(self, d: Differentiator) -> list[tuple[str, str]]:
        """(column of E, column of F) that the condition equates and whose values are of one kind."""
        return list({a: b for a, b in self._equated() if d.comparable(a, b)}.items())

    def _equated(self) -> list[tuple[str, str]]:
        """(column of E, column of F) that the condition equates."""
        pairs = []
        for part in conjuncts(self.condition):
            equated = equated_columns(part)
            for a, b in (equated, equated[::-1]) if equated else ():
                if a in self.left.columns and b in self.right.columns:
                    pairs.append((a, b))
        return pairs

    def restricted(self, keys: Keys) -> Plan:
        """(E ⟕ F) ⋉ K = (E ⋉ K) ⟕ F on columns of E; F by the columns that the condition equates to them.

        A full join keeps rows of F that E's restriction would orphan, so there K is compared above it.
        """
        plain = keys.plain
        if self.kind == FULL or plain is None:
            return Restrict(self, keys)
        mine = plain.within(self.left.columns)
        if mine is None:
            return Restrict(self, keys)
        equal: dict[str, str] = {}
        for a, b in self._equated():
            equal.setdefault(a, b)
        theirs = mine.renamed(equal)
        plan = replace(self, left=self.left.restricted(mine),
                       right=self.right if theirs is None else self.right.restricted(theirs))
        return plan if mine.completes(keys) else Restrict(plan, keys)


def filtered(plan: Plan, condition: Scalar) -> Plan:
    """σ over a plan; over an inner join the condition becomes the join's own, so that its links are known.

    An equality of columns goes below what stands between it and the join that it links: it may be asked of rows that
    the query filters out first, on which columns of one type compare as well as on any others.
    """
    if isinstance(plan, Join):
        return Join(plan.inputs, conjunction([*conjuncts(plan.condition), *conjuncts(condition)]))
    rest = []
    for part in conjuncts(condition):
        sunk = _sunk(plan, part) if equated_columns(part) else None
        if sunk is None:
            rest.append(part)
        else:
            plan = sunk
    above = conjunction(rest)
    return plan if above is None else Filter(plan, above)


def _sunk(plan: Plan, part: Scalar) -> Plan | None:
    """The plan with a conjunct taken into an inner join below it, None where there is none that has its columns."""
    if isinstance(plan, Join):
        return filtered(plan, part) if columns_of(part) <= set(plan.columns) else None
    if isinstance(plan, Filter):
        below = _sunk(plan.child, part)
        return None if below is None else Filter(below, plan.condition)
    if isinstance(plan, OuterJoin) and plan.kind != FULL and columns_of(part) <= set(plan.left.columns):
        below = _sunk(plan.left, part)
        return None if below is None else replace(plan, left=below)
    return None
