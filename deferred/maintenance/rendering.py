"""How a propagate renders its plans: support tables at s_i, and the values of small results as literals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.bags import BATCH, GONE, bigint, column, select
from deferred.algebra.operators import Change, Distinct, Scan, Stored, Temporary
from deferred.algebra.operators.project import only_renames
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.scalar import Scalar, is_column
from deferred.maintenance.definition import Pinned
from deferred.maintenance.view_tables import support_path
from deferred.spark.data_skipping import near_values, one_of, within_spans
from deferred.spark.driver import files_of, looked_up
from deferred.spark.lookups import Lookup, newest
from deferred.spark.temporaries import Temporaries, local_rows
from deferred.sql.ddl import column_list
from deferred.sql.render import Renderer

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SupportState:
    """A support table at s_i: its Delta version, its newest batch, and how many were appended to all its rows."""

    version: int
    batch: int
    appended: int


def current_rows(stored: Stored, state: SupportState, rows: exp.Query) -> exp.Query:
    """Of each key of a support table its newest row; a table that was just rewritten has no other."""
    if state.appended and stored.keys:
        return bags.newest(rows, stored.columns, stored.keys)
    current = select(map(column, stored.columns), rows)
    if state.appended:
        current.where(exp.EQ(this=column(BATCH), expression=bigint(state.batch)), copy=False)
    return current


def current_at_driver(stored: Stored, state: SupportState, rows: pa.Table) -> pa.Table:
    """The same for rows at the driver."""
    from pyarrow import compute

    if state.appended and stored.keys:
        return newest(rows, stored.columns, stored.keys, BATCH, GONE)
    if state.appended:
        rows = rows.filter(compute.equal(rows.column(BATCH), state.batch))
    return rows.select(list(stored.columns))


class PropagateRenderer(Renderer):
    """Renders the steps of one propagate, which reads its earlier steps as temporary results."""

    def __init__(
        self,
        leaves: Pinned,
        states: Mapping[str, SupportState],
        temporaries: Temporaries,
        types: Mapping[str, str],
        small_changes: bool,
    ) -> None:
        super().__init__(leaves, small_changes)
        self.pinned, self.states, self.temporaries, self.types = leaves, states, temporaries, types
        self._fetched: dict[tuple[str, ...], tuple[pa.Table | None, exp.Table | None]] = {}
        """What was fetched for which keys. The keys are kept: as long as they are, no others have their id."""
        self._lookups: dict[tuple[str, ...], Lookup | None] = {}

    def fetched(self, stored: Stored, keys: Keys | None) -> exp.Expr | None:
        """Rows of a support table come to the driver without Spark, if all of them are few, or those with the keys."""
        known = self._known_keys(keys) if keys is not None else ({}, None)
        if known is None or stored.name not in self.states or not self.types.keys() >= set(stored.columns):
            return None
        on, rows = known
        asked = (stored.name, *stored.columns, *(part for pair in on.items() for part in pair), str(id(rows)))
        if asked not in self._fetched:
            self._fetched[asked] = rows, self._fetch(stored, on, rows)
        return self._fetched[asked][1]

    def held_at_driver(self, stored: Stored, on: Mapping[str, str], keys: pa.Table | None) -> pa.Table | None:
        """The current rows of a support table without Spark; None where they cannot be told, or are too many.

        All rows of a key must be there to know its newest one, so they are looked up by columns of the key.
        """
        state = self.states.get(stored.name)
        if state is None or not set(on) <= set(stored.keys) or not self.types.keys() >= set(stored.columns):
            return None
        rows = self._looked_up(stored, on, keys)
        return None if rows is None else current_at_driver(stored, state, rows)

    def _fetch(self, stored: Stored, on: Mapping[str, str], keys: pa.Table | None) -> exp.Table | None:
        rows = self._looked_up(stored, on, keys)
        if rows is None:
            return None
        held = column_list(self._held_types(stored).items())
        return self.temporaries.put(f"{stored.name}_{len(self._fetched)}", rows, held)

    def _looked_up(self, stored: Stored, on: Mapping[str, str], keys: pa.Table | None) -> pa.Table | None:
        path, version = support_path(self.pinned.location, stored.name), self.states[stored.name].version
        types = self._held_types(stored)
        return looked_up(path, version, types, keys, on, local_rows(types.values()))

    def _held_types(self, stored: Stored) -> dict[str, str]:
        return {**{name: self.types[name] for name in stored.columns}, BATCH: "bigint", GONE: "boolean"}

    def _known_keys(self, keys: Keys) -> tuple[dict[str, str], pa.Table] | None:
        """For each key column of a support table the column of some rows at the driver that are exactly the keys."""
        if not _is_a_leaf(keys.plan):
            return None
        found = [(mine.name, self._values(mine, keys.plan, theirs)) for mine, theirs in keys.on]
        pairs = {mine: values[1] for mine, values in found if values is not None}
        rows = next((values[0] for _, values in found if values is not None), None)
        return None if rows is None or len(pairs) < len(keys.on) else (pairs, rows)

    def candidates(self, leaf: Scan | Stored, keys: pa.Table, on: Mapping[str, str]) -> pa.Table | None:
        """At least the rows of a base or support table that have some key, without Spark; None where Spark must look.

        All rows of a key must be there to know its newest one, so support tables are met by columns of the key.
        """
        if not keys.num_rows or (isinstance(leaf, Stored) and not set(on) <= set(leaf.keys)):
            return None
        name = (type(leaf).__name__, leaf.table if isinstance(leaf, Scan) else leaf.name, *leaf.columns)
        if name not in self._lookups:
            self._lookups[name] = self._base(leaf) if isinstance(leaf, Scan) else self._support(leaf)
        found = self._lookups[name]
        own = dict(zip(leaf.columns, leaf.names if isinstance(leaf, Scan) else leaf.columns, strict=True))
        rows = None if found is None else found.candidates(keys, {own[mine]: theirs for mine, theirs in on.items()})
        return None if rows is None else rows.select(list(own.values())).rename_columns(list(own))

    def _base(self, scan: Scan) -> Lookup | None:
        rows, types = self.pinned.scan(scan.table), dict(self.pinned.definition.schemas[scan.table])
        if not isinstance(rows, exp.Table):  # fields of structs are left out
            return None
        record = self.pinned.definition.tables[scan.table]
        files = files_of(record.location, self.pinned.versions[record.id], {name: types[name] for name in scan.names})
        return None if files is None else Lookup(files)

    def _support(self, stored: Stored) -> Lookup | None:
        if stored.name not in self.states or not self.types.keys() >= set(stored.columns):
            return None
        state = self.states[stored.name]
        files = files_of(support_path(self.pinned.location, stored.name), state.version, self._held_types(stored))
        return None if files is None else Lookup(files, lambda rows: current_at_driver(stored, state, rows))

    def temporary(self, name: str) -> exp.Expr:
        found = self.pinned.temporary(name)
        return self.temporaries.ready(found) if isinstance(found, exp.Table) else found

    def change(self, table: str) -> exp.Expr:
        found = self.pinned.change(table)
        return self.temporaries.ready(found) if isinstance(found, exp.Table) else found

    def held(self, stored: Stored) -> Sequence[str]:
        return (*stored.columns, BATCH, GONE)

    def newest(self, stored: Stored, rows: exp.Query) -> exp.Query:
        return current_rows(stored, self.states[stored.name], rows)

    def near(self, mine: Scalar, plan: Plan, theirs: Scalar) -> exp.Expr | None:
        """Only for columns of one type: no conversion can fail on a row that the query would not have compared."""
        found = self._source(mine, plan, theirs)
        if found is None:
            return None
        table, name = found
        rows = self.temporaries.local(table)
        if rows is not None:
            return near_values(rows.column(name), column(mine.name))
        spans = self.temporaries.spans(table, name)
        return None if spans is None else within_spans(spans, column(mine.name))

    def one_of(self, keys: Keys) -> exp.Expr | None:
        known = self._known_keys(keys)
        if known is None:
            return None
        pairs, rows = known
        return one_of(rows, [(theirs, column(mine)) for mine, theirs in pairs.items()])

    def _values(self, mine: Scalar, plan: Plan, theirs: Scalar) -> tuple[pa.Table, str] | None:
        """The rows at the driver, and the column in them, that have all values of a column; of the type of another."""
        found = self._source(mine, plan, theirs)
        rows = None if found is None else self.temporaries.local(found[0])
        return None if found is None or rows is None else (rows, found[1])

    def _source(self, mine: Scalar, plan: Plan, theirs: Scalar) -> tuple[exp.Table, str] | None:
        """The computed result, and the column in it, that has all values of a column; of the type of another."""
        if not (is_column(mine) and is_column(theirs)):
            return None
        type_, found = self.types.get(mine.name), plan.origin(theirs.name)
        if type_ is None or type_ != self.types.get(theirs.name) or found is None:
            return None
        leaf, name = found
        if isinstance(leaf, Temporary) and leaf.name in self.pinned.at_hand:
            return None
        return (self.pinned.steps[leaf.name] if isinstance(leaf, Temporary) else self.pinned.changes[leaf.table]), name


def _is_a_leaf(plan: Plan) -> bool:
    """Whether a plan has the same set of rows as a change or a temporary result, perhaps under other names."""
    while isinstance(plan, Distinct) or only_renames(plan):
        plan = plan.child
    return isinstance(plan, (Change, Temporary))
