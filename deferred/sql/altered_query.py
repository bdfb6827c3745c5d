"""A query and the one that takes its place, clause by clause: what of the new rows is in the old ones already.

Only what is surely right is found. `None` means that the new rows are computed from the beginning.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from sqlglot import exp

from deferred.algebra.aggregates.calls import is_aggregate, name_of
from deferred.algebra.bags import alias, column
from deferred.algebra.editing import edit
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


def compared(old: str, new: str, names: Sequence[str]) -> OfView | None:
    """How the rows of a new query follow from those of the old one alone, whose columns have these names.

    >>> compared("SELECT a, b FROM t", "SELECT a, b FROM t WHERE b = 1", ["a", "b"]).condition.sql()
    '"b" = 1'
    """
    return _of_view(parse_query(without_comments(old)), parse_query(without_comments(new)), names)


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


def _without(query: exp.Query, *clauses: str) -> exp.Query:
    copy = query.copy()
    for clause in clauses:
        copy.set(clause, None)
    return copy


def renamed(outputs: Sequence[exp.Expr], names: Sequence[str]) -> list[exp.Expr]:
    """Expressions under the names of the new columns."""
    return [alias(value.copy(), name) for value, name in zip(outputs, names, strict=True)]


# ---- one text for both queries


def marked(old: str, new: str) -> str | None:
    """The new query in which conditions of WHERE and branches of a union are marked that only one of the two has.

    Marks are read in the plan of that text (`algebra.editing`), which also tells whether it is that of both queries.
    None where the two differ in anything else, or not at all.

    >>> marked("SELECT COUNT(*) FROM t WHERE a > 3 AND b", "SELECT COUNT(*) FROM t WHERE a > 2 AND b")
    "SELECT COUNT(*) FROM t WHERE b AND CASE WHEN a > 2 THEN TRUE WHEN a > 3 THEN FALSE ELSE '_deferred_edit' END"
    """
    before, after = parse_query(without_comments(old)), parse_query(without_comments(new))
    found = None if _same(before, after) else _both(before, after)
    return None if found is None else text(found)


def _both(old: exp.Expr, new: exp.Expr) -> exp.Expr | None:
    """One tree for two that differ in conditions and branches."""
    if _same(old, new):
        return new.copy()
    if isinstance(old, (exp.Select, exp.Union)) and isinstance(new, (exp.Select, exp.Union)):
        if isinstance(old, exp.Union) or isinstance(new, exp.Union):
            return _both_unions(old, new)
        return _both_selects(old, new)
    return _part_by_part(old, new) if type(old) is type(new) else None


def _part_by_part(old: exp.Expr, new: exp.Expr, *but: str) -> exp.Expr | None:
    """A node with the same parts, of which those below may differ; without some parts."""
    result = type(new)()
    for name in dict.fromkeys([*new.args, *old.args]):
        if name in but:
            continue
        mine, theirs = ([*v] if isinstance(v := q.args.get(name), list) else [v] for q in (old, new))
        if len(mine) != len(theirs):
            return None
        parts: list[object] = []
        for one, other in zip(mine, theirs, strict=True):
            if isinstance(one, exp.Expr) and isinstance(other, exp.Expr):
                part = _both(one, other)
                if part is None:
                    return None
                parts.append(part)
            elif (one or None) != (other or None):
                return None
            else:
                parts.append(other)
        result.set(name, parts if isinstance(new.args.get(name), list) else parts[0])
    return result


def _both_selects(old: exp.Select, new: exp.Select) -> exp.Select | None:
    result = _part_by_part(old, new, "where")
    if result is None:
        return None
    assert isinstance(result, exp.Select)
    before, after = (conjuncts(q.args["where"].this) if q.args.get("where") else [] for q in (old, new))
    shared = [part for part in after if part not in _other(after, before)]
    gone, come = _other(before, after), _other(after, before)
    if any(part.find(exp.Query) for part in (*gone, *come)):  # only what is asked in subqueries may differ
        pairs = [_both(*pair) for pair in zip(gone, come, strict=False)]
        if len(gone) != len(come) or None in pairs:
            return None
        shared += [part for part in pairs if part is not None]
    elif gone or come:
        if any(_links(part) for part in (*gone, *come)):
            return None
        shared.append(edit(all_true(come), all_true(gone)))
    return result.where(*shared, copy=False) if shared else result


def _links(part: exp.Expr) -> bool:
    """Whether a condition may be what keeps a join from being a product."""
    return isinstance(part, exp.EQ) and all(isinstance(side, exp.Column) for side in (part.this, part.expression))


def _both_unions(old: exp.Query, new: exp.Query) -> exp.Query | None:
    """The branches of both in one order; those that only one has are marked."""
    kinds = {bool(query.args.get("distinct")) for query in (old, new) if isinstance(query, exp.Union)}
    clauses: dict[str, exp.Expr] = {}
    for name in ("with_", *_ARRANGING):
        mine, theirs = old.args.get(name), new.args.get(name)
        if mine is None and theirs is None:
            continue
        both = _both(mine, theirs) if mine is not None and theirs is not None else None
        if both is None:
            return None
        clauses[name] = both
    if len(kinds) > 1 or (clauses.keys() & set(_ARRANGING) and not isinstance(old, type(new))):
        return None
    distinct = kinds.pop()
    before, after = (_set_branches(_without(query, "with_", *_ARRANGING), distinct) for query in (old, new))
    branches = _merged(before, after)

    def union(one: exp.Query, other: exp.Query) -> exp.Query:
        return exp.Union(this=one, expression=other, distinct=distinct)

    result = functools.reduce(union, branches)
    for name, clause in clauses.items():
        result.set(name, clause)
    return result


_ARRANGING = ("order", "limit", "offset")


def _set_branches(query: exp.Query, distinct: bool) -> list[exp.Query]:
    """The branches of a union of one kind, however they are nested."""
    inner = query.unnest() if isinstance(query, exp.Subquery) and not query.alias else query
    if any(inner.args.get(name) for name in ("with_", *_ARRANGING)):
        return [query]
    if not isinstance(inner, exp.Union) or bool(inner.args.get("distinct")) != distinct:
        return [inner if isinstance(inner, exp.Select) else query]
    return [*_set_branches(inner.this, distinct), *_set_branches(inner.expression, distinct)]


def _merged(old: Sequence[exp.Query], new: Sequence[exp.Query]) -> list[exp.Query]:
    """The branches of two unions in an order that is that of both."""
    found: list[exp.Query] = []
    matcher = SequenceMatcher(None, [text(q) for q in old], [text(q) for q in new], autojunk=False)
    for _, i, j, k, m in matcher.get_opcodes():
        gone, come = old[i:j], new[k:m]
        pairs = [_both(*pair) for pair in zip(gone, come, strict=False)]
        if len(gone) == len(come) and all(isinstance(pair, exp.Query) for pair in pairs):
            found += [pair for pair in pairs if isinstance(pair, exp.Query)]
        else:
            found += [_only_in(query, False) for query in gone] + [_only_in(query, True) for query in come]
    names = [item.alias_or_name for item in new[0].selects]
    first = found[0]
    if isinstance(first, exp.Select) and len(first.expressions) == len(names) and all(names):
        first.set("expressions", [alias(i.unalias(), n) for i, n in zip(first.expressions, names, strict=True)])
    return found


def _only_in(branch: exp.Query, new: bool) -> exp.Query:
    """A branch that only one of the queries has."""
    mark = edit(_truth(new), _truth(not new))
    if isinstance(branch, exp.Select) and not any(branch.args.get(name) for name in _ARRANGING):
        aggregates = any(is_aggregate(node) for item in branch.expressions for node in item.walk())
        grouped = branch.args.get("group")
        if (_groups_by_names(grouped) and grouped.expressions) if grouped else not aggregates:
            return branch.where(mark)
    return exp.select("*").from_(branch.subquery("_deferred_branch")).where(mark)


def _truth(value: bool) -> exp.Boolean:
    return exp.true() if value else exp.false()


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
