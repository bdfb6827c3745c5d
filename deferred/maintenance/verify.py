"""verify: the scenario's invariant (Figure 1) and both minimality conditions, literally, in any state."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from deferred.algebra.delta import coarse
from deferred.algebra.plan import COUNT
from deferred.errors import InvariantError
from deferred.log import changes, ledger
from deferred.log.context import Context
from deferred.log.lease import lease
from deferred.log.transactions import recover_all
from deferred.maintenance import definition as definitions
from deferred.maintenance.definition import Definition
from deferred.maintenance.propagate import pending, sources, usable
from deferred.maintenance.settle import settled, shown_version
from deferred.maintenance.views import mv_path
from deferred.metadata import Cut, TableRecord, ViewRecord
from deferred.spark import bags
from deferred.spark.engine import Temporaries, table
from deferred.sql.dialect import quoted
from deferred.sql.pin import pinned
from deferred.sql.render import Renderer

INVARIANTS = {
    "immediate": "Q ≡ MV",
    "base_log": "PAST(L, Q) ≡ MV",
    "differential": "Q ≡ (MV ∸ ∇MV) ⊎ ΔMV",
    "combined": "PAST(L, Q) ≡ (MV ∸ ∇MV) ⊎ ΔMV",
}
SHOWN = 5


@dataclass(frozen=True)
class Check:
    """One condition: what must hold, and how many rows are against it."""

    condition: str
    holds: bool
    differing: int
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """All conditions of a view's scenario, and the cuts at which they were checked."""

    view: str
    scenario: str
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}

    def __str__(self) -> str:
        lines = [f"{'holds' if c.holds else 'DOES NOT HOLD'}: {c.condition}" for c in self.checks]
        return f"{self.view} ({self.scenario}): " + "; ".join(lines)


def verify(context: Context, name: str) -> Verification:
    """Check a view. The oracle is Spark, running the user's own text on the tables as the invariant has them.

    PAST(L, Q) is Q with every R exchanged for (R ∸ ▲R) ⊎ ▼R, at the cut that the ledger knows as current.
    """
    recover_all(context)
    view = context.metadata.views.get(name)
    with lease(context, f"propagate:{view.id}", f"The propagation of {view.name}"):
        view = usable(settled(context, context.metadata.views.get(name)))
        definition = definitions.load(context, view)
        with context.engine.temporaries() as temporaries:
            checks = _checks(context, view, definition, temporaries)
    verification = Verification(view.name, view.scenario, tuple(checks))
    broken = [check for check in checks if not check.holds]
    if broken:
        first = broken[0]
        rows = "; ".join(first.rows)
        raise InvariantError(f"View {view.name}: {first.condition} does not hold, {first.differing} rows differ. "
                             f"First ones: {rows}. Run rebuild({view.name!r}), and report how it came about.")
    return verification


def _checks(context: Context, view: ViewRecord, definition: Definition, temporaries: Temporaries) -> list[Check]:
    tables = sources(context, view)
    version, batch = shown_version(view)
    view = context.metadata.views.by_id(view.id)
    past = view.shown if view.scenario == "base_log" else view.propagated
    assert past is not None
    current = ledger.cut(context, tables, None, past)
    names = ", ".join(quoted(n) for n, _ in view.columns)
    count = quoted(COUNT)
    mv = temporaries.keep("mv", f"SELECT {names}, 1L AS {count} FROM {table(mv_path(view), version)}")
    net = temporaries.keep("net", bags.net(pending(view, batch, view.propagated_batch), view.columns))

    logs: dict[str, str] = {}
    checks: list[Check] = []
    for number, source in enumerate(tables):
        after, upto = past.versions[source.id], current.versions[source.id]
        if upto <= after or view.scenario in ("immediate", "differential"):
            continue
        columns = definition.read_columns(source.name)
        with changes.guarded(source, after, upto):
            logs[source.name] = temporaries.keep(f"log{number}", changes.net(context, source, after, upto, columns))
        inserted = f"SELECT * FROM {logs[source.name]} WHERE {count} > 0"
        checks.append(_subbag(context, f"▲{source.name} ⊆ {source.name}", inserted, columns,
                              _table(source, columns, current)))
    deleted = f"SELECT {names}, -{count} AS {count} FROM {net} WHERE {count} < 0"
    checks.append(_subbag(context, "∇MV ⊆ MV", deleted, view.columns, f"SELECT * FROM {mv}"))

    query = _Past(definition, current, logs).query(view)
    if view.scenario in ("immediate", "base_log"):
        stored = f"SELECT * FROM {mv}"
    else:
        stored = f"SELECT * FROM {mv} UNION ALL SELECT * FROM {net}"
    listed = ", ".join(f"{quoted(c)} AS {quoted(n)}" for c, n in zip(
        [n for n, _ in context.engine.columns(query)], [n for n, _ in view.columns], strict=True))
    left = f"SELECT {names}, 1L AS {count} FROM (SELECT {listed} FROM ({query}) AS q) AS q"
    invariant = _equal(context, INVARIANTS[view.scenario], left, stored, view)
    return [invariant, *checks]


@dataclass(frozen=True)
class _Past:
    """Every table as PAST(L, ·) has it; without a log, as it is at the current cut. Sources for text and for plans."""

    definition: Definition
    current: Cut
    logs: dict[str, str]

    def query(self, view: ViewRecord) -> str:
        """The user's own text; for floating-point results the plan, whose order of summation is the view's own."""
        if self.definition.bound is not None and any(coarse(type_) for _, type_ in view.columns):
            return Renderer(self, broadcast=False).render(self.definition.plan)
        return pinned(self.definition.sql, lambda path: self.scan(self.definition.table(path).name))

    def scan(self, table: str) -> str:
        record = self.definition.tables[table]
        # Columns that the view does not read are not in the log; they stand in as NULL, so that * keeps its meaning.
        read = dict(self.definition.read_columns(table))
        outputs = ", ".join(quoted(n) if n in read else f"CAST(NULL AS {t}) AS {quoted(n)}"
                            for n, t in self.definition.schemas[table])
        now = _table(record, tuple(read.items()), self.current)
        if table not in self.logs:
            return f"(SELECT {outputs} FROM ({now}) AS r)"
        count = quoted(COUNT)
        log = f"SELECT {', '.join(map(quoted, read))}, -{count} AS {count} FROM {self.logs[table]}"
        before = bags.written_out(bags.net(f"{now} UNION ALL {log}", tuple(read.items())), tuple(read.items()))
        return f"(SELECT {outputs} FROM ({before}) AS r)"

    def change(self, table: str) -> str:
        raise NotImplementedError("a query reads no change")

    ref = stored = change


def _table(source: TableRecord, columns: tuple[tuple[str, str], ...], cut: Cut) -> str:
    listed = ", ".join(quoted(n) for n, _ in columns)
    return f"SELECT {listed}, 1L AS {quoted(COUNT)} FROM {table(source.location, cut.versions[source.id])}"


def _equal(context: Context, condition: str, left: str, right: str, view: ViewRecord) -> Check:
    """Bag equality of two signed queries: their difference nets to nothing."""
    names = ", ".join(quoted(n) for n, _ in view.columns)
    count = quoted(COUNT)
    difference = bags.net(f"SELECT {names}, {count} FROM ({left}) AS l UNION ALL "
                          f"SELECT {names}, -{count} AS {count} FROM ({right}) AS r", view.columns)
    return _check(context, condition, difference, ("missing from the view", "too many in the view"))


def _subbag(context: Context, condition: str, part: str, columns: tuple[tuple[str, str], ...], whole: str) -> Check:
    """part ⊆ whole: no row has a greater multiplicity in the part."""
    names = ", ".join(quoted(n) for n, _ in columns)
    count = quoted(COUNT)
    mine = f"SELECT {names}, {count} FROM ({part}) AS p"
    kept = " AND ".join(f"whole.{quoted(n)} <=> part.{quoted(n)}" for n, _ in columns)
    listed = ", ".join(f"whole.{quoted(n)}" for n, _ in columns)
    near = (f"SELECT {listed}, -whole.{count} AS {count} FROM ({whole}) AS whole "
            f"LEFT SEMI JOIN ({part}) AS part ON {kept}")
    summed = bags.net(f"{mine} UNION ALL {near}", columns)
    return _check(context, condition, f"SELECT * FROM ({summed}) AS s WHERE {count} > 0", ("not contained", ""))


def _check(context: Context, condition: str, difference: str, words: tuple[str, str]) -> Check:
    rows = context.engine.rows(f"SELECT * FROM ({difference}) AS d LIMIT {SHOWN}")
    if not rows:
        return Check(condition, True, 0)
    total = int(context.engine.rows(f"SELECT COUNT(*) AS n FROM ({difference}) AS d")[0]["n"])
    shown = tuple(f"{abs(row[COUNT])} × {tuple(row)[:-1]} {words[0] if row[COUNT] > 0 else words[1]}" for row in rows)
    return Check(condition, False, total, shown)
