"""∸ and min, EXCEPT and INTERSECT: decided row by row, so maintained at the touched rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.bags import bigint
from deferred.algebra.nodes import Barrier, Binary
from deferred.algebra.operators.counts import changed_rows, counts_of_both_states
from deferred.algebra.operators.distinct import Distinct
from deferred.algebra.operators.project import renamed
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.operators.signed import Summed
from deferred.algebra.operators.union_all import sides_by_position, union, united, unnested_sides
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer
from deferred.algebra.scalar import Scalar, all_true, column
from deferred.algebra.strategy import TOUCHED_ROWS, Strategy, SupportTables

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting

EXCEPT, INTERSECT = "EXCEPT", "INTERSECT"
LEFT, RIGHT = ("_deferred_n_new", "_deferred_n_old"), ("_deferred_m_new", "_deferred_m_old")
SYMBOLS = {
    (EXCEPT, True): "∸",
    (EXCEPT, False): "EXCEPT",
    (INTERSECT, True): "min",
    (INTERSECT, False): "INTERSECT",
}


@dataclass(frozen=True, eq=False)
class SetOperation(Barrier, Binary):
    """A binary operation that depends only on the multiplicities n and m of one row in its two inputs.

    EXCEPT ALL is the paper's monus, max(0, n − m); INTERSECT ALL its min. Without ALL the result is a set:
    the row is there when n > 0 and m = 0 (EXCEPT), or when both are positive (INTERSECT).
    """

    kind: str
    every: bool  # ALL
    ids: tuple[str, ...]

    called = "EXCEPT or INTERSECT"
    row_by_row = False
    in_recursion = False
    one_row = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return ()

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        return self.columns

    def origin(self, name: str) -> Origin | None:
        return None

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(side.columns) for side in self.children)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E ∘ F) = New(E|K) ∘ New(F|K) − Old(E|K) ∘ Old(F|K), K the rows of Δ(E) and of Δ(F).

        A row outside K has the same multiplicities on both sides as before, so its result is unchanged. Inside K all
        four multiplicities are summed after the update, Old = New − Δ: no side is read at the past cut, and no copy is
        written out.
        """
        changes = [d.delta(self.left), d.delta(self.right)]
        shared = [None if change is None else d.shared(change) for change in changes]
        touched = [
            renamed(change, dict(zip(side.columns, self.ids, strict=True)))
            for change, side in zip(shared, self.children, strict=True)
            if change is not None
        ]
        rows = union(touched, self.ids)
        if rows is None:
            return None
        rows = d.shared(Distinct(rows))
        both: list[Plan] = []
        for side, change, mine in zip(self.children, shared, (LEFT, RIGHT), strict=True):
            keys = Keys.of(rows, zip(side.columns, self.ids, strict=True))
            both += counts_of_both_states(side, change, keys, self.ids, mine, (*LEFT, *RIGHT))
        counts = Summed(united(both, (*self.ids, *LEFT, *RIGHT)), (*LEFT, *RIGHT))
        new, old = (self._copies(column(n), column(m)) for n, m in zip(LEFT, RIGHT, strict=True))
        return changed_rows(counts, self.ids, new, old)

    def _copies(self, n: Scalar, m: Scalar) -> Scalar:
        """How often a row is in the result that is n times on the left and m times on the right."""
        if self.every:
            rest = exp.Sub(this=n, expression=m)
            return bags.call("GREATEST", rest, bigint(0)) if self.kind == EXCEPT else bags.call("LEAST", n, m)
        sides = [
            exp.GT(this=n, expression=bigint(0)),
            (exp.EQ if self.kind == EXCEPT else exp.GT)(this=m, expression=bigint(0)),
        ]
        return exp.Case(ifs=[exp.If(this=all_true(sides), true=bigint(1))], default=bigint(0))

    def restricted(self, keys: Keys) -> Plan:
        """(E ∘ F) ⋉ K = (E ⋉ K) ∘ (F ⋉ K)."""
        plain = keys.plain
        if plain is None:
            return Restrict(self, keys)
        sides = []
        for side in self.children:
            below = plain.renamed(dict(zip(self.ids, side.columns, strict=True)))
            assert below is not None
            sides.append(side.restricted(below))
        plan = self.with_children(sides)
        return plan if plain.completes(keys) else Restrict(plan, keys)

    @property
    def strategy(self) -> Strategy:
        return TOUCHED_ROWS

    def supported(self, tables: SupportTables) -> Plan:
        return self

    def reads(self, labels: Labels) -> str:
        return f"the changed rows, and the same rows of both sides in {listed_tables(self)}"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        values = {c: u.new(c) for c in u.names}
        left, right = unnested_sides(u, self.children)
        return replace(self, left=left, right=right, ids=(*self.ids, *values.values())), values

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        """A row changes only the result's own copies of it; without a copy in E there is none at all."""
        of_left, of_right = (c.renamed(c.facts_of(side), side.columns, self.ids) for side in self.children)
        partners = (() if self.kind == EXCEPT else of_right, of_left)
        return [
            [c.renamed((*demand, *met), self.ids, side.columns) for demand in asked]
            for side, met in zip(self.children, partners, strict=True)
        ]

    def known(self, c: Conditions) -> Conjunction:
        sides = (self.left,) if self.kind == EXCEPT else self.children
        return tuple(fact for side in sides for fact in c.renamed(c.facts_of(side), side.columns, self.ids))

    def figure2(self, f: Figure2) -> Pair:
        return f.monus(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {mine: labels.column(theirs) for mine, theirs in zip(self.ids, self.left.columns, strict=True)}

    def notation(self, labels: Labels) -> str:
        return labels.infix(SYMBOLS[self.kind, self.every], self.children)

    def evaluate(self, e: Evaluation) -> Bag:
        left, right = e(self.left), e(self.right)
        if self.kind == EXCEPT:
            return left - right if self.every else Counter(row for row in left if row not in right)
        return left & right if self.every else Counter(row for row in left if row in right)

    def sql(self, w: Writer) -> exp.Query:
        left, right = sides_by_position(w, self.children, self.ids)
        operation = exp.Except if self.kind == EXCEPT else exp.Intersect
        return bags.select(
            map(bags.column, self.ids), operation(this=left, expression=right, distinct=not self.every), "u"
        )
