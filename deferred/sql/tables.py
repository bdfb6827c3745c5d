"""The tables that a statement names, without the common table expressions that it defines itself."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp


def named_tables(statement: exp.Expr) -> Iterator[exp.Table]:
    """Every place in a statement that names a table, in the order of the text."""
    for table in statement.find_all(exp.Table, bfs=False):
        if isinstance(table.this, exp.Identifier) and not is_cte(table):
            yield table


def is_cte(table: exp.Table) -> bool:
    """Whether a name means a common table expression where it is used.

    A WITH clause is seen by the query that it belongs to and by everything inside that query. Among the expressions of
    one clause, each sees those before it and, under WITH RECURSIVE, itself. A dotted name is always a table.

    >>> from deferred.sql.dialect import parse_query
    >>> def tables(sql):
    ...     return [table.sql() for table in named_tables(parse_query(sql))]
    >>> tables("WITH a AS (SELECT 1 AS x) SELECT * FROM a WHERE x IN (SELECT x FROM A) AND x IN (SELECT x FROM s.a)")
    ['s.a']

    Order and shadowing: inside its own definition, or in one before it, a name still means the table.

    >>> tables("WITH a AS (SELECT * FROM a) SELECT * FROM a")
    ['a']
    >>> tables("WITH b AS (SELECT * FROM a), a AS (SELECT * FROM b) SELECT * FROM a")
    ['a']
    >>> tables("WITH RECURSIVE b AS (SELECT * FROM a UNION ALL SELECT * FROM b), a AS (SELECT 1) SELECT * FROM a, b")
    ['a']

    Nesting: an inner WITH ends with its own query, and hides nothing that it does not define.

    >>> tables("SELECT * FROM (WITH a AS (SELECT 1 AS x) SELECT * FROM a) AS q UNION ALL SELECT * FROM a")
    ['a']
    >>> tables("WITH a AS (SELECT 1 AS x) SELECT * FROM (WITH b AS (SELECT * FROM a) SELECT * FROM a, b, c) AS q")
    ['c']
    """
    if len(table.parts) != 1:
        return False
    name = table.name.casefold()
    inside: set[int] = set()
    node: exp.Expr | None = table
    while node is not None:
        inside.add(id(node))
        clause = node.args.get("with_")
        recursive = clause is not None and clause.args.get("recursive")
        for cte in clause.expressions if clause is not None else ():
            within = id(cte) in inside
            if within and not recursive:
                break
            if cte.alias.casefold() == name:
                return True
            if within:
                break
        node = node.parent
    return False
