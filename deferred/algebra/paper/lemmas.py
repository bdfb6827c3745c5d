"""Definition 1 and Lemmas 1 and 3 of Colby et al. 1996: past and future queries, changes in a row, minimal pairs."""

from __future__ import annotations

from dataclasses import replace

from deferred.algebra.equations.figure2 import Pair, Schema, Substitution, differential, minimum, plus, table
from deferred.algebra.equations.simplify import monus
from deferred.algebra.plan import Plan


def maximum(left: Plan, right: Plan) -> Plan:
    """E max F = E ⊎ (F ∸ E)."""
    return plus(left, monus(right, left))


def transaction(schema: Schema) -> Substitution:
    """𝒯̂ of a simple transaction: D = ∇R, A = ΔR (Section 2.4)."""
    return Substitution(
        {name: Pair(table(f"∇{name}", columns), table(f"Δ{name}", columns)) for name, columns in schema.items()}
    )


def future(transaction: Substitution, query: Plan) -> Plan:
    """FUTURE(𝒯, Q) = 𝒯̂(Q): the value that Q will have after 𝒯 (Definition 1)."""
    return transaction.apply(query)


def past(log: Substitution, query: Plan) -> Plan:
    """PAST(ℒ, Q) = ℒ̂(Q): the value that Q had when the log began (Definition 1)."""
    return log.apply(query)


def deletions(eta: Substitution, query: Plan) -> Plan:
    """DEL(η, Q) of Figure 2. For a weakly minimal η, DEL(η, Q) ⊆ Q (Theorem 2 b)."""
    return differential(eta, query).deletions


def additions(eta: Substitution, query: Plan) -> Plan:
    """ADD(η, Q) of Figure 2. For a weakly minimal η, η(Q) ≡ (Q ∸ DEL(η, Q)) ⊎ ADD(η, Q) (Theorem 2 a)."""
    return differential(eta, query).additions


def future_deletions(transaction: Substitution, query: Plan) -> Plan:
    """∇(𝒯, Q) = DEL(𝒯̂, Q), to be evaluated before the update (Section 4, Equation 1)."""
    return deletions(transaction, query)


def future_additions(transaction: Substitution, query: Plan) -> Plan:
    """Δ(𝒯, Q) = ADD(𝒯̂, Q), to be evaluated before the update (Section 4, Equation 1)."""
    return additions(transaction, query)


def past_deletions(log: Substitution, query: Plan) -> Plan:
    """▼(ℒ, Q) = ADD(ℒ̂, Q), to be evaluated after the update: what only the past has was deleted (Section 4.1)."""
    return additions(log, query)


def past_additions(log: Substitution, query: Plan) -> Plan:
    """▲(ℒ, Q) = DEL(ℒ̂, Q), to be evaluated after the update.

    By Lemma 1 it is Q min DEL(ℒ̂, Q); for a weakly minimal log DEL(ℒ̂, Q) ⊆ Q (Section 4.1).
    """
    return deletions(log, query)


def cancelled(old: Plan, change: Pair) -> Pair:
    """From N ≡ (O ∸ D) ⊎ I follows O ≡ (N ∸ I) ⊎ (O min D): the change that leads back (Lemma 1)."""
    return Pair(change.additions, minimum(old, change.deletions))


def composed(first: Pair, second: Pair) -> Pair:
    """D₃ = D₁ ⊎ (D₂ ∸ I₁), I₃ = (I₁ ∸ D₂) ⊎ I₂: two changes in a row as one (Lemma 3).

    It needs D₁ ⊆ O and D₂ ⊆ (O ∸ D₁) ⊎ I₁, and gives D₃ ⊆ O.
    """
    return Pair(
        plus(first.deletions, monus(second.deletions, first.additions)),
        plus(monus(first.additions, second.deletions), second.additions),
    )


def weakly_minimal(query: Plan, change: Pair) -> Pair:
    """(D min Q, A): only rows that are there are deleted, DEL ⊆ Q (Section 4.1, condition a)."""
    return replace(change, deletions=minimum(change.deletions, query))


def strongly_minimal(query: Plan, change: Pair) -> Pair:
    """(D ∸ A, A ∸ D) of the weakly minimal pair: no row is deleted and added again, DEL min ADD ≡ φ (condition b)."""
    weak = weakly_minimal(query, change)
    return Pair(monus(weak.deletions, weak.additions), monus(weak.additions, weak.deletions))
