"""Figure 2 of Colby et al. 1996, literally and symbolically: substitutions, DEL and ADD.

A query goes in and queries come out, to be evaluated in whatever state they are meant for. Spark runs the signed
counts of `delta` instead, which the tests compare with this module; `explain` shows these equations.
White triangles ∇, Δ are changes of a transaction, black ones ▼, ▲ changes in the log or computed from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from deferred.algebra.equations.simplify import empty, is_empty, monus
from deferred.algebra.operators import (
    EXCEPT,
    INTERSECT,
    Distinct,
    Filter,
    Join,
    Project,
    Restrict,
    Scan,
    SetOperation,
    UnionAll,
)
from deferred.algebra.plan import Keys, Plan, transformed
from deferred.algebra.scalar import column

Schema = Mapping[str, tuple[str, ...]]
"""Every base table with the names of its columns."""


@dataclass(frozen=True)
class Pair:
    """The pair (D, A) of one table or query: what is taken from it, and what is added after that."""

    deletions: Plan
    additions: Plan


@dataclass(frozen=True)
class Substitution:
    """η = [((Rᵢ ∸ Dᵢ) ⊎ Aᵢ)/Rᵢ], factored (Section 4.1). Tables that it does not name stay as they are.

    The columns of Dᵢ and Aᵢ are the table's own column names.
    """

    changes: Mapping[str, Pair]

    def change(self, scan: Scan) -> Pair:
        """(Dᵢ, Aᵢ) under the column ids of one occurrence of Rᵢ."""
        if scan.table not in self.changes:
            return Pair(empty(scan.columns), empty(scan.columns))
        change = self.changes[scan.table]
        return Pair(_as_read_by(scan, change.deletions), _as_read_by(scan, change.additions))

    def apply(self, query: Plan) -> Plan:
        """η(Q): every Rᵢ in Q replaced at once (Section 2.4)."""

        def replaced(node: Plan) -> Plan:
            if not isinstance(node, Scan) or node.table not in self.changes:
                return node
            change = self.change(node)
            return applied(node, change)

        return transformed(query, replaced)


def _as_read_by(scan: Scan, plan: Plan) -> Plan:
    if isinstance(plan, Scan) and plan.names == plan.ids:
        return Scan(plan.table, scan.names, scan.ids)
    return Project(plan, tuple((mine, column(name)) for mine, name in zip(scan.ids, scan.names, strict=True)))


def table(name: str, columns: tuple[str, ...]) -> Scan:
    """A whole table under its own column names."""
    return Scan(name, columns, columns)


def minimum(left: Plan, right: Plan) -> Plan:
    """E min F = E ∸ (E ∸ F)."""
    return SetOperation(left, right, INTERSECT, True, left.columns)


def plus(first: Plan, *others: Plan) -> Plan:
    """E ⊎ F."""
    return UnionAll((first, *others), first.columns)


def applied(query: Plan, change: Pair) -> Plan:
    """(Q ∸ D) ⊎ A."""
    return plus(monus(query, change.deletions), change.additions)


def log(schema: Schema) -> Substitution:
    """ℒ̂ of a log: D = ▲R, A = ▼R, since deleting what was inserted restores the past (Section 2.4)."""
    return Substitution(
        {name: Pair(table(f"▲{name}", columns), table(f"▼{name}", columns)) for name, columns in schema.items()}
    )


def differential(eta: Substitution, query: Plan) -> Pair:
    """DEL(η, Q) and ADD(η, Q) of Figure 2, sharing what both contain.

    For a weakly minimal η, DEL(η, Q) ⊆ Q and η(Q) ≡ (Q ∸ DEL(η, Q)) ⊎ ADD(η, Q) (Theorem 2).
    """
    return Figure2(eta).change(bag_algebra(query))


def bag_algebra(query: Plan) -> Plan:
    """The query in the nine forms of the paper's grammar (Section 2.1), other operators by their definition.

    σ_p(E₁ × … × Eₙ) for a join, E ∸ (E ∸ F) for INTERSECT ALL, ε(E) ∸ F for EXCEPT, ε(E min F) for INTERSECT.
    """
    return transformed(query, _defined)


def _defined(node: Plan) -> Plan:
    if isinstance(node, Join):
        product = reduce(lambda left, right: Join((left, right)), node.inputs)
        return product if node.condition is None else Filter(product, node.condition)
    if isinstance(node, SetOperation) and node.kind == INTERSECT:
        both = replace(node, kind=EXCEPT, every=True, right=monus(node.left, node.right))
        return both if node.every else Distinct(both)
    if isinstance(node, SetOperation) and not node.every:
        return replace(node, left=Distinct(node.left), every=True)
    return node


class Figure2:
    """The mutually recursive DEL and ADD for one η. Every subquery is differentiated once, however often it is used.

    Each operator says which of these rules is its own (`Plan.figure2`); those that the paper lacks have the last two.
    """

    def __init__(self, eta: Substitution) -> None:
        self.eta = eta
        self._changes: dict[Plan, Pair] = {}

    def change(self, query: Plan) -> Pair:
        """DEL(η, Q) and ADD(η, Q), both φ where η changes none of Q's inputs."""
        if query not in self._changes:
            below = [self.change(child) for child in query.children]
            unchanged = below and all(is_empty(side) for pair in below for side in (pair.deletions, pair.additions))
            nothing = Pair(empty(query.columns), empty(query.columns))
            self._changes[query] = nothing if unchanged else query.figure2(self)
        return self._changes[query]

    def table(self, query: Scan) -> Pair:
        """DEL(R) = D, ADD(R) = A."""
        return self.eta.change(query)

    def constant(self, query: Plan) -> Pair:
        """DEL(φ) = ADD(φ) = DEL({x}) = ADD({x}) = φ."""
        return Pair(empty(query.columns), empty(query.columns))

    def linear(self, query: Plan) -> Pair:
        """DEL(σ(E)) = σ(DEL(E)), ADD(σ(E)) = σ(ADD(E)), and the same for Π;
        DEL(E ⊎ F) = DEL(E) ⊎ DEL(F), ADD(E ⊎ F) = ADD(E) ⊎ ADD(F).
        """
        changes = [self.change(child) for child in query.children]
        return Pair(
            query.with_children([change.deletions for change in changes]),
            query.with_children([change.additions for change in changes]),
        )

    def distinct(self, query: Distinct) -> Pair:
        """DEL(ε(E)) = ε(DEL(E)) ∸ (E ∸ DEL(E)), ADD(ε(E)) = ε(ADD(E)) ∸ (E ∸ DEL(E))."""
        change = self.change(query.child)
        kept = monus(query.child, change.deletions)
        return Pair(monus(Distinct(change.deletions), kept), monus(Distinct(change.additions), kept))

    def monus(self, query: SetOperation) -> Pair:
        """DEL(E ∸ F) = (DEL(E) ⊎ ADD(F)) min (E ∸ F),
        ADD(E ∸ F) = ((ADD(E) ⊎ DEL(F)) ∸ (F ∸ E)) ∸ ((DEL(E) ⊎ ADD(F)) ∸ (E ∸ F)).
        """
        e, f = self.change(query.left), self.change(query.right)
        down = UnionAll((e.deletions, f.additions), query.ids)
        up = UnionAll((e.additions, f.deletions), query.ids)
        return Pair(
            minimum(down, query),
            monus(monus(up, monus(query.right, query.left)), monus(down, query)),
        )

    def product(self, query: Join) -> Pair:
        """DEL(E × F) = (DEL(E) × DEL(F)) ⊎ (DEL(E) × (F ∸ DEL(F))) ⊎ ((E ∸ DEL(E)) × DEL(F)),
        ADD(E × F) = (ADD(E) × ADD(F)) ⊎ (ADD(E) × (F ∸ DEL(F))) ⊎ ((E ∸ DEL(E)) × ADD(F)).
        """
        left, right = query.inputs
        e, f = self.change(left), self.change(right)
        kept_left, kept_right = monus(left, e.deletions), monus(right, f.deletions)

        def three(change_left: Plan, change_right: Plan) -> Plan:
            return plus(
                Join((change_left, change_right)), Join((change_left, kept_right)), Join((kept_left, change_right))
            )

        return Pair(three(e.deletions, f.deletions), three(e.additions, f.additions))

    def grouped(self, query: Plan, keys: Sequence[str]) -> Pair:
        """DEL(γ(E)) = γ(E ⋉ K) ∸ γ(η(E) ⋉ K), ADD(γ(E)) = γ(η(E) ⋉ K) ∸ γ(E ⋉ K), K the groups of DEL(E) ⊎ ADD(E).

        The paper leaves aggregation out as orthogonal (Example 1.1); this is the plainest weakly minimal pair. It holds
        of every operator that looks at one group of its rows at a time, so of windows and their partitions as well.
        """
        if not keys:
            return self.recomputed(query)
        (child,) = query.children
        change = self.change(child)
        touched = Keys.same(plus(change.deletions, change.additions), keys)
        now, then = (Restrict(rows, touched) for rows in (child, applied(child, change)))
        return self._exchanged(query.with_children([now]), query.with_children([then]))

    def recomputed(self, query: Plan) -> Pair:
        """DEL(Q) = Q ∸ η(Q), ADD(Q) = η(Q) ∸ Q: the pair that every query has."""
        then = query.with_children([applied(child, self.change(child)) for child in query.children])
        return self._exchanged(query, then)

    @staticmethod
    def _exchanged(now: Plan, then: Plan) -> Pair:
        return Pair(monus(now, then), monus(then, now))
