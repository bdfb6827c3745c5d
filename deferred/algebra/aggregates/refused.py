"""Aggregates that a view may not contain."""

from __future__ import annotations

from deferred.algebra.aggregates.registry import RefusedAggregate, register

NO_RULE = "The aggregate {call} has no rule by which a view could maintain it."

register(
    RefusedAggregate(
        names=("first", "first_value", "last", "last_value", "any_value"),
        deterministic=False,
        message="{call} takes whichever row comes first or last, so a recomputation may give another. "
        "Use min_by or max_by with the column that orders the rows.",
    )
)
register(
    RefusedAggregate(
        names=(
            "histogram_numeric",
            "hll_sketch_agg",
            "hll_union_agg",
            "product",
            "approx_top_k",
            "approx_top_k_accumulate",
            "approx_top_k_combine",
            "vector_avg",
            "vector_sum",
            *(f"theta_{kind}_agg" for kind in ("sketch", "union", "intersection")),
            *(f"kll_{kind}_agg_{type_}" for kind in ("sketch", "merge") for type_ in ("bigint", "double", "float")),
            *(f"tuple_{k}_agg_{t}" for k in ("sketch", "union", "intersection") for t in ("double", "integer")),
        ),
        deterministic=False,
        message="{call} depends on the order in which Spark reads and merges the rows, so a recomputation may give "
        "another value. Use an aggregate of the bag of values, such as approx_count_distinct or percentile.",
    )
)
register(RefusedAggregate(names=("measure", "schema_of_variant_agg"), deterministic=True, message=NO_RULE))
