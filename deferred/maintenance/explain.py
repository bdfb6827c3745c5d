"""explain: the plan, the ∇/Δ equations in the paper's notation, the SQL that Spark runs, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from deferred.algebra.notation import notation
from deferred.log.context import Context
from deferred.maintenance import definition as definitions
from deferred.maintenance.scenarios import scenario_of
from deferred.maintenance.strategies import choose
from deferred.metadata import ViewRecord
from deferred.sql.dialect import text


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
    relevance: dict[str, str | None]
    """For each base table the condition on its rows without which they do not matter; None where all may."""
    sql: str
    apply: str
    notes: tuple[str, ...]
    settings: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        parts = [
            f"View {self.view}, scenario {self.scenario}: {self.invariant}",
            f"Strategy: {self.strategy}. {self.reason}",
            "Plan:",
            *(f"  {line}" for line in self.plan),
            f"In the paper's notation: {self.query}",
            "Changes, evaluated after the update:",
            *(f"  {line}" for line in self.equations),
            *(["Rows that can matter to the view:"] if self.relevance else []),
            *(f"  {table}: {condition or 'all'}" for table, condition in self.relevance.items()),
            f"partial_refresh: {self.apply}",
            *(f"Note: {note}" for note in self.notes),
            *(f"Setting: {name} = {value}" for name, value in self.settings.items()),
            "SQL that a propagate runs when all its tables have changed:",
            self.sql,
        ]
        return "\n".join(parts)


def explain(context: Context, view: ViewRecord) -> Explanation:
    """Explain a view by the scenario and the strategy that maintain it."""
    with context.engine.meaning(view.definition.settings):
        definition = definitions.load(context, view)
    scenario, choice = scenario_of(view), choose(context, view, definition)
    key = view.definition.key
    return Explanation(
        view=view.name,
        scenario=scenario.name,
        invariant=str(scenario.invariant),
        strategy=str(choice),
        reason=choice.reason,
        plan=choice.strategy.reads(definition),
        query=notation(definition.plan) if definition.bound is not None else "Q",
        equations=choice.strategy.equations(definition),
        relevance=_relevance(definition),
        sql=choice.strategy.sql(definition),
        apply=f"one MERGE on {', '.join(key)}" if key else "an append, or one MERGE of the touched rows",
        notes=view.definition.notes,
        settings=dict(sorted((view.definition.settings or {}).items())),
    )


def _relevance(definition: definitions.Definition) -> dict[str, str | None]:
    conditions = {name: definition.relevance[name].condition for name in sorted(definition.relevance)}
    return {name: None if condition is None else text(condition) for name, condition in conditions.items()}
