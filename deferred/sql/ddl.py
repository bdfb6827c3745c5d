"""Statements about whole tables: their columns and properties. Types are written as Spark names them.

sqlglot has no tree for some commands of Spark: `command` is the one place where their text is put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from deferred.algebra.bags import alias, column, select
from deferred.algebra.types import Columns
from deferred.sql.dialect import cast, quoted, spark_type, text


def column_list(columns: Iterable[tuple[str, str]]) -> str:
    """Columns with their types, as Spark's readers take a schema.

    >>> column_list([("a b", "int"), ("c", "string")])
    '`a b` int, `c` string'
    """
    return ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns)


def create_table(
    table: exp.Table, columns: Columns, partitioned_by: Sequence[str] = (), properties: Mapping[str, str] | None = None
) -> exp.Create:
    """The statement that creates an empty Delta table.

    >>> text(create_table(exp.to_table("t"), [("a", "int"), ("b", "string")], ["b"], {"delta.appendOnly": "true"}))
    "CREATE TABLE t (`a` int, `b` string) USING DELTA PARTITIONED BY (`b`) TBLPROPERTIES ('delta.appendOnly'='true')"
    """
    listed = [exp.ColumnDef(this=_name(name), kind=spark_type(type_)) for name, type_ in columns]
    partitions = exp.PartitionedByProperty(this=exp.Schema(expressions=[_name(name) for name in partitioned_by]))
    return exp.Create(
        this=exp.Schema(this=table, expressions=listed),
        kind="TABLE",
        properties=_as_delta([*([partitions] if partitioned_by else []), *_properties(properties or {})]),
    )


def replace_table(table: exp.Table, columns: Columns, properties: Mapping[str, str] | None = None) -> exp.Create:
    """The statement that creates an empty Delta table in the place of whatever table there is.

    >>> text(replace_table(exp.to_table("t"), [("a", "int")]))
    'CREATE OR REPLACE TABLE t (`a` int) USING DELTA'
    """
    statement = create_table(table, columns, (), properties)
    statement.set("replace", True)
    return statement


def create_filled(
    table: exp.Table, columns: Columns, rows: exp.Query, properties: Mapping[str, str] | None = None
) -> exp.Create:
    """The statement that creates a Delta table with the rows of a query, which has these columns.

    Casts keep what the columns of other tables are annotated with out of this one.

    >>> text(create_filled(exp.to_table("t"), [("a", "int")], exp.select("a").from_("u")))
    'CREATE TABLE t USING DELTA AS SELECT CAST(`a` AS int) AS `a` FROM (SELECT a FROM u) AS q'
    """
    outputs = [alias(cast(column(name), type_), name) for name, type_ in columns]
    properties_ = _as_delta(_properties(properties or {}))
    return exp.Create(this=table, kind="TABLE", expression=select(outputs, rows), properties=properties_)


def set_properties(table: exp.Table, properties: Mapping[str, str]) -> exp.Alter:
    """The statement that sets properties of a table.

    >>> text(set_properties(exp.to_table("t"), {"delta.enableChangeDataFeed": "true"}))
    "ALTER TABLE t SET TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
    """
    action = exp.AlterSet(expressions=[exp.Properties(expressions=_properties(properties))])
    return exp.Alter(this=table, kind="TABLE", actions=[action])


def command(*words: str | exp.Expr) -> str:
    """A command of Spark for which there is no tree, from words and trees.

    >>> command("RESTORE TABLE", exp.to_table("t"), "TO VERSION AS OF 3")
    'RESTORE TABLE t TO VERSION AS OF 3'
    """
    return " ".join(word if isinstance(word, str) else text(word) for word in words)


def _name(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _as_delta(others: Sequence[exp.Expr]) -> exp.Properties:
    return exp.Properties(expressions=[exp.FileFormatProperty(this=exp.Var(this="delta")), *others])


def _properties(properties: Mapping[str, str]) -> list[exp.Expr]:
    return [
        exp.Property(this=exp.Literal.string(name), value=exp.Literal.string(value))
        for name, value in properties.items()
    ]
