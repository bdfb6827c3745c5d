"""The SQL dialect of views: Spark's, parsed so that what is written out again means the same to Spark."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from sqlglot import exp, parse
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from deferred.errors import InvalidSQLError, Place
from deferred.sql.unsafe import refuse_outside

TYPED = {
    TokenType.DATE: exp.DType.DATE,
    TokenType.TIME: exp.DType.TIME,
    TokenType.TIMESTAMPTZ: exp.DType.TIMESTAMPTZ,  # the word TIMESTAMP
    TokenType.TIMESTAMPLTZ: exp.DType.TIMESTAMPLTZ,
    TokenType.TIMESTAMPNTZ: exp.DType.TIMESTAMPNTZ,
}
"""Words before a text that make it a literal of their type."""

LOCAL = re.compile(r"\s*\d{4,6}(-\d{1,2}(-\d{1,2}([ T](\d{1,2}(:\d{1,2}(:\d{1,2}(\.\d*)?)?)?)?)?)?)?\s*")
"""A moment without a time zone."""


class ViewSQL(Spark):
    """Spark SQL in which every ordinary function call stays a name with arguments.

    sqlglot knows many functions and translates them between dialects; here both sides are Spark, so a call that is
    kept verbatim cannot change its meaning on the way.
    """

    NORMALIZE_FUNCTIONS: bool | str = False  # a function keeps its name as written

    class Parser(Spark.Parser):  # type: ignore[valid-type,misc]
        SUPPORTS_TABLE_QUERY: ClassVar[bool] = True  # TABLE t is SELECT * FROM t
        FUNCTIONS: ClassVar[dict[str, object]] = {}
        # Only calls with special syntax are parsed as more than a name with arguments.
        FUNCTION_PARSERS: ClassVar[dict[str, object]] = {
            name: parser
            for name, parser in Spark.Parser.FUNCTION_PARSERS.items()
            if name in {"CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "TRIM", "SUBSTRING", "SUBSTR"}
            or "JOIN" in name
            or "BROADCAST" in name
        }
        # Operators that Spark has, and no others: what is not here does not parse.
        TERM: ClassVar[dict[TokenType, type[exp.Expr]]] = {
            TokenType.DASH: exp.Sub,
            TokenType.PLUS: exp.Add,
            TokenType.DPIPE: exp.DPipe,
        }
        FACTOR: ClassVar[dict[TokenType, type[exp.Expr]]] = {
            kind: operator
            for kind, operator in Spark.Parser.FACTOR.items()
            if operator in {exp.Mul, exp.Div, exp.IntDiv, exp.Mod}
        }
        COLUMN_OPERATORS: ClassVar[dict[TokenType, object]] = {
            kind: parser for kind, parser in Spark.Parser.COLUMN_OPERATORS.items() if kind.name in {"DOT", "DCOLON"}
        }
        RANGE_PARSERS: ClassVar[dict[TokenType, object]] = {
            kind: parser
            for kind, parser in Spark.Parser.RANGE_PARSERS.items()
            if kind.name in {"BETWEEN", "ILIKE", "IN", "IS", "LIKE", "RLIKE"}
        }
        COMPARED: ClassVar[dict[TokenType, type[exp.Expr]]] = {**Spark.Parser.EQUALITY, **Spark.Parser.COMPARISON}
        BITWISE_LEVELS: ClassVar[tuple[dict[TokenType, type[exp.Expr]], ...]] = (
            {TokenType.PIPE: exp.BitwiseOr},
            {TokenType.CARET: exp.BitwiseXor},
            {TokenType.AMP: exp.BitwiseAnd},
        )

        def _parse_equality(self, parse_is: bool = True) -> exp.Expr | None:
            """Comparisons, then IS, IN, LIKE and BETWEEN, which bind less strongly than Spark's other predicates.

            After one of these no comparison may follow, nor after NOT and what it is about: as in Spark, such a text
            does not parse.
            """
            if self._match(TokenType.NOT):
                return self.expression(exp.Not(this=self._parse_equality()))
            this = self._parse_comparison()
            return self._parse_range(this, parse_is=True) if parse_is else this

        def _parse_comparison(self, this: exp.Expr | None = None) -> exp.Expr | None:
            """All comparisons are alike, and read from left to right; sqlglot takes < before =."""
            this = this or self._parse_bitwise()
            while self._match_set(self.COMPARED):
                operator = self.COMPARED[self._prev.token_type]
                this = self.expression(operator(this=this, expression=self._parse_bitwise()))
            return this

        def _parse_bitwise(self, level: int = 0) -> exp.Expr | None:
            """Operators on bits as strongly as Spark binds them; sqlglot reads all of them, and ||, left to right."""
            if level == len(self.BITWISE_LEVELS):
                return self._parse_shift()
            operators = self.BITWISE_LEVELS[level]
            this = self._parse_bitwise(level + 1)
            while self._match_set(operators):
                operator = operators[self._prev.token_type]
                this = self.expression(operator(this=this, expression=self._parse_bitwise(level + 1)))
            return this

        def _parse_shift(self) -> exp.Expr | None:
            this = self._parse_term()
            while True:
                if self._match_pair(TokenType.LT, TokenType.LT):
                    this = self.expression(exp.BitwiseLeftShift(this=this, expression=self._parse_term()))
                elif self._match_pair(TokenType.GT, TokenType.GT):
                    if self._match(TokenType.GT):  # >>>
                        operands = [this, self._parse_term()]
                        this = self.expression(exp.Anonymous(this="SHIFTRIGHTUNSIGNED", expressions=operands))
                    else:
                        this = self.expression(exp.BitwiseRightShift(this=this, expression=self._parse_term()))
                else:
                    return this

        def _parse_unary(self) -> exp.Expr | None:
            """The minus of a number is part of the number: -128Y fits its type, 128Y does not; -1::STRING is '-1'."""
            if self._curr.token_type != TokenType.DASH or self._next.token_type != TokenType.NUMBER:
                return super()._parse_unary()
            self._advance()
            whole = self._parse_type()
            number = whole
            while isinstance(number, (exp.Cast, exp.Bracket, exp.Dot, exp.Collate)):
                number = number.this
            if isinstance(number, exp.Literal) and number.is_string and number is not whole:  # 1.5BD
                number.replace(exp.Literal.string(f"-{number.this}"))
                return whole
            negative = exp.Neg(this=number.copy() if number else None)
            if number is None or number is whole:
                return self.expression(negative)
            number.replace(negative)
            return whole

        def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
            """A value with what follows it; a literal with its type is one value, COLLATE binds like a subscript."""
            if self._curr.token_type in TYPED and self._next.token_type == TokenType.STRING:
                this = self._parse_column_ops(self._parse_typed())
            else:
                this = super()._parse_type(parse_interval, fallback_to_identifier)
            while this is not None and self._match(TokenType.COLLATE):
                name = [self._parse_var(any_token=True)]
                while self._match(TokenType.DOT):
                    name.append(self._parse_var(any_token=True))
                collation = exp.Var(this=".".join(part.name for part in name if part is not None))
                this = self._parse_column_ops(self.expression(exp.Collate(this=this, expression=collation)))
            return this

        def _parse_typed(self) -> exp.Expr:
            """DATE '…' is what a cast of the text is, and remembered as one with the types of a view.

            TIMESTAMP '… Z' is an instant whatever a TIMESTAMP is in the session: a cast would lose its zone.
            """
            self._advance()
            type_ = TYPED[self._prev.token_type]
            value = self._parse_string()
            assert value is not None
            if type_ is exp.DType.TIMESTAMPTZ and not LOCAL.fullmatch(value.name):
                written = exp.Var(this=f"TIMESTAMP {literal(value.name)}")
                written.set("value", value)
                return self.expression(written)
            return self.expression(exp.Cast(this=value, to=exp.DataType(this=type_, nested=False)))

        def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
            """GROUP BY; WINDOW before a parenthesis is a function there, and no clause."""
            for word, after in itertools.pairwise(self._tokens[self._index : self._index + 3]):
                if word.token_type == TokenType.WINDOW and after.token_type == TokenType.L_PAREN:
                    word.token_type = TokenType.VAR
            return super()._parse_group(skip_group_by_token)

        def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
            """A name for a table; that of a common table expression with the rounds that its recursion may take."""
            alias = super()._parse_table_alias(alias_tokens)
            is_cte = alias_tokens is self.ID_VAR_TOKENS
            if alias is not None and is_cte and self._match_text_seq("MAX", "RECURSION", "LEVEL"):
                number = self._parse_number()
                if number is None or not number.is_int or int(number.this) < 1:
                    self.raise_error("Expected a whole number after MAX RECURSION LEVEL")
                else:
                    alias.meta["rounds"] = int(number.this)
            return alias

    class Generator(Spark.Generator):  # type: ignore[valid-type,misc]
        TYPE_MAPPING: ClassVar[dict[exp.DType, str]] = {**Spark.Generator.TYPE_MAPPING, exp.DType.TIME: "TIME"}

        def datatype_sql(self, expression: exp.DataType) -> str:
            precise = expression.this is exp.DType.TIME and expression.expressions
            return f"TIME({self.expressions(expression)})" if precise else str(super().datatype_sql(expression))


UNITS = frozenset({"timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff"})
"""Functions whose first of three arguments is a word for a unit of time, not a column."""

_PIECES = re.compile(
    r"""--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*`|[rR]'[^']*'|[rR]"[^"]*"|"""
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""",
    re.DOTALL,
)


def quotes_escaped(sql: str) -> str:
    r"""The text with a quote that is doubled inside a string escaped with a backslash, which means the same to Spark.

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


LONGEST = 500_000
"""Characters of a text; more would keep the parser busy for minutes."""


def check_length(sql: str) -> None:
    """Refuse a text that nobody has written."""
    if len(sql) > LONGEST:
        raise InvalidSQLError(
            f"The SQL has {len(sql):,} characters; at most {LONGEST:,} are allowed. Put data into a table."
        )


@contextmanager
def shallow() -> Iterator[None]:
    """Refuses what is nested deeper than Python recurses."""
    try:
        yield
    except RecursionError:
        raise InvalidSQLError("The SQL is nested too deeply; split it with WITH.") from None


@contextmanager
def readable() -> Iterator[None]:
    """Refuses what the parser cannot take apart."""
    try:
        with shallow():
            yield
    except TokenError as error:
        raise InvalidSQLError(f"The SQL does not parse: {str(error).splitlines()[0].rstrip('. ')}.") from None
    except IndexError:  # the tokenizer reads past the end
        raise InvalidSQLError("The SQL does not parse: a comment or a quote is left open.") from None


def tokens(sql: str) -> list[Token]:
    """The words of a text."""
    check_length(sql)
    with readable():
        return list(ViewSQL().tokenize(sql))


def without_comments(sql: str) -> str:
    r"""The text with a blank for everything that the parser passes over: comments, and unusual spaces.

    Spark reads some comments differently (a backslash before the end of a line continues one), so a text could have a
    part that only one of the two sees. Lines and columns stay as they are.

    >>> without_comments("SELECT a -- b \\\nFROM t /* c */ WHERE s = '--'")
    "SELECT a       \nFROM t         WHERE s = '--'"
    >>> without_comments("VALUES (-0.5D, 10L)")
    'VALUES (-0.5D, 10L)'
    """
    pieces: list[str] = []
    end = 0
    for token in tokens(sql):
        if token.start < end:
            continue  # a number with its type is several tokens in one place
        pieces += [re.sub(r"[^\n]", " ", sql[end : token.start]), sql[token.start : token.end + 1]]
        end = token.end + 1
    return "".join(pieces) + re.sub(r"[^\n]", " ", sql[end:])


def parse_statement(sql: str, verbatim: bool = False) -> exp.Expr:
    """Returns the one statement in a text; a syntax error is reported with its line and column.

    `verbatim` keeps the positions of the text exact; a string literal with doubled quotes may then come in pieces.
    """
    if not isinstance(sql, str):
        raise InvalidSQLError(f"SQL text is expected, not {type(sql).__name__}.")
    check_length(sql)
    try:
        with readable():
            statements = [s for s in parse(sql if verbatim else quotes_escaped(sql), dialect=ViewSQL) if s is not None]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        place = _marked(sql, first)
        where = f" at line {place.line}, column {place.column}" if place else ""
        near = f", near {first['highlight']!r}" if first.get("highlight") else ""
        what = _plainly(str(first.get("description") or error))
        raise InvalidSQLError(f"The SQL does not parse{where}{near}: {what}.", at=place) from None
    if len(statements) != 1:
        raise InvalidSQLError(f"Exactly one SQL statement is expected, {len(statements)} were given.")
    return _with_subqueries(_with_units(_with_text(statements[0], sql)))


def _plainly(description: str) -> str:
    """The parser's reason without the names of its own classes.

    >>> _plainly("Required keyword: 'expression' missing for <class 'EQ'>"), _plainly("Expected ) but got <Token x>.")
    ('an operand is missing here', 'Expected )')
    """
    if description.startswith("Required keyword"):
        return "an operand is missing here"
    return description.partition(" but got <")[0].rstrip(". ")


def _marked(sql: str, error: Mapping[str, Any]) -> Place | None:
    """The place of a syntax error; `col` is that of the last character of what is highlighted."""
    highlighted = str(error.get("highlight") or "")
    if not error.get("line") or not highlighted:
        return None
    return Place.at(sql, error["line"], error["col"] - len(highlighted), error["col"] - 1)


def _with_text(statement: exp.Expr, sql: str) -> exp.Expr:
    """Every node that has a position in the text also knows the text, so that an error can show it."""
    for node in statement.walk():
        if "start" in node.meta:
            node.meta["sql"] = sql
    return statement


def _with_units(statement: exp.Expr) -> exp.Expr:
    """Units of time are keywords, not columns."""
    for call in statement.find_all(exp.Anonymous):
        first = call.expressions[0] if len(call.expressions) == 3 else None
        if str(call.this).lower() in UNITS and isinstance(first, exp.Column) and len(first.parts) == 1:
            first.replace(exp.Var(this=first.name))
    return statement


PREDICATES: dict[str, type[exp.Expr]] = {"exists": exp.Exists, "any": exp.Any, "some": exp.Any, "all": exp.All}


def _with_subqueries(statement: exp.Expr) -> exp.Expr:
    """EXISTS ((…) UNION (…)), ANY and ALL of such, IN (VALUES …): predicates over queries, not calls with arguments.

    And the other way round: ANY(a > 1) is an aggregate, if it does not follow LIKE.
    """
    for call in list(statement.find_all(exp.Anonymous)):
        predicate = PREDICATES.get(str(call.this).lower())
        if predicate is not None and len(call.expressions) == 1 and isinstance(call.expressions[0], exp.Query):
            call.replace(predicate(this=call.expressions[0].unnest()))
    for some in list(statement.find_all(exp.Any)):
        values = some.this
        if isinstance(values, (exp.Paren, exp.Tuple)) and not isinstance(some.parent, (exp.Like, exp.ILike)):
            arguments = [values.this] if isinstance(values, exp.Paren) else values.expressions
            some.replace(exp.Anonymous(this="ANY", expressions=arguments))
    for member in statement.find_all(exp.In):
        if len(member.expressions) == 1 and isinstance(member.expressions[0], exp.Values):
            member.set("query", exp.Subquery(this=member.expressions[0]))
            member.set("expressions", None)
    return statement


def parse_query(sql: str) -> exp.Query:
    """The query of a view."""
    statement = parse_statement(sql)
    while isinstance(statement, (exp.Paren, exp.Subquery)) and not any(
        value for name, value in statement.args.items() if name != "this"
    ):
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
        raise InvalidSQLError(f"One SQL expression is expected; this is more than one: {text}.")
    expression = statement.expressions[0]
    if isinstance(expression, (exp.Alias, exp.Star)):
        raise InvalidSQLError(f"A plain SQL expression is expected, without alias or star, not {text}.")
    return expression


def text(expression: exp.Expr) -> str:
    """An expression as Spark SQL.

    >>> text(exp.Mul(this=parse_scalar("a + b"), expression=exp.Literal.number(2)))
    '(a + b) * 2'
    """
    return parenthesised(expression.copy()).sql(dialect=ViewSQL, copy=False)


WRITTEN = "written"
"""Where a resolved column keeps the name that the text has for it."""


def as_written(expression: exp.Expr) -> str:
    """A resolved expression with the names that the text has for its columns, for messages.

    >>> resolved = exp.column("c_1")
    >>> resolved.meta[WRITTEN] = "t.a"
    >>> as_written(exp.func("SUM", resolved))
    'SUM(t.a)'
    """

    def named(node: exp.Expr) -> exp.Expr:
        name = node.meta.get(WRITTEN) if isinstance(node, exp.Column) else None
        return node if name is None else exp.Var(this=name)

    return text(expression.copy().transform(named))


COMPARISONS = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Is, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.In, exp.Between),
)

POSTFIX = (exp.Bracket, exp.Dot, exp.Collate)
"""What follows a value and belongs to it alone."""

BINDING: dict[type[exp.Expr], int] = {
    kind: strength
    for strength, kinds in enumerate(
        (
            (exp.Or,),
            (exp.And,),
            (exp.Not,),
            COMPARISONS,
            (exp.BitwiseOr,),
            (exp.BitwiseXor,),
            (exp.BitwiseAnd,),
            (exp.BitwiseLeftShift, exp.BitwiseRightShift),
            (exp.Add, exp.Sub, exp.DPipe),
            (exp.Mul, exp.Div, exp.Mod, exp.IntDiv),
            (exp.Neg, exp.BitwiseNot),
            POSTFIX,
        )
    )
    for kind in kinds
}
"""How strongly Spark's operators bind their operands."""


def parenthesised(tree: exp.Expr) -> exp.Expr:
    """The tree with every operand in parentheses that would otherwise be read as part of something else.

    Trees are put together from pieces, so what a tree means must not depend on how its pieces were written: all SQL is
    written out through here. The tree is changed in place.

    >>> text(parse_scalar("ts - INTERVAL 1 DAY 2 HOURS"))
    "ts - (INTERVAL '1' DAY + INTERVAL '2' HOURS)"
    """
    for node in list(tree.walk()):
        strength = BINDING.get(type(node))
        if strength is None:
            continue
        for key, operand in [(k, v) for k, v in node.args.items() if isinstance(v, exp.Expr)]:
            theirs = BINDING.get(type(operand))
            if theirs is None or theirs > strength:
                continue
            # Operators of one strength are read from left to right; comparisons may not follow each other.
            leftmost = theirs == strength and key == "this" and isinstance(node, (exp.Binary, *POSTFIX))
            if isinstance(node, exp.Escape) and key == "this":
                continue  # a LIKE b ESCAPE '!' is one comparison in two nodes
            if not leftmost or isinstance(node, COMPARISONS):
                node.set(key, exp.Paren(this=operand))
    return tree


def quoted(name: str) -> str:
    """An identifier, quoted whatever it contains.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def literal(value: str) -> str:
    r"""A string literal for Spark, whatever it contains.

    >>> literal("it's \\ here")
    "'it\\'s \\\\ here'"
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def delta_table(path: str, version: int | None = None) -> exp.Table:
    """A Delta table by its path, at a version.

    >>> text(delta_table("/tables/sales", 3))
    'delta.`/tables/sales` VERSION AS OF 3'
    """
    pinned = (
        None if version is None else exp.Version(this="VERSION", kind="AS OF", expression=exp.Literal.number(version))
    )
    return exp.Table(this=exp.to_identifier(path, quoted=True), db=exp.to_identifier("delta"), version=pinned)


def parquet_files(folder: str) -> exp.Table:
    """The rows of the Parquet files in a folder.

    >>> text(parquet_files("/staged/1"))
    'parquet.`/staged/1`'
    """
    return exp.Table(this=exp.to_identifier(folder, quoted=True), db=exp.to_identifier("parquet"))


def verbatim(sql: str) -> exp.Expr:
    """SQL text that is written out unchanged, as part of a tree, such as a user's query.

    >>> text(exp.select("*").from_(exp.Subquery(this=verbatim("SELECT 1 /* one */"), alias="q")))
    'SELECT * FROM (SELECT 1 /* one */) AS q'
    """
    return exp.Var(this=sql)


def own_scalar(sql: str) -> exp.Expr:
    """A user's expression in the user's own words, after a check that it is one expression.

    >>> text(exp.Where(this=own_scalar("ts < now() - INTERVAL 1 DAY 2 HOURS")))
    'WHERE (ts < now() - INTERVAL 1 DAY 2 HOURS)'
    """
    refuse_outside(parse_scalar(sql))
    return verbatim(f"({without_comments(sql).strip()})")


def cast(value: exp.Expr, type_: str) -> exp.Expr:
    """CAST to a type by the name that Spark gives it, whether or not sqlglot knows it.

    >>> text(cast(exp.column("a"), "string collate UTF8_LCASE"))
    'CAST(a AS string collate UTF8_LCASE)'
    """
    return exp.Cast(this=value, to=spark_type(type_))


def spark_type(name: str) -> exp.DataType:
    """A type by the name that Spark gives it, written out unchanged."""
    return exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=name)
