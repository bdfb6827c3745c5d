"""A view's definition: its SQL bound to a plan, and its query at a cut, as SQL for Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from deferred.algebra.aggregates.calls import name_of
from deferred.algebra.bags import COUNT, alias, column, select
from deferred.algebra.operators import Join, OuterJoin
from deferred.algebra.operators.recursion import has_recursion
from deferred.algebra.operators.scan import scans_of
from deferred.algebra.plan import Plan, used
from deferred.algebra.relevance import Dialect, Relevance, relevance_of
from deferred.algebra.selfmaintenance import Promises
from deferred.algebra.selfmaintenance.containment import PREFIX, Portion, Shared, over_shared, portions
from deferred.algebra.strategy import support_tables
from deferred.algebra.types import Columns, as_read, has_no_order, is_collated, is_padded
from deferred.errors import DeferredError, NondeterministicSQLError, UnsafeSQLError, UnsupportedSQLError
from deferred.log import tracking
from deferred.log.context import Context
from deferred.log.sources import in_types, source_of
from deferred.maintenance.view_tables import support_path
from deferred.metadata import Cut, Declared, RememberedDefinition, SharedTable, TableRecord, ViewRecord
from deferred.options import AUTO, SELF
from deferred.sql.bind import Bound, bind
from deferred.sql.dialect import cast, delta_table, parse_query, text, verbatim
from deferred.sql.functions import takes_padded
from deferred.sql.pin import pinned, tables
from deferred.sql.refusing import refuse_words_that_vary
from deferred.sql.render import Renderer
from deferred.sql.types import Types


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
    results: Mapping[str, exp.Table] = field(default_factory=dict)
    """Where the rows of its recursions are, once they are computed at a cut."""
    supports: Mapping[str, exp.Expr] = field(default_factory=dict)
    """Where its support tables are, if its plan reads them instead of computing their rows."""
    kept: Mapping[str, exp.Query] = field(default_factory=dict)
    """Rows that an earlier definition has kept, where its plan reads them."""
    settings: Mapping[str, str] | None = None
    """The settings on which the meaning of its text depends; None where they are not known."""
    declared: Declared | None = None
    """The keys and references on which a plan relies that reads no base table; None where it may read them."""
    shared: Mapping[str, Shared] = field(default_factory=dict)
    """The shared tables that its plan reads in the place of auxiliary tables of its own, by their names."""

    def sharing(self, tables: Mapping[str, Shared]) -> Definition:
        """The definition with some of its auxiliary tables in shared ones."""
        if not tables or not self.has_plan:
            return self
        types = {
            f"{PREFIX}{name}": dict(self.schemas[table.portion.table])[name]
            for table in tables.values()
            for name in table.portion.read
        }
        return replace(self.with_plan(over_shared(self.plan, tables), {**types, COUNT: "bigint"}), shared=tables)

    def with_plan(self, plan: Plan, types: Mapping[str, str] | None = None) -> Definition:
        """The definition with another plan in the place of its own, and the types of columns that only that one has."""
        assert self.bound is not None
        return replace(self, bound=replace(self.bound, plan=plan, types={**self.bound.types, **(types or {})}))

    @property
    def has_plan(self) -> bool:
        """Whether changes can be computed by a plan; without one, the view is recomputed as a whole."""
        return self.bound is not None

    @property
    def plan(self) -> Plan:
        assert self.bound is not None, "a view that is recomputed as a whole has no plan"
        return self.bound.plan

    @property
    def is_recursive(self) -> bool:
        """Whether its query runs in rounds."""
        return self.has_plan and has_recursion(self.plan)

    @property
    def is_self_maintained(self) -> bool:
        """Whether its plan reads no base table, and relies on declared keys and references for that."""
        return self.declared is not None

    @property
    def support_tables(self) -> dict[str, Plan]:
        """What each of its support tables holds, as plans over the base tables."""
        return support_tables(self.plan) if self.has_plan else {}

    @property
    def planned_columns(self) -> Columns:
        """The columns of the view by its plan."""
        assert self.bound is not None
        return tuple((name, self.bound.types[c]) for name, c in zip(self.bound.names, self.plan.columns, strict=True))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how the query was understood."""
        return self.bound.notes if self.bound is not None else ()

    @property
    def choices(self) -> tuple[str, ...]:
        """What the query leaves open and the plan always chooses in the same way."""
        return self.bound.choices if self.bound is not None else ()

    @property
    def column_types(self) -> Mapping[str, str]:
        """The type of every column of the plan."""
        return self.bound.types if self.bound is not None else {}

    @property
    def promises(self) -> Promises | None:
        """What its tables are relied on to keep, if it may read none of them."""
        return _promises(self.declared)

    def read_columns(self, name: str) -> Columns:
        """The columns of a base table that the view reads, with their types."""
        if not self.has_plan:
            return self.schemas[name]
        names = {n for scan in scans_of(self.plan) if scan.table == name for n in scan.names}
        return tuple((n, t) for n, t in self.schemas[name] if n in names)

    @cached_property
    def relevance(self) -> dict[str, Relevance]:
        """For each base table that the plan reads, which of its rows can matter to the view."""
        if not self.has_plan:
            return {}
        return relevance_of(self.plan, self.column_types, Dialect.of(self.settings))

    def rows_at(self, name: str, version: int) -> exp.Expr:
        """The rows of a base table at a version, in the types that the view knows."""
        record = self.tables[name]
        return in_types(delta_table(record.location, version), record, self.schemas[name])

    def table(self, path: tuple[str, ...]) -> TableRecord:
        """The base table that a dotted name in the view's text means."""
        return self.tables[self.names[_dotted(path)]]

    def remembered(self, notes: Sequence[str], key: Sequence[str], settings: Mapping[str, str]) -> RememberedDefinition:
        """What is kept with the view, so that `load` asks neither its tables nor Spark."""
        types = {sql: tuple(columns) for sql, columns in self.types.known.items()}
        return RememberedDefinition(
            self.schemas,
            self.names,
            types,
            self.whole,
            tuple(notes),
            tuple(key),
            settings=settings,
            promises=self.declared,
            shared={name: _remembered(table) for name, table in self.shared.items()},
        )


class _AsksSpark(Exception):
    """Binding goes on only with an answer from Spark."""


def refuse_early(context: Context, sql: str, strict: bool, maintain: str) -> None:
    """Refuse what is known to be wrong without Spark: nobody should wait for a JVM to read of a misspelled name."""

    def ask(query: str) -> list[tuple[str, str]]:
        raise _AsksSpark

    with suppress(_AsksSpark):
        define(context, sql, strict, Types(ask), maintain)


def define(
    context: Context,
    sql: str,
    strict: bool,
    types: Types | None = None,
    maintain: str = AUTO,
    instead: Mapping[str, Columns] = MappingProxyType({}),
) -> Definition:
    """Bind a new view against the tables as they are now; Spark says which types its expressions have.

    `maintain` is the view's option of that name: what is kept beside the view. `instead` are columns that tables will
    have then.

    What no delta rule exists for is refused when `strict`; otherwise the view is recomputed as a whole, and says so. A
    view that may read no base table relies on the keys and references that the tables have now.
    """
    types = types or Types(context.engine.columns)
    schemas: dict[str, Columns] = {}
    records: dict[str, TableRecord] = {}
    names: dict[str, str] = {}

    def catalog(path: tuple[str, ...]) -> tuple[str, Columns]:
        record = tracking.find(context, path)
        names[_dotted(path)] = record.name
        records[record.name] = record
        if record.name not in schemas:
            columns = instead.get(record.name) or source_of(context, record).columns
            schemas[record.name] = tuple((n, as_read(t)) for n, t in columns)
        return record.name, schemas[record.name]

    try:
        declared = _declared(catalog, sql, records) if maintain == SELF else None
        bound = bind(sql, catalog, types, maintain, _promises(declared))
        _refuse_uncomparable(bound)
        definition = Definition(sql, bound, records, schemas, names, types, declared=declared)
    except (NondeterministicSQLError, UnsafeSQLError):
        raise
    except UnsupportedSQLError as error:
        if strict:
            raise
        for path in tables(sql):
            catalog(path)
        refuse_words_that_vary(parse_query(sql), {n.casefold() for columns in schemas.values() for n, _ in columns})
        definition = Definition(sql, None, records, schemas, names, types, str(error))
    _refuse_variants(definition)
    return definition


def _refuse_uncomparable(bound: Bound) -> None:
    """Refuse a plan with rules that compare what only Spark itself compares: padded strings, and maps as keys.

    Nor may a node choose among collated texts, as GROUP BY, DISTINCT, MIN and ORDER BY … LIMIT do: of equal ones Spark
    takes any, and two computations would not agree.
    """
    for node in bound.plan.walk():
        if not node.row_by_row and not isinstance(node, (Join, OuterJoin)) and _reads_collated(node, bound):
            raise UnsupportedSQLError(
                f"{node.called[0].upper()}{node.called[1:]} over collated texts has any of those that are equal, and "
                f"another one each time; write LOWER(… COLLATE UTF8_BINARY), say, which tells them apart."
            )
        if any(has_no_order(bound.types[key]) for key in node.looked_up_by):
            raise UnsupportedSQLError(f"A map is among the keys of {node.called}: rows cannot be looked up by maps.")
        for expression in node.expressions:
            for read in expression.find_all(exp.Column):
                above = read.parent
                alone = above is None or isinstance(above, (exp.Alias, exp.Cast, exp.Ordered))
                alone = alone or (isinstance(above, exp.Anonymous) and takes_padded(above))
                if not alone and is_padded(bound.types.get(read.name, "")):
                    raise UnsupportedSQLError(
                        f"{text(expression)} compares a CHAR column, which Spark pads with blanks before it compares "
                        f"it; write CAST(… AS STRING)."
                    )


def _reads_collated(node: Plan, bound: Bound) -> bool:
    read = {*node.columns, *node.looked_up_by, *used(*node.expressions)}
    parts = (part for expression in node.expressions for part in expression.walk())
    return any(is_collated(bound.types.get(c, "")) for c in read) or any(
        isinstance(part, exp.Collate) or name_of(part) == "collate" for part in parts
    )


def _refuse_variants(definition: Definition) -> None:
    for name in definition.tables:
        for column_name, type_ in definition.read_columns(name):
            if "variant" in type_.lower():
                raise UnsupportedSQLError(
                    f"Column {column_name} of table {name} is {type_}: SQL cannot compare values of this type, so a "
                    f"change of one could be missed. Keep what the view needs of it in a column of its own."
                )


def remembered_alone(context: Context, view: ViewRecord) -> Definition:
    """A view's definition by what was remembered of it; refused where Spark would have to be asked."""

    def ask(query: str) -> list[tuple[str, str]]:
        raise DeferredError(
            f"Not all types of {view.name} were kept when it was created. `deferred explain {view.name}` asks Spark."
        )

    return load(context, view, ask)


def load(context: Context, view: ViewRecord, ask: Callable[[str], list[tuple[str, str]]] | None = None) -> Definition:
    """A view's definition as it was bound when the view was created: later columns of its tables do not matter.

    `ask` says which types a query has that were not remembered; Spark, by default.
    """
    remembered = view.definition
    schemas, names = dict(remembered.tables), dict(remembered.names)
    records = {record.name: record for record in map(context.metadata.tables.by_id, view.depends_on)}

    def catalog(path: tuple[str, ...]) -> tuple[str, Columns]:
        name = names[_dotted(path)]
        return name, schemas[name]

    types = Types(ask or context.engine.columns, remembered.types)
    declared = remembered.promises
    bound = None if remembered.whole else bind(view.sql, catalog, types, view.options.maintain, _promises(declared))
    definition = Definition(
        view.sql,
        bound,
        records,
        schemas,
        names,
        types,
        remembered.whole,
        settings=remembered.settings,
        declared=declared,
    )
    own = portions(definition.plan) if remembered.shared else {}
    found = {name: _shared(own.get(name), table) for name, table in remembered.shared.items()}
    return definition.sharing({name: table for name, table in found.items() if table is not None})


def _remembered(shared: Shared) -> SharedTable:
    held = shared.portion
    return SharedTable(shared.folder, held.table, held.names, tuple(held.conditions))


def _shared(own: Portion | None, table: SharedTable) -> Shared | None:
    """The shared table in which an auxiliary table is, by what was remembered of it.

    None where a later version plans the view, or writes its conditions, in another way: then the view has no such table
    and gets one of its own, as after every other change of what is kept for it.
    """
    if own is None or own.table != table.table:
        return None
    held = own.like(table.names, frozenset(table.conditions))
    same = len(held.conditions) == len(table.conditions) and held.contains(own)
    return Shared(table.folder, held) if same else None


def maintained(context: Context, view: ViewRecord, definition: Definition, maintain: str) -> Definition | None:
    """A view's definition as it would be under another value of `maintain`; None where that is not possible.

    Spark is asked for types that were not remembered, but not started for that.
    """

    def ask(query: str) -> list[tuple[str, str]]:
        if not context.engine.started:
            raise UnsupportedSQLError("Spark would have to say which types the query has.")
        return context.engine.columns(query)

    def catalog(path: tuple[str, ...]) -> tuple[str, Columns]:
        name = definition.names[_dotted(path)]
        return name, definition.schemas[name]

    types = Types(ask, view.definition.types)
    try:
        declared = _declared(catalog, view.sql, definition.tables) if maintain == SELF else None
        bound = bind(view.sql, catalog, types, maintain, _promises(declared))
    except UnsupportedSQLError:
        return None
    return replace(definition, bound=bound, declared=declared)


def _declared(catalog: Callable[[tuple[str, ...]], Any], sql: str, records: Mapping[str, TableRecord]) -> Declared:
    """The keys and references of all tables that a text names."""
    for path in tables(sql):
        catalog(path)
    return Declared(
        {name: tuple(record.key) for name, record in records.items()},
        {name: record.references for name, record in records.items()},
    )


def _promises(declared: Declared | None) -> Promises | None:
    return None if declared is None else Promises.of(declared.keys, declared.references)


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path).casefold()


@dataclass(frozen=True)
class Pinned:
    """Leaves for rendering: base tables at a cut, changes and temporary results, support tables at their versions."""

    definition: Definition
    versions: Mapping[int, int]
    changes: Mapping[str, exp.Table] = field(default_factory=dict)
    steps: dict[str, exp.Table] = field(default_factory=dict)
    location: str = ""
    supports: Mapping[str, int] = field(default_factory=dict)
    at_hand: Mapping[str, exp.Query] = field(default_factory=dict)
    """The view itself and shared tables at s_i, for rules that read their rows."""

    def scan(self, table: str) -> exp.Expr:
        return self.definition.rows_at(table, self.versions[self.definition.tables[table].id])

    def change(self, table: str) -> exp.Expr:
        return self.changes[table]

    def temporary(self, name: str) -> exp.Expr:
        if name in self.at_hand:
            return self.at_hand[name].copy()
        return self.definition.kept[name] if name in self.definition.kept else self.steps[name]

    def stored(self, name: str) -> exp.Expr:
        if name in self.definition.supports:
            return self.definition.supports[name]
        return delta_table(support_path(self.location, name), self.supports[name])


def rows_at(definition: Definition, plan: Plan, cut: Cut) -> exp.Query:
    """The rows of a plan over the view's base tables, at a cut; its recursions must be computed there."""
    leaves = Pinned(definition, cut.versions, steps=dict(definition.results))
    return Renderer(leaves, small_changes=False).query(plan)


def query(definition: Definition, columns: Columns, cut: Cut) -> exp.Select:
    """Q at a cut, under the view's own column names and types."""
    if not definition.has_plan:
        return select([exp.Star()], verbatim(original(definition, cut)))
    return select(outputs(definition, columns), rows_at(definition, definition.plan, cut))


def original(definition: Definition, cut: Cut) -> str:
    """The user's own text, its tables read at a cut: what a recomputation by Spark itself would run."""

    def source(path: tuple[str, ...]) -> str:
        record = definition.table(path)
        read = select(
            [column(name) for name, _ in definition.schemas[record.name]],
            definition.rows_at(record.name, cut.versions[record.id]),
        )
        return text(read.subquery())

    return pinned(definition.sql, source)


def outputs(definition: Definition, columns: Columns) -> list[exp.Expr]:
    """The plan's columns under the view's names and in its types."""
    types = dict(columns)
    return [alias(cast(column(c), types[name]), name) for c, name in output(definition, columns)]


def output(definition: Definition, columns: Columns) -> list[tuple[str, str]]:
    """(plan column, view column) by position."""
    if len(definition.plan.columns) != len(columns):
        raise DeferredError("The view's plan and its table have different columns; rebuild the view.")
    return [(c, name) for c, (name, _) in zip(definition.plan.columns, columns, strict=True)]
