"""The SQL dialect of views: Spark's, parsed so that what is written out again means the same to Spark."""

from __future__ import annotations

import re
from typing import ClassVar

from sqlglot import exp, parse
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from deferred.algebra.delta import coarse
from deferred.errors import InvalidSQLError


class ViewSQL(Spark):
    """Spark SQL in which every ordinary function call stays a name with arguments.

    sqlglot knows many functions and translates them between dialects; here both sides are Spark, so a call that is
    kept verbatim cannot change its meaning on the way.
    """

    NORMALIZE_FUNCTIONS: bool | str = False  # a function keeps the name that its user wrote

    class Parser(Spark.Parser):  # type: ignore[valid-type,misc]
        FUNCTIONS: ClassVar[dict[str, object]] = {}
        # Only calls with a syntax of their own are parsed as more than a name with arguments.
        FUNCTION_PARSERS: ClassVar[dict[str, object]] = {
            name: parser for name, parser in Spark.Parser.FUNCTION_PARSERS.items()
            if name in {"CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "TRIM", "SUBSTRING", "SUBSTR"}
            or "JOIN" in name or "BROADCAST" in name}


UNITS = frozenset({"timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff"})
"""Functions whose first of three arguments is a word for a unit of time, not a column."""

_PIECES = re.compile(
    r"""--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*`|[rR]'[^']*'|[rR]"[^"]*"|"""
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""", re.DOTALL)


def quotes_escaped(sql: str) -> str:
    r"""The text with a quote that is doubled inside a string written with a backslash, which means the same to Spark.

    >>> quotes_escaped("SELECT 'it''s', `a''b`, 'x' -- it''s")
    "SELECT 'it\\'s', `a''b`, 'x' -- it''s"
    """

    def piece(found: re.Match[str]) -> str:
        text_ = found.group()
        quote = text_[0]
        if quote not in "'\"":
            return text_
        return quote + text_[1:-1].replace(quote * 2, "\\" + quote) + quote

    return _PIECES.sub(piece, sql) if "''" in sql or '""' in sql else sql


def parse_statement(sql: str, verbatim: bool = False) -> exp.Expr:
    """The one statement in a text; the error says where the text stops making sense.

    `verbatim` keeps the positions of the text exact, at the price of string literals, which may come in pieces.
    """
    if not isinstance(sql, str):
        raise InvalidSQLError(f"SQL text is expected, not {type(sql).__name__}.")
    try:
        statements = [s for s in parse(sql if verbatim else quotes_escaped(sql), dialect=ViewSQL) if s is not None]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        where = f" at line {first['line']}, column {first['col']}" if first.get("line") else ""
        near = f", near {first['highlight']!r}" if first.get("highlight") else ""
        what = str(first.get("description") or error).rstrip(". ")
        raise InvalidSQLError(f"The SQL does not parse{where}{near}: {what}.") from None
    except TokenError as error:
        raise InvalidSQLError(f"The SQL does not parse: {str(error).splitlines()[0].rstrip('. ')}.") from None
    except RecursionError:
        raise InvalidSQLError("The SQL is nested too deeply to be parsed; split it with WITH.") from None
    if len(statements) != 1:
        raise InvalidSQLError(f"Exactly one SQL statement is expected, {len(statements)} were given.")
    return _with_subqueries(_with_units(statements[0]))


def _with_units(statement: exp.Expr) -> exp.Expr:
    """Words for units of time are no columns."""
    for call in statement.find_all(exp.Anonymous):
        first = call.expressions[0] if len(call.expressions) == 3 else None
        if str(call.this).lower() in UNITS and isinstance(first, exp.Column) and len(first.parts) == 1:
            first.replace(exp.Var(this=first.name))
    return statement


PREDICATES: dict[str, type[exp.Expr]] = {"exists": exp.Exists, "any": exp.Any, "some": exp.Any, "all": exp.All}


def _with_subqueries(statement: exp.Expr) -> exp.Expr:
    """EXISTS ((…) UNION (…)), ANY and ALL of such, IN (VALUES …): predicates over queries, not calls with arguments."""
    for call in list(statement.find_all(exp.Anonymous)):
        predicate = PREDICATES.get(str(call.this).lower())
        if predicate is not None and len(call.expressions) == 1 and isinstance(call.expressions[0], exp.Query):
            call.replace(predicate(this=call.expressions[0].unnest()))
    for member in statement.find_all(exp.In):
        if len(member.expressions) == 1 and isinstance(member.expressions[0], exp.Values):
            member.set("query", exp.Subquery(this=member.expressions[0]))
            member.set("expressions", None)
    return statement


def parse_query(sql: str) -> exp.Query:
    """The query of a view."""
    statement = parse_statement(sql)
    while isinstance(statement, (exp.Paren, exp.Subquery)) and not any(
            value for name, value in statement.args.items() if name != "this"):
        statement = statement.this
    if not isinstance(statement, exp.Query):
        raise InvalidSQLError(f"A view is defined by a query (SELECT …); this is {statement.key.upper()}.")
    return statement


def parse_scalar(text: str) -> exp.Expr:
    """One scalar expression, such as a condition of DELETE; nothing may follow it.

    >>> parse_scalar("a + 1").sql(dialect=ViewSQL)
    'a + 1'
    """
    statement = parse_statement(f"SELECT {text}")
    arguments = {name for name, value in statement.args.items() if value} - {"expressions", "kind"}
    if not isinstance(statement, exp.Select) or len(statement.expressions) != 1 or arguments:
        raise InvalidSQLError(f"One SQL expression is expected; this is more than one: {text}")
    expression = statement.expressions[0]
    if isinstance(expression, (exp.Alias, exp.Star)):
        raise InvalidSQLError(f"A plain SQL expression is expected, without alias or star: {text}")
    return expression


def text(expression: exp.Expr) -> str:
    """An expression as Spark SQL."""
    return expression.sql(dialect=ViewSQL)


def quoted(name: str) -> str:
    """An identifier, quoted whatever it contains.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def told_apart(name: str, type_: str) -> list[str]:
    """What to group by so that different values of a column stay apart, and each keeps the form it has.

    >>> told_apart("`x`", "int"), told_apart("`x`", "double")
    (['`x`'], ['`x`', 'CAST(`x` AS STRING)'])
    """
    if not coarse(type_):
        return [name]
    text_ = f"CAST({name} AS STRING)"
    # Spark sorts the entries of what it groups by.
    if type_.lower().startswith("map<"):
        return [f"MAP_ENTRIES({name})", text_]
    return [text_] if "map<" in type_.lower() else [name, text_]


def literal(value: str) -> str:
    r"""A string literal for Spark, whatever it contains.

    >>> literal("it's \\ here")
    "'it\\'s \\\\ here'"
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
