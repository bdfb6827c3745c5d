"""A query and the one that takes its place, clause by clause: what of the new rows is in the old ones already.

Only what is surely right is found. `None` means that the new rows are computed from the beginning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from deferred.algebra.aggregates.calls import is_aggregate, name_of
from deferred.algebra.bags import alias, call, column
from deferred.algebra.operators.recursion import has_recursion
from deferred.algebra.operators.scan import scans_of
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import all_true, conjunction, conjuncts
from deferred.sql.dialect import parse_query, text, without_comments
from deferred.sql.functions import GENERATORS
from deferred.sql.render import ReadableLeaves, Renderer


@dataclass(frozen=True)
class OfView:
    """new = Π[outputs](σ[condition](old)): the new rows come from the old view alone."""

    outputs: tuple[exp.Expr, ...] | None
    """One expression for each new column, over the columns of the old view; None where they are the same."""
    condition: exp.Expr | None


@dataclass(frozen=True)
class Difference:
    """new = (old ∸ removed) ⊎ added, where each query reads only the rows by which the two differ."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


def compared(old: str, new: str, names: Sequence[str]) -> OfView | Difference | None:
    """How the rows of a new query follow from those of the old one, whose columns have these names.

    >>> compared("SELECT a, b FROM t", "SELECT a, b FROM t WHERE b = 1", ["a", "b"]).condition.sql()
    '"b" = 1'
    >>> compared("SELECT a FROM t WHERE a > 3", "SELECT a FROM t WHERE a > 2", ["a"])
    Difference(added=('SELECT a FROM t WHERE a > 2 AND (a <= 3 OR a IS NULL)',), removed=('SELECT a FROM t WHERE \
a > 3 AND (a <= 2 OR a IS NULL)',))
    """
    before, after = parse_query(without_comments(old)), parse_query(without_comments(new))
    return _of_view(before, after, names) or _difference(before, after)


# ---- from the view alone

_OTHERWISE = ("order", "limit", "offset", "qualify", "windows", "sort", "cluster", "distribute")
"""Clauses under which a condition or a column may not be changed: they look at several rows."""


def _of_view(old: exp.Query, new: exp.Query, names: Sequence[str]) -> OfView | None:
    """Π(σ(old)), where the queries differ by items of SELECT and by conditions that the new one adds."""
    if not (isinstance(old, exp.Select) and isinstance(new, exp.Select)) or len(old.expressions) != len(names):
        return None
    changing = ("expressions", "where", "having")
    if not _same(_without(old, *changing), _without(new, *changing)) or any(map(old.args.get, _OTHERWISE)):
        return None
    if not (_is_plain(old) and _is_plain(new)):
        return None
    columns = {text(item.unalias()): name for item, name in zip(old.expressions, names, strict=True)}
    added = _added_conditions(old, new, columns)
    if added is None:
        return None
    if [text(item) for item in old.expressions] == [text(item) for item in new.expressions]:
        return OfView(None, conjunction(added))
    grouped = old.args.get("group")
    if old.args.get("distinct") or (grouped and not _groups_by_names(grouped)):
        return None
    outputs = _complete(_over(item.unalias(), columns) for item in new.expressions)
    return None if outputs is None else OfView(tuple(outputs), conjunction(added))


def _added_conditions(old: exp.Select, new: exp.Select, columns: Mapping[str, str]) -> list[exp.Expr] | None:
    """The conditions of the new query alone, over the old rows; None where it lacks one, or they cannot be told so."""
    found: list[exp.Expr | None] = []
    for clause in ("where", "having"):
        before, after = (conjuncts(q.args[clause].this) if q.args.get(clause) else [] for q in (old, new))
        if _other(before, after):
            return None
        seen = columns if clause == "having" else _seen_by_where(old, new, columns)
        found += [None if seen is None else _over(part, seen) for part in _other(after, before)]
    return _complete(found)


def _seen_by_where(old: exp.Select, new: exp.Select, columns: Mapping[str, str]) -> Mapping[str, str] | None:
    """What a condition on the rows below may read: of groups their keys, as one on whole groups commutes with grouping.

    The one row of all groups together stays, whatever the condition.
    """
    grouped = old.args.get("group")
    listed = (*old.expressions, *new.expressions)
    if not grouped and not any(is_aggregate(node) for item in listed for node in item.walk()):
        return columns
    keys = set(map(text, grouped.expressions)) if grouped and _groups_by_names(grouped) else set()
    return {item: name for item, name in columns.items() if item in keys} if keys else None


def _complete(values: Iterable[exp.Expr | None]) -> list[exp.Expr] | None:
    """All values, None where one is missing."""
    listed = list(values)
    found = [value for value in listed if value is not None]
    return found if len(found) == len(listed) else None


def _groups_by_names(group: exp.Group) -> bool:
    """Whether GROUP BY lists expressions only: no ordinals, no ALL, no ROLLUP."""
    others = [value for name, value in group.args.items() if name != "expressions" and value]
    return not others and not any(isinstance(key, exp.Literal) for key in group.expressions)


def _is_plain(query: exp.Select) -> bool:
    """Whether every item of SELECT is a value of its own: no star, no window, no generator, no subquery."""
    return not any(
        isinstance(node, (exp.Window, exp.Query))
        or (isinstance(node, exp.Star) and (node.parent is None or name_of(node.parent) != "count"))
        or name_of(node) in GENERATORS
        for item in query.expressions
        for node in item.walk()
    )


def _same(one: exp.Expr, other: exp.Expr) -> bool:
    """Whether two trees are written alike; sqlglot's own comparison ignores case in some of their parts."""
    return text(one) == text(other)


def _other(parts: Sequence[exp.Expr], than: Sequence[exp.Expr]) -> list[exp.Expr]:
    """The conjuncts that are not among others."""
    known = set(map(text, than))
    return [part for part in parts if text(part) not in known]


def _over(expression: exp.Expr, items: Mapping[str, str]) -> exp.Expr | None:
    """An expression of a query's scope over the columns of its result, None where these do not say its value."""

    def visit(node: exp.Expr) -> exp.Expr:
        name = items.get(text(node)) if isinstance(node, exp.Condition) else None
        if name is None:
            return node
        shown = column(name)
        shown.meta["shown"] = True
        return shown

    result = expression.copy().transform(visit)
    for node in result.walk():
        if isinstance(node, exp.Query) or is_aggregate(node):
            return None
        if isinstance(node, exp.Column) and not node.meta.get("shown"):
            return None
    return result


# ---- the rows by which two queries differ


def _difference(old: exp.Query, new: exp.Query) -> Difference | None:
    clauses = [text(q.args["with_"]) if q.args.get("with_") else "" for q in (old, new)]
    if clauses[0] != clauses[1]:
        return None
    before, after = _branches(old), _branches(new)
    if before is None or after is None:
        return None
    texts = Counter(map(text, before))
    kept = texts & Counter(map(text, after))
    gone, come = _left(before, kept), _left(after, kept)
    if len(gone) == len(come) == 1:
        moved = _moved(gone[0], come[0])
        if moved is not None:
            added, removed = moved
            return Difference(_queries(added, new), _queries(removed, old))
    return Difference(_queries(come, new), _queries(gone, old)) if kept else None


def _branches(query: exp.Query) -> list[exp.Query] | None:
    """The queries of which a query is the UNION ALL, itself where it is none; None where their order matters."""
    if not isinstance(query, exp.Union) or query.args.get("distinct"):
        return [_without(query, "with_")]
    if any(query.args.get(clause) for clause in (*_OTHERWISE, "by_name")):
        return None
    found: list[exp.Query] = []
    for side in (query.this, query.expression):
        inner = side.unnest() if isinstance(side, exp.Subquery) and not side.alias else side
        listed = _branches(inner) if isinstance(inner, exp.Query) and not inner.args.get("with_") else None
        if listed is None:
            return None
        found += listed
    return found


def _left(branches: Sequence[exp.Query], kept: Counter[str]) -> list[exp.Query]:
    """The branches without those that are kept."""
    rest, left = Counter(kept), []
    for branch in branches:
        if rest[text(branch)]:
            rest[text(branch)] -= 1
        else:
            left.append(branch)
    return left


def _moved(old: exp.Query, new: exp.Query) -> tuple[list[exp.Query], list[exp.Query]] | None:
    """What another condition adds and removes: σ[n ∧ ¬o](E) and σ[o ∧ ¬n](E), where *not* means false or unknown."""
    if not (isinstance(old, exp.Select) and isinstance(new, exp.Select)) or not _is_plain(new):
        return None
    if not _same(_without(old, "where"), _without(new, "where")):
        return None
    if any(new.args.get(clause) for clause in (*_OTHERWISE, "group", "having", "distinct")):
        return None
    if any(is_aggregate(node) for item in new.expressions for node in item.walk()):
        return None
    return _only(new, old), _only(old, new)


def _only(query: exp.Select, other: exp.Select) -> list[exp.Query]:
    """The query for the rows that the other condition leaves out."""
    where = other.args.get("where")
    if where is None:
        return []
    mine = query.args.get("where")
    shared = conjuncts(mine.this) if mine is not None else []
    rest = _other(conjuncts(where.this), shared)
    if not rest:
        return []
    left_out = exp.or_(*map(_not_true, rest), copy=False)
    found = _without(query, "where")
    assert isinstance(found, exp.Select)
    some = exp.Paren(this=left_out) if isinstance(left_out, exp.Or) else left_out
    return [found.where(all_true([*shared, some]), copy=False)]


_INVERSE: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
}


def _not_true(part: exp.Expr) -> exp.Expr:
    """The condition that another one is false or unknown; of a column and a literal so that files can be skipped.

    >>> _not_true(parse_query("SELECT 1 WHERE a > 3").args["where"].this).sql()
    'a <= 3 OR a IS NULL'
    """
    inverse = _INVERSE.get(type(part))
    if inverse is not None and isinstance(part.this, exp.Column) and isinstance(part.expression, exp.Literal):
        other = inverse(this=part.this.copy(), expression=part.expression.copy())
        return exp.or_(other, exp.Is(this=part.this.copy(), expression=exp.Null()), copy=False)
    return exp.Not(this=call("COALESCE", part.copy(), exp.false()))


def _queries(branches: Sequence[exp.Query], whole: exp.Query) -> tuple[str, ...]:
    """Branches as queries of their own, with the common table expressions of the whole."""
    clause = whole.args.get("with_")
    for branch in branches:
        if clause is not None:
            branch.set("with_", clause.copy())
    return tuple(map(text, branches))


def _without(query: exp.Query, *clauses: str) -> exp.Query:
    copy = query.copy()
    for clause in clauses:
        copy.set(clause, None)
    return copy


def renamed(outputs: Sequence[exp.Expr], names: Sequence[str]) -> list[exp.Expr]:
    """Expressions under the names of the new columns."""
    return [alias(value.copy(), name) for value, name in zip(outputs, names, strict=True)]


# ---- the same plan


def normal_form(sql: str, plan: Plan, types: Mapping[str, str]) -> str:
    """The plan of a query as SQL in which the ids of columns are numbered as they come, with their types.

    A recursion runs in rounds and is not in that SQL: there it is the query itself, without its comments.
    """
    if has_recursion(plan):
        return text(parse_query(without_comments(sql)))
    ids = {c for node in plan.walk() for c in node.columns}
    written = Renderer(ReadableLeaves()).render(plan)
    if any(name in ids for scan in scans_of(plan) for name in scan.names):
        return written
    numbers: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        name = found[1]
        if name not in ids:
            return found[0]
        return numbers.setdefault(name, f"#{len(numbers)} {types.get(name)}")

    return re.sub(r"`((?:[^`]|``)*)`", numbered, written)
