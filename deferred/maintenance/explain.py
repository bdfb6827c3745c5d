"""explain: which part of a view is maintained how, what that costs, what would make it cheaper, and by which SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from deferred.algebra.notation import notation
from deferred.errors import DeferredError
from deferred.log.context import Context
from deferred.log.sources import source_of
from deferred.log.tracking import unused_references
from deferred.maintenance import definition as definitions
from deferred.maintenance.advice import Subject, advice
from deferred.maintenance.base_logs import unread
from deferred.maintenance.otherwise import Other, otherwise
from deferred.maintenance.scenarios import scenario_of
from deferred.maintenance.strategies import FROM_VIEW, INCREMENTAL, answerable, choose, estimates, situation
from deferred.metadata import OperationRecord, TableRecord, ViewRecord
from deferred.sql.dialect import text


@dataclass(frozen=True)
class Explanation:
    """How a view is maintained."""

    view: str
    scenario: str
    invariant: str
    strategy: str
    reason: str
    estimates: dict[str, dict[str, Any]]
    """For each strategy that is compared, what it would cost to compute what has changed so far."""
    plan: tuple[str, ...]
    query: str
    equations: tuple[str, ...]
    relevance: dict[str, str | None]
    """For each base table the condition on its rows without which they do not matter; None where all may."""
    sql: str
    apply: str
    notes: tuple[str, ...]
    settings: dict[str, str]
    costs: tuple[str, ...] = ()
    """What it costs now, in sentences."""
    otherwise: tuple[str, ...] = ()
    """What another value of `maintain` would keep and read."""
    cheaper: tuple[str, ...] = ()
    """What would make it cheaper."""
    itself: tuple[str, ...] = ()
    """What is read where the view answers a change from its own rows."""
    itself_sql: str | None = None
    """The SQL of that, when all these tables have changed."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        parts = [
            self.words(),
            f"In the paper's notation: {self.query}",
            "Changes, evaluated after the update:",
            *(f"  {line}" for line in self.equations),
            "SQL that a propagate runs when all its tables have changed:",
            self.sql,
            *(["SQL that a propagate runs when the view answers itself:", self.itself_sql] if self.itself_sql else []),
        ]
        return "\n".join(parts)

    def words(self) -> str:
        """The explanation without equations and SQL."""
        parts = [
            f"View {self.view}, scenario {self.scenario}: {self.invariant}",
            f"Strategy: {self.strategy}. {self.reason}",
            *(f"  {name}: {_written(cost)}" for name, cost in self.estimates.items()),
            "What each part reads when something has changed:",
            *(f"  {line}" for line in self.plan),
            *(["Where the view answers a change from its own rows, no base table is read:"] if self.itself else []),
            *(f"  {line}" for line in self.itself),
            "What it costs now:",
            *(f"  {line}" for line in self.costs),
            *(["With another maintain:"] if self.otherwise else []),
            *(f"  {line}" for line in self.otherwise),
            "What would make it cheaper:",
            *(f"  {line}" for line in self.cheaper or ("Nothing that is known would make it cheaper.",)),
            *(["Rows that can matter to the view:"] if self.relevance else []),
            *(f"  {table}: {condition or 'all'}" for table, condition in self.relevance.items()),
            f"partial_refresh: {self.apply}",
            *(f"Note: {note}" for note in self.notes),
            *(f"Setting: {name} = {value}" for name, value in self.settings.items()),
        ]
        return "\n".join(parts)


def explain(context: Context, view: ViewRecord) -> Explanation:
    """Explain a view by the scenario and the strategy that maintain it."""
    with context.engine.meaning(view.definition.settings):
        definition = definitions.load(context, view)
    scenario, choice = scenario_of(view), choose(context, view, definition)
    others = otherwise(context, view, definition)
    compared = _compared(context, view, definition, others)
    key = view.definition.key
    itself = FROM_VIEW if choice.strategy is INCREMENTAL and answerable(definition) else None
    return Explanation(
        view=view.name,
        scenario=scenario.name,
        invariant=str(scenario.invariant),
        strategy=str(choice),
        reason=choice.reason,
        estimates=compared,
        plan=choice.strategy.reads(definition),
        query=notation(definition.plan) if definition.has_plan else "Q",
        equations=choice.strategy.equations(definition),
        relevance=_relevance(definition),
        sql=choice.strategy.sql(definition),
        apply=f"one MERGE on {', '.join(key)}" if key else "an append, or one MERGE of the touched rows",
        notes=(*view.definition.notes, *unused_references(context, *definition.tables)),
        settings=dict(sorted((view.definition.settings or {}).items())),
        costs=tuple(_costs(context, view, definition)),
        otherwise=tuple(line for other in others for line in other.lines),
        cheaper=_cheaper(context, view, definition),
        itself=() if itself is None else itself.reads(definition),
        itself_sql=None if itself is None else itself.sql(definition),
    )


@dataclass(frozen=True)
class Summary:
    """An explanation without its SQL and equations: what pages show of every view."""

    strategy: str
    reason: str
    plan: tuple[str, ...]
    costs: tuple[str, ...]
    cheaper: tuple[str, ...]


def summary(context: Context, view: ViewRecord) -> Summary:
    """Explain a view in words. Starts no Spark: what its query means was remembered when it was created."""
    definition = definitions.remembered_alone(context, view)
    choice = choose(context, view, definition)
    costs, cheaper = tuple(_costs(context, view, definition)), _cheaper(context, view, definition)
    return Summary(str(choice), choice.reason, choice.strategy.reads(definition), costs, cheaper)


RECENT = 20
"""The number of operations that say what a view costs."""


def _costs(context: Context, view: ViewRecord, definition: definitions.Definition) -> Iterator[str]:
    """What there is to do, what the last operations took, and what a recomputation would read."""
    rows = [_row_count(context, table) for table in definition.tables.values()]
    total = None if None in rows else sum(filter(None, rows))
    yield f"A recomputation reads {'all' if total is None else f'{total:,}'} rows of {', '.join(definition.tables)}."
    recent = [op for op in context.metadata.operations.recent(view.name, RECENT) if op.state == "succeeded"]
    computed = [op for op in recent if "compute" in op.seconds]
    if computed:
        seconds = sum(sum(op.seconds.values()) for op in computed)
        phases = {name: sum(op.seconds.get(name, 0.0) for op in computed) for op in computed for name in op.seconds}
        slowest = max(phases, key=lambda name: phases[name])
        yield (
            f"{_last(computed, 'propagate')} read {_counted(sum(op.rows_read for op in computed), 'changed row')} in "
            f"{seconds:.2f} s; most of it, {phases[slowest]:.2f} s, was the phase {slowest}."
        )
    applied = [op for op in recent if "apply" in op.seconds]
    if applied:
        downtime = [op.seconds["apply"] for op in applied]
        yield f"{_last(applied, 'commit')} to the view took {max(downtime):.2f} s{' at most' * (len(applied) > 1)}."
    if not computed and not applied:
        yield "Nothing was propagated or applied so far."


def _last(done: Sequence[OperationRecord], what: str) -> str:
    return f"The last {what}" if len(done) == 1 else f"The last {len(done)} {what}s"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _cheaper(context: Context, view: ViewRecord, definition: definitions.Definition) -> tuple[str, ...]:
    if not definition.has_plan:
        return (f"Another form: {definition.whole} Without it, only the changes would be read.",)
    rows = {name: _row_count(context, table) for name, table in definition.tables.items()}
    return advice(Subject(view, definition.plan, definition.column_types, definition.tables, rows))


def _row_count(context: Context, table: TableRecord) -> int | None:
    try:
        return source_of(context, table).row_count()
    except DeferredError:
        return None


def _compared(
    context: Context, view: ViewRecord, definition: definitions.Definition, others: Sequence[Other]
) -> dict[str, dict[str, Any]]:
    """What each strategy would cost for what has changed so far; nothing where a table cannot be looked at now."""
    try:
        pending = None if view.propagated is None else unread(context, definition, view.propagated)
        now = None if pending is None else situation(context, view, definition, pending)
        if now is None:
            return {}
        compared = estimates(now) | {f"maintain = '{other.maintain}'": other.cost(now) for other in others}
    except DeferredError:
        return {}
    return {name: cost.to_dict() for name, cost in compared.items()}


def _written(cost: dict[str, Any]) -> str:
    """
    >>> _written({"seconds": 1.25, "rows": 1200, "bytes": 3_000_000, "reason": "by the sizes alone"})
    'about 1.2 s for what has changed so far: 1,200 rows, 3.0 MB to read (by the sizes alone)'
    """
    return (
        f"about {cost['seconds']:.1f} s for what has changed so far: {cost['rows']:,} rows, "
        f"{cost['bytes'] / 1e6:,.1f} MB to read ({cost['reason']})"
    )


def _relevance(definition: definitions.Definition) -> dict[str, str | None]:
    conditions = {name: definition.relevance[name].condition for name in sorted(definition.relevance)}
    return {name: None if condition is None else text(condition) for name, condition in conditions.items()}
