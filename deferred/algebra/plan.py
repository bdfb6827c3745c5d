"""The plan: frozen nodes over bags, the leaves, and the few helper operators that delta rules are made of.

Operators that a query can contain live beside their delta rule in `linear`, `join`, `sets`, `group`.
A node's `columns` are ids, unique within a query, so that no operator ever has to rename for a clash. The change,
the new and the old state of a node have the node's own columns; a *signed* plan has one more, COUNT, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deferred.algebra.scalar import Scalar, column, columns_of, integer, is_column, negated, substitute

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator

COUNT = "_deferred_n"
"""The column of a signed plan that says how often a row is inserted (positive) or deleted (negative)."""


@dataclass(frozen=True, eq=False)
class Keys:
    """A small set of key values: rows of `plan`, of which `on` pairs (value of the restricted node, value of plan).

    The pairs are compared null-safely. A key set restricts what a rule reads; it never changes what a rule yields.
    """

    plan: Plan
    on: tuple[tuple[Scalar, Scalar], ...]

    @staticmethod
    def of(plan: Plan, columns: Iterable[tuple[str, str]]) -> Keys:
        """Keys that pair columns of the restricted node with columns of `plan`."""
        return Keys(plan, tuple((column(mine), column(theirs)) for mine, theirs in columns))

    @staticmethod
    def same(plan: Plan, columns: Iterable[str]) -> Keys:
        """Keys that pair columns with those of the same names."""
        return Keys.of(plan, ((c, c) for c in columns))

    def through(self, columns: Mapping[str, Scalar]) -> Keys | None:
        """The same keys on what the columns are made of, only the pairs that read no other; None without any."""
        pairs = tuple((substitute(mine, columns), theirs) for mine, theirs in self.on
                      if columns_of(mine) <= columns.keys())
        return replace(self, on=pairs) if pairs else None

    def within(self, columns: Iterable[str]) -> Keys | None:
        """The pairs that read only some columns."""
        return self.through({c: column(c) for c in columns})

    def renamed(self, names: Mapping[str, str]) -> Keys | None:
        return self.through({old: column(new) for old, new in names.items()})

    def completes(self, keys: Keys) -> bool:
        """Whether none of the pairs is missing here."""
        return len(self.on) == len(keys.on)

    @property
    def plain(self) -> Keys | None:
        """The pairs on columns as they are, which can be compared anywhere: below a filter or a join, where rows are
        that the query would not have looked at, an expression may fail."""
        pairs = tuple((mine, theirs) for mine, theirs in self.on if is_column(mine))
        return replace(self, on=pairs) if pairs else None


@dataclass(frozen=True, eq=False)
class Plan:
    """A query over bags. Nodes are compared by identity: a shared subplan is one object."""

    @property
    def columns(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def children(self) -> tuple[Plan, ...]:
        return ()

    def with_children(self, children: Sequence[Plan]) -> Plan:
        assert not children
        return self

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(self): the signed change between the two cuts, None when nothing can have changed."""
        raise NotImplementedError(f"{type(self).__name__} has no delta rule: it occurs only in derived plans")

    def restricted(self, keys: Keys) -> Plan:
        """self ⋉ keys, with the keys pushed down as far as they go. The base case filters here."""
        return Restrict(self, keys)

    def past(self, keys: Keys | None) -> Plan | None:
        """Old(self|K) as a support table holds it, None where nothing is kept."""
        return None

    def present(self, d: Differentiator, keys: Keys | None) -> Plan | None:
        """New(self|K) from a support table and how it has moved, None where nothing is kept."""
        return None

    @property
    def maintained(self) -> str:
        """How `explain` says that this node is maintained."""
        return "linear"

    def walk(self) -> Iterator[Plan]:
        """Every node below and including this one, shared ones once, parents first."""
        seen: set[int] = set()
        stack: list[Plan] = [self]
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            stack.extend(reversed(node.children))


@dataclass(frozen=True, eq=False)
class Unary(Plan):
    """A node over one other, with the columns of that one where it does not say otherwise."""

    child: Plan

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.child,)

    def with_children(self, children: Sequence[Plan]) -> Plan:
        (child,) = children
        return replace(self, child=child)


@dataclass(frozen=True, eq=False)
class Scan(Plan):
    """R, a base table at the current cut: `names` of its columns, known in the plan as `ids`."""

    table: str
    names: tuple[str, ...]
    ids: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(R) = ▲R − ▼R, the net base log; safe after the update because it is a record, not a reading of R."""
        return Change(self.table, self.names, self.ids) if self.table in d.changed else None


@dataclass(frozen=True, eq=False)
class Change(Plan):
    """The net base log ▲R − ▼R between the two cuts, as a signed bag."""

    table: str
    names: tuple[str, ...]
    ids: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.ids, COUNT)


@dataclass(frozen=True, eq=False)
class Values(Plan):
    """A constant bag: φ without rows, {x} with one."""

    ids: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(φ) = Δ({x}) = ∅."""
        return None


@dataclass(frozen=True, eq=False)
class Ref(Plan):
    """A temporary result that an earlier step of the program has computed."""

    name: str
    ids: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids


@dataclass(frozen=True, eq=False)
class Restrict(Plan):
    """E ⋉ K: the rows of E whose key occurs in K, with their multiplicities."""

    child: Plan
    keys: Keys

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.child, self.keys.plan)

    def with_children(self, children: Sequence[Plan]) -> Plan:
        child, keys = children
        return Restrict(child, replace(self.keys, plan=keys))


@dataclass(frozen=True, eq=False)
class Net(Unary):
    """A signed bag in which every row stands once, with its summed count, and never with zero.

    Rows are told apart bit by bit where SQL would take two values for one: `bitwise` has the types of the columns in
    which 0.0 and −0.0 (or strings that a collation equates, or maps in another order) can meet.
    """

    bitwise: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Repeat(Unary):
    """A signed bag of positive counts written out as a plain bag: each row as often as its count says."""

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns[:-1]


@dataclass(frozen=True, eq=False)
class Project(Unary):
    """Π: one expression an output column; keeps duplicates."""

    outputs: tuple[tuple[str, Scalar], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.outputs)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(Π(E)) = Π(Δ(E)), counts carried along: Figure 2's rule for Π, both signs at once."""
        change = d.delta(self.child)
        return None if change is None else Project(change, (*self.outputs, (COUNT, column(COUNT))))

    def restricted(self, keys: Keys) -> Plan:
        """Π(E) ⋉ K = Π(E ⋉ K), with what Π computes in the place of its columns."""
        below = keys.through(dict(self.outputs))
        assert below is not None
        return Project(self.child.restricted(below), self.outputs)


@dataclass(frozen=True, eq=False)
class UnionAll(Plan):
    """⊎: the bags of all inputs added up, columns by position."""

    inputs: tuple[Plan, ...]
    ids: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    @property
    def children(self) -> tuple[Plan, ...]:
        return self.inputs

    def with_children(self, children: Sequence[Plan]) -> Plan:
        return replace(self, inputs=tuple(children))

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E ⊎ F) = Δ(E) + Δ(F)."""
        changes = [change for change in map(d.delta, self.inputs) if change is not None]
        return union(changes, (*self.ids, COUNT))

    def restricted(self, keys: Keys) -> Plan:
        """(E ⊎ F) ⋉ K = (E ⋉ K) ⊎ (F ⋉ K)."""
        pushed = []
        for plan in self.inputs:
            below = keys.renamed(dict(zip(self.ids, plan.columns, strict=True)))
            pushed.append(plan if below is None else plan.restricted(below))
        return replace(self, inputs=tuple(pushed))


@dataclass(frozen=True, eq=False)
class Filter(Unary):
    """σ: the rows for which the condition is true (not false, not NULL)."""

    condition: Scalar

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(σ(E)) = σ(Δ(E)): a condition looks at one row, so it commutes with taking differences."""
        change = d.delta(self.child)
        return None if change is None else Filter(change, self.condition)

    def restricted(self, keys: Keys) -> Plan:
        """σ(E) ⋉ K = σ(E ⋉ K)."""
        below = keys.plain
        plan = self if below is None else Filter(self.child.restricted(below), self.condition)
        return plan if below is not None and below.completes(keys) else Restrict(plan, keys)


def union(plans: Sequence[Plan], ids: tuple[str, ...]) -> Plan | None:
    """The union of any number of plans with the given columns: None for none of them."""
    if not plans:
        return None
    if len(plans) == 1 and plans[0].columns == ids:
        return plans[0]
    return UnionAll(tuple(plans), ids)


def counted(plan: Plan, times: int = 1) -> Plan:
    """A plain bag as a signed one, every row `times` times."""
    return Project(plan, (*((c, column(c)) for c in plan.columns), (COUNT, integer(times))))


def minus(change: Plan) -> Plan:
    """A signed bag with its signs reversed."""
    return Project(change, (*((c, column(c)) for c in change.columns[:-1]), (COUNT, negated(column(COUNT)))))


def pick(plan: Plan, names: Sequence[str]) -> Plan:
    """The given columns of a plan, in that order."""
    return plan if tuple(names) == plan.columns else Project(plan, tuple((c, column(c)) for c in names))


def reads(plan: Plan) -> frozenset[str]:
    """The base tables that a plan reads, in either state."""
    return frozenset(node.table for node in plan.walk() if isinstance(node, (Scan, Change)))


def used(*expressions: Scalar | None) -> frozenset[str]:
    """All columns that some expressions read."""
    return frozenset().union(*(columns_of(e) for e in expressions))
