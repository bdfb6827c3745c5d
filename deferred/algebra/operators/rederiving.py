"""Delete and rederive: a set that is defined by recursion (UNION), maintained as in Gupta, Mumick, Subrahmanian 1993.

The rows of the recursion are kept. X₀ is what the support table holds, S and T are read at s_c only:

1. *Overestimate.* O begins with the rows of X₀ that a change of the inputs takes a derivation from: Δ⁻(S ⊎ T(X₀)). Each
   round adds the rows of X₀ that are derived from a row of the round before: Δ⁻(T) for ΔX = −newest, X = X₀ − O.
2. *Rederive and insert.* The candidates are O, and the rows that the inputs' change derives from X₀. Those that S ⊎ T
   derives from X₀ − O are put in. Each round adds the rows that are derived from a row of the round before: Δ⁺(T) for
   ΔX = +newest, X = (X₀ − O) ∪ found.

Why T may be read at s_c in the first step too, where the paper has the old state: a row of X₀ that is not in O has lost
none of its old derivations to the inputs (else it would be in O from the beginning), so all of them are derivations at
s_c, and none of them uses a row of O (else a round would have put it there). So its smallest derivation is made of rows
that are right by induction.

Step 3 of the paper is the end of step 2 here: what is put in is derived from rows that are right, so it need not be
known whether it was there before.

For the first step a row's lost derivations must not be balanced by gained ones: a gained one may go through the row
itself. The delta rules of σ, Π, ⊎ and ⋈ do not net; semi and anti joins do, over the columns of their left side, and so
the binder leaves no Π, ⊎ or ε below them in a recursive branch (`deferred.sql.recursive`). Gained rows are netted:
without a row of O, a row outside X₀ is there now exactly if its count is positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.operators.distinct import Distinct
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.outer_join import ANTI, OuterJoin
from deferred.algebra.operators.project import Project, pick, signed
from deferred.algebra.operators.recursion import Fixpoint, Recursion
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.signed import Net
from deferred.algebra.operators.temporary import Stored, Temporary
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.program import Rederivation, Upkeep
from deferred.algebra.scalar import column
from deferred.algebra.strategy import Keeping
from deferred.algebra.support_tables import looked_up, rows_at_new_cut, without_keys_of

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator, Standing
    from deferred.algebra.sharing import Sharing


@dataclass(frozen=True)
class DeleteRederive(Fixpoint):
    """DRed over the kept rows of a set."""

    name: ClassVar[str] = "DRed"
    support: str

    def contents(self, node: Recursion) -> Plan:
        return node

    def carried_over(self, node: Recursion, old: Plan, kept: Keeping, sharing: Sharing) -> Plan | None:
        if not isinstance(old, Recursion) or not isinstance(kept, DeleteRederive):
            return None
        return sharing.taken_whole(old, node, kept._stored(old))

    def past(self, node: Recursion, keys: Keys | None) -> Plan:
        return looked_up(self._stored(node), keys)

    def present(self, node: Recursion, d: Differentiator, keys: Keys | None) -> Plan:
        return rows_at_new_cut(d, node, self._stored(node), keys)

    def computed(self, node: Recursion) -> Plan:
        return Temporary(node.reference.name, node.columns)

    def filling(self, node: Recursion, d: Differentiator) -> None:
        """Semi-naive evaluation: found begins as ε(S); a round adds Δ⁺(T) for ΔX = +newest, X = found."""
        self._derived(node, d, Distinct(node.start), None, node.reference.name)

    def delta(self, node: Recursion, d: Differentiator, start: Plan | None, step: Plan | None) -> Plan:
        """Δ = found − O, see the module."""
        columns = node.columns
        changes = [] if start is None else [Net(start)]
        change = d.shared(united([*changes, *([] if step is None else [step])], (*columns, COUNT)))
        lost = pick(_of_sign(change, exp.LT), columns)
        overestimate = self._overestimate(node, d, Restrict(self._stored(node), Keys.same(lost, columns)))
        gained = d.shared(pick(_of_sign(Net(change), exp.GT), columns))
        new = without_keys_of(gained, self.past(node, Keys.same(gained, columns)), columns)
        found = self._derived(node, d, self._first(node, d, overestimate, new), overestimate)
        inserted = d.shared(without_keys_of(found, overestimate, columns))
        deleted = d.shared(without_keys_of(overestimate, found, columns))
        assert isinstance(deleted, Temporary)
        d.supports[self.support] = Upkeep(inserted, deleted, columns)
        d.recursions.append(Rederivation(node.reference.label, overestimate.name, found.name, deleted.name))
        return united([signed(inserted), signed(deleted, -1)], (*columns, COUNT))

    def _overestimate(self, node: Recursion, d: Differentiator, first: Plan) -> Temporary:
        """All rows of X₀ of which a derivation is gone, or goes through such a row."""
        from deferred.algebra.delta import Standing

        columns, stored = node.columns, self._stored(node)

        def standing(found: Temporary, newest: Temporary) -> Standing:
            return Standing(lambda keys: without_keys_of(looked_up(stored, keys), found, columns), signed(newest, -1))

        def following(inner: Differentiator, found: Temporary, newest: Temporary) -> Plan:
            derived = inner.shared(self._derived_once(node, inner))
            return without_keys_of(Restrict(stored, Keys.same(derived, columns)), found, columns)

        finding = f"{node.reference.label}, rows that may be gone"
        return d.loop(finding, node.reference.name, first, standing, following, gone_from=self.support)

    def _first(self, node: Recursion, d: Differentiator, overestimate: Temporary, new: Plan) -> Plan:
        """The candidates that S ⊎ T derives from X₀ − O. Where O is empty, X₀ is right, and so are the new ones."""
        from deferred.algebra.delta import Standing

        columns = node.columns
        candidates = d.shared(united([overestimate, new], columns))
        keys = Keys.same(candidates, columns)
        held = d.inside(node.reference.name, Standing(lambda keys: self._held(node, overestimate, keys)))
        both = held.reading(united([node.start.restricted(keys), node.step.restricted(keys)], columns))
        derived = d.shared(Distinct(both), when=overestimate)
        return united([derived, OuterJoin(candidates, _renamed(overestimate), ANTI, exp.true())], columns)

    def _derived(
        self, node: Recursion, d: Differentiator, first: Plan, overestimate: Temporary | None, name: str | None = None
    ) -> Temporary:
        """All rows that follow from the first ones and X₀ − O, and are not there; without O, from the first alone."""
        from deferred.algebra.delta import Standing

        columns = node.columns

        def standing(found: Temporary, newest: Temporary) -> Standing:
            def rows(keys: Keys | None) -> Plan:
                held = [] if overestimate is None else [self._held(node, overestimate, keys)]
                return united([*held, looked_up(found, keys)], columns)

            return Standing(rows, signed(newest))

        def following(inner: Differentiator, found: Temporary, newest: Temporary) -> Plan:
            derived = inner.shared(self._derived_once(node, inner))
            new = without_keys_of(derived, found, columns)
            if overestimate is None:
                return new
            return without_keys_of(new, self._held(node, overestimate, Keys.same(derived, columns)), columns)

        finding = f"{node.reference.label}, derived rows"
        return d.loop(finding, node.reference.name, first, standing, following, node.bound, name)

    def _derived_once(self, node: Recursion, inner: Differentiator) -> Plan:
        change = inner.delta(node.step)
        assert change is not None, "a recursive branch reads its recursion"
        return Distinct(pick(change, node.columns))

    def _held(self, node: Recursion, overestimate: Temporary, keys: Keys | None) -> Plan:
        """X₀ − O."""
        return without_keys_of(looked_up(self._stored(node), keys), overestimate, node.columns)

    def _stored(self, node: Recursion) -> Stored:
        return Stored(self.support, node.columns, node.columns)


def _of_sign(change: Plan, sign: type[exp.Binary]) -> Plan:
    """The insertions or the deletions of a signed bag."""
    return Filter(change, sign(this=column(COUNT), expression=bigint(0)))


def _renamed(rows: Plan) -> Plan:
    """The rows under other names, for a join with rows of the same columns."""
    return Project(rows, tuple((f"_deferred_any_{c}", column(c)) for c in rows.columns[:1]))
