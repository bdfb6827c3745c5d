"""Differentiation: from a plan to the program of steps whose result is the plan's signed change between two cuts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from deferred.algebra.generate import Generate
from deferred.algebra.plan import (
    COUNT,
    Change,
    Filter,
    Keys,
    Net,
    Plan,
    Project,
    Ref,
    Repeat,
    Restrict,
    Scan,
    UnionAll,
    Values,
    counted,
    minus,
    union,
)
from deferred.algebra.scalar import is_column

INTEGRAL = frozenset({"tinyint", "smallint", "int", "bigint"})


@dataclass(frozen=True)
class Step:
    """One temporary result: computed once, read by the steps after it under its name.

    With `when`, only if that earlier step has rows; otherwise it is empty, and nothing is read for it.
    """

    name: str
    plan: Plan
    when: str | None = None


@dataclass(frozen=True)
class Upkeep:
    """How a support table moves to s_c: its new rows, the keys of those that are gone; without keys it is replaced."""

    rows: Plan
    gone: Plan | None
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """What a propagate runs: steps in order, then the signed result, None when nothing can have changed."""

    steps: tuple[Step, ...]
    result: Plan | None
    supports: Mapping[str, Upkeep] = field(default_factory=dict)


class Differentiator:
    """Applies the delta rules of the nodes, binding what several places need to one temporary result.

    For every node E there are Δ(E), its signed change; New(E|K), its rows now, only for the keys K, which reach down
    to the scans; and Old(E|K) = New(E|K) − Δ(E), all read after the update.
    """

    def __init__(self, changed: Iterable[str], types: Mapping[str, str] | None = None) -> None:
        self.changed = frozenset(changed)
        self.types = types or {}
        self.steps: list[Step] = []
        self.supports: dict[str, Upkeep] = {}
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
        """Whether the plan's change has been asked for."""
        return plan in self._deltas

    def program(self, plan: Plan) -> Program:
        self._readers.update(child for node in plan.walk() for child in node.children)
        change = self.delta(plan)
        result = None if change is None else self.reading(Net(change, self.bitwise(plan.columns)))
        return Program(tuple(self.steps), result, dict(self.supports))

    def shared(self, plan: Plan, when: Plan | None = None) -> Plan:
        """The plan as a temporary result, so that several readers cost one computation. Leaves stay as they are."""
        if _is_leaf(plan):
            return plan
        name = f"step{len(self.steps) + 1}"
        self.steps.append(Step(name, self.reading(plan), when.name if isinstance(when, Ref) else None))
        ref = Ref(name, plan.columns)
        for node, change in self._deltas.items():
            if change is plan:
                self._deltas[node] = ref
        return ref

    def reading(self, plan: Plan) -> Plan:
        """The plan with every node that keeps its rows read from there, not computed from the base tables again.

        A node's change is known before anybody asks for its new state, so what its support table moves to is known.
        """
        if plan not in self._readings:
            node, keys = (plan.child, plan.keys) if isinstance(plan, Restrict) else (plan, None)
            if keys is not None:
                keys = replace(keys, plan=self.reading(keys.plan))
            kept = node.present(self, keys)
            if kept is None:
                children = [self.reading(child) for child in plan.children]
                same = all(new is old for new, old in zip(children, plan.children, strict=True))
                kept = plan if same else plan.with_children(children)
            self._readings[plan] = kept
        return self._readings[plan]

    def states(self, plan: Plan, change: Plan | None, keys: Keys | None) -> tuple[Plan, Plan]:
        """New(plan|K) and Old(plan|K) = New(plan|K) − Δ(plan), for keys that cover every row of Δ(plan).

        What a support table holds is Old(plan) itself.
        """
        new = self.shared(plan if keys is None else plan.restricted(keys))
        if change is None:
            return new, new
        kept = plan.past(keys)
        if kept is not None:
            return new, kept
        both = union([counted(new), minus(change)], (*plan.columns, COUNT))
        assert both is not None
        return new, Repeat(Net(both, self.bitwise(plan.columns)))

    def difference(self, new: Plan, old: Plan, columns: tuple[str, ...]) -> Plan:
        """new − old as one netted signed bag: rows that are as they were vanish here."""
        both = union([counted(new), counted(old, -1)], (*columns, COUNT))
        assert both is not None
        return Net(both, self.bitwise(columns))

    def is_simple(self, plan: Plan) -> bool:
        """Whether a plan is cheap to join with a small change as it stands, without pushing keys into it."""
        return all(isinstance(node, (Scan, Filter, Project, Generate, UnionAll, Values)) for node in plan.walk())

    def comparable(self, left: str, right: str) -> bool:
        """Whether values of two columns can stand in one set of keys without changing what they are equal to."""
        return alike(self.types.get(left, ""), self.types.get(right, ""))

    def bitwise(self, columns: Iterable[str]) -> dict[str, str]:
        """The columns whose equality in SQL is coarser than identity, with their types."""
        return {c: self.types[c] for c in columns if coarse(self.types.get(c, ""))}


def _is_leaf(plan: Plan) -> bool:
    """Whether reading a plan costs no more than reading a temporary result: it is one, or columns of one."""
    while isinstance(plan, Project) and all(is_column(expression) for _, expression in plan.outputs):
        plan = plan.child
    return isinstance(plan, (Ref, Change))


def alike(left: str, right: str) -> bool:
    """Whether values of two types are compared without converting either to something coarser.

    >>> alike("int", "bigint"), alike("int", "string")
    (True, False)
    """
    kinds = [kind.lower() for kind in (left, right)]
    return kinds[0] == kinds[1] or all(kind in INTEGRAL for kind in kinds)


def coarse(type_: str) -> bool:
    """Whether SQL equates different values of a type: floating point (0.0 and −0.0), collated strings, maps (whose
    entries stand in an order that map_keys shows).

    >>> coarse("array<double>"), coarse("bigint")
    (True, False)
    """
    return any(kind in type_.lower() for kind in ("float", "double", "collate", "map<"))


def differentiate(plan: Plan, changed: Iterable[str], types: Mapping[str, str] | None = None) -> Program:
    """The program that computes the signed change of a plan when the given tables have changed."""
    return Differentiator(changed, types).program(plan)
