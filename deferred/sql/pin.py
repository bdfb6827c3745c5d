"""A user's SQL text with its tables replaced by what is to be read instead; everything else stays verbatim."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from deferred.errors import InvalidSQLError
from deferred.sql.dialect import parse_statement, quoted, seen
from deferred.sql.outside import refuse_outside
from deferred.sql.tables import named_tables

Source = Callable[[tuple[str, ...]], str]
"""What to read for a dotted table name: a table with its version, or a query in parentheses."""


def pinned(sql: str, source: Source) -> str:
    """Returns the text with every table replaced, each under the name that the text uses for it.

    >>> pinned("SELECT t.a FROM t JOIN u AS x ON t.a = x.a", lambda path: "p." + path[0])
    'SELECT t.a FROM p.t AS `t` JOIN p.u AS x ON t.a = x.a'
    """
    sql = seen(sql)
    statement = parse_statement(sql, verbatim=True)
    refuse_outside(statement)
    edits: list[tuple[int, int, str]] = []
    target = _target(statement)
    for node in named_tables(statement):
        spans = [part.meta for part in node.parts]
        if any("start" not in span for span in spans):
            raise InvalidSQLError(f"Table {'.'.join(p.name for p in node.parts)} could not be found in the text.")
        start, end = min(s["start"] for s in spans), max(s["end"] for s in spans)
        path = tuple(part.name for part in node.parts)
        alias = (
            ""
            if node.args.get("alias") or (node is target and isinstance(statement, exp.Insert))
            else f" AS {quoted(path[-1])}"
        )
        edits.append((start, end + 1, source(path) + alias))
    for start, end, replacement in sorted(edits, reverse=True):
        sql = sql[:start] + replacement + sql[end:]
    return sql


def tables(sql: str) -> list[tuple[str, ...]]:
    """Returns the dotted names of the tables that a text reads, each once.

    >>> tables("WITH c AS (SELECT * FROM t) SELECT * FROM c JOIN s.u USING (a) JOIN t USING (a)")
    [('s', 'u'), ('t',)]
    """
    return sorted({tuple(part.name for part in node.parts) for node in named_tables(parse_statement(sql))})


def _target(statement: exp.Expr) -> exp.Expr | None:
    """Returns the table that a writing statement changes."""
    if isinstance(statement, (exp.Insert, exp.Update, exp.Delete, exp.Merge)):
        this = statement.this
        return this.this if isinstance(this, exp.Schema) else this
    return None
