"""How often a row is there, in both states at once: for rules that decide row by row and look at no single copy."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.project import Project
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.scalar import Scalar, column, negated

NEW, OLD = "_deferred_new", "_deferred_old"
"""How often a row is there at s_c and at s_i."""


def counts_of_both_states(
    plan: Plan,
    change: Plan | None,
    keys: Keys,
    ids: Sequence[str],
    states: tuple[str, str],
    counts: Sequence[str] | None = None,
) -> list[Plan]:
    """Plans whose summed counts are those of New(plan|K) and of Old(plan|K) = New(plan|K) − Δ(plan).

    The keys must cover every row of the change. `ids` are the names of the plan's columns in the result, `states` those
    of the two counts; `counts` has the names of all counts of the result, the others are zero here.
    """
    new, old = states

    def with_counts(rows: Plan, now: Scalar, before: Scalar) -> Plan:
        values = {new: now, old: before}
        outputs = [(i, column(c)) for i, c in zip(ids, plan.columns, strict=True)]
        return Project(rows, (*outputs, *((count, values.get(count, bigint(0))) for count in counts or states)))

    found = [with_counts(plan.restricted(keys), bigint(1), bigint(1))]
    if change is not None:
        found.append(with_counts(change, bigint(0), negated(column(COUNT))))
    return found


def changed_rows(counts: Plan, names: Sequence[str], new: Scalar, old: Scalar) -> Plan:
    """The signed bag new − old of rows that occur once, for the number of copies in either state."""
    outputs = (*((c, column(c)) for c in names), (COUNT, exp.Sub(this=new, expression=old)))
    return Filter(Project(counts, outputs), exp.NEQ(this=column(COUNT), expression=bigint(0)))


def once(count: str) -> Scalar:
    """1 for a row that is there, however often, 0 for one that is not."""
    there = exp.GT(this=column(count), expression=bigint(0))
    return exp.Case(ifs=[exp.If(this=there, true=bigint(1))], default=bigint(0))
