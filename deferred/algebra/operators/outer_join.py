"""⟕ ⟗ ⋉ ▷: outer, semi and anti joins. Linear in the left side while the right side is unchanged, otherwise
maintained at the touched keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.bags import COUNT, bigint, call
from deferred.algebra.nodes import Binary
from deferred.algebra.operators.distinct import Distinct
from deferred.algebra.operators.join import Join
from deferred.algebra.operators.project import Project, minus, pick
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.signed import Net
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer, used
from deferred.algebra.scalar import (
    Scalar,
    all_true,
    column,
    columns_of,
    conjuncts,
    equated,
    equated_columns,
    looked_up_in,
    product,
)
from deferred.algebra.strategy import TOUCHED_KEYS, TOUCHED_ROWS, Strategy, SupportTables
from deferred.errors import UnsupportedSQLError

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting

MINE, THEIRS = "_deferred_mine", "_deferred_theirs"
"""The counts of either side where both are joined. Under another name than COUNT, by which a change is known."""


@dataclass(frozen=True)
class Kind:
    """Which rows an outer, semi or anti join of E and F has.

    symbol: as the papers write it
    side, word: as SQL writes it before JOIN
    selects: whether it is a selection of E: rows of E as they are, each as often as it is there
    matched: whether rows of E with a partner are in it
    unmatched: whether rows of E without one are
    unmatched_right: whether rows of F without one are
    """

    called: str
    symbol: str
    side: str
    word: str | None
    selects: bool
    matched: bool
    unmatched: bool
    unmatched_right: bool


LEFT = Kind("LEFT JOIN", "⟕", "LEFT", None, selects=False, matched=True, unmatched=True, unmatched_right=False)
FULL = Kind("FULL JOIN", "⟗", "FULL", None, selects=False, matched=True, unmatched=True, unmatched_right=True)
SEMI = Kind("EXISTS or IN", "⋉", "LEFT", "SEMI", selects=True, matched=True, unmatched=False, unmatched_right=False)
ANTI = Kind(
    "NOT EXISTS or NOT IN", "▷", "LEFT", "ANTI", selects=True, matched=False, unmatched=True, unmatched_right=False
)


@dataclass(frozen=True, eq=False)
class OuterJoin(Binary):
    """E ⟕ F (LEFT), E ⟗ F (FULL), E ⋉ F (SEMI: rows of E with a partner), E ▷ F (ANTI: rows of E without one)."""

    kind: Kind
    condition: Scalar

    called = "an outer, semi or anti join"
    row_by_row = False
    in_recursion = True  # the left side of a semi or anti join, and the right side of a semi join
    one_row = False

    @property
    def title(self) -> str:
        return self.kind.called

    @property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns if self.kind.selects else (*self.left.columns, *self.right.columns)

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return (self.condition,)

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        return looked_up_in(self.condition)

    def origin(self, name: str) -> Origin | None:
        """Of a full join the columns of either side may be NULL where its rows have no NULL."""
        return self.left.origin(name) if not self.kind.unmatched_right and name in self.left.columns else None

    def pulled_up(self) -> tuple[Plan, list[Scalar]]:
        return self, []

    def joined_on(self, equality: Scalar) -> Plan | None:
        """σ_p(E ⟕ F) = σ_p(E) ⟕ F for a condition on columns of E; of a full join some rows have none."""
        if self.kind.unmatched_right or not columns_of(equality) <= set(self.left.columns):
            return None
        below = self.left.joined_on(equality)
        return None if below is None else replace(self, left=below)

    def with_join_condition(self, change: Callable[[Scalar], Scalar]) -> Plan:
        return replace(self, condition=change(self.condition))

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        asked = needed | used(self.condition)
        return tuple(asked & frozenset(side.columns) for side in self.children)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E ∘ F) = Δ(E) ∘ New(F) while F is unchanged: each row of E is joined on its own.

        When F changes, Δ = New(E|K) ∘ New(F|K) − Old(E|K) ∘ Old(F|K), K the join keys that Δ(E) or Δ(F) touch: a row
        with another key has the same partners as before. Without an equality that gives keys, K is the rows that have
        changed, those that match a changed row, and the partners of these. Gupta et al.'s rule for negation, at the
        keys instead of the whole relation.
        """
        left, right = d.delta(self.left), d.delta(self.right)
        if left is None and right is None:
            return None
        left = None if left is None else d.shared(left)
        if right is None and left is not None and not self.kind.unmatched_right:
            return self._linear(d, left)
        right = None if right is None else d.shared(right)
        pairs = self._pairs(d)
        if pairs:
            keys = self._touched_keys(d, left, right, pairs)
            of_left, of_right = Keys.of(keys, ((a, a) for a, _ in pairs)), Keys.of(keys, ((b, a) for a, b in pairs))
        else:
            of_left, of_right = self._touched_rows(d, left, right)
        lefts = d.states_with_counts(self.left, left, of_left)
        rights = d.states_with_counts(self.right, right, of_right)
        new, old = (self._of_counts(e, f) for e, f in zip(lefts, rights, strict=True))
        return Net(united([new, minus(old)], (*self.columns, COUNT)), d.bitwise(self.columns))

    def _of_counts(self, left: Plan, right: Plan) -> Plan:
        """E ∘ F as a signed bag, of signed bags of positive counts: the counts of two rows that meet are multiplied.

        A row without a partner counts as often as it is there.
        """
        if self.kind.selects:
            right = pick(right, self.right.columns)
            joined: Plan = replace(self, left=_named(left, MINE), right=right)
            count: Scalar = column(MINE)
        else:
            joined = replace(self, left=_named(left, MINE), right=_named(right, THEIRS))
            count = product(*(call("COALESCE", column(name), bigint(1)) for name in (MINE, THEIRS)))
        return Project(joined, (*((c, column(c)) for c in self.columns), (COUNT, count)))

    def _linear(self, d: Differentiator, change: Plan) -> Plan:
        pairs = self._pairs(d)
        right = self.right
        if pairs:  # Spark can broadcast the change to restrict the right side, but not as the left side of a LEFT JOIN
            right = right.restricted(Keys.of(change, ((b, a) for a, b in pairs)))
        return pick(replace(self, left=change, right=right), (*self.columns, COUNT))

    def _touched_keys(
        self, d: Differentiator, left: Plan | None, right: Plan | None, pairs: Sequence[tuple[str, str]]
    ) -> Plan:
        names = tuple(a for a, _ in pairs)
        sides = []
        if left is not None:
            sides.append(pick(left, names))
        if right is not None:
            sides.append(Project(right, tuple((a, column(b)) for a, b in pairs)))
        return d.shared(Distinct(united(sides, names)))

    def _touched_rows(self, d: Differentiator, left: Plan | None, right: Plan | None) -> tuple[Keys, Keys]:
        """The rows of E and of F, in either state, on which the changed part of the result depends.

        A row is touched if it has changed or matches a changed row, so that its partners may differ. The partners of
        the touched rows are read too. They may lack some of their own partners here, but the same ones in both
        states, so these rows cancel out.
        """
        changed = [
            None if change is None else pick(change, side.columns)
            for change, side in zip((left, right), self.children, strict=True)
        ]
        touched_left = self._and_partners(d, 0, changed, changed[0], changed[1])
        if self.kind.unmatched_right:
            touched_right = self._and_partners(d, 1, changed, changed[1], changed[0])
            rows = self._and_partners(d, 0, changed, touched_left, touched_right)
            others = self._and_partners(d, 1, changed, touched_right, touched_left)
        else:
            rows, others = touched_left, self._and_partners(d, 1, changed, changed[1], touched_left)
        return Keys.same(rows, rows.columns), Keys.same(others, others.columns)

    def _and_partners(
        self, d: Differentiator, side: int, changed: Sequence[Plan | None], rows: Plan | None, partners: Plan | None
    ) -> Plan:
        """`rows` of one side, and all rows of that side, in either state, that match one of the other side's."""
        plan, change = self.children[side], changed[side]
        found = [] if rows is None else [rows]
        if partners is not None:
            either = united([plan, *([] if change is None else [change])], plan.columns)
            found.append(pick(Join((partners, either), self.condition), plan.columns))
        return d.shared(Distinct(united(found, plan.columns)))

    def _pairs(self, d: Differentiator) -> list[tuple[str, str]]:
        """(column of E, column of F) that the condition equates and whose types can be compared exactly."""
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

        A full join keeps the rows of F without a partner, and restricting E would make more of them, so there K is
        compared above it.
        """
        plain = keys.plain
        if self.kind.unmatched_right or plain is None:
            return Restrict(self, keys)
        mine = plain.within(self.left.columns)
        if mine is None:
            return Restrict(self, keys)
        equal: dict[str, str] = {}
        for a, b in self._equated():
            equal.setdefault(a, b)
        theirs = mine.renamed(equal)
        plan = replace(
            self, left=self.left.restricted(mine), right=self.right if theirs is None else self.right.restricted(theirs)
        )
        return plan if mine.completes(keys) else Restrict(plan, keys)

    @property
    def strategy(self) -> Strategy:
        return TOUCHED_KEYS if self._equated() else TOUCHED_ROWS

    def supported(self, tables: SupportTables) -> Plan:
        return self

    def reads(self, labels: Labels) -> str:
        if self.strategy is TOUCHED_KEYS:
            links = " AND ".join(labels.scalar(part) for part in conjuncts(self.condition) if equated(part))
            return f"the changed rows, and both sides at their keys ({links})"
        return "the changed rows, the rows of the other side that match them, and the partners of these"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        if self.kind.unmatched_right:
            raise UnsupportedSQLError("A correlated subquery may not contain FULL OUTER JOIN.")
        left, values = u.plan(self.left)
        condition = [u.put(p, values) for p in conjuncts(self.condition)]
        if not u.is_correlated(self.right):
            return replace(self, left=left, condition=all_true(condition)), values
        right, theirs = u.plan(self.right)
        joined = replace(self, left=left, right=right, condition=all_true([*condition, *u.equal(values, theirs)]))
        return pick(joined, (*self.columns, *values.values())), values

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        """A row changes what it is joined with, and whether a partner, or itself, has a partner at all.

        Rows of E matter in (e, f) for a partner f, or alone, as (e, NULL). Rows f of F matter only to partners e: as
        (e, f), or because e is no longer, or is again, without a partner. In ⟗ both hold for both sides.
        """
        left, right, met = self.left, self.right, tuple(conjuncts(self.condition))
        of_left, of_right = (*met, *c.facts_of(left)), (*met, *c.facts_of(right))
        if self.kind.selects:
            matched = of_right if self.kind.matched else ()
            for_left, for_right = [(*d, *matched) for d in asked], [(*d, *of_left) for d in asked]
        else:
            alone = [c.put(d, dict.fromkeys(right.columns, exp.Null())) for d in asked]
            nobody = dict.fromkeys(left.columns, exp.Null())
            unmatched = [c.put(d, nobody) for d in asked] if self.kind.unmatched_right else []
            for_left = [*((*d, *of_right) for d in [*asked, *unmatched]), *alone]
            for_right = [*((*d, *of_left) for d in [*asked, *alone]), *unmatched]
        return [
            [c.apart(d, left.columns) for d in for_left],
            [c.apart(d, right.columns) for d in for_right],
        ]

    def known(self, c: Conditions) -> Conjunction:
        if self.kind.unmatched_right:
            return ()
        of_left = c.facts_of(self.left)
        if self.kind.unmatched:
            return of_left
        return (*of_left, *conjuncts(self.condition), *c.facts_of(self.right))

    def figure2(self, f: Figure2) -> Pair:
        return f.recomputed(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}

    def notation(self, labels: Labels) -> str:
        return labels.infix(f"{self.kind.symbol}[{labels.scalar(self.condition)}]", self.children)

    def evaluate(self, e: Evaluation) -> Bag:
        """All pairs for which the condition is true; then the rows with a partner, or without one."""
        left, right = e(self.left), e(self.right)
        holds = e.value(self.condition, (*self.left.columns, *self.right.columns))
        pairs = [(a, b) for a in left for b in right if holds(a + b) is True]
        partnered = {a for a, _ in pairs}
        if self.kind.selects:
            return Counter(
                {a: n for a, n in left.items() if (self.kind.matched if a in partnered else self.kind.unmatched)}
            )
        result: Bag = Counter()
        for a, b in pairs:
            result[a + b] += left[a] * right[b]
        for a, n in left.items():
            if a not in partnered:
                result[a + (None,) * len(self.right.columns)] += n
        if self.kind.unmatched_right:
            found = {b for _, b in pairs}
            for b, n in right.items():
                if b not in found:
                    result[(None,) * len(self.left.columns) + b] += n
        return result

    def sql(self, w: Writer) -> exp.Query:
        query = bags.select(map(bags.column, self.columns), w.below(self.left, "l"))
        on = w.scalar(self.condition)
        query.append("joins", exp.Join(this=w.below(self.right, "r"), side=self.kind.side, kind=self.kind.word, on=on))
        return w.broadcast(query, "l") if COUNT in self.left.columns else query


def _named(signed: Plan, count: str) -> Plan:
    """A signed bag with its count under another name."""
    return Project(signed, (*((c, column(c)) for c in signed.columns[:-1]), (count, column(COUNT))))
