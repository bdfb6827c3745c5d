"""A user's SQL text with its tables replaced by what is to be read instead; everything else stays verbatim."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from deferred.algebra.comparisons import compares_with_literals
from deferred.algebra.scalar import conjunction, conjuncts
from deferred.errors import InvalidSQLError
from deferred.sql.dialect import parse_statement, quoted, text, without_comments
from deferred.sql.tables import named_tables
from deferred.sql.unsafe import refuse_outside

Source = Callable[[tuple[str, ...]], str | None]
"""What to read for a dotted table name: a table with its version, or a query in parentheses; None leaves the name."""


def pinned(sql: str, source: Source) -> str:
    """Returns the text with every table replaced, each under the name that the text uses for it.

    >>> pinned("SELECT t.a FROM t JOIN u AS x ON t.a = x.a", lambda path: "p." + path[0])
    'SELECT t.a FROM p.t AS `t` JOIN p.u AS x ON t.a = x.a'
    """
    sql = without_comments(sql)
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
        replacement = source(path)
        if replacement is None:
            continue
        is_filled = node is target and isinstance(statement, exp.Insert)
        edits.append((start, end + 1, replacement if is_filled else _named(node, replacement, path[-1])))
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


@dataclass(frozen=True)
class FreshView:
    """A view that a query reads as fresh(view), and what the query asks of its rows, None where that is not known."""

    name: str
    where: str | None


def with_fresh_views(sql: str) -> tuple[str, dict[str, FreshView]]:
    """Returns a query with a name of its own in the place of each fresh(view), and the views by these names.

    >>> text, views = with_fresh_views("SELECT a FROM fresh(v) WHERE v.a = 7 AND a IN (SELECT b FROM t)")
    >>> (name,) = views
    >>> text.replace(name, "V"), views[name]
    ('SELECT a FROM V AS `v` WHERE v.a = 7 AND a IN (SELECT b FROM t)', FreshView(name='v', where='a = 7'))
    """
    sql = without_comments(sql)
    statement = parse_statement(sql, verbatim=True)
    edits: list[tuple[int, int, str]] = []
    views: dict[str, FreshView] = {}
    for node in statement.find_all(exp.Table):
        call = node.this
        if not isinstance(call, exp.Anonymous) or call.name.lower() != "fresh":
            continue
        view = call.expressions[0] if len(call.expressions) == 1 else None
        if not isinstance(view, exp.Column) or len(view.parts) != 1:
            raise InvalidSQLError("fresh(…) takes the name of one view: FROM fresh(high_value_sales).", at=node)
        name = f"deferred_fresh_{uuid.uuid4().hex}"
        views[name] = FreshView(view.name, _asked(statement, node, view.name))
        end = sql.index(")", view.this.meta["end"] + 1)
        edits.append((call.meta["start"], end + 1, _named(node, name, view.name)))
    for start, end, replacement in sorted(edits, reverse=True):
        sql = sql[:start] + replacement + sql[end:]
    return sql, views


def _asked(statement: exp.Expr, table: exp.Table, view: str) -> str | None:
    """What WHERE asks of the view's own columns, where the view is the only table of a query.

    The query asks all of it again, so only comparisons with literals are taken: what depends on chance would be asked
    twice. Nothing is known of the view's columns where the query gives them other names, and a sample has to be taken
    of all rows.
    """
    where = statement.args.get("where")
    sources = ("joins", "laterals", "pivots")
    if not isinstance(statement, exp.Select) or where is None or any(statement.args.get(s) for s in sources):
        return None
    if statement.args["from_"].this is not table or any(table.args.get(s) for s in (*sources, "sample")):
        return None
    if table.alias_column_names:
        return None
    parts = []
    for part in conjuncts(where.this):
        own = part.copy()
        read = list(own.find_all(exp.Column))
        if compares_with_literals(own) and all(len(c.parts) == 1 or _is_of(c, table.alias or view) for c in read):
            for c in read:
                c.set("table", None)
            parts.append(own)
    whole = conjunction(parts)
    return None if whole is None else text(whole)


def _is_of(column: exp.Column, table: str) -> bool:
    """Whether a column is named with a table, and with nothing else."""
    return len(column.parts) == 2 and column.table == table


def _named(table: exp.Table, what: str, name: str) -> str:
    """What is read in the place of a table, under the table's name; Spark has that behind a sample."""
    if table.alias:
        return what
    aliased = f"{what} AS {quoted(name)}"
    return f"({aliased})" if table.args.get("sample") else aliased
