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

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from deferred.algebra.types import Columns
from deferred.spark.local_bags import has_floats_inside

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyarrow import dataset

FEATURES = frozenset({"appendOnly", "invariants", "timestampNtz"})
"""What a table may ask of its writers."""

APPENDED = FEATURES | {"changeDataFeed", "checkConstraints", "generatedColumns"}
"""The same for appends, of which the change feed has no files of its own; see `_is_unchecked`."""

PROPERTIES = frozenset({"delta.enableDeletionVectors"})
"""With what a table may be created."""

LOOKED_UP_BYTES = 64 * 2**20
"""Of larger tables Spark looks up the rows with some keys."""

READ_BYTES = 256 * 2**20
"""Where rows may be in more bytes of files, Spark looks for them."""

_EXACT_TYPES = {
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "boolean": "bool",
    "binary": "binary",
    "date": "date32",
    "timestamp": "timestamp[us]",
    "timestamp_ntz": "timestamp[us]",
}
"""The types of Spark beside decimals whose values Arrow holds exactly, and how Arrow calls its own."""

_BEFORE_NAMES = {3: {"checkConstraints"}, 4: {"checkConstraints", "changeDataFeed", "generatedColumns"}}
"""What each version of the protocol asks of writers, from before features had names."""

EXACT_DIGITS = 15
"""In the statistics of a file, delta-rs writes decimals as floating-point numbers: these are exact so far."""


def create(path: str, columns: Columns, partitioned_by: Sequence[str], properties: Mapping[str, str]) -> bool:
    """Create an empty table, as Spark would with the same columns, all of which may be NULL."""
    import pyarrow as pa
    from deltalake import DeltaTable

    types = [(name, exact_type(type_)) for name, type_ in columns]
    if "://" in path or not properties.keys() <= PROPERTIES or any(type_ is None for _, type_ in types):
        return False
    try:
        DeltaTable.create(path, pa.schema(types), partition_by=list(partitioned_by), configuration=dict(properties))
    except Exception:  # not for delta-rs, or something is there: Spark says what
        return False
    return True


def append(path: str, rows: pa.Table, application: str, version: int, metadata: str) -> bool:
    """Append rows in one commit with a mark."""
    table = writable(path, APPENDED)
    if table is None or not _is_unchecked(table) or not _is_sound(rows):
        return False

    def write(properties: CommitProperties) -> None:
        import pyarrow as pa
        from deltalake import write_deltalake

        fitting = rows.cast(pa.schema(table.schema().to_arrow()))
        write_deltalake(table, fitting, mode="append", commit_properties=properties)

    return committed(table, write, application, version, metadata)


def looked_up(
    path: str, version: int, types: Mapping[str, str], keys: pa.Table | None, on: Mapping[str, str], most: int
) -> pa.Table | None:
    """The rows of a table at a version whose columns have together the values of some key; all rows without keys.

    `on` names for each of these columns the one of `keys`; NULL equals NULL. None where Spark must look: for more than
    `most` rows, for types whose values Arrow may hold otherwise, and for keys whose equality is not that of values.
    """
    import pyarrow as pa

    table = writable(path)
    wanted = {name: exact_type(type_) for name, type_ in types.items()}
    if table is None or None in wanted.values() or not all(is_plain(wanted[name]) for name in on):
        return None
    files = _files(table, path, version, types, LOOKED_UP_BYTES)
    if files is None:
        return None
    try:
        if keys is None:
            rows = files.head(most + 1)
            return None if rows.num_rows > most else rows
        found = files.schema.empty_table()
        if keys.num_rows:
            chosen = [among(mine, keys.column(theirs).cast(wanted[mine])) for mine, theirs in on.items()]
            found = files.to_table(filter=reduce(and_, chosen))
    except (OSError, ValueError, pa.ArrowException):  # whatever is not for Arrow: Spark reads it
        return None
    if len(on) > 1:
        listed = set(zip(*(_values(keys.column(theirs)) for theirs in on.values()), strict=True))
        held_keys = zip(*(_values(found.column(mine)) for mine in on), strict=True)
        found = found.filter(pa.array([key in listed for key in held_keys], pa.bool_()))
    return None if found.num_rows > most else found


def files_of(path: str, version: int, types: Mapping[str, str]) -> dataset.Dataset | None:
    """The files of a table at a version, to be read by Arrow; None where their rows may not be those of the table.

    Only for types whose values are equal where they are the same, and mean the same in every file: no dates, which an
    old calendar may have counted.
    """
    import pyarrow as pa

    wanted = [exact_type(type_) for type_ in types.values()]
    if None in wanted or not all(is_plain(type_) and not pa.types.is_date(type_) for type_ in wanted):
        return None
    table = _read_only(path)
    return None if table is None else _files(table, path, version, types, READ_BYTES)


def _files(
    table: DeltaTable, path: str, version: int, types: Mapping[str, str], most_bytes: int
) -> dataset.Dataset | None:
    import pyarrow as pa
    from deltalake.exceptions import DeltaError
    from pyarrow import dataset

    wanted = {name: exact_type(type_) for name, type_ in types.items()}
    if None in wanted.values():
        return None
    try:
        if table.version() != version:
            table.load_as_version(version)
        files = pa.table(table.get_add_actions(flatten=True))
        if sum(files.column("size_bytes").to_pylist()) > most_bytes:
            return None
        paths = [f"{path}/{file}" for file in files.column("path").to_pylist()]
        schema = pa.schema(list(wanted.items()))
        format_ = dataset.ParquetFileFormat(coerce_int96_timestamp_unit="us")
        return dataset.dataset(paths, schema, format_) if paths else dataset.dataset(schema.empty_table())
    except (OSError, ValueError, pa.ArrowException, DeltaError):
        return None


def among(name: str, values: pa.Array | pa.ChunkedArray) -> dataset.Expression:
    """The condition that a column has one of some values, of which NULL may be one."""
    from pyarrow import compute

    field = compute.field(name)
    listed = field.isin(compute.unique(values.drop_null()))
    return listed | field.is_null() if values.null_count else listed


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python compares them: texts by their bytes, for those of Spark need not be UTF-8."""
    import pyarrow as pa

    return list((column.cast(pa.binary()) if pa.types.is_string(column.type) else column).to_pylist())


def is_plain(type_: pa.DataType) -> bool:
    """Whether values of a type are equal where they are the same, to Arrow, Python and Spark."""
    import pyarrow as pa

    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_date(type_)
        or pa.types.is_string(type_)
        or pa.types.is_boolean(type_)
    )


def has_sound_statistics(type_: pa.DataType) -> bool:
    """Whether values of a type are in the statistics of a file as they are, whoever has written them."""
    import pyarrow as pa

    return is_plain(type_) and not pa.types.is_boolean(type_) and not _has_long_decimals(type_)


def exact_type(type_: str) -> Any:
    """The Arrow type that holds exactly the values of a type of Spark; None for a type of which that is not known.

    >>> exact_type("decimal(12,2)")
    Decimal128Type(decimal128(12, 2))
    >>> exact_type("map<int,int>") is None
    True
    """
    import pyarrow as pa

    if type_.startswith("decimal("):
        precision, scale = map(int, type_.removeprefix("decimal(").rstrip(")").split(","))
        return pa.decimal128(precision, scale)
    if type_ == "timestamp":
        return pa.timestamp("us", "UTC")
    name = _EXACT_TYPES.get(type_)
    return None if name is None else pa.type_for_alias(name)


def spelled(type_: pa.DataType) -> str:
    """The type of Spark whose values an Arrow type holds exactly.

    >>> spelled(exact_type("decimal(12,2)")), spelled(exact_type("bigint"))
    ('decimal(12,2)', 'bigint')
    """
    import pyarrow as pa

    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return "void" if pa.types.is_null(type_) else next(name for name in _EXACT_TYPES if exact_type(name) == type_)


def _is_unchecked(table: DeltaTable) -> bool:
    """Whether rows go into a table as they are: no column is computed, no condition on rows is to be checked."""
    if any(name.startswith("delta.constraints.") for name in table.metadata().configuration):
        return False
    return not any(sign in table.schema().to_json() for sign in ("delta.invariants", "delta.generationExpression"))


def writable(path: str, features: frozenset[str] = FEATURES) -> DeltaTable | None:
    """A table that delta-rs writes as Spark does, None for any other; `features` is what it may ask of its writers.

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
    asked = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    asked |= _BEFORE_NAMES.get(protocol.min_writer_version, set())
    if protocol.min_writer_version not in (1, 2, 3, 4, 7) or asked - features:
        return None
    return None if settings.get("delta.columnMapping.mode", "none") != "none" else table


def _read_only(path: str) -> DeltaTable | None:
    """A table on a local disk whose rows are those of its files, under the names of its columns; None for any other."""
    from deltalake import DeltaTable

    if "://" in path:
        return None
    try:
        table = DeltaTable(path)
        protocol, metadata = table.protocol(), table.metadata()
    except Exception:
        return None
    plain = set(protocol.reader_features or ()) <= FEATURES and protocol.min_reader_version in (1, 3)
    return table if plain and not metadata.partition_columns else None


def has_feed(table: DeltaTable) -> bool:
    """Whether every commit must record the rows that it changes."""
    return bool(table.metadata().configuration.get("delta.enableChangeDataFeed") == "true")


def committed(
    table: DeltaTable, write: Callable[[CommitProperties], None], application: str, version: int, metadata: str
) -> bool:
    """Make one commit with a mark, unless the number has one already or another commit came in between."""
    from deltalake import CommitProperties, Transaction

    made = table.transaction_version(application)
    if made is not None and made >= version:
        return False  # Spark skips it, too, and whoever asked for it finds out
    properties = CommitProperties(
        custom_metadata={"userMetadata": metadata},
        app_transactions=[Transaction(application, version)],
        max_commit_retries=0,
    )
    try:
        write(properties)
    except Exception:  # refused, or not for delta-rs
        return False
    return True


def _is_sound(rows: pa.Table) -> bool:
    """Whether Spark may skip a file with the rows by the statistics that delta-rs writes for it.

    They do not know NaN, which Spark takes for the largest number, and round decimals.
    """
    import pyarrow as pa
    from pyarrow import compute

    for column in rows.columns:
        if pa.types.is_floating(column.type):
            if compute.any(compute.is_nan(column)).as_py():
                return False
        elif pa.types.is_decimal(column.type):
            extremes = compute.min_max(column).as_py().values() if column.type.precision > EXACT_DIGITS else ()
            if not all(value is None or _is_short(value) for value in extremes):
                return False
        elif has_floats_inside(column.type) or _has_long_decimals(column.type):
            return False
    return True


def _is_short(value: Decimal) -> bool:
    return len(value.as_tuple().digits) <= EXACT_DIGITS


def _has_long_decimals(type_: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_nested(type_):
        return any(_has_long_decimals(type_.field(i).type) for i in range(type_.num_fields))
    return bool(pa.types.is_decimal(type_) and type_.precision > EXACT_DIGITS)
