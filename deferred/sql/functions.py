"""What is known of functions: which aggregate, which are not functions of their arguments alone."""

from __future__ import annotations

from sqlglot import exp

from deferred.errors import UnsupportedSQLError
from deferred.sql.dialect import text

AGGREGATES = frozenset({
    "count", "sum", "avg", "mean", "min", "max", "count_if", "bool_and", "bool_or", "every", "some", "any",
    "bit_and", "bit_or", "bit_xor",
})
"""Aggregates whose value is a function of the bag of their arguments: any order of the rows gives the same."""

REFUSED_AGGREGATES = frozenset({
    "first", "first_value", "last", "last_value", "any_value", "collect_list", "array_agg", "collect_set", "listagg",
    "string_agg", "stddev", "std", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp", "covar_pop",
    "covar_samp", "corr", "kurtosis", "skewness", "median", "mode", "percentile", "percentile_approx",
    "approx_percentile", "percentile_cont", "percentile_disc", "approx_count_distinct", "max_by", "min_by",
    "count_min_sketch", "histogram_numeric", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2",
    "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "bitmap_construct_agg",
    "bitmap_or_agg", "hll_sketch_agg", "hll_union_agg", "try_sum", "try_avg", "product", "approx_top_k",
})

WINDOW_ONLY = frozenset({
    "row_number", "rank", "dense_rank", "percent_rank", "ntile", "cume_dist", "lag", "lead", "nth_value", "window",
    "session_window", "window_time",
})

GENERATORS = frozenset({
    "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
    "variant_explode", "variant_explode_outer",
})

NOW = frozenset({
    "current_date", "current_timestamp", "current_time", "now", "curdate", "localtimestamp", "current_timezone",
})
"""Functions of the clock: the same query gives another result tomorrow, without any change to log."""

NONDETERMINISTIC = frozenset({
    "rand", "random", "randn", "uuid", "shuffle", "monotonically_increasing_id", "spark_partition_id", "uniform",
    "randstr", "input_file_name", "input_file_block_start", "input_file_block_length", "current_user", "user",
    "session_user", "current_catalog", "current_database", "current_schema", "version", "reflect", "java_method",
    "try_reflect", "raise_error", "assert_true", "getvariable", "is_account_group_member", "is_member",
}) - {"raise_error", "assert_true"}


def name_of(node: exp.Expr) -> str | None:
    """The lower-case name of a function call, None for what is not one.

    >>> from deferred.sql.dialect import parse_scalar
    >>> name_of(parse_scalar("Rand(3)")), name_of(parse_scalar("current_date")), name_of(parse_scalar("a + 1"))
    ('rand', 'current_date', None)
    """
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if isinstance(node, exp.Func) and not isinstance(node, (exp.And, exp.Or, exp.Cast, exp.Case, exp.Connector)):
        return node.sql_name().lower()
    return None


def is_aggregate(node: exp.Expr) -> bool:
    name = name_of(node)
    return name in AGGREGATES or name in REFUSED_AGGREGATES or isinstance(node, exp.AggFunc)


def refuse_what_varies(expression: exp.Expr) -> None:
    """Refuse what does not depend on the base tables alone: no log can say when its value changes."""
    for node in expression.walk():
        name = name_of(node)
        if name is None:
            continue
        if name in NOW or (name == "unix_timestamp" and isinstance(node, exp.Anonymous) and not node.expressions):
            raise UnsupportedSQLError(
                f"{text(node)} changes with the clock, and no change of a base table says when. Put the date into a "
                f"column or a small table that your job updates, or filter on it when you read the view.")
        if name in NONDETERMINISTIC:
            raise UnsupportedSQLError(
                f"{text(node)} is not deterministic: a recomputation would give another result, so a view may not "
                f"contain it. Compute it when the base table is written, and select the stored column.")
