"""Figures 1 and 3 of Colby et al. 1996: the invariants, and the procedures of the four scenarios as plain data.

A procedure is an abstract transaction {Rᵢ := Qᵢ}: a mapping from table names to plans, all evaluated in the current
state before any table changes (`evaluate.execute`). The tables are those of the paper: R, its log ▼R and ▲R, the
transaction's ∇R and ΔR, and MV with its differential tables ∇MV and ΔMV.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deferred.algebra.equations.figure2 import Pair, Schema, applied, differential, log, table
from deferred.algebra.equations.simplify import empty
from deferred.algebra.operators import Scan
from deferred.algebra.paper.lemmas import composed, past, transaction
from deferred.algebra.plan import Plan

Assignments = Mapping[str, Plan]
Sequence = tuple[Assignments, ...]
"""Transactions one after the other."""


@dataclass(frozen=True)
class View:
    """A view: its query Q over the base tables of a schema, materialized in MV."""

    query: Plan
    schema: Schema

    @property
    def mv(self) -> Scan:
        return table("MV", self.query.columns)

    @property
    def differential_tables(self) -> Pair:
        """(∇MV, ΔMV)."""
        return Pair(table("∇MV", self.query.columns), table("ΔMV", self.query.columns))

    @property
    def log_changes(self) -> Pair:
        """(▼(ℒ, Q), ▲(ℒ, Q))."""
        dual = differential(log(self.schema), self.query)
        return Pair(dual.additions, dual.deletions)

    @property
    def transaction_changes(self) -> Pair:
        """(∇(𝒯, Q), Δ(𝒯, Q))."""
        return differential(transaction(self.schema), self.query)


@dataclass(frozen=True)
class Invariant:
    """left ≡ right, in every state."""

    left: Plan
    right: Plan


def invariant_im(view: View) -> Invariant:
    """INV_IM: Q ≡ MV (Figure 1)."""
    return Invariant(view.query, view.mv)


def invariant_bl(view: View) -> Invariant:
    """INV_BL: PAST(ℒ, Q) ≡ MV (Figure 1)."""
    return Invariant(past(log(view.schema), view.query), view.mv)


def invariant_dt(view: View) -> Invariant:
    """INV_DT: Q ≡ (MV ∸ ∇MV) ⊎ ΔMV (Figure 1)."""
    return Invariant(view.query, applied(view.mv, view.differential_tables))


def invariant_c(view: View) -> Invariant:
    """INV_C: PAST(ℒ, Q) ≡ (MV ∸ ∇MV) ⊎ ΔMV (Figure 1)."""
    return Invariant(past(log(view.schema), view.query), applied(view.mv, view.differential_tables))


def user_transaction(view: View) -> Assignments:
    """𝒯 = {R := (R ∸ ∇R) ⊎ ΔR} (Section 2.2)."""
    eta = transaction(view.schema)
    return {name: applied(table(name, columns), eta.changes[name]) for name, columns in view.schema.items()}


def makesafe_im(view: View) -> Assignments:
    """makesafe_IM[𝒯] = {MV := (MV ∸ ∇(𝒯, Q)) ⊎ Δ(𝒯, Q)} + 𝒯 (Section 3.2)."""
    return {"MV": applied(view.mv, view.transaction_changes), **user_transaction(view)}


def makesafe_bl(view: View) -> Assignments:
    """makesafe_BL[𝒯] = {▼R := ▼R ⊎ (∇R ∸ ▲R), ▲R := (▲R ∸ ∇R) ⊎ ΔR} + 𝒯 (Figure 3)."""
    extended: dict[str, Plan] = {}
    for name, columns in view.schema.items():
        logged = Pair(table(f"▼{name}", columns), table(f"▲{name}", columns))
        both = composed(logged, transaction(view.schema).changes[name])
        extended |= {f"▼{name}": both.deletions, f"▲{name}": both.additions}
    return {**extended, **user_transaction(view)}


def makesafe_dt(view: View) -> Assignments:
    """makesafe_DT[𝒯] = {∇MV := ∇MV ⊎ (∇(𝒯, Q) ∸ ΔMV), ΔMV := (ΔMV ∸ ∇(𝒯, Q)) ⊎ Δ(𝒯, Q)} + 𝒯 (Figure 3)."""
    return {**_extended(view, view.transaction_changes), **user_transaction(view)}


def makesafe_c(view: View) -> Assignments:
    """makesafe_C[𝒯] = makesafe_BL[𝒯] (Figure 3)."""
    return makesafe_bl(view)


def refresh_im(view: View) -> Assignments:
    """{}: MV is never behind."""
    return {}


def refresh_bl(view: View) -> Assignments:
    """refresh_BL = {MV := (MV ∸ ▼(ℒ, Q)) ⊎ ▲(ℒ, Q), ℒ := φ} (Figure 3)."""
    return {"MV": applied(view.mv, view.log_changes), **_emptied_log(view)}


def refresh_dt(view: View) -> Assignments:
    """refresh_DT = {MV := (MV ∸ ∇MV) ⊎ ΔMV, ∇MV := φ, ΔMV := φ} (Figure 3)."""
    none = empty(view.query.columns)
    return {"MV": applied(view.mv, view.differential_tables), "∇MV": none, "ΔMV": none}


def propagate_c(view: View) -> Assignments:
    """propagate_C = {∇MV := ∇MV ⊎ (▼(ℒ, Q) ∸ ΔMV), ΔMV := (ΔMV ∸ ▼(ℒ, Q)) ⊎ ▲(ℒ, Q), ℒ := φ} (Figure 3)."""
    return {**_extended(view, view.log_changes), **_emptied_log(view)}


def partial_refresh_c(view: View) -> Assignments:
    """partial_refresh_C = refresh_DT (Figure 3)."""
    return refresh_dt(view)


def refresh_c(view: View) -> Sequence:
    """refresh_C = propagate_C followed by partial_refresh_C (Figure 3)."""
    return propagate_c(view), partial_refresh_c(view)


def refresh_c_partial_first(view: View) -> Sequence:
    """refresh_C = partial_refresh_C followed by refresh_BL (Figure 3, the other order)."""
    return partial_refresh_c(view), refresh_bl(view)


def _extended(view: View, change: Pair) -> Assignments:
    """The differential tables composed with one more change of the view (Lemma 3)."""
    both = composed(view.differential_tables, change)
    return {"∇MV": both.deletions, "ΔMV": both.additions}


def _emptied_log(view: View) -> Assignments:
    """ℒ := φ."""
    return {f"{sign}{name}": empty(columns) for name, columns in view.schema.items() for sign in "▼▲"}
