"""What changing a view's definition would read and write, told by Delta's logs alone before anything is done.

Sizes are those of whole tables: where a condition or keys restrict what is read, files of them are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deferred.algebra.operators.scan import listed_tables, tables_of
from deferred.algebra.operators.temporary import Stored
from deferred.algebra.over_view import VIEW
from deferred.algebra.sharing import kept_before
from deferred.algebra.strategy import kept_nodes
from deferred.algebra.types import Columns
from deferred.log.context import Context
from deferred.maintenance import costs
from deferred.maintenance import definition as definitions
from deferred.maintenance.altering import (
    ByDifference,
    FromBaseTables,
    FromKept,
    FromOldRows,
    Nothing,
    Way,
    choose,
    prepared_for,
)
from deferred.maintenance.carrying import Carried, carried, kept_rows
from deferred.maintenance.costs import TableSize
from deferred.maintenance.definition import Definition
from deferred.maintenance.view_tables import mv_path, support_path
from deferred.metadata import ViewRecord
from deferred.sql.viewfile import ViewFile


@dataclass(frozen=True)
class Part:
    """A table that would be read or written, and how: its rows and bytes as they are now, None where not known."""

    table: str
    how: str
    rows: int | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        """
        >>> str(Part("sale", "read at most", 1200, 3_000_000))
        'sale: read at most; 1,200 rows, 3.0 MB now'
        """
        if self.rows is None or self.bytes is None:
            return f"{self.table}: {self.how}"
        return f"{self.table}: {self.how}; {self.rows:,} rows, {self.bytes / 1e6:,.1f} MB now"


@dataclass(frozen=True)
class Foreseen:
    """How a view's definition would be changed: the way and why, what is read for it and what is written."""

    name: str
    reason: str
    reads: tuple[Part, ...]
    writes: tuple[Part, ...]
    columns: Columns
    """Those that the view would have."""

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.name}. {self.reason}",
                "It would read:",
                *(f"  {part}" for part in self.reads or ("nothing",)),
                "It would write:",
                *(f"  {part}" for part in self.writes or ("nothing but the text of the view",)),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        parts = {"reads": self.reads, "writes": self.writes}
        return {"way": self.name, "reason": self.reason, **{k: [vars(part) for part in v] for k, v in parts.items()}}


def foreseen(
    context: Context, name: str, sql: str, stated: Mapping[str, Any], together: Sequence[ViewFile] = ()
) -> Foreseen:
    """How `alter` would do it; nothing is written."""
    view = context.metadata.views.get(name)
    options = view.options.replaced(**stated)
    settings = context.engine.settings()
    with context.engine.meaning(settings):
        new = prepared_for(context, view, sql, options, settings, together, serve=False)
        way = choose(context, view, new)
        if isinstance(way, Nothing):
            return Foreseen(way.name, way.reason, (), (), new.columns)
        old = definitions.load(context, view)
        keeps = not isinstance(way, (FromBaseTables, ByDifference))
        kept = carried(view, old, new.definition) if keeps else None
        reads = (*_base_tables(context, old, new.definition, way, kept), *_own_tables(view, old, way, kept))
        return Foreseen(way.name, way.reason, reads, tuple(_written(view, new.definition, way)), new.columns)


def _base_tables(context: Context, old: Definition, new: Definition, way: Way, kept: Carried | None) -> Iterator[Part]:
    """The base tables that are read: for the rows of the view, and for the support tables that are made of none."""
    for_rows = _read_for_rows(new, way, kept)
    made = [node for node, _ in kept_nodes(new.plan).values()] if kept is None else [*kept.supports.values()]
    made = [*way.edit.supports.values()] if isinstance(way, ByDifference) else made
    for_kept = frozenset[str]().union(*map(tables_of, made))
    for name in sorted(for_rows | for_kept):
        how = "read at most" if isinstance(way, ByDifference) else "read"
        if name not in for_rows:
            how = "read for what is kept beside the view"
        yield _part(name, how, costs.size(context, new if name in new.tables else old, name))


def _read_for_rows(new: Definition, way: Way, kept: Carried | None) -> frozenset[str]:
    if isinstance(way, FromOldRows):
        return frozenset()
    if isinstance(way, ByDifference):
        return frozenset[str]().union(*map(tables_of, way.edit.program.plans))
    if isinstance(way, FromKept) and kept is not None:
        return kept.tables
    return frozenset(new.tables)


def _own_tables(view: ViewRecord, old: Definition, way: Way, kept: Carried | None) -> Iterator[Part]:
    """The tables of the view that are read: MV with its pending batches, and old support tables."""
    taken: Mapping[str, Any] = {} if kept is None else kept.definition.kept
    if isinstance(way, ByDifference):
        taken = kept_rows(view, old) or {}
    if isinstance(way, FromOldRows) or (isinstance(way, FromKept) and VIEW in taken):
        yield _part("the view itself", "read", costs.size_at(mv_path(view.location), view.columns))
    for name, (node, strategy) in kept_nodes(old.plan).items():
        if kept_before(name) in taken:
            stored = next(leaf for leaf in strategy.past(node, None).walk() if isinstance(leaf, Stored))
            columns = [(c, old.column_types.get(c, "bigint")) for c in stored.columns]
            yield _part(
                f"{name}, {strategy.name} of {listed_tables(node)}",
                "taken over",
                costs.size_at(support_path(view.workings, name), columns),
            )


def _written(view: ViewRecord, new: Definition, way: Way) -> Iterable[Part]:
    """MV, as a whole or the rows that change, and the support tables of the new definition, which are made anew."""
    by_rows = isinstance(way, ByDifference) or (isinstance(way, FromOldRows) and way.left is not None)
    how = "only the rows that change" if by_rows else "all its rows, by one commit"
    yield _part("the view itself", how, costs.size_at(mv_path(view.location), view.columns))
    for name, (node, strategy) in kept_nodes(new.plan).items():
        yield Part(f"{name}, {strategy.name} of {listed_tables(node)}", "made anew")


def _part(table: str, how: str, size: TableSize | None) -> Part:
    return Part(table, how) if size is None else Part(table, how, size.rows, size.bytes)
