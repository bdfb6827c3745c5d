"""What a view may not contain, refused where it stands, with its name and what to write instead."""

from __future__ import annotations

from sqlglot import exp

from deferred.errors import InvalidSQLError, NondeterministicSQLError, UnsupportedSQLError
from deferred.sql.dialect import text
from deferred.sql.functions import (
    AGGREGATES,
    COLLECTING,
    GENERATORS,
    NONDETERMINISTIC,
    NOW,
    ORDERED,
    REFUSED_AGGREGATES,
    WINDOW_ONLY,
    is_aggregate,
    name_of,
    ordered_away,
)


def refuse_what_varies(expression: exp.Expr) -> None:
    """Refuse what does not depend on the base tables alone: no log can say when its value changes."""
    for node in expression.walk():
        name = name_of(node)
        if name is None:
            continue
        if name in NOW or (name == "unix_timestamp" and isinstance(node, exp.Anonymous) and not node.expressions):
            raise NondeterministicSQLError(
                f"{text(node)} changes with the clock, and no change of a base table says when. Put the date into a "
                f"column or a small table that your job updates, or filter on it when you read the view.")
        if name in NONDETERMINISTIC:
            raise NondeterministicSQLError(
                f"{text(node)} is not deterministic: a recomputation would give another result, so a view may not "
                f"contain it. Compute it when the base table is written, and select the stored column.")


def refuse_arguments(node: exp.Expr, allowed: set[str]) -> None:
    """Refuse every clause that no rule exists for, rather than overlook it."""
    for name, value in node.args.items():
        if value and name not in allowed:
            shown = value[0] if isinstance(value, list) else value
            what = text(shown)[:80] if isinstance(shown, exp.Expr) else str(shown)
            if name == "sample":
                raise NondeterministicSQLError(f"{what} takes other rows each time, so a recomputation may give "
                                               f"another result. Filter on a hash of a column instead.")
            if name in ("version", "when"):
                raise InvalidSQLError(f"{what}: a view reads its tables as they are now; leave that out.")
            raise UnsupportedSQLError(f"{name.rstrip('_').upper()} is not supported in a view: {what}")


def refuse_in_expression(node: exp.Expr, clause: str) -> None:
    """Refuse what no rule exists for in an expression, outside its subqueries."""
    stack = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, (exp.Query, exp.Subquery)):
            continue
        if isinstance(part, exp.Window) and clause not in ("SELECT", "QUALIFY"):
            raise InvalidSQLError(f"A window function may not stand in {clause}: {text(part)[:80]}")
        over = isinstance(part.parent, (exp.Window, exp.IgnoreNulls, exp.RespectNulls))
        if name_of(part) in WINDOW_ONLY and not over:
            raise UnsupportedSQLError(f"{text(part)[:80]} needs OVER (…).")
        if name_of(part) in GENERATORS:
            raise UnsupportedSQLError(f"A generator inside an expression is not supported: {text(part)[:80]}")
        if isinstance(part, exp.QueryTransform):
            raise NondeterministicSQLError(f"SELECT TRANSFORM … USING runs a script, which may give another result "
                                           f"each time, so a view may not contain it: {text(part)[:80]}")
        if isinstance(part, (exp.Placeholder, exp.Parameter, exp.SessionParameter)):
            raise InvalidSQLError(f"A view has no parameters: {text(part)}. Write the value, or join with a table that "
                                  f"holds it.")
        if not over:
            _refuse_unknown_aggregate(part)
            if clause not in ("SELECT", "HAVING", "QUALIFY") and is_aggregate(part):
                raise InvalidSQLError(f"{text(part)} is an aggregate and may not stand in {clause}.")
        stack.extend(part.iter_expressions())


def _refuse_unknown_aggregate(node: exp.Expr) -> None:
    name = name_of(node)
    if name in COLLECTING:
        around = node.parent.parent if isinstance(node.parent, exp.Filter) else node.parent
        if around is None or not ordered_away(around):
            raise NondeterministicSQLError(f"{text(node)[:80]} keeps the rows in whatever order they come, so a "
                                      f"recomputation may give another result. Write sort_array({text(node)[:60]}).")
        return
    if name in ("listagg", "string_agg") and not isinstance(node.parent, exp.WithinGroup):
        raise NondeterministicSQLError(f"{text(node)[:80]} needs WITHIN GROUP (ORDER BY …): without it a recomputation "
                                       f"may give another result.")
    if name in ORDERED:
        raise NondeterministicSQLError(f"{text(node)[:80]} takes whichever row comes first or last, so a recomputation "
                                       f"may give another. Use min_by or max_by with the column that orders the rows.")
    if name in REFUSED_AGGREGATES or (isinstance(node, exp.AggFunc) and name not in AGGREGATES):
        raise UnsupportedSQLError(f"The aggregate {text(node)[:80]} has no rule by which a view could maintain "
                                  f"it.")
