"""What no SQL of a user may do, in a view, a transaction or a query: run code, or read anything but tracked tables.

The text of a view is not trusted: whoever may write a view file must not be able to read files, secrets or the network
with the rights of the process that maintains it.
"""

from __future__ import annotations

import re

from sqlglot import exp

from deferred.algebra.aggregates.calls import name_of
from deferred.errors import UnsafeSQLError
from deferred.sql.functions import GENERATORS

FORBIDDEN = {
    "calls Java code by name": ("reflect", "java_method", "try_reflect"),
    "names a table or function in a string, where it cannot be checked": ("identifier",),
    "reads a file": ("from_protobuf", "to_protobuf", "read_files", "cloud_files_state", "list_files"),
    "reads a secret": ("secret", "try_secret", "list_secrets"),
    "uses the network": (
        *("http_request", "remote_query", "vector_search", "ai_query", "ai_gen", "ai_classify", "ai_extract"),
        *("read_kafka", "read_kinesis", "read_pubsub", "read_pulsar"),
    ),
}
"""Functions of Spark and of its commercial relatives, by the reason why they are refused."""

OPTIONS = {
    **dict.fromkeys(("from_json", "from_csv", "from_xml", "from_avro"), 2),
    **dict.fromkeys(("to_json", "to_csv", "to_xml"), 1),
    **dict.fromkeys(("schema_of_json", "schema_of_csv", "schema_of_xml", "schema_of_avro"), 1),
}
"""Functions that take a map of options, and its place among their arguments."""

_HARMLESS = """
    allowbackslashescapinganycharacter allowcomments allownonnumericnumbers allownumericleadingzeros allowsinglequotes
    allowunquotedcontrolchars allowunquotedfieldnames arrayelementname attributeprefix charset
    chartoescapequoteescaping columnnameofcorruptrecord comment dateformat datetimerebasemode declaration delimiter
    dropfieldifallnull emptyvalue enabledatetimeparsingfallback encoding escape escapequotes excludeattribute header
    ignoreleadingwhitespace ignorenamespace ignorenullfields ignoresurroundingspaces ignoretrailingwhitespace
    inferschema linesep locale maxcharspercolumn maxcolumns mode multiline nanvalue negativeinf nullvalue
    positiveinf preferdate prefersdecimal pretty primitivesasstring quote quoteall recursivefieldmaxdepth roottag
    rowtag samplingratio sep singlevariantcolumn stableidentifierprefixforuniontype timeformat timestampformat
    timestampntzformat timezone unescapedquotehandling validatename valuetag wildcardcolname
    writenonasciicharacterascodepoint
    """
HARMLESS_OPTIONS = frozenset(_HARMLESS.split())
"""Options that say how a text is read or written, and name no file and no address."""

_REASONS = {name: reason for reason, names in FORBIDDEN.items() for name in names}

TABLE_FUNCTIONS = GENERATORS | {"range"}
"""Functions that are allowed in FROM: they make rows of their arguments alone."""

FORMATS = frozenset(
    {
        *("parquet", "delta", "csv", "json", "orc", "text", "avro", "binaryfile", "xml", "iceberg", "hudi"),
        *("jdbc", "image", "libsvm", "kafka", "socket", "rate"),
    }
)
"""Names that mean a format of files, not a schema, when a path follows them."""


def refuse_outside(statement: exp.Expr) -> None:
    """Refuse a statement that runs code, or reads anything but tables by their names.

    >>> from deferred.sql.dialect import parse_query
    >>> refuse_outside(parse_query("SELECT `Reflect`('java.lang.System', 'getenv') AS x"))
    Traceback (most recent call last):
    deferred.errors.UnsafeSQLError: reflect calls Java code by name, and is refused for safety. Remove it.
    >>> refuse_outside(parse_query("SELECT value FROM text.`/etc/passwd`"))
    Traceback (most recent call last):
    deferred.errors.UnsafeSQLError: text.`/etc/passwd` is a path, not a table. Track the table, and use its name.
    """
    for node in statement.walk():
        name = name_of(node)
        if name in _REASONS:
            raise UnsafeSQLError(f"{name} {_REASONS[name]}, and is refused for safety. Remove it.", at=node)
        if name in OPTIONS:
            _refuse_options(node, name)
        if isinstance(node, exp.QueryTransform):
            raise UnsafeSQLError(
                "SELECT TRANSFORM … USING runs a program, and is refused for safety. Remove it.", at=node
            )
        if isinstance(node, exp.Table):
            _refuse_path(node)
        if isinstance(node, (exp.Table, exp.Lateral)):
            _refuse_table_function(node.this)


def _refuse_options(call: exp.Expr, name: str) -> None:
    """Refuse an option that is not known to be harmless: some name a file, or an address, that Spark then reads."""
    for given in call.expressions[OPTIONS[name] :]:
        values = given.expressions if name_of(given) == "map" else []
        keys = values[::2]
        if not values or not all(isinstance(key, exp.Literal) and key.is_string for key in keys):
            raise UnsafeSQLError(
                f"The options of {name} must be written out, as in map('mode', 'FAILFAST'), to be checked.",
                at=given,
            )
        for key in keys:
            if key.this.casefold() not in HARMLESS_OPTIONS:
                raise UnsafeSQLError(
                    f"The option {key.this} of {name} may name a file or an address, and is refused for safety. Remove "
                    f"it.",
                    at=key,
                )


def _refuse_path(table: exp.Table) -> None:
    parts = [part.name for part in table.parts]
    if len(parts) > 1 and (parts[-2].casefold() in FORMATS or re.search(r"[/\\:]", parts[-1])):
        raise UnsafeSQLError(
            f"{'.'.join(parts[:-1])}.`{parts[-1]}` is a path, not a table. Track the table, and use its name.", at=table
        )


def _refuse_table_function(source: exp.Expr | str | None) -> None:
    if isinstance(source, (exp.Anonymous, exp.Func)) and name_of(source) not in TABLE_FUNCTIONS | _REASONS.keys():
        raise UnsafeSQLError(
            f"The table function {name_of(source)} may read anything, and is refused for safety. In FROM there may be "
            f"tables, queries, VALUES, RANGE and generators such as EXPLODE.",
            at=source,
        )
