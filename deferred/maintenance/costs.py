"""What strategies cost: sizes from Delta's logs, and what earlier operations on the view have taken.

An estimate is a model, rows times seconds per row, corrected by how long the strategy of a name took before compared
with what the model had said. Nothing is read for it but Delta's logs and the metadata database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from deferred.algebra.delta import differentiate
from deferred.algebra.operators import Scan, Stored, Temporary
from deferred.algebra.operators.in_view import VIEW, is_shared
from deferred.algebra.operators.scan import scans_of, tables_of
from deferred.algebra.plan import Plan
from deferred.algebra.program import Program
from deferred.algebra.scalar import conjuncts, equated_columns
from deferred.algebra.strategy import kept_nodes
from deferred.algebra.types import Columns
from deferred.log.context import Context
from deferred.log.delta_log import DeltaLog, is_delta
from deferred.log.sources import source_of
from deferred.maintenance.base_logs import Logs
from deferred.maintenance.definition import Definition
from deferred.maintenance.view_tables import mv_path, support_path
from deferred.metadata import Filling, ViewRecord
from deferred.spark.data_skipping import disjoint, merged, overlaps, ranges
from deferred.spark.temporaries import width

BEGINNING = 0.5
"""Seconds that every way takes, however little there is to do."""

COMPUTED = 1.1e-6
"""Seconds per base row of computing a query: reading it, joining it, grouping it."""

COMPARED = 1.5e-6
"""Seconds per row of comparing the view as it is with the view as it was."""

COMPARED_ROWS = 20_000
"""The rows of a view with more are not compared after a recomputation: it is written as a whole."""

SCANNED = 0.15e-6
"""Seconds per base row that is only looked at for a few keys."""

CHANGED = 5e-6
"""Seconds per changed row, for each base table that it is joined with or looked up in."""

KEPT = 35e-6
"""Seconds per row of a support table that is looked up, computed again and appended."""

REMEMBERED = 5
"""The number of earlier operations that correct the model."""

MOST_FILES = 20_000
"""Of tables with more files, the ranges of their columns are not looked at."""

LIMITS = (0.2, 5.0)
"""By how much they may correct it: the first statement of a session, or a busy machine, must not decide for long."""

CREATED = 1.5
"""By how much a creation may correct it upwards: often it is the first that a session does, and waits for that."""


@dataclass(frozen=True)
class Cost:
    """What a run is expected to cost: rows worked through, bytes read, seconds; and how that is known."""

    rows: int
    bytes: int
    seconds: float
    reason: str
    model: float
    """The seconds by the model alone, which later estimates compare with what the run has taken."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "model": round(self.model, 4),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class TableSize:
    """A base table: its rows, and the bytes of the columns that a view reads."""

    rows: int
    bytes: int

    def part(self, fraction: float) -> TableSize:
        return TableSize(round(self.rows * fraction), round(self.bytes * fraction))


def sizes(context: Context, definition: Definition) -> dict[str, TableSize] | None:
    """The sizes of a view's base tables, None where the statistics of one are missing."""
    found = {name: size(context, definition, name) for name in definition.tables}
    known = {name: each for name, each in found.items() if each is not None}
    return known if known.keys() == found.keys() else None


def size(context: Context, definition: Definition, name: str) -> TableSize | None:
    """The size of one of a view's base tables."""
    rows = source_of(context, definition.tables[name]).row_count()
    return None if rows is None else TableSize(rows, rows * _width(definition.read_columns(name)))


def size_at(path: str, columns: Columns) -> TableSize | None:
    """The size of a Delta table of the view itself."""
    rows = DeltaLog(path).row_count() if is_delta(path) else None
    return None if rows is None else TableSize(rows, rows * _width(columns))


@dataclass(frozen=True)
class Situation:
    """What a cost is estimated from: a view, its base tables' sizes, and what has changed in them.

    Of `logs` only the numbers of rows need be known; with rows at the driver the estimate is closer.
    """

    context: Context
    view: ViewRecord
    definition: Definition
    tables: Mapping[str, TableSize]
    logs: Logs


def filling(tables: Mapping[str, TableSize]) -> float:
    """Seconds by the model of computing the whole view."""
    return BEGINNING + COMPUTED * sum(table.rows for table in tables.values())


def replaces(view: ViewRecord) -> bool:
    """Whether a recomputation of a view becomes its new rows as a whole, and not the difference to the old ones.

    Whoever reads the view's own changes, as a view above it does, is given the difference. Nor can files of another
    table be those of MV where columns have other names in them, or in an object store, where no file has two names.
    """
    if "://" in view.location:
        return False
    mv = DeltaLog(mv_path(view.location))
    return not mv.has_feed and "columnMapping" not in mv.features and (mv.row_count() or 0) > COMPARED_ROWS


def recomputing(now: Situation, strategy: str) -> Cost:
    """What it costs to compute the whole view, and its difference to what it holds, where that is computed."""
    held = 0 if replaces(now.view) else DeltaLog(mv_path(now.view.location)).row_count() or 0
    rows = sum(table.rows for table in now.tables.values()) + 2 * held
    size = sum(table.bytes for table in now.tables.values()) + 2 * held * _width(now.view.columns)
    model = filling(now.tables) + COMPARED * 2 * held
    return _corrected(now, strategy, rows, size, model, filled=now.view.definition.filled)


def changing(now: Situation, strategy: str) -> Cost:
    """What the delta program costs: what it scans, the changed rows that it works through, and the kept rows they move.

    A scan that is joined with few known keys reads only the files whose ranges have some of them.
    """
    definition, logs = now.definition, now.logs
    changed = [name for name, rows in logs.rows.items() if rows]
    scans = list(_scans(differentiate(definition.plan, changed, definition.column_types)))
    moved = sum(min(logs.total, _kept_rows(now, name, node)) for name, (node, _) in kept_nodes(definition.plan).items())
    working = BEGINNING + CHANGED * logs.total * max(1, len(scans)) + KEPT * moved
    scanned = [now.tables[name] for name in scans]
    if SCANNED * sum(table.rows for table in scanned) > working / 4:  # else what is scanned does not decide
        scanned = [now.tables[name].part(_touched_part(now, name)) for name in scans]
    rows, size = sum(table.rows for table in scanned), sum(table.bytes for table in scanned)
    return _corrected(now, strategy, rows + logs.total, size, working + SCANNED * rows)


def looking(now: Situation, strategy: str) -> Cost:
    """What it costs to ask the view itself: its rows are looked through for those that come from changed ones."""
    held = DeltaLog(mv_path(now.view.location)).row_count() or 0
    looks = 1 + sum(1 for rows in now.logs.rows.values() if rows)
    model = BEGINNING + CHANGED * now.logs.total + SCANNED * looks * held
    return _corrected(now, strategy, looks * held + now.logs.total, looks * held * _width(now.view.columns), model)


def keeping(now: Situation, strategy: str) -> Cost:
    """What the delta program costs where it reads kept tables: all rows of each, and the view, as often as it does.

    Of a table that does not exist, as many rows as the largest base table has from which it would be filled.
    """
    definition, logs = now.definition, now.logs
    changed = [name for name, rows in logs.rows.items() if rows]
    program = differentiate(definition.plan, changed, definition.column_types)
    kept = kept_nodes(definition.plan)
    rows = size = 0
    for plan in program.plans:
        for node in plan.walk():
            if isinstance(node, Scan):
                rows, size = rows + now.tables[node.table].rows, size + now.tables[node.table].bytes
            elif isinstance(node, Stored):
                held = _kept_rows(now, node.name, kept[node.name][0])
                width = _width([(c, definition.column_types.get(c, "bigint")) for c in node.columns])
                rows, size = rows + held, size + held * width
            elif isinstance(node, Temporary) and is_shared(node):
                held = max((now.tables[table.portion.table].rows for table in definition.shared.values()), default=0)
                rows += held
            elif isinstance(node, Temporary) and node.name == VIEW:
                held = DeltaLog(mv_path(now.view.location)).row_count() or 0
                rows, size = rows + held, size + held * _width(now.view.columns)
    model = BEGINNING + CHANGED * logs.total * max(1, len(kept)) + SCANNED * rows
    return _corrected(now, strategy, rows + logs.total, size, model)


def _kept_rows(now: Situation, name: str, node: Plan) -> int:
    path = support_path(now.view.workings, name)
    mine = now.definition.declared == now.view.definition.promises
    known = DeltaLog(path).row_count() if mine and is_delta(path) else None
    return max((now.tables[table].rows for table in tables_of(node)), default=0) if known is None else known


def _corrected(
    now: Situation, strategy: str, rows: int, size: int, model: float, filled: Filling | None = None
) -> Cost:
    """The estimate, by what the model has said and what it took the last times; `filled` is the first time."""
    operations = now.context.metadata.operations.recent(now.view.name, 4 * REMEMBERED)
    factors = _factors((operation.strategy, operation.details.get("cost")) for operation in operations)
    known = [factor for name, factor in factors if name == strategy][:REMEMBERED]
    if known:
        reason = f"by {len(known)} earlier {'operation' if len(known) == 1 else 'operations'}"
    elif filled is not None and filled.model:
        known, reason = [min(CREATED, filled.seconds / filled.model)], "by the view's creation"
    else:
        known, reason = [1.0], "by the sizes alone"
    low, high = LIMITS
    return Cost(rows, size, model * min(high, max(low, median(known))), reason, model)


def _factors(operations: Iterable[tuple[str | None, Any]]) -> Iterator[tuple[str, float]]:
    """(strategy, seconds that it took / seconds by the model) of operations that have recorded both."""
    for strategy, cost in operations:
        model = ((cost or {}).get(strategy) or {}).get("model")
        if strategy is not None and model and cost.get("actual"):
            yield strategy, cost["actual"] / model


def _scans(program: Program) -> Iterator[str]:
    """The base tables that a program reads, each as often as it does."""
    for plan in program.plans:
        yield from (scan.table for scan in scans_of(plan))


def _touched_part(now: Situation, table: str) -> float:
    """The part of a table's rows that is in files with keys of a changed table, by the ranges of their columns.

    1 where nothing is known of them.
    """
    joined = [
        (mine, spans)
        for mine, (other, theirs) in _joined_with(now.definition, table)
        if (spans := _spans(now.logs, other, theirs)) is not None
    ]
    if not joined:
        return 1.0
    files = source_of(now.context, now.definition.tables[table]).log.files(MOST_FILES)
    return min((_overlapping(files, mine, spans) for mine, spans in joined), default=1.0)


def _spans(logs: Logs, table: str, column: str) -> list[tuple[Any, Any]] | None:
    """Ranges with all changed values of a column: by the rows, or the files that hold them; None where unknown."""
    rows = logs.local.get(table)
    if rows is not None:
        try:
            return ranges(sorted(value for value in rows.column(column).unique().to_pylist() if value is not None))
        except (ValueError, OverflowError):  # a date that Python does not know, a text that is not UTF-8
            return None
    found = [file.of(column) for file in logs.files.get(table, ())]
    known = [span for span in found if span is not None]
    return merged(disjoint(known)) if known and len(known) == len(found) else None


def _joined_with(definition: Definition, table: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """(column of a table, (other table, its column)) that the query equates."""
    origin = {
        id_: (scan.table, name)
        for scan in scans_of(definition.plan)
        for id_, name in zip(scan.ids, scan.names, strict=True)
    }
    for node in definition.plan.walk():
        for expression in node.expressions:
            for part in conjuncts(expression):
                pair = equated_columns(part) or ()
                sides = [origin[name] for name in pair if name in origin]
                for one, other in (sides, sides[::-1]) if len(sides) == 2 else ():
                    if one[0] == table and other[0] != table:
                        yield one[1], other


def _overlapping(files: list[dict[str, Any]], column: str, spans: list[tuple[Any, Any]]) -> float:
    """The part of the rows that is in files whose range of a column overlaps one of some ranges."""
    rows = sum(file["num_records"] or 0 for file in files)
    touched = sum(file["num_records"] or 0 for file in files if overlaps(file, column, spans))
    return touched / rows if rows else 1.0


def _width(columns: Columns) -> int:
    return width(type_ for _, type_ in columns)
