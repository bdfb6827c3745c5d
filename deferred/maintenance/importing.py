"""How queries of other tools would be maintained as views. Nothing is created: they are bound, and Spark is asked."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deferred import failpoints
from deferred.algebra.strategy import NotMaintained, Recomputed
from deferred.algebra.types import Columns
from deferred.errors import DeferredError, UnknownObjectError, UnsupportedSQLError
from deferred.log import tracking
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog
from deferred.log.finding import plain
from deferred.log.locating import locate
from deferred.log.sources import source_of, trackable
from deferred.maintenance import foreseeing
from deferred.maintenance.definition import refuse_early
from deferred.maintenance.files import stated
from deferred.maintenance.making import remove_folder
from deferred.maintenance.showing import Listing, Result
from deferred.maintenance.views import Prepared, prepared
from deferred.metadata import LedgerEntry, Metadata, TableRecord, utc_now
from deferred.options import ViewOptions
from deferred.spark import bags
from deferred.sql.dialect import quoted
from deferred.sql.importing import Model, read_models
from deferred.sql.pin import pinned, tables
from deferred.sql.viewfile import ViewFile, tables_read

INCREMENTAL, IN_PART, RECOMPUTED, REFUSED, SKIPPED = (
    "incremental",
    "recomputed in part",
    "recomputed",
    "refused",
    "skipped",
)


@dataclass(frozen=True)
class Assessment(Result):
    """How a query would be maintained, what must be tracked first, and its text as a view."""

    view: str
    source: str
    outcome: str
    how: str
    sql: str = ""
    track: tuple[str, ...] = ()
    """Tables that it reads and that are not tracked yet."""

    @property
    def is_possible(self) -> bool:
        return self.outcome in (INCREMENTAL, IN_PART, RECOMPUTED)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def statement(self) -> str:
        """The text of its view file."""
        return f"-- From {self.source}.\nCREATE MATERIALIZED VIEW {quoted(self.view)}\nAS {self.sql}\n"


def assess(context: Context, path: str | Path, select: Sequence[str] = ()) -> Listing[Assessment]:
    """How each model of a dbt project, of a manifest, or of SQL files would be maintained; nothing is created."""
    models = read_models(path, select)
    read_by_others = {table for model in models if not model.problem for table in tables(model.sql)}
    with _scratch(context) as scratch, context.engine.meaning(context.engine.settings()):
        return Listing(_assessed(scratch, model, (model.name,) in read_by_others) for model in models)


def write(assessments: Sequence[Assessment], folder: Path) -> dict[str, str]:
    """Write a view file for each view that is possible; one that exists stays. Returns what became of each."""
    outcomes: dict[str, str] = {}
    for found in assessments:
        file = folder / f"{found.view}.sql"
        if not found.is_possible:
            outcomes[found.view] = "no view"
        elif file.exists():
            outcomes[found.view] = f"{file} exists already"
        else:
            failpoints.reached("view file")
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(found.statement(), encoding="utf-8")
            outcomes[found.view] = f"written to {file}"
    return outcomes


def foreseen(context: Context, views: Sequence[ViewFile]) -> dict[str, str | DeferredError]:
    """How each view of some files would be created or changed, or why it would be refused.

    The files come in the order in which they are applied, each after those that it reads. Nothing is done: where a view
    is there with other columns by then, an empty table with these stands for it.
    """
    found: dict[str, str | DeferredError] = {}
    reading = {name for view in views for name in tables_read(view.query)}
    with _scratch(context) as scratch:
        for view in views:
            try:
                found[view.name] = _foreseen(scratch, view, views, view.name.casefold() in reading)
            except DeferredError as error:
                if context.metadata.views.find(view.name) is None:
                    scratch.refused.add(view.name.casefold())
                found[view.name] = error
    return found


def _foreseen(scratch: _Scratch, view: ViewFile, together: Sequence[ViewFile], is_read: bool) -> str:
    """How a view is made over what is there and over the empty tables in the place of new views and changed ones."""
    existing = scratch.real.metadata.views.find(view.name)
    others = [name for name in tables_read(view.query) if name in scratch.refused or scratch.has(name)]
    if existing is not None and not others:
        told = foreseeing.foreseen(scratch.real, existing.name, view.query, stated(view), together)
        how, columns = f"{told.name}. {told.reason}", told.columns
    else:
        options = view.options if existing is None else existing.options.replaced(**stated(view))
        planned = _prepared(scratch, view, others, options, existing is None)
        columns = planned.columns
        how = ": ".join(_how(planned))
        if existing is not None:
            how = f"once {' and '.join(others)} {'is' if len(others) == 1 else 'are'} changed: {how}"
    if is_read and (existing is None or columns != existing.columns):
        scratch.make(view.name, columns)
    return how


def _prepared(scratch: _Scratch, view: ViewFile, others: Sequence[str], options: ViewOptions, is_new: bool) -> Prepared:
    """The query of a view over what is there, and over the empty tables of some names."""
    context, sql = scratch.real, view.query
    if is_new:
        tracking.check_name(view.name, "view")
        tracking.check_free(context, view.name)
    for name in others:
        if name in scratch.refused:
            raise UnsupportedSQLError(f"It reads {name}, whose own file is refused.")
    if others:
        for path in tables(sql):
            if path[0].casefold() not in others:
                tracking.find(context, path)
        context, sql = scratch.own, pinned(sql, lambda path: quoted(scratch.table(path)[0]))
    elif not context.engine.started:
        refuse_early(context, sql, options.refuses_recomputation, options.maintain)
    settings = scratch.real.engine.settings()
    with scratch.real.engine.meaning(settings):
        return prepared(context, sql, options, settings, serve=False)


class _Scratch:
    """A warehouse beside the user's, with the same tables and, in the place of views to come, empty tables.

    Only its own metadata and its own folder are written.
    """

    def __init__(self, real: Context, own: Context) -> None:
        self.real, self.own = real, own
        self.names: dict[str, str] = {}
        """The names here of tables, by location."""
        self.has_tables = False
        self.refused: set[str] = set()
        """The models that cannot be views."""

    def table(self, path: tuple[str, ...]) -> tuple[str, TableRecord | None]:
        """The name here of the table that a dotted name means, and its record there, if it is tracked."""
        if len(path) == 1 and path[0] in self.refused:
            raise UnsupportedSQLError(f"It reads {path[0]}, which cannot be a view.")
        if len(path) == 1 and self.has(path[0]):
            made = self.own.metadata.tables.find(path[0])
            assert made is not None
            return made.name, made
        record = self._tracked(path)
        location = record.location if record is not None else locate(self.real, ".".join(map(quoted, path)))
        if location not in self.names:
            self.names[location] = self._add(path[-1], location, record)
        return self.names[location], record

    def has(self, name: str) -> bool:
        """Whether an empty table stands for a view of that name."""
        made = self.own.metadata.tables.find(name)
        return made is not None and made.location.startswith(self.own.root)

    def _tracked(self, path: tuple[str, ...]) -> TableRecord | None:
        """The tracked table of a dotted name; where no catalog knows the name, the one with its last part as name."""
        try:
            return tracking.find(self.real, path)
        except UnknownObjectError:
            known = self.real.metadata.tables.find(path[-1])
            if known is None or len(path) == 1:
                return None
        try:
            locate(self.real, ".".join(map(quoted, path)))
        except DeferredError:
            return known
        return None  # there is such a table, and it is not the tracked one

    def make(self, name: str, columns: Columns) -> None:
        """An empty table in the place of a view."""
        location = self.own.folder(name)
        self.has_tables = True
        bags.create(self.own.engine, location, columns, (), {})
        self._add(name, location, None)

    def _add(self, name: str, location: str, record: TableRecord | None) -> str:
        name = plain(name)
        while self.own.metadata.tables.find(name) is not None:
            name += "_"
        state = DeltaLog(location)
        here = self.own.metadata.tables.add(
            name=name,
            location=location,
            kind=record.kind if record is not None else trackable("feed").kind,
            delta_id=state.id,
            key=record.key if record is not None else (),
            references={},
            columns=source_of(self.real, record).columns if record is not None else state.columns,
            first_version=state.version,
        )
        self.own.metadata.ledger.append([LedgerEntry(here.id, state.version, utc_now(), None, None)])
        return name


@contextmanager
def _scratch(context: Context) -> Iterator[_Scratch]:
    folder = context.folder("views", f"import-{uuid.uuid4().hex[:8]}")  # where gc looks, should this process die
    with (
        tempfile.TemporaryDirectory(prefix="deferred-import-") as own,
        Metadata.open(f"sqlite:///{own}/deferred.db", create=True) as metadata,
    ):
        scratch = _Scratch(context, replace(context, metadata=metadata, root=folder, held={}))
        try:
            yield scratch
        finally:
            if scratch.has_tables:
                remove_folder(folder)


def _assessed(scratch: _Scratch, model: Model, is_read: bool) -> Assessment:
    if model.problem:
        scratch.refused.add(model.name)
        return Assessment(model.name, model.source, SKIPPED, model.problem)
    untracked: list[str] = []

    def here(path: tuple[str, ...]) -> str:
        name, record = scratch.table(path)
        if record is None:
            untracked.append(".".join(path))
        return quoted(name)

    def as_view(path: tuple[str, ...]) -> str | None:
        _, record = scratch.table(path)
        return quoted(record.name) if record is not None else None

    try:
        tracking.check_name(model.name, "view")
        found = prepared(
            scratch.own, pinned(model.sql, here), ViewOptions(), scratch.own.engine.settings(), serve=False
        )
        if is_read:
            scratch.make(model.name, found.columns)
        sql = pinned(model.sql, as_view)
    except DeferredError as error:
        scratch.refused.add(model.name)
        return Assessment(model.name, model.source, REFUSED, str(error))
    outcome, how = _how(found)
    return Assessment(model.name, model.source, outcome, how, sql, tuple(dict.fromkeys(untracked)))


def _how(found: Prepared) -> tuple[str, str]:
    """The outcome for a query that can become a view, and the strategies of its nodes in words."""
    if not found.definition.has_plan:
        return RECOMPUTED, str(found.definition.whole)
    nodes = list(found.definition.plan.walk())
    whole = [node.called for node in nodes if isinstance(node.strategy, Recomputed)]
    if whole:
        return IN_PART, f"{', '.join(dict.fromkeys(whole))} reads its whole input at every change"
    names = (node.strategy.name for node in nodes if not isinstance(node.strategy, NotMaintained))
    return INCREMENTAL, ", ".join(dict.fromkeys(names))
