"""What is known of functions: which aggregate, which are not functions of their arguments alone."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.spark import Spark

AGGREGATES = frozenset({
    "count", "sum", "avg", "mean", "min", "max", "count_if", "bool_and", "bool_or", "every", "some", "any",
    "bit_and", "bit_or", "bit_xor", "min_by", "max_by", "stddev", "std", "stddev_samp", "stddev_pop", "variance",
    "var_samp", "var_pop", "covar_samp", "covar_pop", "corr", "median", "percentile", "percentile_cont",
    "percentile_disc", "percentile_approx", "approx_percentile", "approx_count_distinct", "listagg", "string_agg",
    "try_sum", "try_avg",
})
"""Aggregates whose value is, or is made here, a function of the bag of their arguments: any order gives the same."""

COLLECTING = frozenset({"collect_list", "collect_set", "array_agg"})
"""Aggregates that keep the rows in whatever order they come; taken only where the order cannot be seen."""

ORDERLESS = frozenset({"sort_array", "array_sort", "size", "cardinality", "array_size", "array_max", "array_min"})
"""Functions of an array to which the order of its elements makes no difference."""

ORDERED = frozenset({"first", "first_value", "last", "last_value", "any_value", "mode"})
"""Aggregates whose value depends on the order in which the rows happen to come."""

REFUSED_AGGREGATES = frozenset({
    "kurtosis", "skewness", "count_min_sketch",
    "histogram_numeric", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope",
    "regr_sxx", "regr_sxy", "regr_syy", "bitmap_construct_agg", "bitmap_or_agg", "hll_sketch_agg", "hll_union_agg",
    "product", "approx_top_k",
}) | COLLECTING | ORDERED

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


_KNOWN = frozenset(name.lower() for name in (*Spark.Parser.FUNCTIONS, *Spark.Parser.FUNCTION_PARSERS))


def is_built_in(call: exp.Expr) -> bool:
    """Whether a call's name is one that SQL has a function for, not one of the user's own.

    >>> from deferred.sql.dialect import parse_scalar
    >>> is_built_in(parse_scalar("upper(a)")), is_built_in(parse_scalar("my_tax(a)"))
    (True, False)
    """
    name = name_of(call)
    return name in _KNOWN or name in WINDOW_ONLY or name in GENERATORS or is_aggregate(call)


def is_aggregate(node: exp.Expr) -> bool:
    name = name_of(node)
    return name in AGGREGATES or name in REFUSED_AGGREGATES or isinstance(node, exp.AggFunc)


def ordered_away(node: exp.Expr) -> bool:
    """Whether a call hides the order of what a collecting aggregate below it has collected.

    >>> from deferred.sql.dialect import parse_scalar
    >>> ordered_away(parse_scalar("sort_array(collect_list(a))")), ordered_away(parse_scalar("sort_array(a)"))
    (True, False)
    """
    if name_of(node) not in ORDERLESS or not node.expressions or len(node.expressions) > 2:
        return False
    inner = node.expressions[0]
    inner = inner.this if isinstance(inner, exp.Filter) else inner
    flag = node.expressions[1:]
    return name_of(inner) in COLLECTING and all(isinstance(f, exp.Boolean) for f in flag)
