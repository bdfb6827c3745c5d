"""What a view shows of the tables that it joins, and what promises say of the inputs of a join."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deferred.algebra.operators import Aggregate, Counted, Filter, Join, Project, Scan
from deferred.algebra.operators.join import equivalences
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Scalar, column, is_column, substitute
from deferred.algebra.selfmaintenance.promises import Promises
from deferred.algebra.types import equality_is_coarser


@dataclass(frozen=True)
class Shown:
    """A view that is a projection of a join: the join, and its columns that the view shows, under the view's names.

    `join` is None where the view is anything else. `outputs` are the view's columns as expressions over the join's.
    """

    join: Join | None
    names: Mapping[str, str]
    types: Mapping[str, str]
    outputs: Mapping[str, Scalar]

    @staticmethod
    def by(plan: Plan, types: Mapping[str, str]) -> Shown:
        """What a plan shows of the join below the projections at its top."""
        outputs: dict[str, Scalar] = {c: column(c) for c in plan.columns}
        while isinstance(plan, Project):
            below = dict(plan.outputs)
            outputs = {out: substitute(e, below) for out, e in outputs.items()}
            plan = plan.child
        names = {e.name: out for out, e in reversed(outputs.items()) if is_column(e)}
        return Shown(plan if isinstance(plan, Join) else None, names, types, outputs)

    def columns(self, names: Iterable[str]) -> tuple[tuple[str, str], ...] | None:
        """For each column of the join the view's column with the same values; None where one is not shown."""
        found = []
        for name in names:
            same = next((self.names[c] for c in self._equal(name) if c in self.names), None)
            if same is None:
                return None
            found.append((name, same))
        return tuple(found)

    def _equal(self, name: str) -> list[str]:
        """The columns that the join makes equal to one, value for value; that column itself first."""
        assert self.join is not None
        type_ = self.types.get(name)
        others = sorted(equivalences(self.join.condition).get(name, frozenset()) - {name})
        exact = type_ is not None and not equality_is_coarser(type_)
        return [name, *(c for c in others if exact and self.types.get(c) == type_)]


@dataclass(frozen=True)
class Facts:
    """What promises say of an input of a join."""

    table: str | None
    columns: tuple[str, ...]
    names: Mapping[str, str]
    key: tuple[str, ...]

    def joined_by(self, other: Facts, pairs: set[tuple[str, str]]) -> tuple[tuple[str, str], ...] | None:
        """For each column of the key the column of another input that the join equates with it; None if one lacks."""
        on = []
        for mine in self.key:
            theirs = next((c for c in other.columns if (c, mine) in pairs), None)
            if theirs is None:
                return None
            on.append((theirs, mine))
        return tuple(on) or None


def facts(plan: Plan, promises: Promises, types: Mapping[str, str]) -> Facts:
    """The table below an input, its columns under their names in it, and its key if all of that passes through."""
    rows = rows_under(plan)
    scan = scan_of(rows)
    if scan is None:
        return Facts(None, tuple(plan.columns), {}, ())
    if rows is not plan:  # of a group only its keys are columns of its rows, and they are no key of the table
        known = {c: name for c, name in _passed(rows).items() if c in plan.columns}
        return Facts(scan.table, tuple(plan.columns), known, ())
    names = _passed(plan)
    ids = {name.casefold(): mine for mine, name in reversed(names.items())}
    key = [ids.get(name.casefold()) for name in promises.keys.get(scan.table, ())]
    exact = all(c is not None and not equality_is_coarser(types.get(c, "")) for c in key)
    return Facts(scan.table, tuple(plan.columns), names, tuple(c for c in key if c) if exact else ())


def rows_under(plan: Plan) -> Plan:
    """The rows that an input of a join stands for: those below a counted aggregate, or itself."""
    return plan.child if isinstance(plan, Aggregate) and isinstance(plan.strategy, Counted) else plan


def scan_of(plan: Plan) -> Scan | None:
    """The scan below filters and projections alone, None below anything else."""
    while isinstance(plan, (Filter, Project)):
        plan = plan.child
    return plan if isinstance(plan, Scan) else None


def _passed(plan: Plan) -> dict[str, str]:
    """The columns of a plan over one scan that are columns of the table, with their names there."""
    if isinstance(plan, Scan):
        return dict(zip(plan.ids, plan.names, strict=True))
    (child,) = plan.children
    below = _passed(child)
    if not isinstance(plan, Project):
        return below
    return {out: below[e.name] for out, e in plan.outputs if is_column(e) and e.name in below}
