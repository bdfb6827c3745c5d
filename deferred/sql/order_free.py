"""Aggregate calls as functions of the bag of their arguments, independent of the order in which Spark reads the rows.

Two computations of one group must agree bit by bit, or a maintained view would keep rows that are never deleted.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from deferred.algebra.aggregates.calls import aggregate_of, is_aggregate
from deferred.algebra.aggregates.registry import Call, RowOrder
from deferred.algebra.scalar import Scalar, rewrite
from deferred.sql.templates import fill


def order_free(call: Scalar, type_of: Callable[[Scalar], str]) -> Scalar:
    """An aggregate call, with its FILTER and WITHIN GROUP, in its order-free form; many calls are already."""
    inner = call.this if isinstance(call, exp.Filter) else call
    if isinstance(inner, exp.WithinGroup):
        return _with_ties_broken(call, inner)
    function = aggregate_of(inner)
    if function is None or function.order_free is None or not isinstance(inner, exp.Anonymous):
        return call
    arguments = inner.expressions
    if not arguments or len(arguments) not in function.arity:
        return call
    distinct = isinstance(arguments[0], exp.Distinct)
    values = arguments[0].expressions[:1] if distinct else arguments
    template = function.order_free(Call(distinct, lambda position: type_of(values[position]).lower()))
    if template is None:
        return call
    form = fill(template, **dict(zip("xy", values, strict=False)))
    return form if inner is call else _with_filter(form, call.expression)


def _with_filter(expression: Scalar, where: Scalar) -> Scalar:
    """An expression of aggregates, each of them with a FILTER."""
    return rewrite(
        expression,
        lambda part: exp.Filter(this=part.copy(), expression=where.copy()) if is_aggregate(part) else None,
    )


def _with_ties_broken(call: Scalar, inner: exp.WithinGroup) -> Scalar:
    """LISTAGG … WITHIN GROUP (ORDER BY …) with its ties broken by the value itself; percentiles have no ties."""
    function = aggregate_of(inner.this)
    if function is None or function.row_order is not RowOrder.WITHIN_GROUP:
        return call
    result = call.copy()
    group = result.this if isinstance(result, exp.Filter) else result
    if not group.this.expressions:  # its values are those of the order itself
        return result
    order = group.expression
    value = group.this.expressions[0]
    if isinstance(value, exp.Distinct) or any(o.this == value for o in order.expressions):
        return result
    order.set("expressions", [*order.expressions, exp.Ordered(this=value.copy(), nulls_first=True)])
    return result
