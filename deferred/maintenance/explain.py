"""explain: the plan, the ∇/Δ equations in the paper's notation, the SQL that Spark runs, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from deferred.algebra.delta import differentiate
from deferred.algebra.notation import equations, notation
from deferred.algebra.outline import outline
from deferred.algebra.plan import Plan
from deferred.log.context import Context
from deferred.maintenance import definition as definitions
from deferred.maintenance.verify import INVARIANTS
from deferred.metadata import ViewRecord
from deferred.sql.render import Names, Renderer


@dataclass(frozen=True)
class Explanation:
    """How a view is maintained."""

    view: str
    scenario: str
    invariant: str
    strategy: str
    reason: str
    plan: tuple[str, ...]
    query: str
    equations: tuple[str, ...]
    sql: str
    apply: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        parts = [
            f"View {self.view}, scenario {self.scenario}: {self.invariant}",
            f"Strategy: {self.strategy}. {self.reason}",
            "Plan:", *(f"  {line}" for line in self.plan),
            f"In the paper's notation: {self.query}",
            "Changes, evaluated after the update:", *(f"  {line}" for line in self.equations),
            f"partial_refresh: {self.apply}",
            *(f"Note: {note}" for note in self.notes),
            "SQL that a propagate runs when all its tables have changed:", self.sql,
        ]
        return "\n".join(parts)


def explain(context: Context, view: ViewRecord) -> Explanation:
    definition = definitions.load(context, view)
    if definition.bound is None:
        reason = f"{definition.whole} So every propagate recomputes the view and keeps the difference."
        return Explanation(view=view.name, scenario=view.scenario, invariant=INVARIANTS[view.scenario], strategy="full",
                           reason=reason, plan=("the whole query · recomputed: reads all its tables",), query="Q",
                           equations=("▼V = MV ∸ Q", "▲V = Q ∸ MV"), sql=view.sql,
                           apply="an append, or one MERGE of the touched rows",
                           notes=tuple(view.definition.get("notes") or ()))
    program = differentiate(definition.plan, definition.bound.tables, definition.column_types)
    sql = Renderer(Names()).statement(program) or "(the view reads no table: nothing can change)"
    recomputed = [node for node in definition.plan.walk() if node.maintained == "recomputed"]
    key = view.definition.get("key")
    strategy, reason = _strategy(view, recomputed)
    return Explanation(
        view=view.name, scenario=view.scenario, invariant=INVARIANTS[view.scenario], strategy=strategy, reason=reason,
        plan=tuple(outline(definition.plan)), query=notation(definition.plan),
        equations=tuple(equations(definition.plan)), sql=sql,
        apply=f"one MERGE on {', '.join(key)}" if key else "an append, or one MERGE of the touched rows",
        notes=tuple(view.definition.get("notes") or ()))


def _strategy(view: ViewRecord, recomputed: list[Plan]) -> tuple[str, str]:
    if view.refresh_policy == "full":
        return "full", "The view's refresh_policy is 'full': every propagate recomputes it and keeps the difference."
    why = "Only the rows, groups and keys that the changes touch are read."
    if recomputed:
        why = f"{type(recomputed[0]).__name__} has no keys, so a change reads its whole input again."
    if view.refresh_policy == "auto":
        why += " The refresh_policy 'auto' compares the number of changed rows with the tables' rows."
        return "incremental, or full when much has changed", why
    return "incremental", why
