"""What a view may not contain: refused with its name and what to write instead."""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from deferred.algebra.aggregates.calls import is_aggregate, name_of
from deferred.algebra.aggregates.refused import NO_RULE
from deferred.algebra.aggregates.registry import REGISTRY, AggregateFunction, RefusedAggregate, RowOrder
from deferred.errors import InvalidSQLError, NondeterministicSQLError, UnsupportedSQLError
from deferred.sql.clock import refuse_moments
from deferred.sql.dialect import text
from deferred.sql.functions import (
    EVENT_TIME,
    GENERATORS,
    NONDETERMINISTIC,
    NOW,
    WINDOW_ONLY,
    WITHOUT_PARENTHESES,
    collects_in_any_order,
    hides_order,
)
from deferred.sql.unsafe import refuse_outside


def refuse_what_varies(expression: exp.Expr) -> None:
    """Refuse what does not depend on the base tables alone: no log can say when its value changes.

    The whole text is looked through before anything else is refused: a view with a part that has no delta rule is
    recomputed by Spark from its own text, and must be as safe as any other.
    """
    refuse_outside(expression)
    refuse_moments(expression)
    for node in expression.walk():
        name = name_of(node)
        if name is None:
            continue
        if name in NOW or (name == "unix_timestamp" and isinstance(node, exp.Anonymous) and not node.expressions):
            raise NondeterministicSQLError(
                f"{text(node)} changes with the clock, and no change of a base table says when. Put the date into a "
                f"column or a small table that your job updates, or filter on it when you read the view.",
                at=node,
            )
        if name in NONDETERMINISTIC:
            raise NondeterministicSQLError(
                f"{text(node)} is not deterministic: a recomputation would give another result, so a view may not "
                f"contain it. Compute it when the base table is written, and select the stored column.",
                at=node,
            )


def refuse_words_that_vary(query: exp.Expr, known: Collection[str]) -> None:
    """Refuse a bare word, such as `user`, that Spark takes for a call because no column is called so."""
    for node in query.find_all(exp.Column):
        word = node.name.lower()
        if len(node.parts) == 1 and word in WITHOUT_PARENTHESES and word not in known:
            raise NondeterministicSQLError(
                f"{node.name} is not a column here, so it is a call whose value changes: a view may not contain it.",
                at=node,
            )


def refuse_arguments(node: exp.Expr, allowed: set[str]) -> None:
    """Refuse every clause that no rule exists for, rather than overlook it."""
    for name, value in node.args.items():
        if value and name not in allowed:
            first = value[0] if isinstance(value, list) else value
            what = text(first)[:80] if isinstance(first, exp.Expr) else str(first)
            place = first if isinstance(first, exp.Expr) else node
            if name == "sample":
                raise NondeterministicSQLError(
                    f"{what} takes other rows each time, so a recomputation may give "
                    f"another result. Filter on a hash of a column instead.",
                    at=place,
                )
            if name in ("version", "when"):
                raise InvalidSQLError(f"{what}: a view reads its tables as they are now. Remove the clause.", at=place)
            raise UnsupportedSQLError(f"{name.rstrip('_').upper()} is not supported in a view: {what}.", at=place)


def refuse_in_expression(node: exp.Expr, clause: str) -> None:
    """Refuse what no rule exists for in an expression, outside its subqueries."""
    stack = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, (exp.Query, exp.Subquery)):
            continue
        if isinstance(part, exp.Window) and clause not in ("SELECT", "QUALIFY"):
            raise InvalidSQLError(f"A window function is not allowed in {clause}: {text(part)[:80]}.", at=part)
        over = isinstance(part.parent, (exp.Window, exp.IgnoreNulls, exp.RespectNulls))
        if name_of(part) in WINDOW_ONLY and not over:
            raise UnsupportedSQLError(f"{text(part)[:80]} needs OVER (…).", at=part)
        if name_of(part) in EVENT_TIME:
            raise UnsupportedSQLError(
                f"{text(part)[:80]} is not supported in {clause} of a view. For windows of time write "
                f"GROUP BY window(t, '1 hour').",
                at=part,
            )
        if name_of(part) in GENERATORS:
            raise UnsupportedSQLError(
                f"A generator inside an expression is not supported in a view: {text(part)[:80]}.", at=part
            )
        if isinstance(part, (exp.Placeholder, exp.Parameter, exp.SessionParameter)):
            raise InvalidSQLError(
                f"A view has no parameters: {text(part)}. Write the value, or join with a table that holds it.", at=part
            )
        if not over:
            _refuse_aggregate(part)
            if clause not in ("SELECT", "HAVING", "QUALIFY") and is_aggregate(part):
                raise InvalidSQLError(f"{text(part)} is an aggregate and is not allowed in {clause}.", at=part)
        stack.extend(part.iter_expressions())


def _refuse_aggregate(node: exp.Expr) -> None:
    """Refuse an aggregate that has no rule, or whose value would show the order of the rows."""
    function = REGISTRY.get(name_of(node) or "")
    call = text(node)[:80]
    if collects_in_any_order(node):
        around = node.parent.parent if isinstance(node.parent, exp.Filter) else node.parent
        if around is None or not hides_order(around):
            raise NondeterministicSQLError(
                f"{call} keeps the rows in whatever order they come, so a "
                f"recomputation may give another result. Write sort_array({text(node)[:60]}).",
                at=node,
            )
    elif isinstance(function, AggregateFunction):
        if function.row_order is RowOrder.WITHIN_GROUP and not isinstance(node.parent, exp.WithinGroup):
            raise NondeterministicSQLError(
                f"{call} needs WITHIN GROUP (ORDER BY …): without it a recomputation may give another result.",
                at=node,
            )
    elif isinstance(function, RefusedAggregate):
        error = UnsupportedSQLError if function.deterministic else NondeterministicSQLError
        raise error(function.message.format(call=call), at=node)
    elif isinstance(node, exp.AggFunc):
        raise UnsupportedSQLError(NO_RULE.format(call=call), at=node)
