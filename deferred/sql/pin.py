"""A user's own SQL text with its tables exchanged for what is to be read in their place; all else stays verbatim."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from deferred.errors import InvalidSQLError
from deferred.sql.dialect import parse_statement, quoted

Source = Callable[[tuple[str, ...]], str]
"""What to read for a dotted table name: a table with its version, or a query in parentheses."""


def pinned(sql: str, source: Source) -> str:
    """The text with every table that is not a common table expression replaced, under the name it was used by.

    >>> pinned("SELECT t.a FROM t JOIN u AS x ON t.a = x.a", lambda path: "p." + path[0])
    'SELECT t.a FROM p.t AS `t` JOIN p.u AS x ON t.a = x.a'
    """
    statement = parse_statement(sql, verbatim=True)
    edits: list[tuple[int, int, str]] = []
    target = _target(statement)
    for node in statement.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier) or _is_cte(node):
            continue
        spans = [part.meta for part in node.parts]
        if any("start" not in span for span in spans):
            raise InvalidSQLError(f"Table {'.'.join(p.name for p in node.parts)} could not be found in the text.")
        start, end = min(s["start"] for s in spans), max(s["end"] for s in spans)
        path = tuple(part.name for part in node.parts)
        alias = "" if node.args.get("alias") or (node is target and isinstance(statement, exp.Insert)) \
            else f" AS {quoted(path[-1])}"
        edits.append((start, end + 1, source(path) + alias))
    for start, end, replacement in sorted(edits, reverse=True):
        sql = sql[:start] + replacement + sql[end:]
    return sql


def tables(sql: str) -> list[tuple[str, ...]]:
    """The dotted names of the tables that a text reads, each once.

    >>> tables("WITH c AS (SELECT * FROM t) SELECT * FROM c JOIN s.u USING (a) JOIN t USING (a)")
    [('s', 'u'), ('t',)]
    """
    found = {tuple(part.name for part in node.parts): None for node in parse_statement(sql).find_all(exp.Table)
             if isinstance(node.this, exp.Identifier) and not _is_cte(node)}
    return sorted(found)


def _target(statement: exp.Expr) -> exp.Expr | None:
    """The table that a writing statement changes."""
    if isinstance(statement, (exp.Insert, exp.Update, exp.Delete, exp.Merge)):
        this = statement.this
        return this.this if isinstance(this, exp.Schema) else this
    return None


def _is_cte(node: exp.Table) -> bool:
    """Whether a name is a common table expression that is in scope where it stands."""
    if len(node.parts) != 1:
        return False
    name = node.name.casefold()
    inside: exp.Expr | None = node
    while inside is not None:
        clause = inside.args.get("with_")
        if clause is not None:
            for cte in clause.expressions:
                if _contains(cte, node):
                    break  # a common table expression sees only those before it
                if cte.alias.casefold() == name:
                    return True
        inside = inside.parent
    return False


def _contains(outer: exp.Expr, inner: exp.Expr) -> bool:
    node: exp.Expr | None = inner
    while node is not None:
        if node is outer:
            return True
        node = node.parent
    return False
