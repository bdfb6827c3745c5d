"""The equations by which a view is maintained, in the paper's notation, for `explain`."""

from __future__ import annotations

from collections.abc import Iterable

from deferred.algebra.equations.figure2 import differential, log, table
from deferred.algebra.equations.simplify import simplify
from deferred.algebra.notation import Labels
from deferred.algebra.operators import Join, Scan
from deferred.algebra.operators.scan import scans_of
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import columns_of, conjunction, conjuncts


def equations(plan: Plan, changed: Iterable[str] | None = None, name: str = "V") -> list[str]:
    """How a view follows the log, as equations of Figure 2 in the post-update state: ▼ its deletions, ▲ its additions.

    A subquery that an equation would repeat gets a name and equations of its own. `changed` are the tables that have
    changed, by default all.

    >>> from sqlglot import parse_one
    >>> from deferred.algebra.operators import Distinct, Project
    >>> from deferred.algebra.scalar import column
    >>> r, s = Scan("R", ("A", "B"), ("c1", "c2")), Scan("S", ("B",), ("c3",))
    >>> view = Project(Join((r, s), parse_one("c2 = c3")), (("c4", column("c1")),))
    >>> print("\\n".join(equations(view, {"R"})))
    V = Π[A](R ⋈[R.B = S.B] S)
    ▼V = Π[A](▼R ⋈[R.B = S.B] S)
    ▲V = Π[A](▲R ⋈[R.B = S.B] S)
    >>> print("\\n".join(equations(Distinct(view), {"R"})))
    V = ε(E₁)
    ▼V = ε(▼E₁) ∸ (E₁ ∸ ▲E₁)
    ▲V = ε(▲E₁) ∸ (E₁ ∸ ▲E₁)
    E₁ = Π[A](R ⋈[R.B = S.B] S)
    ▼E₁ = Π[A](▼R ⋈[R.B = S.B] S)
    ▲E₁ = Π[A](▲R ⋈[R.B = S.B] S)
    """
    tables = {scan.table for scan in scans_of(plan)}
    changing = tables if changed is None else tables & set(changed)
    return _Equations(plan, changing).of(name, plan)


class _Equations:
    """The equations of a view, one group for it and one for each subquery that got a name."""

    def __init__(self, view: Plan, changing: set[str]) -> None:
        self.changing = changing
        self.labels = Labels(view)
        self.named: dict[Plan, Scan] = {}

    def of(self, name: str, plan: Plan) -> list[str]:
        before = len(self.named)
        lines = self._group(name, self._outline(plan))
        for subquery, scan in list(self.named.items())[before:]:
            lines += self.of(scan.table, subquery)
        return lines

    def _group(self, name: str, outline: Plan) -> list[str]:
        """name, ▼name and ▲name: the rules of Figure 2 on an outline whose named subqueries are tables."""
        logged = {scan.table: scan.names for scan in scans_of(outline) if self._changes(scan)}
        dual = differential(log(logged), outline)
        sides = {name: outline, f"▼{name}": dual.additions, f"▲{name}": dual.deletions}
        return [f"{left} = {self.labels.text(simplify(right))}" for left, right in sides.items()]

    def _outline(self, plan: Plan) -> Plan:
        """The plan down to the first operators that repeat their inputs; those inputs by name."""
        if isinstance(plan, Join):
            plan = _binary(plan)
        below = self._name if _repeats_inputs(plan) else self._outline
        return plan.with_children([below(child) for child in plan.children])

    def _name(self, plan: Plan) -> Plan:
        if isinstance(plan, Scan) or not any(map(self._changes, scans_of(plan))):
            return plan
        if plan not in self.named:
            number = str(len(self.named) + 1).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
            self.named[plan] = table(f"E{number}", plan.columns)
        return self.named[plan]

    def _changes(self, scan: Scan) -> bool:
        return scan.table in self.changing or scan in self.named.values()


def _repeats_inputs(plan: Plan) -> bool:
    """Whether the node's rule reads an input itself, beside its changes, so that its text would be repeated."""
    inputs = [table(f"E{i}", child.columns) for i, child in enumerate(plan.children)]
    rule = differential(log({scan.table: scan.names for scan in inputs}), plan.with_children(inputs))
    read = {scan.table for side in (rule.deletions, rule.additions) for scan in scans_of(side)}
    return any(scan.table in read for scan in inputs)


def _binary(join: Join) -> Join:
    """E₁ ⋈ … ⋈ Eₙ as (E₁ ⋈ … ⋈ Eₙ₋₁) ⋈ Eₙ, every conjunct as far inside as it goes."""
    if len(join.inputs) <= 2:
        return join
    inner = Join(join.inputs[:-1])
    parts = conjuncts(join.condition)
    inside = [part for part in parts if columns_of(part) <= set(inner.columns)]
    outside = [part for part in parts if part not in inside]
    return Join((Join(inner.inputs, conjunction(inside)), join.inputs[-1]), conjunction(outside))
