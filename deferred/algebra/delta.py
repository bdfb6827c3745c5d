"""Differentiation: from a plan to the program of steps whose result is the plan's signed change between two cuts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from deferred.algebra.bags import COUNT
from deferred.algebra.operators import Change, Net, Project, Recursion, Reference, Repeat, Restrict, Temporary
from deferred.algebra.operators.project import minus, signed
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.program import Bound, Guard, Loop, Program, Rederivation, Step, Upkeep
from deferred.algebra.scalar import Fresh, columns_of, is_column
from deferred.algebra.strategy import Stateful
from deferred.algebra.types import compared_exactly, equality_is_coarser


@dataclass(frozen=True)
class Standing:
    """What a reference to a recursion means in its own branches: its rows for some keys, and their change."""

    rows: Callable[[Keys | None], Plan]
    change: Plan | None = None


class Differentiator:
    """Applies the delta rules of the nodes; what several places read becomes one temporary result.

    For every node E there are Δ(E), its signed change; New(E|K), its rows at s_c for the keys K, which are pushed down
    to the scans; and Old(E|K) = New(E|K) − Δ(E). Base tables are read only after the update.
    """

    def __init__(self, changed: Iterable[str], types: Mapping[str, str] | None = None) -> None:
        self.changed = frozenset(changed)
        self.types = types or {}
        self.steps: list[Step | Loop] = []
        self.supports: dict[str, Upkeep] = {}
        self.references: dict[str, Standing] = {}
        self.recursions: list[Rederivation] = []
        self.guards: list[Guard] = []
        self.keeps = True
        self.fresh = Fresh("step")
        self._around: Differentiator | None = None
        self._deltas: dict[Plan, Plan | None] = {}
        self._readers: Counter[Plan] = Counter()
        self._readings: dict[Plan, Plan] = {}

    def delta(self, plan: Plan) -> Plan | None:
        """Δ(plan), computed once for a plan that several nodes share."""
        if plan not in self._deltas:
            change = plan.delta(self)
            self._deltas[plan] = self.shared(change) if change is not None and self._readers[plan] > 1 else change
        return self._deltas[plan]

    def has_delta(self, plan: Plan) -> bool:
        """Whether the plan's change has been computed."""
        return plan in self._deltas or (self._around is not None and self._around.has_delta(plan))

    def program(self, plan: Plan) -> Program:
        self._readers.update(child for node in plan.walk() for child in node.children)
        change = self.delta(plan)
        result = None if change is None else self.reading(Net(change, self.bitwise(plan.columns)))
        guards = tuple(replace(guard, rows=self.reading(guard.rows)) for guard in self.guards)
        return Program(tuple(self.steps), result, dict(self.supports), tuple(self.recursions), guards)

    def shared(self, plan: Plan, when: Plan | None = None) -> Plan:
        """The plan as a temporary result, so that it is computed once for all its readers. Leaves stay as they are."""
        if self.is_leaf(plan):
            return plan
        name = self.fresh()
        self.steps.append(Step(name, self.reading(plan), when.name if isinstance(when, Temporary) else None))
        temporary = Temporary(name, plan.columns)
        for node, change in self._deltas.items():
            if change is plan:
                self._deltas[node] = temporary
        return temporary

    @staticmethod
    def is_leaf(plan: Plan) -> bool:
        """Whether reading a plan costs no more than reading a temporary result: it is one, or columns and constants."""
        while isinstance(plan, Project) and all(is_column(e) or not columns_of(e) for _, e in plan.outputs):
            plan = plan.child
        return isinstance(plan, (Temporary, Change))

    def reading(self, plan: Plan) -> Plan:
        """The plan in which every node with a support table is read from it, not computed from the base tables again.

        A node's change always comes before its new state, so the new rows of its support table are known.
        """
        if plan not in self._readings:
            node, keys = (plan.child, plan.keys) if isinstance(plan, Restrict) else (plan, None)
            if keys is not None:
                keys = replace(keys, plan=self.reading(keys.plan))
            strategy = node.strategy
            if isinstance(node, Reference):
                self._readings[plan] = self.references[node.name].rows(keys)
            elif isinstance(node, Recursion) and not self.keeps:
                self._readings[plan] = node if keys is None else Restrict(node, keys)
            elif isinstance(strategy, Stateful) and self.keeps:
                self._readings[plan] = strategy.present(node, self, keys)
            else:
                self._readings[plan] = plan.rebuilt([self.reading(child) for child in plan.children])
        return self._readings[plan]

    # ---- recursion: the rules once more, while only the recursion itself changes

    def inside(self, reference: str, standing: Standing) -> Differentiator:
        """The rules for a recursion's own branches between two states of the recursion; its inputs are those of s_c."""
        inner = Differentiator((), self.types)
        inner.supports, inner.fresh, inner.keeps = self.supports, self.fresh, self.keeps
        inner.references = {**self.references, reference: standing}
        inner._around, inner._readers = self, self._readers
        return inner

    def loop(
        self,
        finding: str,
        reference: str,
        first: Plan,
        standing: Callable[[Temporary, Temporary], Standing],
        following: Callable[[Differentiator, Temporary, Temporary], Plan],
        bound: Bound | None = None,
        name: str | None = None,
        gone_from: str | None = None,
    ) -> Temporary:
        """All rows that rounds find, from the first ones: `following` gives those of the next round, `finding` a name.

        Both functions are given all rows found so far and the newest ones; `standing` says what the reference means.
        """
        found = Temporary(name or self.fresh(), first.columns)
        newest = Temporary(self.fresh(), first.columns)
        inner = self.inside(reference, standing(found, newest))
        following_ = inner.reading(following(inner, found, newest))
        steps = tuple(inner.steps)
        self.steps.append(Loop(finding, found.name, newest, self.reading(first), steps, following_, bound, gone_from))
        return found

    # ---- the states of a plan

    def states(self, plan: Plan, change: Plan | None, keys: Keys | None) -> tuple[Plan, Plan]:
        """New(plan|K) and Old(plan|K) = New(plan|K) − Δ(plan), for keys that cover every row of Δ(plan).

        What a support table holds is Old(plan) itself.
        """
        new = self.shared(plan if keys is None else plan.restricted(keys))
        if change is None:
            return new, new
        strategy = plan.strategy
        if isinstance(strategy, Stateful):
            return new, strategy.past(plan, keys)
        both = united([signed(new), minus(change)], (*plan.columns, COUNT))
        return new, Repeat(Net(both, self.bitwise(plan.columns)))

    def states_with_counts(self, plan: Plan, change: Plan | None, keys: Keys) -> tuple[Plan, Plan]:
        """New(plan|K) and Old(plan|K) as signed bags of positive counts: each row once, no copy is written out."""
        new = self.shared(Net(signed(plan.restricted(keys)), self.bitwise(plan.columns)))
        if change is None:
            return new, new
        return new, Net(united([new, minus(change)], (*plan.columns, COUNT)), self.bitwise(plan.columns))

    def difference(self, new: Plan, old: Plan, columns: tuple[str, ...]) -> Plan:
        """new − old as one netted signed bag: unchanged rows cancel out."""
        both = united([signed(new), signed(old, -1)], (*columns, COUNT))
        return Net(both, self.bitwise(columns))

    def is_row_by_row(self, plan: Plan) -> bool:
        """Whether a plan is cheap to join with a small change without pushing keys into it."""
        return all(node.row_by_row for node in plan.walk())

    def comparable(self, left: str, right: str) -> bool:
        """Whether values of two columns can be in one set of keys without a conversion that changes their equality."""
        return compared_exactly(self.types.get(left, ""), self.types.get(right, ""))

    def bitwise(self, columns: Iterable[str]) -> dict[str, str]:
        """The columns whose equality in SQL is coarser than identity, with their types."""
        return {c: self.types[c] for c in columns if equality_is_coarser(self.types.get(c, ""))}


def differentiate(plan: Plan, changed: Iterable[str], types: Mapping[str, str] | None = None) -> Program:
    """The program that computes the signed change of a plan when the given tables have changed."""
    return Differentiator(changed, types).program(plan)
