"""Small commits that the driver makes itself, without Spark, through delta-rs.

A Spark statement that appends a few rows takes half a second, most of it planning; here it takes milliseconds. A commit
carries the same mark and keeps the same promise, that a number of an application is committed at most once: Spark
compares the numbers while it commits, here they are compared when the table is opened, and Delta refuses the commit if
another one of the same application came in between.

A table or a value that delta-rs may write otherwise than Spark is left to Spark: every function here returns False
then, and nothing has happened. If delta-rs fails after its commit, Spark is asked to make the same commit, and Delta
skips it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

FEATURES = frozenset({"appendOnly", "invariants", "timestampNtz"})
"""What a table may ask of its writers."""

REWRITTEN_BYTES = 64 * 2**20
"""Rows of larger tables are replaced by Spark, which works on all cores of a cluster."""

HELD_ROWS = 100_000
"""Replaced rows come to the driver, up to this many."""


def append(path: str, rows: pa.Table, application: str, version: int, metadata: str) -> bool:
    """Append rows in one commit with a mark."""
    table = _opened(path)
    return table is not None and _is_sound(rows) and _write(table, rows, application, version, metadata)


def replace(
    path: str,
    condition: exp.Expr,
    rows: pa.Table,
    seen: int,
    application: str,
    version: int,
    metadata: str,
) -> bool:
    """Replace the rows for which a condition holds in one commit with a mark, if the table is still the one `seen`."""
    table = _opened(path)
    if table is None or table.version() != seen:
        return False
    return _write(table, rows, application, version, metadata, mode="overwrite", predicate=_condition_text(condition))


def held(path: str, condition: exp.Expr) -> tuple[pa.Table, int] | None:
    """The rows of a table for which a condition holds, and its version; None where `replace` is not for the table.

    Floating-point columns are left to Spark: statistics by delta-rs do not know NaN, which Spark takes for the largest
    number, and would skip its file.
    """
    import pyarrow as pa
    from deltalake import QueryBuilder

    table = _opened(path)
    if table is None or table.metadata().configuration.get("delta.enableChangeDataFeed") == "true":
        return None
    try:
        files = pa.table(table.get_add_actions(flatten=True))
        if sum(files.column("size_bytes").to_pylist()) > REWRITTEN_BYTES:
            return None
        if has_floats(pa.schema(table.schema().to_arrow())):
            return None
        query = f"SELECT * FROM held WHERE {_condition_text(condition)} LIMIT {HELD_ROWS + 1}"
        rows = pa.table(QueryBuilder().register("held", table).execute(query))
    except Exception:  # whatever delta-rs does not know: Spark reads it
        return None
    return None if rows.num_rows > HELD_ROWS else (rows, table.version())


def counted(rows: pa.Table, names: Sequence[str], count: str | None = None) -> Counter[tuple[Any, ...]]:
    """How often each row is there; `count` is the column that says so, without it each row counts once.

    Values are compared by Python, so for types whose equal values are the same value: not for floating-point numbers.
    """
    found: Counter[tuple[Any, ...]] = Counter()
    times = rows.column(count).to_pylist() if count else [1] * rows.num_rows
    for row, n in zip(zip(*(rows.column(name).to_pylist() for name in names), strict=True), times, strict=True):
        found[row] += n
    return found


def repeated(rows: pa.Table, counts: Sequence[int]) -> pa.Table:
    """Each row as often as its count says."""
    return rows if set(counts) <= {1} else rows.take([i for i, n in enumerate(counts) for _ in range(n)])


def written_out(counts: Mapping[tuple[Any, ...], int], schema: pa.Schema) -> pa.Table:
    """Rows as a table, each as often as it counts."""
    import pyarrow as pa

    rows = [row for row, n in counts.items() for _ in range(n)]
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.table([pa.array(values, type_) for values, type_ in zip(columns, schema.types, strict=True)], schema)


def _opened(path: str) -> DeltaTable | None:
    """A table that delta-rs writes as Spark does, None for any other.

    Only on a local disk: on object storage, Spark and delta-rs do not agree on how one of two commits is refused.
    """
    from deltalake import DeltaTable

    if "://" in path:
        return None
    try:
        table = DeltaTable(path)
        protocol, settings = table.protocol(), table.metadata().configuration
    except Exception:
        return None
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    if (protocol.min_writer_version > 2 and protocol.min_writer_version != 7) or features - FEATURES:
        return None
    return None if settings.get("delta.columnMapping.mode", "none") != "none" else table


def _write(table: DeltaTable, rows: pa.Table, application: str, version: int, metadata: str, **how: Any) -> bool:
    import pyarrow as pa
    from deltalake import CommitProperties, Transaction, write_deltalake

    made = table.transaction_version(application)
    if made is not None and made >= version:
        return False  # Spark skips it, too, and whoever asked for it finds out
    properties = CommitProperties(
        custom_metadata={"userMetadata": metadata},
        app_transactions=[Transaction(application, version)],
        max_commit_retries=0,
    )
    try:
        rows = rows.cast(pa.schema(table.schema().to_arrow()))
        write_deltalake(table, rows, commit_properties=properties, **({"mode": "append"} | how))
    except Exception:  # refused, or not for delta-rs
        return False
    return True


def _condition_text(condition: exp.Expr) -> str:
    """A condition of deferred.spark.covering as DataFusion reads it: quoted names, plain literals, casts."""
    return condition.sql(dialect="duckdb")


def _is_sound(rows: pa.Table) -> bool:
    """Whether statistics by delta-rs are right for the rows: without NaN, see `held`."""
    import pyarrow as pa
    from pyarrow import compute

    for column in rows.columns:
        if pa.types.is_floating(column.type):
            if compute.any(compute.is_nan(column)).as_py():
                return False
        elif _has_floats(column.type):
            return False
    return True


def has_floats(schema: pa.Schema) -> bool:
    """Whether a column holds floating-point numbers, at any depth."""
    return any(map(_has_floats, schema.types))


def _has_floats(type_: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_nested(type_):
        return any(_has_floats(type_.field(i).type) for i in range(type_.num_fields))
    return bool(pa.types.is_floating(type_))
