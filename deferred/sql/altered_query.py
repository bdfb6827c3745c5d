"""A query and the one that takes its place: one text for both, in which it is marked what only one of them has.

Only what is surely right is found. `None` means that the new rows are computed in another way.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from sqlglot import exp

from deferred.algebra.aggregates.calls import is_aggregate
from deferred.algebra.bags import alias
from deferred.algebra.editing import edit
from deferred.algebra.operators.recursion import Recursion, Reference
from deferred.algebra.operators.scan import scans_of
from deferred.algebra.operators.temporary import Temporary
from deferred.algebra.plan import Plan, inputs_first, replaced
from deferred.algebra.scalar import all_true, conjuncts
from deferred.sql.dialect import parse_query, text, without_comments
from deferred.sql.render import ReadableLeaves, Renderer

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


_CONDITIONS = ("where", "having", "qualify")


def _both_selects(old: exp.Select, new: exp.Select) -> exp.Select | None:
    old, new = _on_as_where(old, new), _on_as_where(new, old)
    result = _part_by_part(old, new, *_CONDITIONS)
    if result is None:
        return None
    assert isinstance(result, exp.Select)
    for clause in _CONDITIONS:
        before, after = (conjuncts(q.args[clause].this) if q.args.get(clause) else [] for q in (old, new))
        both = _both_conditions(before, after)
        if both is None:
            return None
        for part in both:
            getattr(result, clause)(part, copy=False)
    return result


def _both_conditions(old: Sequence[exp.Expr], new: Sequence[exp.Expr]) -> list[exp.Expr] | None:
    """The conjuncts that both have, and a mark for the others; None where these may not be marked."""
    gone, come = _other(old, new), _other(new, old)
    shared = [part for part in new if part not in come]
    if any(part.find(exp.Query) for part in (*gone, *come)):  # only what is asked in subqueries may differ
        pairs = [_both(*pair) for pair in zip(gone, come, strict=False)]
        if len(gone) != len(come) or None in pairs:
            return None
        return shared + [part for part in pairs if part is not None]
    if not gone and not come:
        return shared
    if any(_links(part) for part in (*gone, *come)):
        return None
    return [*shared, edit(all_true(come), all_true(gone))]


def _on_as_where(query: exp.Select, other: exp.Select) -> exp.Select:
    """A query whose conditions of ON that another one lacks are in WHERE, which means the same of inner joins."""
    joins, others = query.args.get("joins") or [], other.args.get("joins") or []
    if len(joins) != len(others) or not all(map(_is_inner, (*joins, *others))):
        return query
    result = query.copy()
    for mine, theirs in zip(result.args.get("joins") or [], others, strict=True):
        parts, known = conjuncts(mine.args.get("on")), conjuncts(theirs.args.get("on"))
        moved = _other(parts, known)
        shared = [part for part in parts if part not in moved]
        if moved and shared and not any(part.find(exp.Query) for part in moved):
            mine.set("on", all_true(shared))
            result.where(*moved, copy=False)
    return result


def _is_inner(join: exp.Join) -> bool:
    plain = (exp.Table, exp.Subquery)
    named = {name for name, value in join.args.items() if value} <= {"this", "on", "kind"}
    return named and isinstance(join.this, plain) and (join.args.get("kind") or "INNER").upper() in ("INNER", "CROSS")


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


# ---- parts of queries


def _groups_by_names(group: exp.Group) -> bool:
    """Whether GROUP BY lists expressions only: no ordinals, no ALL, no ROLLUP."""
    others = [value for name, value in group.args.items() if name != "expressions" and value]
    return not others and not any(isinstance(key, exp.Literal) for key in group.expressions)


def _same(one: exp.Expr, other: exp.Expr) -> bool:
    """Whether two trees are written alike; sqlglot's own comparison ignores case in some of their parts."""
    return text(one) == text(other)


def _other(parts: Sequence[exp.Expr], than: Sequence[exp.Expr]) -> list[exp.Expr]:
    """The conjuncts that are not among others."""
    known = set(map(text, than))
    return [part for part in parts if text(part) not in known]


def _without(query: exp.Query, *clauses: str) -> exp.Query:
    copy = query.copy()
    for clause in clauses:
        copy.set(clause, None)
    return copy


# ---- the same plan


def normal_form(plan: Plan, types: Mapping[str, str]) -> str:
    """The plan of a query as SQL in which the ids of columns are numbered as they come, with their types.

    A recursion runs in rounds and is not in that SQL: its branches follow, in which its rows are those of a table.
    """
    ids = {c for node in plan.walk() for c in node.columns}
    recursions = [node for node in inputs_first(plan) if isinstance(node, Recursion)]
    parts = [plan, *(child for node in recursions for child in node.children)]
    written = "\n".join(Renderer(ReadableLeaves()).render(replaced(part, _without_rounds)) for part in parts)
    written += "".join(f"\n{'ALL' if node.every else 'DISTINCT'} {node.rounds}" for node in recursions)
    if any(name in ids for scan in scans_of(plan) for name in scan.names):
        return written
    numbers: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        name = found[1]
        if name not in ids:
            return found[0]
        return numbers.setdefault(name, f"#{len(numbers)} {types.get(name)}")

    return re.sub(r"`((?:[^`]|``)*)`", numbered, written)


def _without_rounds(node: Plan) -> Plan | None:
    """A recursion, and its own name in its branches, as the rows of a table."""
    if isinstance(node, Recursion):
        return Temporary(node.reference.name, node.columns)
    return Temporary(node.name, node.columns) if isinstance(node, Reference) else None
