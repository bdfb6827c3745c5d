"""Settings for the size of the work. Spark's own are for large data; a change of a few rows would wait for them.

They are settings of an operation's session, so they hold on every kind of Spark, local, cluster and Connect, and reach
nobody else.
"""

from __future__ import annotations

from deferred.spark.temporaries import UNKNOWN

SMALL_CHANGE = {
    # Adaptive execution makes each shuffle a job of its own, and learns nothing from a few rows.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    # Spark's 10 turns a longer list of keys into one range, which leaves out nothing.
    "spark.sql.parquet.pushdown.inFilterThreshold": "1000",
}
"""For few changed rows in tables of any size: what is shuffled is what they touch."""

SMALL_CHANGE_ROWS = 100_000
"""A change of up to this many rows is small."""

SMALL_TABLES = {
    # Compiling a plan to Java takes longer than interpreting it for a few thousand rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""For tables that are small themselves."""

SMALL_TABLE_ROWS = 100_000
"""Tables with fewer rows in all are small."""


def settings_for(changed_rows: int | None, table_rows: int | None) -> dict[str, str]:
    """The settings for a change of so many rows in tables of so many; None where the number is not known.

    >>> settings_for(1, None) == SMALL_CHANGE
    True
    >>> settings_for(None, None)
    {}
    """
    settings: dict[str, str] = {}
    if (UNKNOWN if changed_rows is None else changed_rows) <= SMALL_CHANGE_ROWS:
        settings |= SMALL_CHANGE
        if (UNKNOWN if table_rows is None else table_rows) <= SMALL_TABLE_ROWS:
            settings |= SMALL_TABLES
    return settings
