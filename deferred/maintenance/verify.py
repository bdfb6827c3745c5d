"""verify: the scenario's invariant (Figure 1) and both minimality conditions, literally, in any state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlglot import exp

from deferred.algebra.bags import (
    COUNT,
    alias,
    call,
    column,
    difference,
    matching,
    negated,
    negative,
    net,
    positive,
    select,
    signed,
    union_all,
    written_out,
)
from deferred.algebra.types import Columns, equality_is_coarser
from deferred.errors import InvariantError, PromiseBrokenError
from deferred.log import ledger
from deferred.log.context import Context
from deferred.log.transactions import recover_all
from deferred.maintenance import definition as definitions
from deferred.maintenance import functions, promises
from deferred.maintenance.base_logs import base_tables, net_logs
from deferred.maintenance.definition import Definition
from deferred.maintenance.following import catch_up
from deferred.maintenance.operation import recorded
from deferred.maintenance.rounds import SparkMachine
from deferred.maintenance.scenarios import scenario_of
from deferred.maintenance.settle import settled, usable
from deferred.maintenance.showing import html_table
from deferred.maintenance.view_tables import applied_version, mv_path, pending
from deferred.maintenance.working import propagating
from deferred.metadata import Cut, ViewRecord
from deferred.spark.temporaries import Temporaries
from deferred.sql.dialect import cast, delta_table, text, verbatim
from deferred.sql.pin import pinned
from deferred.sql.render import Renderer


@dataclass(frozen=True)
class Check:
    """One condition: what must hold, how many rows violate it, and some of them."""

    condition: str
    holds: bool
    differing: int
    rows: tuple[str, ...] = ()

    @property
    def violated(self) -> bool:
        """Whether the view is wrong, or may become wrong."""
        return not self.holds

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'DOES NOT HOLD'}: {self.condition}"


@dataclass(frozen=True)
class PromiseCheck(Check):
    """A key or a reference of a base table, and whether the view relies on it."""

    relied: bool = False

    @property
    def violated(self) -> bool:
        return self.relied and not self.holds

    def __str__(self) -> str:
        if self.holds or self.relied:
            return super().__str__()
        return f"does not hold, such as for {', '.join(self.rows)}, but the view does not rely on it: {self.condition}"


@dataclass(frozen=True)
class Verification:
    """All conditions of a view's scenario, and the cuts at which they were checked."""

    view: str
    scenario: str
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether the view is right: what it does not rely on may be otherwise."""
        return not any(check.violated for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}

    def _repr_html_(self) -> str:
        rows = [(c.condition, "holds" if c.holds else f"does not hold: {c.differing} rows differ") for c in self.checks]
        return html_table((f"{self.view} ({self.scenario})", ""), rows)

    def __str__(self) -> str:
        return f"{self.view} ({self.scenario}): " + "; ".join(map(str, self.checks))


def verify(context: Context, name: str) -> Verification:
    """Check a view, as an operation of its history; views that follow transactions catch up first.

    A process may have died between a transaction and its followers.
    """
    catch_up(context)
    view = context.metadata.views.get(name)
    with recorded(context, "verify", view) as work, work.phase("verify"):
        return _verification(context, view.name)


def _verification(context: Context, name: str) -> Verification:
    """The oracle is Spark, running the user's own text on the tables as the invariant has them.

    PAST(L, Q) is Q with every R replaced by (R ∸ ▲R) ⊎ ▼R, at the cut that the ledger knows as current. A query may
    leave a choice: ORDER BY leaves rows equal of which LIMIT, ROW_NUMBER or MAX_BY take one. If the view then differs
    from the text's result, the oracle is Spark running the view's plan from the base tables: it makes one of the
    choices that the text allows, the same one every time. The condition says so.
    """
    recover_all(context)
    view = context.metadata.views.get(name)
    with propagating(context, view) as held:
        view = usable(settled(context, context.metadata.views.get(name), [held.lease]))
        functions.changed(context, view.definition)  # so that none is taken from an earlier operation
        definition = definitions.load(context, view)
        with context.engine.temporaries() as temporaries:
            checks = _checks(context, view, definition, temporaries)
        broken = [check for check in checks if check.violated]
        # If the view relies on what does not hold, other conditions that do not hold follow from it.
        for promise in broken:
            if isinstance(promise, PromiseCheck):
                problem = promises.unkept(promise.condition, view.name, promise.rows)
                context.metadata.views.update(view.id, [held.lease], state="broken", problem=problem)
                raise PromiseBrokenError(problem)
    verification = Verification(view.name, view.options.scenario, tuple(checks))
    if broken:
        first = broken[0]
        rows = "; ".join(first.rows)
        raise InvariantError(
            f"View {view.name}: {first.condition} does not hold, {first.differing} rows differ. "
            f"First ones: {rows}. Run rebuild({view.name!r}), and report what led to it."
        )
    return verification


def _checks(context: Context, view: ViewRecord, definition: Definition, temporaries: Temporaries) -> list[Check]:
    invariant = scenario_of(view).invariant
    tables = base_tables(context, view)
    version, batch = applied_version(view)
    view = context.metadata.views.by_id(view.id)
    past = invariant.cut(view)
    assert past is not None
    current = ledger.cut(context, tables, None, past)
    names = [name for name, _ in view.columns]
    mv = temporaries.compute("mv", signed(delta_table(mv_path(view.location), version), names))
    pending_net = temporaries.compute(
        "net", net(pending(view, batch, view.propagated_batch, mv_version=version), view.columns)
    )
    logs = net_logs(context, definition, past, current, temporaries).tables if invariant.of_past else {}

    past_of = _Past(definition, current, logs, temporaries)
    right: exp.Query = select([*map(column, names), column(COUNT)], mv)
    if invariant.with_differential:
        right = union_all([right, select([*map(column, names), column(COUNT)], pending_net)])
    checks = [_right(context, past_of, str(invariant), right, view.columns)]
    for name, log in logs.items():
        columns = definition.read_columns(name)
        inserted = positive(log, [n for n, _ in columns])
        whole = _rows_at(definition, name, columns, current)
        checks.append(_subbag(context, f"▲{name} ⊆ {name}", inserted, whole, columns))
    deleted = negated(negative(pending_net, names), names)
    checks.append(_subbag(context, "∇MV ⊆ MV", deleted, mv, view.columns))
    given = definition.promises or promises.declared(definition)
    for promise, against in promises.checks(definition, given, current):
        checks.append(_kept(context, promise, against, definition.promises is not None))
    return checks


def _right(context: Context, past: _Past, condition: str, view: exp.Query, columns: Columns) -> Check:
    """That the view has the rows of its query, with the choices that the view makes where its query leaves one.

    Sums of floating point are compared with the plan's alone: their order of summation is the view's own. So are
    recursions, of which Spark runs only some: by the plain rounds of the plan, from the base tables alone.
    """
    definition = past.definition
    names = [name for name, _ in columns]

    def compared(query: exp.Expr, what: str) -> Check:
        planned = [name for name, _ in context.engine.columns(query)]
        rows = select([alias(column(c), name) for c, name in zip(planned, names, strict=True)], query)
        return _equal(context, what, signed(rows, names), view, columns)

    chosen = f"{condition}, with the view's own choice where {', '.join(definition.choices)} leave one"
    planned_only = any(equality_is_coarser(type_) for _, type_ in columns) or definition.is_recursive
    if definition.has_plan and planned_only:
        return compared(past.of_plan(), chosen if definition.choices else condition)
    found = compared(past.of_text(), condition)
    return found if found.holds or not definition.choices else compared(past.of_plan(), chosen)


@dataclass(frozen=True)
class _Past:
    """Every table as PAST(L, ·) has it; without a log, as it is at the current cut. Leaves for text and for plans."""

    definition: Definition
    current: Cut
    logs: Mapping[str, exp.Table]
    temporaries: Temporaries
    steps: dict[str, exp.Table] = field(default_factory=dict)

    def of_text(self) -> exp.Expr:
        """The user's own text."""
        sql = self.definition.sql
        return verbatim(pinned(sql, lambda path: text(self.scan(self.definition.table(path).name).subquery())))

    def of_plan(self) -> exp.Expr:
        """The view's plan, over the base tables alone; a recursion is computed by its rounds."""
        renderer = Renderer(self, small_changes=False)
        machine = SparkMachine(renderer, self.steps, self.temporaries, self.definition.column_types)
        machine.fill(self.definition.plan)
        return renderer.query(self.definition.plan)

    def scan(self, table: str) -> exp.Select:
        """(R ∸ ▲R) ⊎ ▼R.

        Columns that the view does not read are not in the log. They are NULL here, so that * keeps its meaning.
        """
        read = self.definition.read_columns(table)
        names = [name for name, _ in read]
        rows = _rows_at(self.definition, table, read, self.current)
        if table in self.logs:
            rows = written_out(difference(rows, self.logs[table], read), names)
        outputs = [
            column(name) if name in names else alias(cast(exp.Null(), type_), name)
            for name, type_ in self.definition.schemas[table]
        ]
        return select(outputs, rows)

    def change(self, table: str) -> exp.Expr:
        raise NotImplementedError("a query reads no change")

    stored = change

    def temporary(self, name: str) -> exp.Expr:
        return self.steps[name]


def _rows_at(definition: Definition, name: str, columns: Columns, cut: Cut) -> exp.Select:
    """The rows of a base table at a cut, as a signed bag."""
    rows = definition.rows_at(name, cut.versions[definition.tables[name].id])
    return signed(rows, [column_name for column_name, _ in columns])


def _equal(context: Context, condition: str, left: exp.Query, right: exp.Query, columns: Columns) -> Check:
    """Bag equality of two signed bags: their difference nets to nothing."""
    return _check(
        context, condition, difference(left, right, columns), ("missing from the view", "too many in the view")
    )


def _subbag(context: Context, condition: str, part: exp.Query, whole: exp.Expr, columns: Columns) -> Check:
    """part ⊆ whole: no row has a greater multiplicity in the part."""
    names = [name for name, _ in columns]
    held = matching(whole, [*names, COUNT], part, columns)
    return _check(context, condition, positive(difference(part, held, columns), names), ("not contained", ""))


def _kept(context: Context, promise: str, against: exp.Select, relied: bool) -> Check:
    """A promise about base tables, which holds where a query finds no rows."""
    rows = context.engine.rows(against.limit(promises.EXAMPLES))
    return PromiseCheck(promise, not rows, len(rows), tuple(str(tuple(row)) for row in rows), relied)


def _check(context: Context, condition: str, against: exp.Select, words: tuple[str, str]) -> Check:
    """A condition that holds where a query finds no rows."""
    rows = context.engine.rows(against.limit(promises.EXAMPLES))
    if not rows:
        return Check(condition, True, 0)
    total = int(context.engine.rows(select([exp.alias_(call("COUNT", exp.Star()), "n")], against))[0]["n"])
    examples = tuple(
        f"{abs(row[COUNT])} × {tuple(row)[:-1]} {words[0] if row[COUNT] > 0 else words[1]}" for row in rows
    )
    return Check(condition, False, total, examples)
