"""Functions by name: what a view may not call, and what is bound specially. Aggregates are in `algebra.aggregates`."""

from __future__ import annotations

from sqlglot import exp

from deferred.algebra.aggregates.calls import aggregate_of, is_aggregate, name_of
from deferred.algebra.aggregates.collecting import HIDE_ORDER
from deferred.algebra.aggregates.registry import REGISTRY as AGGREGATES
from deferred.algebra.aggregates.registry import RowOrder
from deferred.algebra.window_functions import REGISTRY as WINDOW_FUNCTIONS
from deferred.sql.builtins import BUILT_IN

WINDOW_ONLY = frozenset(WINDOW_FUNCTIONS) - frozenset(AGGREGATES)
"""Functions that need OVER (…)."""

EVENT_TIME = frozenset({"window", "session_window", "window_time"})
"""Functions of event time, which Spark turns into other operators: they drop and repeat rows."""

GENERATORS = frozenset(
    {
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "inline",
        "inline_outer",
        "stack",
        "json_tuple",
        "variant_explode",
        "variant_explode_outer",
    }
)

NOW = frozenset(
    {
        "current_date",
        "current_timestamp",
        "current_time",
        "now",
        "curdate",
        "localtimestamp",
        "current_timezone",
    }
)
"""Functions of the clock: the same query gives another result tomorrow, without any change of a table."""

WITHOUT_PARENTHESES = frozenset(
    {"current_date", "current_timestamp", "current_time", "localtimestamp", "current_user", "user", "session_user"}
)
"""Names that Spark takes for calls where no column is called so."""

NONDETERMINISTIC = frozenset(
    {
        "rand",
        "random",
        "randn",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "uniform",
        "randstr",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
        "current_user",
        "user",
        "session_user",
        "current_catalog",
        "current_database",
        "current_schema",
        "current_path",
        "current_metastore",
        "current_role",
        "current_server",
        "version",
        "getvariable",
        "is_account_group_member",
        "is_member",
        "aes_encrypt",
    }
)


_TAKES_PADDED = frozenset({"length", "char_length", "concat", "upper", "lower", "trim", "rtrim"})
"""Functions of a row that take the value of a CHAR column as it is stored."""


def takes_padded(call: exp.Expr) -> bool:
    """Whether a function takes the value of a CHAR column as it is stored, without its padding.

    >>> from deferred.sql.dialect import parse_scalar
    >>> [takes_padded(parse_scalar(sql)) for sql in ("count(c)", "length(c)", "substring(c, 1)")]
    [True, True, False]
    """
    function = aggregate_of(call)
    return name_of(call) in _TAKES_PADDED or (function is not None and function.takes_padded)


def is_built_in(call: exp.Expr) -> bool:
    """Whether a call is of one of SQL's functions, not of a user-defined one.

    >>> from deferred.sql.dialect import parse_scalar
    >>> is_built_in(parse_scalar("upper(a)")), is_built_in(parse_scalar("my_tax(a)"))
    (True, False)
    """
    name = name_of(call)
    return name in BUILT_IN or name in WINDOW_ONLY | EVENT_TIME or name in GENERATORS or is_aggregate(call)


def collects_in_any_order(node: exp.Expr) -> bool:
    """Whether a node calls an aggregate that keeps the rows in whatever order they come."""
    function = aggregate_of(node)
    return function is not None and function.row_order is RowOrder.HIDDEN_BY_CALLER


def hides_order(node: exp.Expr) -> bool:
    """Whether a call hides the order of what a collecting aggregate below it has collected.

    >>> from deferred.sql.dialect import parse_scalar
    >>> hides_order(parse_scalar("sort_array(collect_list(a))")), hides_order(parse_scalar("sort_array(a)"))
    (True, False)
    """
    if name_of(node) not in HIDE_ORDER or not node.expressions or len(node.expressions) > 2:
        return False
    inner = node.expressions[0]
    inner = inner.this if isinstance(inner, exp.Filter) else inner
    flag = node.expressions[1:]
    return collects_in_any_order(inner) and all(isinstance(f, exp.Boolean) for f in flag)
