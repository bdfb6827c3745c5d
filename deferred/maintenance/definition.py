"""A view's definition: its SQL bound to a plan, and what is kept of it so that binding again asks nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deferred.algebra.group import Aggregate
from deferred.algebra.plan import Filter, Plan, Project, Scan
from deferred.algebra.sets import Distinct
from deferred.errors import DeferredError, InvalidSQLError
from deferred.log import tracking
from deferred.log.context import Context
from deferred.log.history import DeltaLog
from deferred.metadata import Cut, TableRecord, ViewRecord
from deferred.spark.engine import table
from deferred.sql.bind import Bound, Schema, bind
from deferred.sql.types import Types

DIFFERENTIAL_COUNT = "_deferred_count"
DIFFERENTIAL_BATCH = "_deferred_batch"
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Definition:
    """A bound view: its plan, the tables it reads by name, and what it must remember."""

    bound: Bound
    tables: dict[str, TableRecord]
    schemas: dict[str, Columns]
    types: Types

    @property
    def plan(self) -> Plan:
        return self.bound.plan

    def read_columns(self, name: str) -> Columns:
        """The columns of a base table that the plan reads, with their types."""
        names = {n for node in self.plan.walk() if isinstance(node, Scan) and node.table == name for n in node.names}
        return tuple((n, t) for n, t in self.schemas[name] if n in names)

    def remembered(self) -> dict[str, object]:
        return {"tables": {name: [list(c) for c in schema] for name, schema in self.schemas.items()},
                "types": self.types.known}


def define(context: Context, sql: str) -> Definition:
    """Bind a new view against the tables as they are now."""
    schemas: dict[str, Columns] = {}
    tables: dict[str, TableRecord] = {}

    def catalog(path: tuple[str, ...]) -> tuple[str, Schema]:
        record = tracking.find(context, path)
        tables[record.name] = record
        if record.name not in schemas:
            schemas[record.name] = DeltaLog(record.location).columns
        return record.name, schemas[record.name]

    types = Types(context.engine.columns)
    bound = bind(sql, catalog, types)
    return Definition(bound, tables, schemas, types)


def load(context: Context, view: ViewRecord) -> Definition:
    """A view's definition as it was bound when the view was made: later columns of its tables do not disturb it."""
    remembered = view.definition
    schemas: dict[str, Columns] = {name: tuple((n, t) for n, t in schema)
                                   for name, schema in remembered["tables"].items()}
    records = {record.name: record for record in map(context.metadata.tables.by_id, view.depends_on)}
    by_key = {name.casefold(): name for name in schemas}

    def catalog(path: tuple[str, ...]) -> tuple[str, Schema]:
        name = by_key.get(path[-1].casefold()) if len(path) == 1 else tracking.find(context, path).name
        if name is None:
            raise InvalidSQLError(f"View {view.name} reads {'.'.join(path)}, which it did not when it was made.")
        return name, schemas[name]

    types = Types(context.engine.columns, remembered["types"])
    return Definition(bind(view.sql, catalog, types), records, schemas, types)


def unique_key(plan: Plan) -> tuple[str, ...] | None:
    """Columns of a plan's output that no two rows share, None where duplicates are possible.

    Groups are told apart by their keys, and duplicate elimination leaves every row once; projections must keep them.
    """
    if isinstance(plan, Filter):
        return unique_key(plan.child)
    if isinstance(plan, Project):
        below = unique_key(plan.child)
        if below is None:
            return None
        passed = {e.name: out for out, e in plan.outputs if e.key == "column"}
        return tuple(passed[c] for c in below) if set(below) <= passed.keys() else None
    if isinstance(plan, Aggregate):
        return plan.keys
    if isinstance(plan, Distinct):
        return plan.columns
    return None


@dataclass(frozen=True)
class Pinned:
    """Sources for rendering: base tables at a cut, changes and temporary results by their names in Spark."""

    tables: dict[str, TableRecord]
    versions: dict[int, int]
    changes: dict[str, str]
    steps: dict[str, str]

    def scan(self, name: str) -> str:
        record = self.tables[name]
        return table(record.location, self.versions[record.id])

    def change(self, name: str) -> str:
        return self.changes[name]

    def ref(self, name: str) -> str:
        return self.steps[name]


def at(definition: Definition, cut: Cut) -> Pinned:
    return Pinned(definition.tables, dict(cut.versions), {}, {})


def output(definition: Definition, columns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(plan column, view column) by position."""
    if len(definition.plan.columns) != len(columns):
        raise DeferredError("The view's plan and its table have different columns; rebuild the view.")
    return [(c, name) for c, (name, _) in zip(definition.plan.columns, columns, strict=True)]
