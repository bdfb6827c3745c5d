"""E ⋉ F along declared references: the rows of a base table that refer to rows which can matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.nodes import Barrier
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.outer_join import SEMI, OuterJoin
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer
from deferred.algebra.scalar import Scalar, all_true, column
from deferred.algebra.strategy import PROMISED, Stateful, Strategy, SupportTables

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.operators.scan import Scan
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True, eq=False)
class Referred:
    """The rows that a reference leads to, and the equal columns: (of the referring rows, of the key)."""

    rows: Plan
    on: tuple[tuple[str, str], ...]

    @property
    def condition(self) -> Scalar:
        return all_true(exp.EQ(this=column(mine), expression=column(theirs)) for mine, theirs in self.on)


@dataclass(frozen=True, eq=False)
class Referring(Barrier):
    """E ⋉ F₁ ⋉ … ⋉ Fₙ, where every row of E refers to exactly one row of the table of which Fᵢ is a part.

    The auxiliary views of Quass et al. (Algorithm 3.1) have this form. `referred` rows must be `Stateful`.
    """

    child: Plan
    referred: tuple[Referred, ...]

    called = "a semi join along references"
    row_by_row = False
    in_recursion = True
    one_row = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.child, *(each.rows for each in self.referred))

    def with_children(self, children: Sequence[Plan]) -> Plan:
        child, *rows = children
        referred = tuple(replace(each, rows=plan) for each, plan in zip(self.referred, rows, strict=True))
        return Referring(child, referred)

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return tuple(each.condition for each in self.referred)

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c for each in self.referred for pair in each.on for c in pair))

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return self.child.unique_key

    def origin(self, name: str) -> Origin | None:
        return self.child.origin(name)

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        mine = needed | {fk for each in self.referred for fk, _ in each.on}
        return (mine, *(frozenset(key for _, key in each.on) for each in self.referred))

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E ⋉ F) = ▲E ⋉ New(F) − ▼E ⋉ Old(F): no row of E is read, whatever has changed in F.

        A row of E that stays refers to a row that is there before and after: by the reference in both states, and by
        the key to one only. If that row was updated, it was and is in F, or was and is not (a protected update; any
        other one is found in the log before the rule is used). So a change of F alone changes nothing here: an
        inserted row of F is referred to by inserted rows of E only (Property 4.1), a deleted one by deleted ones.
        """
        for each in self.referred:
            d.delta(each.rows)
        change = d.delta(self.child)
        if change is None:
            return None
        change = d.shared(change)
        inserted, deleted = part(change, exp.GT), part(change, exp.LT)
        for each in self.referred:
            inserted, deleted = d.shared(inserted), d.shared(deleted)
            strategy = each.rows.strategy
            assert isinstance(strategy, Stateful)
            new, old = (Keys.of(side, ((key, fk) for fk, key in each.on)) for side in (inserted, deleted))
            inserted = OuterJoin(inserted, each.rows.restricted(new), SEMI, each.condition)
            deleted = OuterJoin(deleted, strategy.past(each.rows, old), SEMI, each.condition)
        return united([inserted, deleted], (*self.columns, COUNT))

    def restricted(self, keys: Keys) -> Plan:
        return Restrict(self, keys)

    @property
    def strategy(self) -> Strategy:
        return PROMISED

    def supported(self, tables: SupportTables) -> Plan:
        return self

    def reads(self, labels: Labels) -> str:
        links = " AND ".join(labels.scalar(each.condition) for each in self.referred)
        return f"the changed rows, and the kept rows that they refer to ({links})"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        raise u.unsupported("auxiliary tables")

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        """All rows are kept, here or above, whatever is asked of them."""
        return [c.ANY for _ in self.children]

    def known(self, c: Conditions) -> Conjunction:
        return c.facts_of(self.child)

    @property
    def watched(self) -> Sequence[Scan]:
        return ()

    def figure2(self, f: Figure2) -> Pair:
        return f.recomputed(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}

    def notation(self, labels: Labels) -> str:
        return labels.text(self._joined())

    def evaluate(self, e: Evaluation) -> Bag:
        return e(self._joined())

    def sql(self, w: Writer) -> exp.Query:
        return w.query(self._joined())

    def _joined(self) -> Plan:
        """The same as semi-joins of base tables."""
        plan = self.child
        for each in self.referred:
            plan = OuterJoin(plan, each.rows, SEMI, each.condition)
        return plan


def part(change: Plan, compare: type[exp.GT] | type[exp.LT]) -> Plan:
    """▲ or ▼ of a change: its rows of positive, or of negative count."""
    return Filter(change, compare(this=column(COUNT), expression=bigint(0)))
