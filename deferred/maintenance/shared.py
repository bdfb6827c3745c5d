"""Auxiliary tables that several views share, where one contains the other.

Π_X(σ_C(R)) depends on nothing but the version of R. So one table T can serve views that have reached different cuts. T
is a signed bag whose rows are tagged with versions of R: at a version v, its rows are the sum of those tagged up to v.

- To bring T to a version v, Δ from the last tag before v is appended, tagged v. If there are tags after v, the next of
  them gets −Δ, so that no later sum changes.
- What T holds is true of R, whatever becomes of the operation that has appended it: nothing is ever undone.
- Every commit names all tags. Now and then T is rewritten: all that is before the cuts of its views becomes one tag.
- If R's log no longer leads to v, or R was recreated, T is filled anew at v. A view at another version then has no
  state there and is recomputed, once.
- If a view is rebuilt at v, R's log may have been wrong: what T lacks of R's rows at v is appended, tagged v.

A table is chosen when a view is created or altered, and removed with its last view, both under one lease. What a crash
leaves over is removed by `gc`, which keeps what the catalog's views name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace

from sqlglot import exp

from deferred.algebra.bags import (
    BATCH,
    COUNT,
    alias,
    bigint,
    column,
    difference,
    insert_into,
    merge_nothing,
    negated,
    net,
    overwrite,
    select,
    union_all,
)
from deferred.algebra.delta import differentiate
from deferred.algebra.operators import Net
from deferred.algebra.operators.in_view import shared_rows
from deferred.algebra.operators.project import signed
from deferred.algebra.selfmaintenance.containment import Portion, Shared, portions
from deferred.algebra.types import Columns
from deferred.errors import LeaseHeldError, LogLostError, SparkFailure
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog, is_delta, readable
from deferred.log.lease import Held, bar, lease
from deferred.maintenance.base_logs import net_logs, size
from deferred.maintenance.definition import Definition, Pinned, rows_at
from deferred.maintenance.making import remove_folder
from deferred.maintenance.support import REWRITE_AFTER
from deferred.metadata import Cut, RememberedDefinition, SharedTable, ViewRecord
from deferred.spark import bags
from deferred.spark.engine import Mark
from deferred.spark.temporaries import UNKNOWN, Temporaries
from deferred.sql.dialect import delta_table
from deferred.sql.render import Renderer

FOLDER = "shared"


def choosing(context: Context) -> AbstractContextManager[Held]:
    """Hold the lease under which shared tables are chosen for a view, until the view names them, and removed."""
    return lease(context, "shared tables", "The choice of shared auxiliary tables")


def chosen(
    context: Context, definition: Definition, settings: Mapping[str, str], functions: Mapping[str, str]
) -> Definition:
    """The definition with its auxiliary tables in shared ones: those of other views that contain them, or new ones.

    Conditions mean the same only under the same settings, and where functions have not changed since.
    """
    if not definition.has_plan or not definition.is_self_maintained:
        return definition
    existing = [
        (remembered, table)
        for view in context.metadata.views.all()
        for remembered in _definitions(view)
        if remembered.settings == settings
        and all(functions.get(name, known) == known for name, known in (remembered.functions or {}).items())
        for table in remembered.shared.values()
    ]
    found: dict[str, Shared] = {}
    for name, portion in portions(definition.plan).items():
        fitting = (
            shared
            for remembered, table in existing
            if (shared := _containing(definition, portion, remembered, table)) is not None
        )
        folder = f"{portion.table}-{uuid.uuid4().hex[:8]}"
        new = next((each for each in found.values() if each.portion.contains(portion)), Shared(folder, portion))
        found[name] = next(fitting, new)
    return definition.sharing(found)


def _containing(
    definition: Definition, portion: Portion, remembered: RememberedDefinition, table: SharedTable
) -> Shared | None:
    """A shared table of another view, if an auxiliary table of this one is part of it, in the same types."""
    texts = frozenset(table.conditions)
    if table.table != portion.table or not texts <= portion.conditions.keys():
        return None
    held = portion.like(table.names, texts)
    theirs, mine = dict(remembered.tables.get(portion.table, ())), dict(definition.schemas[portion.table])
    same = all(name in theirs and theirs[name] == mine.get(name) for name in held.read)
    return Shared(table.folder, held) if same and held.contains(portion) else None


def _definitions(view: ViewRecord) -> Iterator[RememberedDefinition]:
    """The definition that a view has, and the one that it is being given."""
    yield view.definition
    if view.definition.alteration is not None:
        yield view.definition.alteration.definition


def in_use(views: Iterable[ViewRecord]) -> set[str]:
    """The folders of the shared tables that views name."""
    return {table.folder for view in views for remembered in _definitions(view) for table in remembered.shared.values()}


def remove_unused(context: Context, folders: Iterable[str]) -> None:
    """Remove those of some shared tables that no view names any more; if they are being chosen now, `gc` does it."""
    folders = set(folders)
    if not folders:
        return
    with suppress(LeaseHeldError), choosing(context):
        for folder in folders - in_use(context.metadata.views.all()):
            remove_folder(context.folder(FOLDER, folder))


def bring_along(context: Context, definition: Definition, cut: Cut) -> None:
    """Bring the shared tables of a view to a cut."""
    for shared in {each.folder: each for each in definition.shared.values()}.values():
        _Table(context, definition, shared).bring(cut)


def correct(context: Context, definition: Definition, cut: Cut) -> None:
    """Let the shared tables of a view hold at a cut what the base tables hold there, whatever their logs have said."""
    for shared in {each.folder: each for each in definition.shared.values()}.values():
        _Table(context, definition, shared).correct(cut)


def catch_up(context: Context, definition: Definition, cut: Cut) -> None:
    """Let the shared tables of a view have its cut, if their logs lead there.

    They may lack it if nothing had happened that matters to the view when it reached the cut.
    """
    for shared in {each.folder: each for each in definition.shared.values()}.values():
        _Table(context, definition, shared).follow(cut)


def held_at(context: Context, definition: Definition, cut: Cut) -> dict[str, exp.Query] | None:
    """The rows of a view's shared tables at a cut, by the names under which its plan reads them; None if one lacks."""
    found: dict[str, exp.Query] = {}
    for name, shared in definition.shared.items():
        rows = _Table(context, definition, shared).rows_at(cut)
        if rows is None:
            return None
        found[shared_rows(name, ()).name] = rows
    return found


@dataclass(frozen=True)
class _State:
    """What the newest commit of ours says: the version of the table, its tags, and which base table they are about."""

    version: int
    tags: tuple[int, ...]
    base: str


@dataclass(frozen=True)
class _Table:
    """A shared table, as one of its views sees it."""

    context: Context
    definition: Definition
    shared: Shared

    @property
    def path(self) -> str:
        return self.context.folder(FOLDER, self.shared.folder)

    @property
    def columns(self) -> Columns:
        types = self.definition.column_types
        rows = [(name, types[name]) for name in self.shared.portion.columns]
        return [*rows, (COUNT, "bigint"), (BATCH, "bigint")]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.columns]

    @property
    def base(self) -> tuple[int, str]:
        """The id of the base table, and which Delta table it is now, from which version on.

        A table that was recreated, or replaced by an older copy, has other rows under the same version numbers.
        """
        record = self.context.metadata.tables.by_id(self.definition.tables[self.shared.portion.table].id)
        return record.id, f"{record.delta_id}:{record.first_version}"

    def state(self) -> _State | None:
        """None where there is no table, or one that cannot be read."""
        if not is_delta(self.path) or not readable(self.path):
            return None
        log = DeltaLog(self.path)
        for commit in log.newest_first():
            if (commit.mark or {}).get("kind") == "shared":
                assert commit.mark is not None
                return _State(log.version, tuple(commit.mark["tags"]), commit.mark["base"])
        return None

    def tags(self, state: _State | None) -> tuple[int, ...]:
        """The versions of the base table at which the rows are known; none if it was recreated since."""
        return () if state is None or state.base != self.base[1] else state.tags

    def rows_at(self, cut: Cut) -> exp.Query | None:
        state, version = self.state(), cut.versions[self.base[0]]
        if state is None or version not in self.tags(state):
            return None
        return self._upto(state, version)

    def _upto(self, state: _State, version: int) -> exp.Select:
        tagged = exp.LTE(this=column(BATCH), expression=bigint(version))
        return select(map(column, self.names[:-1]), delta_table(self.path, state.version)).where(tagged, copy=False)

    def bring(self, cut: Cut) -> None:
        """See that the rows at a cut are known: from the log, or else from the base table."""
        with self._changing(cut) as held:
            if held is not None and not self._appended(cut, held):
                self._fill(cut, held)

    def follow(self, cut: Cut) -> None:
        """The same, as far as the log leads there."""
        with self._changing(cut) as held:
            if held is not None:
                self._appended(cut, held)

    def correct(self, cut: Cut) -> None:
        """See that the rows at a cut are those of the base table: what they lack is appended, and all of an empty one.

        Later tags get it, too: their rows follow from these by the log.
        """
        with self._leased() as held:
            state, version = self.state(), cut.versions[self.base[0]]
            if state is None or not self.tags(state):
                self._fill(cut, held)
                return
            if version < min(state.tags):
                return
            rows = difference(self._contents(cut), self._upto(state, version), self.columns[:-2])
            tagged = select([*map(column, self.names[:-1]), alias(bigint(version), BATCH)], rows)
            with self.context.engine.temporaries() as temporaries:
                self._add(temporaries, tagged, self._mark("rows", held, [*state.tags, version]))
            self._confirm(cut)

    @contextmanager
    def _changing(self, cut: Cut) -> Iterator[Held | None]:
        """Hold the lease for the table; None if nothing is to be done.

        Below all tags the rows stay unknown: they would be those of a view that has fallen behind all others, and of
        nobody else.
        """
        if self._is_known(cut):
            yield None
            return
        with self._leased() as held:
            yield None if self._is_known(cut) else held

    def _leased(self) -> AbstractContextManager[Held]:
        def shut_out(number: int) -> None:
            for application in (self._application("rows"), self._application("rewriting")):
                bar(self.context, self.path, Mark(application, number, {"kind": "bar"}))

        name = f"shared:{self.shared.folder}"
        return lease(self.context, name, f"The shared table {self.shared.folder}", shut_out)

    def _is_known(self, cut: Cut) -> bool:
        tags, version = self.tags(self.state()), cut.versions[self.base[0]]
        return version in tags or (bool(tags) and version < min(tags))

    def _appended(self, cut: Cut, held: Held) -> bool:
        """Whether the log led to the cut."""
        state = self.state()
        if state is None or not self.tags(state):
            return False
        if len(state.tags) >= REWRITE_AFTER:
            state = self._rewritten(state, held)
        try:
            self._append(state, cut, held)
        except LogLostError:
            return False
        self._confirm(cut)
        return True

    # ---- commits

    def _confirm(self, cut: Cut) -> None:
        """Make sure that our commit was made: Delta skips one if an interrupted process has made it meanwhile."""
        if cut.versions[self.base[0]] not in self.tags(self.state()):
            raise SparkFailure(
                f"An interrupted process has meanwhile finished its commit to {self.path}, in the place of this one. "
                f"Nothing is lost; run the same command again."
            )

    def _application(self, what: str) -> str:
        return f"deferred-shared-{self.shared.folder}-{what}"

    def _mark(self, what: str, held: Held, tags: Iterable[int]) -> Mark:
        details = {"kind": "shared", "tags": sorted(set(tags)), "base": self.base[1]}
        return Mark(self._application(what), held.lease.committing, details)

    def _fill(self, cut: Cut, held: Held) -> None:
        """All rows at a cut, from the base table, in the order in which they are looked up."""
        version = cut.versions[self.base[0]]
        names = self.names[:-1]
        rows = select([*map(column, names), alias(bigint(version), BATCH)], self._contents(cut))
        rows = select([exp.Star()], rows).order_by(*map(column, self.shared.portion.columns), copy=False)
        mark = self._mark("rows", held, [version])
        if not is_delta(self.path) or not readable(self.path):
            remove_folder(self.path)
            bags.create_filled(self.context.engine, self.path, self.columns, rows, mark)
        else:
            self.context.engine.commit(overwrite(delta_table(self.path), self.names, rows), mark)
        self._confirm(cut)

    def _contents(self, cut: Cut) -> exp.Query:
        """The rows at a cut with their counts, from the base table."""
        return rows_at(self.definition, Net(signed(self.shared.portion.plan)), cut)

    def _append(self, state: _State, cut: Cut, held: Held) -> None:
        """Δ since the last tag before the cut; if there are later tags, the next of them takes it back."""
        base, version = self.base[0], cut.versions[self.base[0]]
        tags = state.tags
        last, later = max(tag for tag in tags if tag < version), [tag for tag in tags if tag > version]
        portion = self.shared.portion
        alone = replace(
            self.definition.with_plan(portion.plan),
            tables={portion.table: self.definition.tables[portion.table]},
            shared={},
        )
        since = replace(cut, versions={base: last})
        upto = replace(cut, versions={base: version})
        mark = self._mark("rows", held, [*tags, version])
        expected = size(self.context, alone, since, upto)
        with self.context.engine.temporaries(expected.settings) as temporaries:
            logs = net_logs(self.context, alone, since, upto, temporaries, expected.expected)
            program = differentiate(portion.plan, logs.changed, self.definition.column_types)
            if program.result is None:
                self.context.engine.commit(merge_nothing(delta_table(self.path)), mark)
                return
            leaves = Pinned(alone, upto.versions, logs.changed)
            change = Renderer(leaves, small_changes=False).query(program.result)
            names = [*portion.columns, COUNT]
            rows: exp.Query = select([*map(column, names), alias(bigint(version), BATCH)], change)
            if later:
                back = select(
                    [*map(column, names), alias(bigint(min(later)), BATCH)], negated(change, list(portion.columns))
                )
                rows = union_all([rows, back])
            self._add(temporaries, rows, mark, logs.total)

    def _add(self, temporaries: Temporaries, rows: exp.Query, mark: Mark, expected: int = UNKNOWN) -> None:
        """Append rows in one commit, which is made for its mark even if there are none."""
        found = temporaries.compute("shared", rows, expected)
        if not temporaries.rows(found):
            self.context.engine.commit(merge_nothing(delta_table(self.path)), mark)
            return
        local = temporaries.local(found)
        if local is None or not self.context.engine.append_rows(self.path, local.rename_columns(self.names), mark):
            added = insert_into(delta_table(self.path), self.names, select([exp.Star()], found))
            self.context.engine.commit(added, mark)

    def _rewritten(self, state: _State, held: Held) -> _State:
        """The table with one tag for all that is before the cuts of its views."""
        base = self.base[0]
        reached = [
            view.propagated.versions[base]
            for view in self.context.metadata.views.all()
            if view.propagated is not None and base in view.propagated.versions and self._serves(view)
        ]
        floor = max((tag for tag in state.tags if all(tag <= version for version in reached)), default=min(state.tags))
        rows = net(self._upto(state, floor), self.columns[:-2])
        together = select([*map(column, self.names[:-1]), alias(bigint(floor), BATCH)], rows)
        after = exp.GT(this=column(BATCH), expression=bigint(floor))
        later = select(map(column, self.names), delta_table(self.path, state.version)).where(after, copy=False)
        tags = [tag for tag in state.tags if tag >= floor]
        everything = select([exp.Star()], union_all([together, later]))
        everything.order_by(*map(column, self.shared.portion.columns), copy=False)
        mark = self._mark("rewriting", held, tags)
        self.context.engine.commit(overwrite(delta_table(self.path), self.names, everything), mark)
        found = self.state()
        assert found is not None
        return found

    def _serves(self, view: ViewRecord) -> bool:
        return self.shared.folder in in_use([view])
