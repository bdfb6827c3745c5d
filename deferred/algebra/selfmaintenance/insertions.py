"""Insertions that a look at the view decides (Blakeley 1987, section 4.3.1).

Let C be what a view's join asks of a row t of R together with rows of the other tables, and D the columns of R that C
reads. If the view has rows that come from some row r of R with r[D] = t[D], then C[r] = C[t] for whatever the other
tables hold: t meets the same rows that r meets, all of them are covered by the view (theorem 4.4B), and none is in
doubt (theorem 4.4A). So what t adds are the view's rows of one such r, with t's values in the place of r's. The key of
R, which the view shows, tells the rows of one r from those of another; of the others no key is assumed. If there is no
such r, the view cannot decide: a guard finds t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint, call
from deferred.algebra.delta import Differentiator
from deferred.algebra.operators import Aggregate, Filter, Join, Net, Project, Restrict
from deferred.algebra.operators.in_view import view_rows
from deferred.algebra.operators.outer_join import ANTI, OuterJoin
from deferred.algebra.operators.project import pick, renamed
from deferred.algebra.plan import Keys, Plan, used
from deferred.algebra.scalar import Scalar, all_true, column, columns_of, product, same, substitute
from deferred.algebra.selfmaintenance.shown import Shown
from deferred.algebra.types import equality_is_coarser, has_no_order, is_padded

LEAST = "_deferred_least"
"""The smallest value of a column of the key, among rows that meet the same."""


@dataclass(frozen=True)
class Alike:
    """An input of a view's join whose new rows can be compared with those that the view shows.

    `deciding` are its columns D, `key` its key, both with the view's columns that show them.
    """

    plan: Plan
    shown: Shown
    deciding: tuple[tuple[str, str], ...]
    key: tuple[tuple[str, str], ...]

    @staticmethod
    def of(plan: Plan, shown: Shown, key: Sequence[tuple[str, str]], types: Mapping[str, str]) -> Alike | None:
        """None where the view does not show what decides, or where SQL equates different values of it.

        An output that is computed from columns of several inputs decides, too: it is taken over from the view.
        """
        assert shown.join is not None
        mine = set(plan.columns)
        mixed = [e for e in shown.outputs.values() if columns_of(e) & mine and not columns_of(e) <= mine]
        names = [c for c in plan.columns if c in used(shown.join.condition, *mixed)]
        unfit = (equality_is_coarser, has_no_order, is_padded)
        if not names or any(is_unfit(types.get(c, "")) for c in names for is_unfit in unfit):
            return None
        deciding = shown.columns(names)
        return None if deciding is None else Alike(plan, shown, deciding, tuple(key))

    def added(self, d: Differentiator, new: Plan, columns: Sequence[str]) -> tuple[Plan, Plan]:
        """What new rows add to the view, as a signed bag, and those of them that the view cannot decide on.

        `columns` are all columns of the view; `new` is a step, without whose rows nothing is read.
        """
        known = self._known(d, new, columns)
        mine = {c: f"_deferred_new_{c}" for c in (*self.plan.columns, COUNT)}
        alike = all_true(same(column(theirs), column(mine[c])) for c, theirs in self.deciding)
        values = {c: column(mine[c]) for c in self.plan.columns}

        def value(out: str) -> Scalar:
            expression = self.shown.outputs[out]
            return substitute(expression, values) if columns_of(expression) <= set(values) else column(out)

        count = product(column(COUNT), column(mine[COUNT]))
        joined = Join((renamed(new, mine), known), alike)
        rows = Project(joined, (*((c, value(c)) for c in columns), (COUNT, count)))
        theirs = {theirs: f"_deferred_known_{theirs}" for _, theirs in self.deciding}
        found = all_true(same(column(c), column(theirs[out])) for c, out in self.deciding)
        return rows, OuterJoin(new, renamed(known, theirs), ANTI, found)

    def _known(self, d: Differentiator, new: Plan, columns: Sequence[str]) -> Plan:
        """For each value of the deciding columns the view's rows of one row of the table, that of the least key."""
        wanted = Keys.of(new, ((theirs, mine) for mine, theirs in self.deciding))
        netted = Net(Restrict(view_rows(columns), wanted), d.bitwise(columns))
        known = d.shared(Filter(netted, exp.GT(this=column(COUNT), expression=bigint(0))), when=new)
        by = tuple(dict.fromkeys(theirs for _, theirs in self.deciding))
        for name in dict.fromkeys(theirs for _, theirs in self.key):
            if name in by:
                continue
            least = Aggregate(known, by, ((LEAST, call("MIN", column(name))),))
            keys = Keys.of(least, (*((c, c) for c in by), (name, LEAST)))
            known = d.shared(Restrict(known, keys), when=new)
        return pick(known, (*columns, COUNT))
