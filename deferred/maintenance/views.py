"""Making and dropping views."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import replace

from deferred.config import parse_cadence, parse_duration
from deferred.errors import InvalidInputError, InvalidSQLError, UnsupportedSQLError
from deferred.log import ledger, tracking
from deferred.log.context import Context
from deferred.log.history import DeltaLog
from deferred.log.lease import lease
from deferred.log.transactions import recover
from deferred.maintenance import definition as definitions
from deferred.maintenance import support
from deferred.maintenance.definition import DIFFERENTIAL_BATCH, DIFFERENTIAL_COUNT, Definition
from deferred.metadata import Cut, LedgerEntry, TableRecord, ViewRecord
from deferred.spark import bags
from deferred.spark.engine import Mark, table
from deferred.sql.dialect import quoted
from deferred.sql.pin import pinned
from deferred.sql.render import Renderer

SCENARIOS = ("immediate", "base_log", "differential", "combined")
REFRESH_POLICIES = ("auto", "incremental", "incremental_strict", "full")


def mv_path(view: ViewRecord) -> str:
    return f"{view.location}/mv"


def differential_path(view: ViewRecord) -> str:
    return f"{view.location}/differential"


def create(context: Context, name: str, sql: str, *, scenario: str, refresh_policy: str, propagate_every: str | None,
           refresh_every: str | None, policy: int, target_lag: str | None) -> ViewRecord:
    """Bind a view, compute it at the current cut, and register it. Nothing is left behind when a step fails."""
    tracking.check_name(name, "view")
    _check_options(scenario, refresh_policy, propagate_every, refresh_every, policy, target_lag)
    with lease(context, f"create:{name.casefold()}", f"The creation of {name}"):
        _clear_remains(context, name)
        tracking.check_free(context, name)
        return _create(context, name, sql, scenario, refresh_policy, propagate_every, refresh_every, policy,
                       target_lag)


def _clear_remains(context: Context, name: str) -> None:
    """Forget the table of a view whose creation or removal was interrupted: without its view it is nobody's."""
    table_ = context.metadata.tables.find(name)
    if table_ is not None and table_.kind == "view" and context.metadata.views.find(name) is None:
        context.metadata.tables.remove(table_.id)
        remove_folder(os.path.dirname(table_.location))


def _create(context: Context, name: str, sql: str, scenario: str, refresh_policy: str, propagate_every: str | None,
            refresh_every: str | None, policy: int, target_lag: str | None) -> ViewRecord:
    strict = refresh_policy == "incremental_strict"
    definition = definitions.define(context, sql, strict)
    for source in definition.tables.values():
        if source.kind == "view":
            _serve_views(context, source)
    sources = [context.metadata.tables.by_id(t.id) for t in definition.tables.values()]
    ledger.sync(context, sources, lambda t: recover(context, t))
    cut = ledger.cut(context, sources, None, None)
    columns = _columns(context, definition, cut)
    definition = _agreeing(definition, columns, strict)
    if strict:
        _refuse_recomputation(definition)
    location = context.folder("views", f"{name}-{uuid.uuid4().hex[:8]}")
    try:
        _fill(context, definition, columns, location, cut)
        state = DeltaLog(f"{location}/mv")
        record = context.metadata.tables.add(
            name=name, location=f"{location}/mv", kind="view", delta_id=state.id, key=(), references={},
            columns=columns, first_version=state.version)
    except BaseException:
        remove_folder(location)
        raise
    first = next(iter(state.newest_first()))
    context.metadata.ledger.append([LedgerEntry(record.id, first.version, cut.timestamp, None, first.operation)])
    return context.metadata.views.add(
        name=name, sql=sql, scenario=scenario, refresh_policy=refresh_policy, policy=policy, columns=columns,
        location=location, table_id=record.id, depends_on=[t.id for t in sources], propagate_every=propagate_every,
        refresh_every=refresh_every, target_lag=target_lag, shown=cut, propagated=cut,
        definition={**definition.remembered(), "notes": _notes(definition), "key": _key(definition, columns)})


def _notes(definition: Definition) -> list[str]:
    """What a user should know of how the view was taken."""
    if definition.bound is None:
        return [f"Recomputed as a whole at every propagate: {definition.whole}"]
    return list(definition.bound.notes)


def _key(definition: Definition, columns: definitions.Columns) -> list[str]:
    """The view's columns that no two of its rows share, empty where it is a bag."""
    if definition.bound is None:
        return []
    names = dict(definitions.output(definition, columns))
    return [names[c] for c in definitions.unique_key(definition.plan) or ()]


def drop(context: Context, view: ViewRecord) -> None:
    """Forget a view and remove its tables. Its operations stay in the history."""
    users = context.metadata.views.dependents(view.table_id)
    if users:
        raise InvalidInputError(f"View {view.name} is read by {', '.join(v.name for v in users)}; drop those first.")
    context.metadata.views.remove(view.id)
    context.metadata.tables.remove(view.table_id)
    remove_folder(view.location)


def remove_folder(location: str) -> None:
    """Remove a view's folder, on a local disk or wherever Arrow's file systems reach."""
    if "://" not in location:
        shutil.rmtree(location, ignore_errors=True)
        return
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(location)
    system.delete_dir(path)


def rebuild_statement(definition: Definition, columns: Sequence[tuple[str, str]], path: str, cut: Cut) -> str:
    """One atomic overwrite of MV with Q at a cut: readers see the old rows, then the new ones."""
    names = ", ".join(quoted(n) for n, _ in columns)
    return f"INSERT OVERWRITE {table(path)} ({names}) {query(definition, columns, cut)}"


def query(definition: Definition, columns: Sequence[tuple[str, str]], cut: Cut) -> str:
    """Q at a cut, under the view's own column names and types."""
    if definition.bound is None:
        return f"SELECT * FROM ({original(definition, cut)}) AS q"
    rendered = Renderer(definitions.at(definition, cut), broadcast=False).render(definition.plan)
    types = dict(columns)
    outputs = ", ".join(f"CAST({quoted(c)} AS {types[name]}) AS {quoted(name)}"
                        for c, name in definitions.output(definition, columns))
    return f"SELECT {outputs} FROM ({rendered}) AS q"


def original(definition: Definition, cut: Cut) -> str:
    """The user's own text, its tables read at a cut: what a recomputation by Spark itself would run."""

    def source(path: tuple[str, ...]) -> str:
        record = definition.table(path)
        names = ", ".join(quoted(n) for n, _ in definition.schemas[record.name])
        return f"(SELECT {names} FROM {table(record.location, cut.versions[record.id])})"

    return pinned(definition.sql, source)


def _fill(context: Context, definition: Definition, columns: definitions.Columns, location: str, cut: Cut) -> None:
    engine = context.engine
    # Without deletion vectors, which other readers may not know: MV is a plain Delta table.
    plain = {"delta.enableDeletionVectors": "false"}
    bags.create(engine, f"{location}/differential",
                [*columns, (DIFFERENTIAL_COUNT, "bigint"), (DIFFERENTIAL_BATCH, "bigint")], [DIFFERENTIAL_BATCH], plain)
    support.create(context, definition, location, cut)
    bags.create(engine, f"{location}/mv", columns, (), plain)
    names = ", ".join(quoted(n) for n, _ in columns)
    mark = Mark(f"deferred-view-{os.path.basename(location)}", 0, {"kind": "refresh", "batch": 0, "cut": cut.to_json()})
    engine.commit(f"INSERT INTO {table(f'{location}/mv')} ({names}) {query(definition, columns, cut)}", mark)


def _columns(context: Context, definition: Definition, cut: Cut) -> definitions.Columns:
    """The view's columns, by Spark's own word on the user's own text; the plan must agree in types."""
    columns = tuple(context.engine.columns(original(definition, cut)))
    seen: dict[str, str] = {}
    for name, type_ in columns:
        if name.casefold() in seen:
            raise InvalidSQLError(f"Two columns of the view are called {name}; give one of them an alias.")
        seen[name.casefold()] = name
        if name.startswith("_deferred_"):
            raise InvalidSQLError(f"Column {name}: names that begin with _deferred_ are taken; give it an alias.")
        if type_ in ("void", "variant") or type_.startswith(("interval", "map<")):
            raise UnsupportedSQLError(f"Column {name} has the type {type_}, whose values cannot be stored and "
                                      f"compared; CAST it to a type that can.")
    return columns


def _agreeing(definition: Definition, columns: definitions.Columns, strict: bool) -> Definition:
    """The definition, if its plan has the types that Spark gives the user's own text; else recomputed as a whole."""
    if definition.bound is None:
        return definition
    planned = [definition.bound.types[c] for c in definition.plan.columns]
    for (name, type_), mine in zip(columns, planned, strict=True):
        if type_.casefold() != mine.casefold():
            reason = (f"Column {name} is {type_} for Spark and {mine} in the view's plan, so no rule is trusted "
                      f"with it; CAST(… AS {type_}) makes it plain.")
            if strict:
                raise UnsupportedSQLError(reason)
            return replace(definition, bound=None, whole=reason)
    return definition


def _serve_views(context: Context, source: TableRecord) -> None:
    """Make a view's MV a base table of other views: from now on its commits say what they changed."""
    if not DeltaLog(source.location).has_feed:
        tracking.enable_feed(context, source.location)
        context.metadata.tables.update(source.id, first_version=DeltaLog(source.location).version)


def _refuse_recomputation(definition: Definition) -> None:
    for node in definition.plan.walk():
        if node.maintained == "recomputed":
            raise UnsupportedSQLError(
                f"{type(node).__name__} reads its whole input at every change: it has no keys or partitions that would "
                f"say which part is touched. incremental_strict refuses that; use refresh_policy 'incremental' or "
                f"'auto'.")


def _check_options(scenario: str, refresh_policy: str, propagate_every: str | None, refresh_every: str | None,
                   policy: int, target_lag: str | None) -> None:
    if scenario not in SCENARIOS:
        raise InvalidInputError(f"scenario={scenario!r}: it is one of {', '.join(SCENARIOS)}.")
    if refresh_policy not in REFRESH_POLICIES:
        raise InvalidInputError(f"refresh_policy={refresh_policy!r}: it is one of {', '.join(REFRESH_POLICIES)}.")
    if policy not in (1, 2):
        raise InvalidInputError(f"policy={policy!r}: it is 1 (refresh) or 2 (partial_refresh) every refresh_every.")
    for name, text_ in (("propagate_every", propagate_every), ("refresh_every", refresh_every)):
        if text_ is not None:
            parse_cadence(text_, name)
    if target_lag is not None:
        parse_duration(target_lag, "target_lag")
