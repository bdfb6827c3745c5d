"""View files: the one statement CREATE MATERIALIZED VIEW … AS SELECT …, its options, and the order among files."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from deferred.config import parse_cadence, parse_duration
from deferred.errors import ConfigurationError, DeferredError, InvalidInputError, InvalidSQLError, nearest
from deferred.sql.dialect import ViewSQL, parse_query, quoted

FORM = "CREATE MATERIALIZED VIEW name [(column, …)] [COMMENT '…'] [WITH (option = value, …)] AS SELECT …"

CHOICES = {
    "scenario": ("immediate", "base_log", "differential", "combined"),
    "refresh_policy": ("auto", "incremental", "incremental_strict", "full"),
}
DURATIONS = ("propagate_every", "refresh_every", "target_lag")
OPTIONS = (*CHOICES, *DURATIONS, "policy")


@dataclass(frozen=True)
class ViewFile:
    """What a view file says. `sql` is the query exactly as written; `query` also has the column list's names."""

    name: str
    sql: str
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    comment: str | None = None
    source: Path | None = None
    or_replace: bool = False
    if_not_exists: bool = False

    @property
    def query(self) -> str:
        """The view's query with its columns named by the column list, if there is one.

        >>> ViewFile("v", "SELECT a FROM t", columns=("x",)).query
        'SELECT * FROM (\\nSELECT a FROM t\\n) AS `v`(`x`)'
        """
        if not self.columns:
            return self.sql
        return f"SELECT * FROM (\n{self.sql}\n) AS {quoted(self.name)}({', '.join(map(quoted, self.columns))})"


def load_views(folder: str | Path) -> list[ViewFile]:
    """The views of a folder, each after those that it reads."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigurationError(f"There is no folder of views {folder}. Make it, with one NAME.sql a view, or name "
                                 f"another as views.folder in the configuration.")
    return in_order(read_view(file) for file in sorted(folder.glob("*.sql")))


def read_view(file: str | Path) -> ViewFile:
    """The view in one file, which bears the view's name."""
    file = Path(file)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(f"There is no view file {file}.") from None
    except OSError as error:
        raise ConfigurationError(f"The view file {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"The view file {file} is not UTF-8 text; save it as UTF-8.") from None
    view = parse_view(text, file)
    if view.name.casefold() != file.stem.casefold():
        raise ConfigurationError(f"{file}: the file defines the view {view.name}, so it must be called "
                                 f"{view.name}.sql; rename the file or the view.")
    return view


def in_order(views: Iterable[ViewFile]) -> list[ViewFile]:
    """The views, each after those that it reads; a cycle is refused."""
    by_name: dict[str, ViewFile] = {}
    for view in views:
        twin = by_name.setdefault(view.name.casefold(), view)
        if twin is not view:
            raise ConfigurationError(f"Two files define the view {view.name}: {twin.source} and {view.source}; names "
                                     f"are compared without case. Keep one.")
    reads = {name: [t for t in tables_read(view.sql) if t in by_name] for name, view in by_name.items()}
    try:
        return [by_name[name] for name in graphlib.TopologicalSorter(reads).static_order()]
    except graphlib.CycleError as error:
        # The sorter lists a cycle from what is read to what reads it.
        cycle = " reads ".join(by_name[name].name for name in reversed(error.args[1]))
        raise ConfigurationError(f"The views read each other in a circle: {cycle}. Take one of these out of the "
                                 f"other's FROM.") from None


def tables_read(sql: str) -> list[str]:
    """The undotted names that a query reads, in lower case; its own common table expressions are none of them.

    >>> tables_read("WITH a AS (SELECT * FROM A JOIN b USING (k)) SELECT * FROM a WHERE x IN (SELECT x FROM c.d)")
    ['a', 'b']
    """
    names: dict[str, None] = {}
    for table in parse_query(sql).find_all(exp.Table, bfs=False):
        if not table.args.get("db") and isinstance(table.this, exp.Identifier) and not _names_a_cte(table):
            names[table.name.casefold()] = None
    return list(names)


def _names_a_cte(table: exp.Table) -> bool:
    """Whether a WITH around the table defines its name, before the place where the table is read."""
    path: set[int] = set()
    node: exp.Expr | None = table
    while node is not None:
        path.add(id(node))
        clause = node.args.get("with_")
        recursive = clause is not None and clause.args.get("recursive")
        for cte in clause.expressions if clause is not None else ():
            if id(cte) in path and not recursive:
                break
            if cte.alias.casefold() == table.name.casefold():
                return True
        node = node.parent
    return False


# ---- the statement


def parse_view(text: str, source: Path | None = None) -> ViewFile:
    """The view that a text defines.

    >>> view = parse_view("CREATE MATERIALIZED VIEW v WITH (policy = 2) AS SELECT a -- every a\\nFROM t;")
    >>> view.name, view.sql, view.options
    ('v', 'SELECT a -- every a\\nFROM t', {'policy': 2})
    """
    return _Reader(text, source).view()


class _Reader:
    """Goes through the tokens of a view file once; the query itself is only cut out and left as it is."""

    def __init__(self, text: str, source: Path | None) -> None:
        self.text, self.source = text, source
        try:
            self.tokens = ViewSQL().tokenize(text)
        except TokenError as error:
            raise InvalidSQLError(f"{self.where()}the text cannot be read as SQL: "
                                  f"{str(error).splitlines()[0].rstrip('. ')}; is a quote left open?") from None
        self.position = 0

    def view(self) -> ViewFile:
        if not self.tokens:
            raise InvalidSQLError(f"{self.where()}there is no statement. A view file has one: {FORM}")
        self.expect("CREATE")
        or_replace = self.took("OR")
        if or_replace:
            self.expect("REPLACE")
        self.expect("MATERIALIZED")
        self.expect("VIEW")
        if_not_exists = self.took("IF")
        if if_not_exists:
            self.expect("NOT")
            self.expect("EXISTS")
        name = self.name("the name of the view")
        columns: tuple[str, ...] = self.columns() if self.at("(") else ()
        comment, options = self.clauses()
        self.expect("AS")
        return ViewFile(name, self.query(), options, columns, comment, self.source, or_replace, if_not_exists)

    def columns(self) -> tuple[str, ...]:
        self.expect("(")
        names: list[str] = []
        while True:
            name = self.name("the name of a column")
            if name.casefold() in (n.casefold() for n in names):
                raise self.before(f"the column {name} is named twice")
            names.append(name)
            if self.took("COMMENT"):
                self.string("the comment of the column")
            if not self.took(","):
                self.expect(")")
                return tuple(names)

    def clauses(self) -> tuple[str | None, dict[str, Any]]:
        """COMMENT and WITH, each at most once, in either order."""
        comment: str | None = None
        options: dict[str, Any] | None = None
        while True:
            if comment is None and self.took("COMMENT"):
                comment = self.string("the comment")
            elif options is None and self.at("WITH"):
                options = self.options()
            else:
                return comment, options or {}

    def options(self) -> dict[str, Any]:
        self.expect("WITH")
        self.expect("(")
        options: dict[str, Any] = {}
        while not self.took(")"):
            name = self.name("the name of an option").lower()
            if name not in OPTIONS:
                raise self.before(f"there is no option {name}{nearest(name, OPTIONS)}", ConfigurationError)
            if name in options:
                raise self.before(f"the option {name} is given twice", ConfigurationError)
            self.expect("=")
            options[name] = self.value(name)
            if not self.at(")"):
                self.expect(",")
        return options

    def value(self, name: str) -> str | int:
        token = self.next()
        if token is not None and token.token_type == TokenType.STRING and name != "policy":
            return self.checked(name, token.text)
        if token is not None and name == "policy" and token.text in ("1", "2"):
            return int(token.text)
        raise self.before(f"the option {name} expects {_expected(name)}{_found(token)}", ConfigurationError)

    def checked(self, name: str, value: str) -> str:
        if name in CHOICES and value not in CHOICES[name]:
            raise self.before(f"the option {name} expects {_expected(name)}, not {value!r}", ConfigurationError)
        if name in DURATIONS:
            try:
                (parse_duration if name == "target_lag" else parse_cadence)(value, name)
            except InvalidInputError as error:
                raise self.before(str(error), ConfigurationError) from None
        return value

    def query(self) -> str:
        """The text between AS and the end, which must be one query."""
        rest = self.tokens[self.position:]
        while rest and rest[-1].token_type == TokenType.SEMICOLON:
            rest = rest[:-1]
        if not rest:
            raise InvalidSQLError(f"{self.where()}the query after AS is missing: {FORM}")
        start = rest[0].start
        query = self.text[start:rest[-1].end + 1]
        # Blanks in front keep the line and column of an error those of the file.
        line_start = self.text.rfind("\n", 0, start) + 1
        blanks = "\n" * self.text.count("\n", 0, start) + " " * (start - line_start)
        try:
            parse_query(blanks + query)
        except InvalidSQLError as error:
            raise InvalidSQLError(f"{self.source}: {error}" if self.source else str(error)) from None
        return query

    # ---- tokens

    def at(self, text: str) -> bool:
        if self.position >= len(self.tokens):
            return False
        token = self.tokens[self.position]
        return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) and token.text.upper() == text

    def took(self, text: str) -> bool:
        found = self.at(text)
        self.position += found
        return found

    def next(self) -> Token | None:
        self.position += 1
        return self.tokens[self.position - 1] if self.position <= len(self.tokens) else None

    def expect(self, text: str) -> None:
        if not self.took(text):
            raise self.at_next(text)

    def name(self, what: str) -> str:
        token = self.next()
        if token is not None and (token.token_type == TokenType.IDENTIFIER or _is_word(token)):
            if self.at("."):
                raise self.before(f"{what} has no dots: a view lives in the warehouse, not in a catalog")
            return token.text
        self.position -= 1
        raise self.at_next(what)

    def string(self, what: str) -> str:
        token = self.next()
        if token is None or token.token_type != TokenType.STRING:
            self.position -= 1
            raise self.at_next(f"{what}, in single quotes")
        text = token.text
        while self.position < len(self.tokens) and self.tokens[self.position].token_type == TokenType.STRING:
            following = self.tokens[self.position]
            # The tokenizer ends a text at a doubled quote, which stands for one.
            text += ("'" if following.start == token.end + 1 else "") + following.text
            token = following
            self.position += 1
        return text

    # ---- errors

    def where(self, token: Token | None = None) -> str:
        parts = [str(self.source)] if self.source else []
        if token is not None:
            parts.append(f"line {self.text.count(chr(10), 0, token.start) + 1}")
        return ", ".join(parts) + (": " if parts else "")

    def at_next(self, expected: str) -> InvalidSQLError:
        """The error that something else stands where the reader is."""
        token = self.tokens[self.position] if self.position < len(self.tokens) else None
        return InvalidSQLError(f"{self.where(token or self.tokens[-1])}{expected} is expected{_found(token)}. "
                               f"A view file has one statement: {FORM}")

    def before(self, message: str, error: type[DeferredError] = InvalidSQLError) -> DeferredError:
        """An error about the token that was read last."""
        token = self.tokens[min(self.position, len(self.tokens)) - 1]
        return error(self.where(token) + message)


def _is_word(token: Token) -> bool:
    return token.text[:1].isidentifier() and token.token_type != TokenType.STRING


def _found(token: Token | None) -> str:
    return f", not {token.text!r}" if token is not None else ", and the text ends here"


def _expected(name: str) -> str:
    if name in CHOICES:
        return "one of " + ", ".join(repr(choice) for choice in CHOICES[name])
    return "1 or 2" if name == "policy" else "a duration in quotes, such as '1h'"
