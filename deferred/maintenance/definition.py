"""A view's definition: its SQL bound to a plan, and what is kept of it so that binding again asks nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deferred.algebra.group import Aggregate
from deferred.algebra.plan import Filter, Plan, Project, Scan
from deferred.algebra.sets import Distinct
from deferred.errors import DeferredError, NondeterministicSQLError, UnsupportedSQLError
from deferred.log import tracking
from deferred.log.context import Context
from deferred.log.history import DeltaLog
from deferred.metadata import Cut, TableRecord, ViewRecord
from deferred.spark.engine import table
from deferred.sql.bind import Bound, Schema, bind
from deferred.sql.pin import tables
from deferred.sql.types import Types

DIFFERENTIAL_COUNT = "_deferred_count"
DIFFERENTIAL_BATCH = "_deferred_batch"
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Definition:
    """A view's query and the tables it reads by name; its plan, or why it has none and is recomputed as a whole."""

    sql: str
    bound: Bound | None
    tables: dict[str, TableRecord]
    schemas: dict[str, Columns]
    names: dict[str, str]
    types: Types
    whole: str | None = None

    @property
    def plan(self) -> Plan:
        assert self.bound is not None, "a view that is recomputed as a whole has no plan"
        return self.bound.plan

    @property
    def column_types(self) -> Mapping[str, str]:
        """The type of every column of the plan."""
        return self.bound.types if self.bound is not None else {}

    def read_columns(self, name: str) -> Columns:
        """The columns of a base table that the view reads, with their types."""
        if self.bound is None:
            return self.schemas[name]
        names = {n for node in self.plan.walk() if isinstance(node, Scan) and node.table == name for n in node.names}
        return tuple((n, t) for n, t in self.schemas[name] if n in names)

    def table(self, path: tuple[str, ...]) -> TableRecord:
        """The base table that a dotted name in the view's text means."""
        return self.tables[self.names[_dotted(path)]]

    def remembered(self) -> dict[str, object]:
        return {"tables": {name: [list(c) for c in schema] for name, schema in self.schemas.items()},
                "names": self.names, "types": self.types.known, "whole": self.whole}


def define(context: Context, sql: str, strict: bool) -> Definition:
    """Bind a new view against the tables as they are now.

    What no delta rule exists for is refused when `strict`; otherwise the view is recomputed as a whole, and says so.
    """
    schemas: dict[str, Columns] = {}
    records: dict[str, TableRecord] = {}
    names: dict[str, str] = {}

    def catalog(path: tuple[str, ...]) -> tuple[str, Schema]:
        record = tracking.find(context, path)
        names[_dotted(path)] = record.name
        records[record.name] = record
        if record.name not in schemas:
            schemas[record.name] = DeltaLog(record.location).columns
        return record.name, schemas[record.name]

    types = Types(context.engine.columns)
    try:
        return Definition(sql, bind(sql, catalog, types), records, schemas, names, types)
    except NondeterministicSQLError:
        raise
    except UnsupportedSQLError as error:
        if strict:
            raise
        for path in tables(sql):
            catalog(path)
        return Definition(sql, None, records, schemas, names, types, str(error))


def load(context: Context, view: ViewRecord) -> Definition:
    """A view's definition as it was bound when the view was made: later columns of its tables do not disturb it."""
    remembered = view.definition
    schemas: dict[str, Columns] = {name: tuple((n, t) for n, t in schema)
                                   for name, schema in remembered["tables"].items()}
    records = {record.name: record for record in map(context.metadata.tables.by_id, view.depends_on)}
    names: dict[str, str] = remembered["names"]

    def catalog(path: tuple[str, ...]) -> tuple[str, Schema]:
        name = names[_dotted(path)]
        return name, schemas[name]

    types = Types(context.engine.columns, remembered["types"])
    whole = remembered.get("whole")
    bound = None if whole else bind(view.sql, catalog, types)
    return Definition(view.sql, bound, records, schemas, names, types, whole)


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path).casefold()


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
    location: str = ""
    supports: Mapping[str, int] = field(default_factory=dict)

    def scan(self, name: str) -> str:
        record = self.tables[name]
        return table(record.location, self.versions[record.id])

    def change(self, name: str) -> str:
        return self.changes[name]

    def ref(self, name: str) -> str:
        return self.steps[name]

    def stored(self, name: str) -> str:
        return table(f"{self.location}/{name}", self.supports[name])


def at(definition: Definition, cut: Cut) -> Pinned:
    return Pinned(definition.tables, dict(cut.versions), {}, {})


def output(definition: Definition, columns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(plan column, view column) by position."""
    if len(definition.plan.columns) != len(columns):
        raise DeferredError("The view's plan and its table have different columns; rebuild the view.")
    return [(c, name) for c, (name, _) in zip(definition.plan.columns, columns, strict=True)]
