"""The four scenarios of Colby et al. 1996, beside each other as in Figures 1 and 3: invariant and procedures.

| scenario | invariant | makesafe[T] adds to a transaction | propagate | partial_refresh | refresh |
|---|---|---|---|---|---|
| Immediate | Q ≡ MV | MV follows | (refresh) | (nothing is left) | (nothing is left) |
| BaseLog | PAST(L, Q) ≡ MV | the log | – | – | MV := (MV ∸ ▼(L, Q)) ⊎ ▲(L, Q) |
| Differential | Q ≡ (MV ∸ ∇MV) ⊎ ΔMV | ∇MV, ΔMV follow | (nothing is left) | MV := (MV ∸ ∇MV) ⊎ ΔMV | partial_refresh |
| Combined | PAST(L, Q) ≡ (MV ∸ ∇MV) ⊎ ΔMV | the log | ∇MV, ΔMV follow | MV := (MV ∸ ∇MV) ⊎ ΔMV | both |

Delta writes the log in the same commit as the data, so makesafe_BL and makesafe_C have nothing left to do here. A job
may also write a table outside of a transaction of ours: what "is left" for propagate and refresh of the scenarios that
follow every transaction are commits that the ledger has not seen yet.

The procedures are imported when they run: a DAG file asks a scenario for its schedule without a database or Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from deferred.errors import not_one_of
from deferred.options import SCENARIOS

if TYPE_CHECKING:
    from datetime import datetime

    from deferred.log.context import Context
    from deferred.maintenance.operation import Operation
    from deferred.metadata import Cut, ViewRecord


@dataclass(frozen=True)
class Invariant:
    """One of Figure 1: on the left Q or PAST(L, Q), on the right MV or (MV ∸ ∇MV) ⊎ ΔMV.

    >>> str(Invariant(of_past=True, with_differential=False))
    'PAST(L, Q) ≡ MV'
    """

    of_past: bool
    with_differential: bool

    def __str__(self) -> str:
        left = "PAST(L, Q)" if self.of_past else "Q"
        right = "(MV ∸ ∇MV) ⊎ ΔMV" if self.with_differential else "MV"
        return f"{left} ≡ {right}"

    def cut(self, view: ViewRecord) -> Cut | None:
        """The cut whose state the right side holds: s_i with the differential tables, s_p without them."""
        return view.propagated if self.with_differential else view.shown


class Scenario(ABC):
    """What must hold between transactions, and the procedures that keep it so and bring MV up to date."""

    name: ClassVar[str]
    invariant: ClassVar[Invariant]
    follows_transactions: ClassVar[bool]
    """Whether makesafe has work to do after a transaction on a table that the view reads."""

    @abstractmethod
    def makesafe(self, context: Context, view: ViewRecord) -> bool:
        """Restore the invariant after a transaction. Returns whether MV may have changed."""

    @abstractmethod
    def propagate(self, context: Context, view: ViewRecord, until: datetime | None, full: bool) -> Operation:
        """Compute what has changed, for readers to see later."""

    @abstractmethod
    def partial_refresh(self, context: Context, view: ViewRecord) -> Operation:
        """Show readers what is computed already."""

    def refresh(self, context: Context, view: ViewRecord, until: datetime | None, order: str, full: bool) -> Operation:
        """{INV} refresh {Q ≡ MV} (Theorem 5). One implementation: propagate to the cut, then apply."""
        from deferred.maintenance import refresh

        if order not in ORDERS:
            raise not_one_of("order", order, ORDERS)
        return refresh.refresh(context, view.name, until, order, full)

    def scheduled(self, refresh_due: bool, policy: int) -> list[str]:
        """What a scheduled run does: propagate every k; every m refresh (policy 1) or partial_refresh (policy 2).

        >>> BY_NAME["combined"].scheduled(refresh_due=True, policy=2)
        ['propagate', 'partial_refresh']
        """
        if not refresh_due:
            return ["propagate"]
        return ["refresh"] if policy == 1 else ["propagate", "partial_refresh"]


class Immediate(Scenario):
    """INV_IM: Q ≡ MV. MV follows every transaction."""

    name = "immediate"
    invariant = Invariant(of_past=False, with_differential=False)
    follows_transactions = True

    def makesafe(self, context: Context, view: ViewRecord) -> bool:
        """makesafe_IM[T] = {MV := (MV ∸ ∇(T, Q)) ⊎ Δ(T, Q)} + T (Section 3.2)."""
        self.refresh(context, view, None, PROPAGATE_FIRST, full=False)
        return True

    def propagate(self, context: Context, view: ViewRecord, until: datetime | None, full: bool) -> Operation:
        """Changes may not wait: a refresh."""
        return self.refresh(context, view, until, PROPAGATE_FIRST, full)

    def partial_refresh(self, context: Context, view: ViewRecord) -> Operation:
        """Applies what a refresh that was interrupted has left."""
        return _apply_differential(context, view)


class BaseLog(Scenario):
    """INV_BL: PAST(L, Q) ≡ MV. The log grows until refresh reads it."""

    name = "base_log"
    invariant = Invariant(of_past=True, with_differential=False)
    follows_transactions = False

    def makesafe(self, context: Context, view: ViewRecord) -> bool:
        """makesafe_BL[T] = {▼R := ▼R ⊎ (∇R ∸ ▲R), ▲R := (▲R ∸ ∇R) ⊎ ΔR} + T (Figure 3): Delta's own doing."""
        return False

    def propagate(self, context: Context, view: ViewRecord, until: datetime | None, full: bool) -> Operation:
        """There is nowhere to propagate to."""
        return self._nothing(context, view, "propagate")

    def partial_refresh(self, context: Context, view: ViewRecord) -> Operation:
        """There is nothing to apply."""
        return self._nothing(context, view, "partial_refresh")

    def scheduled(self, refresh_due: bool, policy: int) -> list[str]:
        """Only a refresh, when it is due."""
        return ["refresh"] if refresh_due else []

    def _nothing(self, context: Context, view: ViewRecord, kind: str) -> Operation:
        from deferred.maintenance import operation

        with operation.recorded(context, kind, view) as work:
            work.nothing(f"The scenario {self.name} keeps no differential tables: refresh reads the base log.")
        return operation.result(context, work)


class Differential(Scenario):
    """INV_DT: Q ≡ (MV ∸ ∇MV) ⊎ ΔMV. The differential tables follow every transaction, MV waits."""

    name = "differential"
    invariant = Invariant(of_past=False, with_differential=True)
    follows_transactions = True

    def makesafe(self, context: Context, view: ViewRecord) -> bool:
        """makesafe_DT[T] = {∇MV := ∇MV ⊎ (∇(T, Q) ∸ ΔMV), ΔMV := (ΔMV ∸ ∇(T, Q)) ⊎ Δ(T, Q)} + T (Figure 3)."""
        from deferred.maintenance import propagate

        propagate.propagate(context, view.name, kind="makesafe")
        return False

    def propagate(self, context: Context, view: ViewRecord, until: datetime | None, full: bool) -> Operation:
        """The same for commits outside of transactions."""
        return _extend_differential(context, view, until, full)

    def partial_refresh(self, context: Context, view: ViewRecord) -> Operation:
        """refresh_DT = {MV := (MV ∸ ∇MV) ⊎ ΔMV, ∇MV := φ, ΔMV := φ} (Figure 3)."""
        return _apply_differential(context, view)


class Combined(Scenario):
    """INV_C: PAST(L, Q) ≡ (MV ∸ ∇MV) ⊎ ΔMV. The log grows, propagate shortens it, MV waits."""

    name = "combined"
    invariant = Invariant(of_past=True, with_differential=True)
    follows_transactions = False

    def makesafe(self, context: Context, view: ViewRecord) -> bool:
        """makesafe_C[T] = makesafe_BL[T] (Figure 3)."""
        return False

    def propagate(self, context: Context, view: ViewRecord, until: datetime | None, full: bool) -> Operation:
        """propagate_C = {∇MV := ∇MV ⊎ (▼(L, Q) ∸ ΔMV), ΔMV := (ΔMV ∸ ▼(L, Q)) ⊎ ▲(L, Q), L := φ} (Figure 3)."""
        return _extend_differential(context, view, until, full)

    def partial_refresh(self, context: Context, view: ViewRecord) -> Operation:
        """partial_refresh_C = refresh_DT (Figure 3)."""
        return _apply_differential(context, view)


PROPAGATE_FIRST = "propagate_first"
PARTIAL_FIRST = "partial_first"
ORDERS = (PROPAGATE_FIRST, PARTIAL_FIRST)
"""The two orders of refresh_C (Figure 3)."""

CHANGES_MV = ("partial_refresh", "refresh", "rebuild", "alter")
"""Operations after which MV may hold other rows: views that read it follow, and its Asset is announced."""

BY_NAME: dict[str, Scenario] = {scenario.name: scenario() for scenario in Scenario.__subclasses__()}  # type: ignore[type-abstract]
assert tuple(BY_NAME) == SCENARIOS, "the scenarios that a view may name are the classes above"


def scenario_of(view: ViewRecord) -> Scenario:
    """The scenario that a view is maintained by."""
    return BY_NAME[view.options.scenario]


def _extend_differential(context: Context, view: ViewRecord, until: datetime | None, full: bool) -> Operation:
    from deferred.maintenance import propagate

    return propagate.propagate(context, view.name, until, full=full)


def _apply_differential(context: Context, view: ViewRecord) -> Operation:
    from deferred.maintenance import refresh

    return refresh.partial_refresh(context, view.name)
