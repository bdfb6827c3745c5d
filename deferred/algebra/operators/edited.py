"""σ whose condition changes: from the rows of the old condition to those of the new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.bags import COUNT, call
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.project import minus, signed
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Scalar, all_true, conjuncts, written

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator


@dataclass(frozen=True, eq=False)
class Edited(
    Filter,
    inherits=(
        "called",
        "demanded",
        "evaluate",
        "expressions",
        "joined_on",
        "known",
        "labelled",
        "needs",
        "notation",
        "one_row",
        "origin",
        "pruned",
        "pulled_up",
        "restricted",
        "sql",
        "unique_key",
        "unnested",
        "with_join_condition",
    ),
):
    """σ[n](E) in the place of σ[o](E): `condition` is n, `before` o. Its rows are those of σ[n](E); only Δ knows o."""

    before: Scalar

    def delta(self, d: Differentiator) -> Plan | None:
        """σ[n](New) − σ[o](Old) = σ[n ∧ ¬o](New) − σ[o ∧ ¬n](New) + σ[o](Δ(E)), where *not* means false or unknown.

        What both conditions leave is read only where E itself changes, and nothing is read at a past state.
        """
        below = d.delta(self.child)
        added, removed = _but_not(self.condition, self.before), _but_not(self.before, self.condition)
        parts = [signed(Filter(self.child, added))] if added is not None else []
        parts += [minus(signed(Filter(self.child, removed)))] if removed is not None else []
        parts += [Filter(below, self.before)] if below is not None else []
        return united(parts, (*self.columns, COUNT)) if parts else None


def _but_not(condition: Scalar, other: Scalar) -> Scalar | None:
    """The condition that one is true and the other one is not; None where that cannot be."""
    mine = [part for part in conjuncts(condition) if not says(part, True)]
    known = set(map(written, mine))
    rest = [part for part in conjuncts(other) if not says(part, True) and written(part) not in known]
    if not rest or any(says(part, False) for part in mine):
        return None
    if any(says(part, False) for part in rest):
        return all_true(mine)
    return all_true([*mine, exp.or_(*map(not_true, rest), copy=False)])


def says(part: Scalar, truth: bool) -> bool:
    """Whether a condition is TRUE, or FALSE, as it is written."""
    return isinstance(part, exp.Boolean) and part.this is truth


_INVERSE: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
}


def not_true(part: Scalar) -> Scalar:
    """The condition that another one is false or unknown; of a column and a literal so that files can be skipped.

    >>> from deferred.algebra.scalar import column
    >>> not_true(exp.GT(this=column("a"), expression=exp.Literal.number(3))).sql()
    '"a" <= 3 OR "a" IS NULL'
    """
    inverse = _INVERSE.get(type(part))
    if inverse is not None and isinstance(part.this, exp.Column) and isinstance(part.expression, exp.Literal):
        other = inverse(this=part.this.copy(), expression=part.expression.copy())
        return exp.or_(other, exp.Is(this=part.this.copy(), expression=exp.Null()), copy=False)
    return exp.Not(this=call("COALESCE", part.copy(), exp.false()))
